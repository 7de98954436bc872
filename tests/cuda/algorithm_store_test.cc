// The file of algorithms: choices are found again, unless the file belongs to another device or is
// damaged.
#include "algorithm_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/base/log.h"
#include "minisgl/base/sha256.h"
#include "temporary_folder.h"

namespace minisgl::cuda {
namespace {

namespace fs = std::filesystem;

AlgorithmStore::Bytes Filled(unsigned char first) {
  AlgorithmStore::Bytes bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(first + i);
  return bytes;
}

const MatmulShape kShape = {.num_tokens = 24, .num_out = 4096, .num_in = 1024};

class AlgorithmStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](LogLevel level, const std::string& line) {
      if (level == LogLevel::kWarning) warnings_.push_back(line);
    });
  }
  void TearDown() override { SetLogSink(nullptr); }

  std::string Folder() const { return folder_.Path("cache"); }
  // Stores Filled(first) for kShape.
  void Keep(unsigned char first, const std::string& identity = "one") const {
    AlgorithmStore(Folder(), identity).Add(kShape, Filled(first));
  }
  bool Finds(unsigned char first, const std::string& identity = "one") const {
    const AlgorithmStore store(Folder(), identity);
    const AlgorithmStore::Bytes* const found = store.Find(kShape);
    return found != nullptr && *found == Filled(first);
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(Folder())) {
      if (entry.path().filename() != ".minisgl-products.lock") files.push_back(entry.path());
    }
    return files;
  }

  const TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(AlgorithmStoreTest, FindsWhatWasAddedForEachPartOfAShape) {
  std::vector<MatmulShape> shapes(8, kShape);
  shapes[1].num_tokens = 32;
  shapes[2].num_out = 1024;
  shapes[3].num_in = 4096;
  shapes[4].dtype = DType::kF16;
  shapes[5].out_dtype = DType::kF32;
  shapes[6].dtype = shapes[7].dtype = DType::kE4M3;
  shapes[6].scales = MatmulScales::kVectors;
  shapes[7].scales = MatmulScales::kBlocks;
  {
    AlgorithmStore store(Folder(), "one");
    for (size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_EQ(store.Find(shapes[i]), nullptr) << i;
      store.Add(shapes[i], Filled(static_cast<unsigned char>(100 + i)));
    }
  }
  const AlgorithmStore store(Folder(), "one");
  for (size_t i = 0; i < shapes.size(); ++i) {
    ASSERT_NE(store.Find(shapes[i]), nullptr) << i;
    EXPECT_EQ(*store.Find(shapes[i]), Filled(static_cast<unsigned char>(100 + i))) << i;
  }
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AlgorithmStoreTest, AnIdentityHasAFileOfItsOwn) {
  Keep(1);
  EXPECT_FALSE(Finds(1, "two"));
  Keep(2, "two");
  EXPECT_TRUE(Finds(1));
  EXPECT_TRUE(Finds(2, "two"));
  ASSERT_EQ(Files().size(), 2u);
  // A file under another's name is not used.
  fs::copy_file(Files()[0], Files()[1], fs::copy_options::overwrite_existing);
  EXPECT_NE(Finds(1), Finds(2, "two"));
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(AlgorithmStoreTest, TwoProcessesLoseNothing) {
  const MatmulShape other = {.num_tokens = 8, .num_out = 8, .num_in = 8};
  {
    AlgorithmStore first(Folder(), "one"), second(Folder(), "one");
    first.Add(kShape, Filled(1));
    second.Add(other, Filled(2));
  }
  EXPECT_TRUE(Finds(1));
  const AlgorithmStore store(Folder(), "one");
  ASSERT_NE(store.Find(other), nullptr);
  EXPECT_EQ(*store.Find(other), Filled(2));
}

// The lock is of an opened file, so that threads with a store each stand for processes.
TEST_F(AlgorithmStoreTest, ProcessesThatSaveTogetherLoseNothing) {
  constexpr int kThreads = 3, kSaves = 6;
  const auto shape = [](int thread, int save) {
    return MatmulShape{.num_tokens = thread + 1, .num_out = save + 1, .num_in = 8};
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, &shape, thread] {
      AlgorithmStore store(Folder(), "one");
      for (int save = 0; save < kSaves; ++save) {
        store.Add(shape(thread, save), Filled(static_cast<unsigned char>(thread)));
        store.Save();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const AlgorithmStore store(Folder(), "one");
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int save = 0; save < kSaves; ++save) {
      EXPECT_NE(store.Find(shape(thread, save)), nullptr) << thread << " " << save;
    }
  }
}

TEST_F(AlgorithmStoreTest, AFileHasABoundedNumberOfEntries) {
  const auto shape = [](size_t i) {
    return MatmulShape{.num_tokens = static_cast<int64_t>(i) + 1, .num_out = 8, .num_in = 8};
  };
  {
    AlgorithmStore store(Folder(), "one");
    for (size_t i = 0; i <= AlgorithmStore::kEntriesMax; ++i) store.Add(shape(i), Filled(1));
    EXPECT_NE(store.Find(shape(AlgorithmStore::kEntriesMax - 1)), nullptr);
    EXPECT_EQ(store.Find(shape(AlgorithmStore::kEntriesMax)), nullptr);
    store.Add(shape(0), Filled(2));  // one that is there changes
    EXPECT_EQ(*store.Find(shape(0)), Filled(2));
  }
  EXPECT_NE(AlgorithmStore(Folder(), "one").Find(shape(0)), nullptr);
  EXPECT_TRUE(warnings_.empty());
  // A file with more, whole otherwise, was not written by this program.
  ASSERT_EQ(Files().size(), 1u);
  const fs::path path = Files()[0];
  std::string text = folder_.Read(fs::relative(path, folder_.Path("")).string());
  constexpr size_t kHashLine = 65;
  text.resize(text.size() - kHashLine);
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  text += "99999" + last.substr(last.find(' '));
  Sha256 sha;
  sha.Add(text);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text << sha.FinishHex() << '\n';
  EXPECT_EQ(AlgorithmStore(Folder(), "one").Find(shape(0)), nullptr);
  EXPECT_EQ(warnings_.size(), 1u);
}

// As if memory ran out while it saves.
TEST_F(AlgorithmStoreTest, WhatFailsAtTheEndIsDropped) {
  SetLogSink([](LogLevel, const std::string&) { throw std::runtime_error("no memory"); });
  Keep(1);
  SetLogSink(nullptr);
  EXPECT_TRUE(Finds(1));
}

TEST_F(AlgorithmStoreTest, NothingNewWritesNothing) {
  { const AlgorithmStore store(Folder(), "one"); }
  EXPECT_TRUE(Files().empty());
  Keep(1);
  ASSERT_EQ(Files().size(), 1u);
  fs::remove(Files()[0]);
  { const AlgorithmStore store(Folder(), "one"); }
  EXPECT_TRUE(Files().empty());
}

TEST_F(AlgorithmStoreTest, AFileWithAnyByteChangedOrMissingCountsAsNone) {
  Keep(1);
  ASSERT_EQ(Files().size(), 1u);
  const fs::path path = Files()[0];
  const std::string good = folder_.Read(fs::relative(path, folder_.Path("")).string());
  ASSERT_GT(good.size(), 200u);
  const auto write = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    warnings_.clear();
  };
  for (size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write(changed);
    EXPECT_FALSE(Finds(1)) << "byte " << i;
    EXPECT_EQ(warnings_.size(), 1u) << "byte " << i;
    write(good.substr(0, i));
    EXPECT_FALSE(Finds(1)) << i << " bytes";
    EXPECT_EQ(warnings_.size(), 1u) << i << " bytes";
  }
  write(good + "\n");
  EXPECT_FALSE(Finds(1));
  // It is replaced, with one warning.
  warnings_.clear();
  Keep(2);
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(Finds(2));
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(AlgorithmStoreTest, AFolderThatCannotBeUsedKeepsNothing) {
  folder_.Write("file", "");
  AlgorithmStore store(folder_.Path("file"), "one");
  store.Add(kShape, Filled(1));
  EXPECT_NE(store.Find(kShape), nullptr);
  store.Save();
  EXPECT_TRUE(warnings_.empty());
}

// Another user could have put an algorithm there.
TEST_F(AlgorithmStoreTest, AFolderThatOthersMayWriteToIsNotUsed) {
  Keep(1);
  fs::permissions(Folder(), fs::perms::group_write | fs::perms::others_write,
                  fs::perm_options::add);
  EXPECT_FALSE(Finds(1));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find(Folder()), std::string::npos) << warnings_[0];
}

}  // namespace
}  // namespace minisgl::cuda
