// A folder of files that no other user may change: the folders it refuses, and the leftovers of
// unfinished files.
#include "minisgl/base/trusted_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace minisgl {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kOtherUser = 65534;

class TrustedFolderTest : public testing::Test {
 protected:
  TrustedFolderTest() {
    std::string name = (fs::temp_directory_path() / "minisgl-trust-XXXXXX").string();
    dir_ = mkdtemp(name.data());
  }
  ~TrustedFolderTest() override { fs::remove_all(dir_); }

  std::string Path(const std::string& name) const { return (dir_ / name).string(); }
  void Write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    std::ofstream(Path(name)) << text;
    ASSERT_EQ(chmod(Path(name).c_str(), mode), 0);
  }
  TrustedFolder Open() const {
    auto folder = TrustedFolder::Open(dir_.string());
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    return std::move(folder).value();
  }
  static Status Put(const TrustedFolder& folder, const std::string& text, mode_t mode = 0600) {
    return folder.ReplaceFile("file", mode, [&](int fd) {
      const ssize_t written = write(fd, text.data(), text.size());
      return written == std::ssize(text) ? Status() : Status(StatusCode::kIoError, "short");
    });
  }
  mode_t ModeOf(const std::string& path) const {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  static void ExpectRefused(const Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }

  fs::path dir_;
};

TEST_F(TrustedFolderTest, AFolderIsMadeForItsUserAlone) {
  ASSERT_TRUE(TrustedFolder::Open(Path("a/b/c")).ok());
  EXPECT_EQ(ModeOf(Path("a/b/c")), 0700u);
  Write("file", "");
  EXPECT_EQ(TrustedFolder::Open(Path("file")).status().code(), StatusCode::kIoError);
}

TEST_F(TrustedFolderTest, AFolderThatOthersMayWriteIsRefused) {
  for (const mode_t mode : {0777, 0770, 0720, 0702, 01777}) {
    ASSERT_EQ(chmod(dir_.c_str(), mode), 0);
    ExpectRefused(TrustedFolder::Open(dir_.string()).status(), "may be written by others");
  }
  for (const mode_t mode : {0700, 0755, 0750}) {
    ASSERT_EQ(chmod(dir_.c_str(), mode), 0);
    EXPECT_TRUE(TrustedFolder::Open(dir_.string()).ok()) << mode;
  }
}

TEST_F(TrustedFolderTest, AFileThatOthersMayWriteIsRefused) {
  const TrustedFolder folder = Open();
  for (const mode_t mode : {0666, 0620, 0602, 0664}) {
    Write("file", "text", mode);
    ExpectRefused(folder.OpenFile("file").status(), "may be written by others");
  }
  Write("file", "text", 0644);
  ASSERT_TRUE(folder.OpenFile("file").ok());
  EXPECT_EQ(folder.OpenFile("other").status().code(), StatusCode::kNoInput);
}

TEST_F(TrustedFolderTest, FilesAndFoldersOfOtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to other users";
  {
    const TrustedFolder folder = Open();
    Write("file", "text");
    ASSERT_EQ(chown(Path("file").c_str(), kOtherUser, kOtherUser), 0);
    ExpectRefused(folder.OpenFile("file").status(), "belongs to another user");
  }
  ASSERT_EQ(chown(dir_.c_str(), kOtherUser, kOtherUser), 0);
  ExpectRefused(TrustedFolder::Open(dir_.string()).status(), "belongs to another user");
}

TEST_F(TrustedFolderTest, LinksAndWhatIsNoFileAreRefused) {
  const TrustedFolder folder = Open();
  Write("file", "text");
  fs::create_symlink("file", Path("link"));
  ExpectRefused(folder.OpenFile("link").status(), "symbolic link");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  ExpectRefused(folder.OpenFile("fifo").status(), "not a regular file");
  fs::create_directory(Path("folder"));
  ExpectRefused(folder.OpenFile("folder").status(), "not a regular file");
}

// A link in place of the folder is followed and its target checked. A link in place of the file to
// write is replaced, and its target stays.
TEST_F(TrustedFolderTest, WritingFollowsNoLink) {
  const TrustedFolder folder = Open();
  Write("precious", "old");
  fs::create_symlink("precious", Path("file"));
  ASSERT_TRUE(Put(folder, "new").ok());
  EXPECT_FALSE(fs::is_symlink(Path("file")));
  std::string text;
  std::ifstream(Path("precious")) >> text;
  EXPECT_EQ(text, "old");
}

TEST_F(TrustedFolderTest, AFileHasItsModeAndNothingElseIsLeft) {
  const TrustedFolder folder = Open();
  ASSERT_TRUE(Put(folder, "one", 0600).ok());
  EXPECT_EQ(ModeOf(Path("file")), 0600u);
  EXPECT_FALSE(
      folder.ReplaceFile("file", 0600, [&](int) { return Status(StatusCode::kIoError, "full"); })
          .ok());
  std::string text;
  std::ifstream(Path("file")) >> text;
  EXPECT_EQ(text, "one");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1);
}

TEST_F(TrustedFolderTest, WhatADeadProcessLeftIsRemovedOnceItIsOld) {
  const TrustedFolder folder = Open();
  Write(".file.1.2.tmp", "half");
  ASSERT_TRUE(Put(folder, "one").ok());
  EXPECT_TRUE(fs::exists(Path(".file.1.2.tmp"))) << "it may be in the making";
  fs::last_write_time(Path(".file.1.2.tmp"),
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  ASSERT_TRUE(Put(folder, "two").ok());
  EXPECT_FALSE(fs::exists(Path(".file.1.2.tmp")));
}

TEST_F(TrustedFolderTest, ReadAtWantsAllBytes) {
  const TrustedFolder folder = Open();
  ASSERT_TRUE(Put(folder, "0123456789").ok());
  const auto file = folder.OpenFile("file");
  ASSERT_TRUE(file.ok());
  char bytes[4] = {};
  EXPECT_TRUE(ReadAt(file->fd(), bytes, 4, 6));
  EXPECT_EQ(std::string(bytes, 4), "6789");
  EXPECT_FALSE(ReadAt(file->fd(), bytes, 4, 7));
  EXPECT_FALSE(ReadAt(-1, bytes, 4, 0));
}

}  // namespace
}  // namespace minisgl
