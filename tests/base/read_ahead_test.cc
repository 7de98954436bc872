// Parts of files that are read before they are needed: all of them, in the thread's own time.
#include "minisgl/base/read_ahead.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "minisgl/base/mapped_file.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

class ReadAheadTest : public testing::Test {
 protected:
  static constexpr size_t kFileBytes = 300'000;

  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "minisgl-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    for (size_t i = 0; i < kFileBytes; ++i) bytes_ += static_cast<char>('a' + i % 23);
    std::ofstream(dir_ + "/file", std::ios::binary) << bytes_;
  }
  void TearDown() override { fs::remove_all(dir_); }

  MappedFile Open() const { return std::move(MappedFile::Open(dir_ + "/file")).value(); }

  std::string dir_, bytes_;
};

TEST_F(ReadAheadTest, ReadsEveryPart) {
  const MappedFile file = Open();
  ReadAhead ahead;
  EXPECT_EQ(ahead.Finish(), 0u);
  ahead.Add({file.bytes().subspan(5, 10'000), {}, file.bytes().subspan(123'456)});
  ahead.Add({});
  EXPECT_EQ(ahead.Finish(), 10'000 + kFileBytes - 123'456);
  ahead.Add({file.bytes().last(1)});
  EXPECT_EQ(ahead.Finish(), 10'001 + kFileBytes - 123'456);
  const std::string found(reinterpret_cast<const char*>(file.bytes().data()), kFileBytes);
  EXPECT_EQ(found, bytes_);
}

TEST_F(ReadAheadTest, LeavesOtherMemoryAsItIs) {
  std::vector<std::byte> memory(100'000, std::byte{7});
  ReadAhead ahead;
  ahead.Add({memory});
  EXPECT_EQ(ahead.Finish(), memory.size());
  EXPECT_EQ(memory, std::vector<std::byte>(100'000, std::byte{7}));
}

TEST_F(ReadAheadTest, EndsWithPartsThatAreLeft) {
  const MappedFile file = Open();
  for (int i = 0; i < 20; ++i) {
    ReadAhead ahead;
    ahead.Add(std::vector<ReadAhead::Part>(100, file.bytes()));
  }
}

}  // namespace
}  // namespace minisgl
