// Branches of a conversation: cutting and drawing.
#include "chat/chat_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace minisgl::chat {
namespace {

std::vector<SessionMessage> Conversation(const std::vector<std::string>& texts) {
  std::vector<SessionMessage> messages;
  for (size_t i = 0; i < texts.size(); ++i) {
    messages.push_back({i % 2 == 0 ? "user" : "assistant", texts[i], {}});
  }
  return messages;
}

TEST(ChatTreeTest, WhatIsSharedIsDrawnOnce) {
  const std::vector<NamedConversation> branches = {
      {"main", Conversation({"a", "b", "c", "d", "e", "f"})},
      {"other", Conversation({"a", "b", "c", "d", "g", "h"})},
      {"early", Conversation({"a", "b"})},
  };
  EXPECT_EQ(DrawTree(branches, 1),
            "  1  a -> b   <- early\n"
            "  +- 2  c -> d\n"
            "     +- 3  e -> f   <- main\n"
            "     +- 3  g -> h   <- other (here)");
}

TEST(ChatTreeTest, BranchesThatSayTheSameEndTogether) {
  EXPECT_EQ(DrawTree({{"a", Conversation({"x", "y"})}, {"b", Conversation({"x", "y"})}}, 0),
            "  1  x -> y   <- a (here), b");
  EXPECT_EQ(DrawTree({{"main", {}}}, 0), "  (nothing said)   <- main (here)");
  EXPECT_EQ(DrawTree({{"main", {}}, {"b", Conversation({"x"})}}, 1),
            "  (nothing said)   <- main\n"
            "  1  x   <- b (here)");
}

TEST(ChatTreeTest, ALineShowsTheBeginningOfATurn) {
  const std::string text = "one\x1b[2J line\nand another " + std::string(500, 'x');
  const std::string tree = DrawTree({{"main", Conversation({text, text})}}, 0);
  EXPECT_EQ(std::count(tree.begin(), tree.end(), '\n'), 0) << tree;
  EXPECT_EQ(tree.find('\x1b'), std::string::npos) << tree;
  EXPECT_LT(tree.size(), 130u);
}

TEST(ChatTreeTest, ALongConversationIsDrawn) {
  std::vector<std::string> texts;
  for (int i = 0; i < 40000; ++i) texts.push_back(std::to_string(i));
  const std::string tree = DrawTree({{"main", Conversation(texts)}}, 0);
  EXPECT_EQ(std::count(tree.begin(), tree.end(), '\n'), 19999);
}

TEST(ChatTreeTest, TurnsAreCutWhereTheUserBegins) {
  ChatTurns turns;
  turns.messages = {{"system", "s", {}}, {"user", "3", {}}, {"assistant", "c", {}}};
  turns.dropped = Conversation({"1", "a", "2", "b"});
  const std::vector<SessionMessage> all = WholeConversation(turns);
  std::string roles;
  for (const SessionMessage& message : all) roles += message.content;
  EXPECT_EQ(roles, "s1a2b3c");
  EXPECT_EQ(CountTurns(all), 3);
  const struct {
    int64_t num_turns;
    const char* text;
  } cases[] = {{0, "s"}, {1, "s1a"}, {2, "s1a2b"}, {3, "s1a2b3c"}, {9, "s1a2b3c"}};
  for (const auto& test : cases) {
    std::string text;
    for (const SessionMessage& message : FirstTurns(all, test.num_turns)) text += message.content;
    EXPECT_EQ(text, test.text) << test.num_turns;
  }
}

TEST(ChatTreeTest, NamesOfBranches) {
  for (const char* name : {"a", "main", "try-2", "v1.0", "caf\u00e9", "2b"}) {
    EXPECT_TRUE(IsBranchName(name)) << name;
  }
  for (const char* name : {"", "2", "-d", "a b", "a/b", "a\nb", "\xff", "*"}) {
    EXPECT_FALSE(IsBranchName(name)) << name;
  }
  EXPECT_FALSE(IsBranchName(std::string(41, 'a')));
}

}  // namespace
}  // namespace minisgl::chat
