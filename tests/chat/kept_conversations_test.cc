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

TEST(KeptConversationsTest, BranchesAreToldApartInOneRow) {
  const TemporaryFolder folder;
  KeptConversations kept(folder.Path("sessions"));
  std::vector<SessionMessage> messages = Turn("How does one begin?");
  const std::vector<SessionMessage> more = Turn("What about \u65e5\u672c\u65e5\u672c then?");
  messages.insert(messages.end(), more.begin(), more.end());
  ASSERT_TRUE(kept.Keep(messages).ok());
  EXPECT_EQ(kept.current_path(), kept.List()[0].path);
  const std::string whole = DescribeKept(kept.List()[0], 100);
  EXPECT_TRUE(
      whole.ends_with("  2 turns  How does one begin? ... What about "
                      "\u65e5\u672c\u65e5\u672c then?"))
      << whole;
  const std::string cut = DescribeKept(kept.List()[0], 61);
  EXPECT_TRUE(cut.ends_with("  2 turns  How does on... ... What about...")) << cut;
  EXPECT_LE(cut.size(), 61u);
  ASSERT_TRUE(kept.Keep(Turn(std::string(200, 'x'))).ok());
  EXPECT_EQ(DescribeKept(kept.List()[0], 60).size(), 60u);
}

TEST(KeptConversationsTest, TheAgeIsInWords) {
  const struct {
    int64_t seconds;
    const char* text;
  } cases[] = {{-5, "just now"},           {59, "just now"},      {60, "1 minute ago"},
               {3599, "59 minutes ago"},   {7200, "2 hours ago"}, {86400, "1 day ago"},
               {40 * 86400, "40 days ago"}};
  constexpr int64_t kNow_ns = int64_t{1'700'000'000} * 1'000'000'000;
  for (const auto& test : cases) {
    EXPECT_EQ(AgeText(kNow_ns - test.seconds * 1'000'000'000, kNow_ns), test.text);
  }
}

}  // namespace
}  // namespace minisgl::chat
