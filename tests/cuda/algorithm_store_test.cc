// The file of algorithms: what is found again, and what a file that is not its own, or damaged,
// leaves.
#include "algorithm_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "minisgl/base/log.h"
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
    for (const auto& entry : fs::directory_iterator(Folder())) files.push_back(entry.path());
    return files;
  }

  const TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(AlgorithmStoreTest, FindsWhatWasAddedForEachPartOfAShape) {
  std::vector<MatmulShape> shapes(6, kShape);
  shapes[1].num_tokens = 32;
  shapes[2].num_out = 1024;
  shapes[3].num_in = 4096;
  shapes[4].dtype = DType::kF16;
  shapes[5].out_dtype = DType::kF32;
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
  // A file under another's name is not that one's.
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
  for (size_t i = 0; i < good.size(); i += 7) {
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
