// Writing to descriptors, replacing files, and rows on a full disk.
#include "minisgl/base/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "chat/chat_file.h"
#include "chat/chat_history.h"
#include "program/fakes.h"
#include "term/output.h"

namespace minisgl::cli {
namespace {

namespace fs = std::filesystem;

const std::vector<SessionMessage> kSavedMessages = {{"user", "Hi", {}}};
constexpr const char* kSaved = "{\"role\": \"user\", \"content\": \"Hi\"}\n";

// While an instance exists, files of this process are limited to `bytes`: writes past that fail as
// on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_ = {};
  void (*old_handler_)(int);
};

TEST(WriteAllTest, WaitsForANonBlockingPipe) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const std::string text(size_t{1} << 20, 'x');  // more than the buffer of a pipe
  std::string got;
  std::thread reader([&got, fd = ends[0], size = text.size()] {
    char bytes[65536];
    while (got.size() < size) {
      const ssize_t count = read(fd, bytes, sizeof bytes);
      if (count > 0) got.append(bytes, static_cast<size_t>(count));
      if (count == 0) break;
    }
  });
  EXPECT_TRUE(WriteAll(ends[1], text));
  close(ends[1]);
  reader.join();
  close(ends[0]);
  EXPECT_EQ(got.size(), text.size());
}

TEST(WriteAllTest, ReturnsTheBytesWrittenBeforeAFailure) {
  const TemporaryFolder folder;
  const int fd = open(folder.Path("f").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  size_t written = 0;
  {
    const FileSizeLimit limit(1000);
    EXPECT_FALSE(WriteAll(fd, std::string(1500, 'x'), &written));
  }
  EXPECT_EQ(written, 1000u);
  close(fd);
  EXPECT_FALSE(WriteAll(-1, "x", &written));
  EXPECT_EQ(written, 0u);
}

TEST(OutputFileTest, ARowThatDoesNotFitIsTakenBackAndTheOthersStay) {
  const TemporaryFolder folder;
  Result<std::unique_ptr<term::Output>> output = term::Output::Open(folder.Path("out"), false, -1);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE((*output)->Begin().ok());
  Status torn;
  {
    const FileSizeLimit limit(1000);
    EXPECT_TRUE((*output)->Write(std::string(599, 'a') + "\n").ok());
    torn = (*output)->Write(std::string(599, 'b') + "\n");
    EXPECT_TRUE((*output)->Write("short\n").ok());  // follows it without a hole
  }
  EXPECT_EQ(torn.code(), StatusCode::kIoError);
  EXPECT_EQ(folder.Read("out"), std::string(599, 'a') + "\nshort\n");
}

TEST(ReplaceFileTest, ALinkStaysAndItsTargetIsReplaced) {
  const TemporaryFolder folder;
  fs::create_directory(folder.Path("deep"));
  folder.Write("deep/target", "old");
  fs::create_symlink("deep/second", folder.Path("first"));
  fs::create_symlink("target", folder.Path("deep/second"));
  ASSERT_TRUE(chat::SaveConversation(folder.Path("first"), kSavedMessages, true).ok());
  EXPECT_TRUE(fs::is_symlink(folder.Path("first")));
  EXPECT_TRUE(fs::is_symlink(folder.Path("deep/second")));
  EXPECT_EQ(folder.Read("deep/target"), kSaved);
}

TEST(ReplaceFileTest, ALinkToNothingMakesItsTarget) {
  const TemporaryFolder folder;
  fs::create_symlink(folder.Path("target"), folder.Path("link"));
  ASSERT_TRUE(chat::SaveConversation(folder.Path("link"), kSavedMessages, false).ok());
  EXPECT_TRUE(fs::is_symlink(folder.Path("link")));
  EXPECT_EQ(folder.Read("target"), kSaved);
  fs::create_symlink("round", folder.Path("round"));
  EXPECT_EQ(chat::SaveConversation(folder.Path("round"), kSavedMessages, true).code(),
            StatusCode::kCannotCreate);
  EXPECT_TRUE(fs::is_symlink(folder.Path("round")));
}

TEST(ReplaceFileTest, AFileKeepsItsPermissions) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("private", "old");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(chat::SaveConversation(path, kSavedMessages, true).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

// A killed process leaves its temporary file, and a later one may have its number.
TEST(ReplaceFileTest, ALeftoverWithThisProcessNumberStaysAndIsNoHindrance) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("out", "old");
  const std::string leftover = "out.part" + std::to_string(getpid());
  folder.Write(leftover, "half");
  folder.Write(leftover + "-1", "another half");
  const Status status = ReplaceFile(path, "new", 0600);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(folder.Read("out"), "new");
  EXPECT_EQ(folder.Read(leftover), "half");
  EXPECT_EQ(folder.Read(leftover + "-1"), "another half");
  EXPECT_FALSE(fs::exists(folder.Path(leftover + "-2")));
}

TEST(ReplaceFileTest, WhatCannotBeWrittenLeavesTheOldFileAndNoOther) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("conversation", "old");
  Status status;
  {
    const FileSizeLimit limit(1000);
    status = ReplaceFile(path, std::string(1500, 'x'), 0666);
  }
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_EQ(folder.Read("conversation"), "old");
  const fs::directory_iterator files(folder.Path(""));
  EXPECT_EQ(std::distance(fs::begin(files), fs::end(files)), 1);
}

TEST(ReplaceFileTest, AHistoryThatIsALinkStaysOne) {
  const TemporaryFolder folder;
  std::string text;
  for (size_t i = 0; i < 3 * chat::HistoryFile::kEntriesMax; ++i) text += std::to_string(i) + "\n";
  folder.Write("target", text);
  fs::create_symlink("target", folder.Path("history"));
  EXPECT_EQ(chat::HistoryFile(folder.Path("history")).Load().size(),
            chat::HistoryFile::kEntriesMax);
  EXPECT_TRUE(fs::is_symlink(folder.Path("history")));
  EXPECT_EQ(Lines(folder.Read("target")).size(), chat::HistoryFile::kEntriesMax);
}

}  // namespace
}  // namespace minisgl::cli
