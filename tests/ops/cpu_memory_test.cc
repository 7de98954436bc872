// Blocks that several arrays share: where the arrays are, what is in them, and how long they live.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/memory.h"

namespace minisgl::cpu {
namespace {

TEST(SharedBlockTest, ArraysLieBesideEachOtherUntilTheBlockIsFull) {
  ThreadPool pool(2);
  constexpr size_t kSmall = 100, kLarge = size_t{5} << 20;
  auto block = SharedBlock::Allocate(2 * SharedBlock::BytesOf(kSmall) + kLarge);
  ASSERT_TRUE(block.ok());
  const auto first = block->Take(kSmall, &pool);
  const auto second = block->Take(kSmall, &pool);
  EXPECT_EQ(block->Take(kLarge + 1, &pool), nullptr);
  const auto third = block->Take(kLarge, &pool);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(block->Take(1, &pool), nullptr);
  const auto at = [](const auto& array) { return reinterpret_cast<uintptr_t>(array.get()); };
  EXPECT_EQ(at(first) % 64, 0u);
  EXPECT_EQ(at(second), at(first) + SharedBlock::BytesOf(kSmall));
  EXPECT_EQ(at(third), at(second) + SharedBlock::BytesOf(kSmall));
}

TEST(SharedBlockTest, ArraysAreZeroedAndOutliveTheBlock) {
  ThreadPool pool(1);
  std::vector<std::shared_ptr<void>> arrays;
  constexpr size_t kBytes = 700'000;
  {
    auto block = SharedBlock::Allocate(4 * SharedBlock::BytesOf(kBytes));
    ASSERT_TRUE(block.ok());
    for (int i = 0; i < 4; ++i) {
      auto array = AllocateToFill(kBytes, {&pool, &*block});
      ASSERT_TRUE(array.ok());
      arrays.push_back(*array);
      auto* const bytes = static_cast<uint8_t*>(arrays.back().get());
      EXPECT_EQ(std::count(bytes, bytes + kBytes, 0), kBytes);
      std::fill(bytes, bytes + kBytes, static_cast<uint8_t>(i + 1));
    }
  }
  for (int i = 3; i >= 0; --i) {
    const auto* const bytes = static_cast<const uint8_t*>(arrays.back().get());
    EXPECT_EQ(std::count(bytes, bytes + kBytes, i + 1), kBytes);
    arrays.pop_back();
  }
}

TEST(SharedBlockTest, AnArrayThatDoesNotFitHasMemoryOfItsOwn) {
  ThreadPool pool(1);
  auto block = SharedBlock::Allocate(64);
  ASSERT_TRUE(block.ok());
  auto array = AllocateToFill(65, {&pool, &*block});
  ASSERT_TRUE(array.ok());
  EXPECT_NE(block->Take(64, &pool), nullptr);
}

}  // namespace
}  // namespace minisgl::cpu
