// Parts that tests of copies of keys and values share: a row whose prefix comes from blocks.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/engine_driver.h"

namespace minisgl {

inline constexpr int32_t kBlock = 64;  // tokens

using Block = std::vector<std::byte>;

// Pages [block * kBlock / P, ...) of a row.
inline std::vector<PageId> PagesOfBlock(const EngineDriver& driver, const TestRow& row,
                                        int32_t page_size, int32_t block) {
  static_cast<void>(driver);
  const int32_t pages = kBlock / page_size;
  return {row.pages.begin() + block * pages, row.pages.begin() + (block + 1) * pages};
}

// Reads the first `count` blocks of a row that is computed so far.
inline std::vector<Block> ReadBlocks(EngineDriver* driver, const TestRow& row, int32_t page_size,
                                     int32_t count) {
  Engine* const engine = driver->engine();
  std::vector<Block> blocks;
  for (int32_t i = 0; i < count; ++i) {
    const auto copy = engine->ReadPages(PagesOfBlock(*driver, row, page_size, i));
    MINISGL_CHECK(copy != nullptr, "no memory for a copy");
    Block& block = blocks.emplace_back(static_cast<size_t>(engine->KvBlockBytes(kBlock)));
    MINISGL_CHECK(copy->IsReady(), "a copy is not ready after its step was collected");
    EXPECT_TRUE(copy->TakeBlock(block).ok());
  }
  return blocks;
}

// Writes blocks into the pages of `row`, which no step has computed.
inline void WriteBlocks(EngineDriver* driver, const TestRow& row, int32_t page_size,
                        const std::vector<Block>& blocks) {
  Engine* const engine = driver->engine();
  for (size_t i = 0; i < blocks.size(); ++i) {
    auto copy = engine->BeginWrite(PagesOfBlock(*driver, row, page_size, static_cast<int32_t>(i)));
    MINISGL_CHECK(copy != nullptr, "no memory for a copy");
    copy->PutBlock(blocks[i]);
    engine->WritePages(std::move(copy));
  }
}

// A row that computes other tokens first, so that its pages hold other keys and values.
inline TestRow* RowOfOtherKeys(EngineDriver* driver, int32_t num_tokens) {
  TestRow* row = driver->AddRow(RandomPrompt(num_tokens, 999));
  driver->ExtendAll(row);
  EXPECT_TRUE(driver->Step().ok());
  return row;
}

// The answer of a row after its first blocks were read from `from` and written to `to`.
inline std::vector<RowResult> AnswerFromBlocks(EngineDriver* from, int32_t from_page_size,
                                               EngineDriver* to, int32_t to_page_size,
                                               const std::vector<TokenId>& prompt,
                                               int32_t num_tokens) {
  const auto num_blocks = static_cast<int32_t>(prompt.size() - 1) / kBlock;
  TestRow* const source = from->AddRow(prompt);
  from->ExtendAll(source);
  EXPECT_TRUE(from->Step().ok());
  const auto blocks = ReadBlocks(from, *source, from_page_size, num_blocks);
  TestRow* const other = RowOfOtherKeys(to, num_blocks * kBlock);
  WriteBlocks(to, *other, to_page_size, blocks);
  TestRow* const row = to->AddRowSharing(*other, num_blocks * kBlock / to_page_size, prompt);
  row->in_pool = false;
  return to->Generate(row, kAll, num_tokens);
}

}  // namespace minisgl
