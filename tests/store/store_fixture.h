// What the tests of the store share: prompts, and the data that belongs to each of their blocks.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/log.h"
#include "minisgl/base/random.h"
#include "minisgl/store/kv_block_store.h"
#include "store/cache_folder.h"
#include "temporary_folder.h"

namespace minisgl {

inline constexpr int64_t kTestBlockBytes = 3000;  // no multiple of a page or a word's size
inline constexpr int64_t kTestFileBytes = kTestBlockBytes + 512;

// Tokens of the prompt with this number. Prompts share no block.
inline std::vector<TokenId> PromptOf(uint64_t number, int64_t blocks) {
  std::vector<TokenId> tokens(static_cast<size_t>(blocks * kKvBlockTokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>(PhiloxBits(number, i).word[0] >> 1);
  }
  return tokens;
}

// A prompt with the keys of its blocks.
struct TestPrompt {
  TestPrompt(const std::string& identity, uint64_t number, int64_t blocks)
      : tokens(PromptOf(number, blocks)), keys(KvBlockKeys(identity, tokens)) {}

  int64_t size() const { return std::ssize(keys); }
  KvBlockPath PathTo(int64_t block) const {
    return KvBlockPath(keys).first(static_cast<size_t>(block) + 1);
  }
  std::span<const TokenId> TokensOf(int64_t block) const {
    return std::span(tokens).subspan(static_cast<size_t>(block * kKvBlockTokens), kKvBlockTokens);
  }

  std::vector<TokenId> tokens;
  std::vector<KvBlockKey> keys;
};

// The data of the block with this key: every process knows it.
inline std::vector<std::byte> DataOf(const KvBlockKey& key, int64_t bytes = kTestBlockBytes) {
  uint64_t seed = 0;
  std::copy_n(key.data(), sizeof(seed), reinterpret_cast<uint8_t*>(&seed));
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  for (size_t i = 0; i < data.size(); i += 16) {
    const RandomBits bits = PhiloxBits(seed, i);
    std::copy_n(reinterpret_cast<const std::byte*>(bits.word),
                std::min<size_t>(sizeof(bits.word), data.size() - i), data.data() + i);
  }
  return data;
}

inline bool WriteBlock(KvBlockStore* store, const TestPrompt& prompt, int64_t block,
                       int64_t bytes = kTestBlockBytes) {
  const KvBlockPath path = prompt.PathTo(block);
  return store->Write(path, prompt.TokensOf(block), DataOf(path.back(), bytes));
}

// How many blocks were written.
inline int64_t WriteAllBlocks(KvBlockStore* store, const TestPrompt& prompt) {
  int64_t written = 0;
  for (int64_t block = 0; block < prompt.size(); ++block) {
    written += WriteBlock(store, prompt, block) ? 1 : 0;
  }
  return written;
}

// True if the block is read. Its data must be right then.
inline bool ReadsBlock(KvBlockStore* store, const TestPrompt& prompt, int64_t block,
                       int64_t bytes = kTestBlockBytes) {
  const KvBlockPath path = prompt.PathTo(block);
  std::vector<std::byte> data(static_cast<size_t>(bytes), std::byte{0xA5});
  if (!store->Read(path, prompt.TokensOf(block), data)) return false;
  EXPECT_TRUE(data == DataOf(path.back(), bytes)) << "a wrong byte of block " << block;
  return true;
}

// How many blocks of the prompt can be read.
inline int64_t CountReadable(KvBlockStore* store, const TestPrompt& prompt) {
  int64_t count = 0;
  for (int64_t block = 0; block < prompt.size(); ++block) {
    count += ReadsBlock(store, prompt, block) ? 1 : 0;
  }
  return count;
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    SetLogSink([this](LogLevel level, const std::string& line) {
      if (level == LogLevel::kWarning) warnings_.push_back(line);
    });
  }
  ~StoreTest() override { SetLogSink(nullptr); }

  std::string Folder() const { return folder_.Path("cache"); }
  KvBlockFolderOptions Options() const {
    return {.folder = Folder(),
            .max_bytes = int64_t{1} << 30,
            .identity = "model",
            .model_name = "A model",
            .block_bytes = kTestBlockBytes};
  }
  static std::unique_ptr<KvBlockStore> Open(const KvBlockFolderOptions& options) {
    auto store = OpenKvBlockFolder(options);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return store.ok() ? std::move(*store) : nullptr;
  }
  std::unique_ptr<KvBlockStore> Open() const { return Open(Options()); }

  // Paths of all files in the cache whose names end with `suffix`, sorted.
  std::vector<std::string> Files(const std::string& suffix = ".kv") const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Folder())) {
      const std::string path = entry.path().string();
      if (!entry.is_directory() && path.ends_with(suffix)) paths.push_back(path);
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  // The only folder of a model.
  std::string ModelFolder() const {
    for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
      if (entry.is_directory()) return entry.path().string();
    }
    ADD_FAILURE() << "no folder of a model";
    return "";
  }
  std::string FileOf(const KvBlockKey& key) const {
    return ModelFolder() + "/" + store::FileName({key});
  }
  static timespec UsedAt(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mtim;
  }
  // Makes a file look as if it was used `minutes` earlier.
  static void Age(const std::string& path, int64_t minutes) {
    timespec times[2] = {UsedAt(path), UsedAt(path)};
    times[1].tv_sec -= minutes * 60;
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

}  // namespace minisgl
