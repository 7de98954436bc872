// Files mapped and read: irregular and empty ones, and one that becomes shorter while it is mapped.
#include "minisgl/base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace minisgl {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "minisgl-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  static std::string Text(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  // Both ways of reading refuse `path` with this code and a message that names it.
  static void ExpectRefused(const std::string& path, StatusCode code) {
    for (const Status& status : {MappedFile::Open(path).status(), ReadFile(path, 100).status()}) {
      EXPECT_EQ(status.code(), code) << status.message();
      EXPECT_TRUE(status.message().starts_with(path + ": ")) << status.message();
    }
  }

 private:
  std::string dir_;
};

TEST_F(MappedFileTest, MapsAndReadsTheWholeFile) {
  const std::string bytes = std::string(10'000, 'x') + std::string("\0end", 4);
  const std::string path = Write("file", bytes);
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(Text(*file), bytes);
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(*ReadFile(path, bytes.size()), bytes);
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  const std::string path = Write("empty", "");
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(*ReadFile(path, 0), "");
}

TEST_F(MappedFileTest, RefusesWhatIsNoRegularFile) {
  ExpectRefused(Path("missing"), StatusCode::kNoInput);
  fs::create_directory(Path("dir"));
  ExpectRefused(Path("dir"), StatusCode::kNoInput);
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);  // opened without waiting for a writer
  ExpectRefused(Path("fifo"), StatusCode::kNoInput);
  ExpectRefused("/dev/zero", StatusCode::kNoInput);
  fs::create_symlink(Path("missing"), Path("dangling"));
  ExpectRefused(Path("dangling"), StatusCode::kNoInput);
  ExpectRefused(Write("file", "x") + "/inside", StatusCode::kNoInput);
}

TEST_F(MappedFileTest, ReadFileKeepsToItsLimit) {
  const std::string path = Write("file", "12345");
  EXPECT_TRUE(ReadFile(path, 5).ok());
  const Status status = ReadFile(path, 4).status();
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("has 5 bytes; at most 4"), std::string::npos);
}

TEST_F(MappedFileTest, MovingKeepsTheMapping) {
  auto first = MappedFile::Open(Write("first", "one"));
  auto second = MappedFile::Open(Write("second", "two"));
  const std::byte* data = first->bytes().data();
  MappedFile moved = std::move(*first);
  EXPECT_EQ(moved.bytes().data(), data);
  moved = std::move(*second);
  EXPECT_EQ(Text(moved), "two");
}

TEST_F(MappedFileTest, AFileCutShortWhileMappedEndsTheProgramByName) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const std::string path = Write("shrinking", std::string(64 << 10, 'x'));
  EXPECT_EXIT(
      {
        InstallBusErrorHandler();
        const auto file = MappedFile::Open(path);
        fs::resize_file(path, 1);
        const volatile std::byte* bytes = file->bytes().data();
        static_cast<void>(bytes[file->bytes().size() - 1]);
      },
      testing::ExitedWithCode(74), "shrinking.*became shorter");
}

}  // namespace
}  // namespace minisgl
