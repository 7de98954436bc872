// Files that another user may have placed where the program writes: links, files, FIFOs. Also:
// permissions of new files from the first byte on, and names that survive a power failure.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "batch/run_journal.h"
#include "chat/chat_file.h"
#include "chat/chat_history.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/log.h"
#include "program/fakes.h"
#include "program/run_fixture.h"
#include "program/synced_files.h"
#include "term/output.h"

namespace minisgl::cli {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kOtherUser = 65534;

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

class PlantedFilesTest : public testing::Test {
 protected:
  PlantedFilesTest() : old_umask_(umask(022)) {}
  ~PlantedFilesTest() override { umask(old_umask_); }

  static void ExpectRefused(const Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), StatusCode::kCannotCreate) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  // A link owned by another user, as in /tmp.
  std::string PlantLink(const std::string& name, const std::string& target) const {
    const std::string path = folder_.Path(name);
    fs::create_symlink(target, path);
    EXPECT_EQ(lchown(path.c_str(), kOtherUser, kOtherUser), 0);
    return path;
  }

  TemporaryFolder folder_;
  const mode_t old_umask_;
};

TEST_F(PlantedFilesTest, ALinkOfAnotherUserIsNotFollowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make links of other users";
  const std::string link = PlantLink("link", "victim");
  ExpectRefused(term::Output::Open(link, true, -1).status(), "symbolic link of another user");
  ExpectRefused(ReplaceFile(link, "text", 0600), "symbolic link of another user");
  ExpectRefused(chat::SaveConversation(link, {{"user", "Hi", {}}}, true),
                "symbolic link of another user");
  chat::HistoryFile(link).Append({"line", {}});
  EXPECT_FALSE(fs::exists(folder_.Path("victim")));
  // Also through a link of our own that leads to it.
  fs::create_symlink("link", folder_.Path("own"));
  ExpectRefused(term::Output::Open(folder_.Path("own"), true, -1).status(),
                "link is a symbolic link");
  EXPECT_FALSE(fs::exists(folder_.Path("victim")));
}

TEST_F(PlantedFilesTest, AnOwnLinkIsFollowed) {
  fs::create_symlink("target", folder_.Path("link"));
  const auto output = term::Output::Open(folder_.Path("link"), false, -1);
  ASSERT_TRUE(output.ok()) << output.status().message();
  ASSERT_TRUE((*output)->Begin().ok());
  ASSERT_TRUE((*output)->Write("text").ok());
  EXPECT_EQ(folder_.Read("target"), "text");
}

TEST_F(PlantedFilesTest, AFileOfAnotherUserInASharedFolderIsNotWritten) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of other users";
  const std::string path = folder_.Write("out", "");
  ASSERT_EQ(chown(path.c_str(), kOtherUser, kOtherUser), 0);
  EXPECT_TRUE(term::Output::Open(path, false, -1).ok()) << "the folder is not shared";
  ASSERT_EQ(chmod(folder_.Path("").c_str(), 01777), 0);
  ExpectRefused(term::Output::Open(path, false, -1).status(), "belongs to another user");
}

// /dev/stdout leads to an open file without a name of its own.
TEST_F(PlantedFilesTest, ANameUnderProcIsTheOpenFile) {
  const int fd = open(folder_.Path("file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  fs::create_symlink("/proc/self/fd/" + std::to_string(fd), folder_.Path("link"));
  {
    const auto output = term::Output::Open(folder_.Path("link"), false, -1);
    ASSERT_TRUE(output.ok()) << output.status().message();
    EXPECT_FALSE((*output)->is_regular_file()) << "it has no name for a journal beside it";
    ASSERT_TRUE((*output)->Write("text").ok());
  }
  EXPECT_EQ(folder_.Read("file"), "text");
  close(fd);
}

TEST_F(PlantedFilesTest, AJournalIsNeverALink) {
  folder_.Write("victim", "");
  fs::create_symlink("victim", folder_.Path("out.meta"));
  ExpectRefused(batch::WriteJournal(folder_.Path("out"), Json(Json::Object())),
                "is a symbolic link");
  EXPECT_TRUE(fs::is_symlink(folder_.Path("out.meta")));
  EXPECT_EQ(folder_.Read("victim"), "");
}

// A journal must not replace a file that is being written.
TEST_F(PlantedFilesTest, AFileThatAnOutputWritesIsLocked) {
  const std::string path = folder_.Path("out.meta");
  EXPECT_FALSE(IsLocked(path));
  {
    const auto output = term::Output::Open(path, false, -1);
    ASSERT_TRUE(output.ok());
    EXPECT_TRUE(IsLocked(path));
  }
  EXPECT_FALSE(IsLocked(path));
}

TEST_F(PlantedFilesTest, ATemporaryFileIsNewAndFollowsNoLink) {
  const std::string path = folder_.Write("out", "old");
  folder_.Write("victim", "precious");
  fs::create_symlink("victim", folder_.Path("out.resume.part"));
  const auto file = FileReplacement::Begin(path, {.sole_writer = true});
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_FALSE(fs::is_symlink(folder_.Path("out.resume.part")));
  ASSERT_TRUE((*file)->Write("new").ok());
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(folder_.Read("out"), "new");
  EXPECT_EQ(folder_.Read("victim"), "precious");
  // A process that holds the leftover file of another attempt open cannot read the new one.
  const std::string leftover = folder_.Write("out.resume.part", "left");
  const int held = open(leftover.c_str(), O_RDONLY | O_CLOEXEC);
  const auto again = FileReplacement::Begin(path, {.sole_writer = true});
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE((*again)->Write("secret").ok());
  struct stat info {};
  EXPECT_EQ(fstat(held, &info), 0);
  EXPECT_EQ(info.st_nlink, 0u);
  close(held);
  // A leftover that cannot be removed is reported.
  fs::create_directory(folder_.Path("dir.resume.part"));
  ExpectRefused(FileReplacement::Begin(folder_.Path("dir"), {.sole_writer = true}).status(),
                "dir.resume.part");
}

TEST_F(PlantedFilesTest, PermissionsAreFinalFromTheBeginning) {
  const std::string path = folder_.Write("out", "old");
  for (const mode_t mode : {0600, 0640, 0666, 0400}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const auto file = FileReplacement::Begin(path, {.sole_writer = true});
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(ModeOf(path + ".resume.part"), mode);
  }
  const auto file =
      FileReplacement::Begin(folder_.Path("new"), {.mode = 0600, .sole_writer = true});
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(ModeOf(folder_.Path("new.resume.part")), 0600u);
}

TEST_F(PlantedFilesTest, AReplacedFileKeepsItsOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of other users";
  const std::string path = folder_.Write("out", "old");
  ASSERT_EQ(chown(path.c_str(), kOtherUser, kOtherUser), 0);
  ASSERT_TRUE(ReplaceFile(path, "new", 0600).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kOtherUser);
  EXPECT_EQ(info.st_gid, kOtherUser);
}

TEST_F(PlantedFilesTest, AJournalHasThePermissionsOfItsOutput) {
  const std::string path = folder_.Write("out", "");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_TRUE(batch::WriteJournal(path, Json(Json::Object())).ok());
  EXPECT_EQ(ModeOf(path + ".meta"), 0600u);
}

TEST_F(PlantedFilesTest, ConversationsAndHistoriesArePrivate) {
  ASSERT_TRUE(chat::SaveConversation(folder_.Path("saved"), {{"user", "Hi", {}}}, false).ok());
  EXPECT_EQ(ModeOf(folder_.Path("saved")), 0600u);
  chat::HistoryFile(folder_.Path("new")).Append({"line", {}});
  EXPECT_EQ(ModeOf(folder_.Path("new")), 0600u);
  const std::string old = folder_.Write("old", "line\n");
  ASSERT_EQ(chmod(old.c_str(), 0644), 0);
  EXPECT_EQ(chat::HistoryFile(old).Load().size(), 1u);
  EXPECT_EQ(ModeOf(old), 0600u);
  ASSERT_EQ(chmod(old.c_str(), 0664), 0);
  chat::HistoryFile(old).Append({"second", {}});
  EXPECT_EQ(ModeOf(old), 0600u);
  EXPECT_EQ(folder_.Read("old"), "line\nsecond\n");
}

// Opening it would wait for a reader.
TEST_F(PlantedFilesTest, AFifoIsRefusedAsHistory) {
  std::vector<std::string> warnings;
  SetLogSink([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::kWarning) warnings.push_back(line);
  });
  const std::string path = folder_.Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  chat::HistoryFile(path).Append({"line", {}});
  chat::HistoryFile history(path);
  EXPECT_TRUE(history.Load().empty());
  history.Append({"line", {}});
  // A link to /dev/null disables the history.
  EXPECT_TRUE(chat::HistoryFile("/dev/null").Load().empty());
  SetLogSink(nullptr);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("is not a regular file"), std::string::npos) << warnings[0];
}

// A power failure after either loses neither the file nor its name.
TEST_F(PlantedFilesTest, FoldersAreSyncedAfterCreateAndRename) {
  const std::string dir = fs::canonical(folder_.Path("")).string();
  const auto count = [&](const SyncedFiles& synced, const std::string& path) {
    const std::vector<std::string> paths = synced.Paths();
    return std::count(paths.begin(), paths.end(), path);
  };
  {
    const SyncedFiles synced;
    const auto output = term::Output::Open(folder_.Path("out"), false, -1);
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE((*output)->Begin().ok());
    EXPECT_EQ(count(synced, dir), 1);
    ASSERT_TRUE((*output)->Finish().ok());
  }
  {
    const SyncedFiles synced;
    ASSERT_TRUE(batch::WriteJournal(folder_.Path("out"), Json(Json::Object())).ok());
    EXPECT_EQ(synced.Paths().back(), dir) << "after the rename";
    EXPECT_EQ(count(synced, dir), 1);
    EXPECT_EQ(synced.Paths().size(), 2u);
  }
  {
    const SyncedFiles synced;
    const auto output = term::Output::OpenToAppend(folder_.Path("out"), -1);
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE((*output)->Begin().ok());
    EXPECT_EQ(count(synced, dir), 0) << "the name is there already";
  }
}

class PlantedProgramTest : public RunProgramTest {};

TEST_F(PlantedProgramTest, AJournalThatIsALinkEndsTheRunBeforeItBegins) {
  folder_.Write("in.jsonl", kPeruRow + "\n");
  fs::create_symlink("nologin", folder_.Path("out.meta"));
  const Arguments run = {"-f", folder_.Path("in.jsonl"), "-o", folder_.Path("out")};
  ExpectFails(RunModel(run), 73, "out.meta: is a symbolic link");
  Arguments forced = run;
  forced.push_back("--force");
  ExpectFails(RunModel(forced), 73, "out.meta: is a symbolic link");
  EXPECT_FALSE(fs::exists(folder_.Path("nologin")));
}

TEST_F(PlantedProgramTest, AReportThatIsAFileOfTheRunIsRefusedBeforeTheRun) {
  folder_.Write("in.jsonl", kPeruRow + "\n");
  for (const char* option : {"--summary", "--trace", "--events"}) {
    for (const char* name : {"out.meta", "./out.meta", "out.resume.part"}) {
      const ProgramResult result =
          RunModel({"-f", folder_.Path("in.jsonl"), "-o", folder_.Path("out"), option,
                    folder_.Path("") + "/" + name});
      ExpectFails(result, 73, std::string(option) + " ");
      EXPECT_FALSE(fs::exists(folder_.Path(name))) << name;
      EXPECT_EQ(folder_.Read("out"), "");
    }
  }
  // Also by another name, and if the journal exists already.
  ASSERT_EQ(RunModel({"-f", folder_.Path("in.jsonl"), "-o", folder_.Path("out")}).exit_code, 0);
  fs::create_symlink("out.meta", folder_.Path("link"));
  ExpectFails(RunModel({"-f", folder_.Path("in.jsonl"), "-o", folder_.Path("out"), "--resume",
                        "--summary", folder_.Path("link")}),
              73, "is the journal of");
  EXPECT_NE(folder_.Read("out.meta").find("minisgl_run"), std::string::npos);
}

}  // namespace
}  // namespace minisgl::cli
