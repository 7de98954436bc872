#include "chat/kept_conversations.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "chat/chat_file.h"
#include "temporary_folder.h"

namespace minisgl::chat {
namespace {

std::vector<SessionMessage> Turn(const std::string& question) {
  return {{"user", question, {}}, {"assistant", "answer", {}}};
}

TEST(KeptConversationsTest, OnlyTheLastOnesStay) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("sessions");
  for (size_t i = 0; i < kKeptMax + 5; ++i) {
    KeptConversations kept(path);
    ASSERT_TRUE(kept.Keep(Turn("question " + std::to_string(i))).ok());
  }
  const auto list = KeptConversations(path).List();
  ASSERT_EQ(list.size(), kKeptMax);
  EXPECT_EQ((*LoadConversation(list.front().path))[0].content,
            "question " + std::to_string(kKeptMax + 4));
  EXPECT_EQ((*LoadConversation(list.back().path))[0].content, "question 5");
}

TEST(KeptConversationsTest, AnUnchangedConversationIsNotWritten) {
  const TemporaryFolder folder;
  KeptConversations kept(folder.Path("sessions"));
  ASSERT_TRUE(kept.Keep({}).ok());
  ASSERT_TRUE(kept.Keep({{"system", "Be short.", {}}}).ok());
  EXPECT_TRUE(kept.List().empty()) << "nothing was said";
  kept.BeginAnother(Turn("loaded"));
  ASSERT_TRUE(kept.Keep(Turn("loaded")).ok());
  EXPECT_TRUE(kept.List().empty()) << "it is another file's";
  ASSERT_TRUE(kept.Keep(Turn("loaded and changed")).ok());
  ASSERT_EQ(kept.List().size(), 1u);
  ASSERT_TRUE(kept.Keep(Turn("changed again")).ok());
  EXPECT_EQ(kept.List().size(), 1u);
}

TEST(KeptConversationsTest, AFolderThatCannotBeUsedIsAnErrorOnce) {
  const TemporaryFolder folder;
  folder.Write("sessions", "a file");
  KeptConversations kept(folder.Path("sessions"));
  const Status status = kept.Keep(Turn("a"));
  EXPECT_EQ(status.code(), StatusCode::kCannotCreate);
  EXPECT_NE(status.message().find("is not a folder of this user"), std::string::npos);
  EXPECT_TRUE(kept.Keep(Turn("b")).ok());
}

TEST(KeptConversationsTest, TheFolderIsClosedToOthers) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("sessions");
  std::filesystem::create_directory(path);
  chmod(path.c_str(), 0755);
  ASSERT_TRUE(KeptConversations(path).Keep(Turn("a")).ok());
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0700));
}

// Whatever else lies there is not listed, and a file that is damaged is listed as that.
TEST(KeptConversationsTest, OnlyConversationsAreListed) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("sessions");
  ASSERT_TRUE(KeptConversations(path).Keep(Turn("a\nb")).ok());
  std::ofstream(path + "/notes.txt") << "x";
  std::filesystem::create_symlink("/dev/zero", path + "/zero.jsonl");
  const auto list = KeptConversations(path).List();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(DescribeKept(list[0]).find("  1 turn   a\\nb"), std::string::npos)
      << DescribeKept(list[0]);
  std::ofstream(list[0].path) << "{";
  EXPECT_NE(DescribeKept(list[0]).find("cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace minisgl::chat
