// State of a chat beside its session: branches, alternative answers, statistics.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "chat/chat_alternatives.h"
#include "chat/chat_branch_list.h"
#include "chat/chat_statistics.h"
#include "chat/turn_progress.h"
#include "program/fakes.h"

namespace minisgl::chat {
namespace {

// Records the sessions that are open.
class SessionRuntime : public FakeRuntime {
 public:
  SessionRuntime() : FakeRuntime(SmallLimits()) {}
  SessionId OpenSession() override {
    open_sessions.insert(++last_session_);
    return last_session_;
  }
  void CloseSession(SessionId session) override { open_sessions.erase(session); }

  std::set<SessionId> open_sessions;

 private:
  SessionId last_session_ = 0;
};

ChatTurns Turns(const std::string& question) { return {{{"user", question, {}}}, {}}; }

TEST(ChatBranchListTest, EachBranchHasItsTurnsAndASession) {
  SessionRuntime runtime;
  {
    ChatBranchList branches(&runtime);
    EXPECT_EQ(branches.current().name, "main");
    const SessionId main_session = branches.current().session;
    const size_t other = branches.Add(branches.UnusedName(), Turns("b"), 3);
    EXPECT_EQ(branches.Names(), (std::vector<std::string>{"main", "branch-2"}));
    EXPECT_TRUE(branches.IsCurrent(0)) << "a branch that is added is not entered";
    EXPECT_EQ(runtime.open_sessions.size(), 2u);

    EXPECT_EQ(branches.Enter(other, Turns("a")).messages.front().content, "b");
    EXPECT_EQ(branches.current().regenerations, 3u);
    EXPECT_NE(branches.current().session, main_session);
    EXPECT_EQ(branches.Enter(0, Turns("c")).messages.front().content, "a");
    EXPECT_EQ(branches.Draw(Turns("a")),
              "  1  a   <- main (here)\n"
              "  1  c   <- branch-2");
  }
  EXPECT_TRUE(runtime.open_sessions.empty());
}

TEST(ChatBranchListTest, RemovingABranchKeepsTheCurrentOne) {
  SessionRuntime runtime;
  ChatBranchList branches(&runtime);
  branches.Add("b", Turns("b"), 0);
  branches.Add("c", Turns("c"), 0);
  branches.Enter(2, Turns("a"));
  branches.Remove(1);
  EXPECT_EQ(branches.current().name, "c");
  EXPECT_EQ(branches.Find("b"), std::nullopt);
  EXPECT_EQ(branches.Find("c"), 1u);
  EXPECT_EQ(runtime.open_sessions.size(), 2u);
}

TEST(ChatBranchListTest, IsBounded) {
  SessionRuntime runtime;
  ChatBranchList branches(&runtime);
  while (!branches.full()) branches.Add(branches.UnusedName(), {}, 0);
  EXPECT_EQ(branches.size(), ChatBranchList::kBranchesMax);
}

std::optional<SessionMessage> Answer(const std::string& text) {
  return SessionMessage{"assistant", text, {}};
}

TEST(ChatAlternativesTest, TheFirstNewAnswerIsPicked) {
  ChatAlternatives alternatives;
  EXPECT_TRUE(alternatives.empty());
  alternatives.Set({Answer("old"), std::nullopt, Answer("b"), Answer("c")});
  EXPECT_TRUE(alternatives.has_previous());
  EXPECT_EQ(alternatives.List(), "    0  old\n  * 2  b\n    3  c");
  EXPECT_EQ(alternatives.Pick(1), nullptr);
  EXPECT_EQ(alternatives.Pick(4), nullptr);
  EXPECT_EQ(alternatives.Pick(0)->content, "old");
  EXPECT_EQ(alternatives.List(), "  * 0  old\n    2  b\n    3  c");
  alternatives.Set({std::nullopt, Answer("d")});
  EXPECT_FALSE(alternatives.has_previous());
  alternatives.Clear();
  EXPECT_TRUE(alternatives.empty());
}

ChatAnswer AnswerOf(int64_t tokens, double first_token_s, double total_s) {
  ChatAnswer answer;
  answer.usage = {.prompt_tokens = 20, .cached_tokens = 16, .completion_tokens = tokens};
  answer.first_token_s = first_token_s;
  answer.total_s = total_s;
  return answer;
}

TEST(ChatStatisticsTest, CountsAnswersAndFailures) {
  ChatStatistics statistics;
  EXPECT_EQ(statistics.Text(100), "");
  statistics.Add(AnswerOf(0, 0, 1), false);
  statistics.Add(AnswerOf(11, 0.5, 1.5), true);
  EXPECT_EQ(statistics.Text(100),
            "  last answer   11 tokens in 1.50 s, 10.0 tokens/s after the first\n"
            "  first token   after 500 ms\n"
            "  prompt        20 tokens, 16 of them cached\n"
            "  context       31 of 100 tokens\n"
            "  all answers   2: prompts 40 tokens (32 cached), answers 11 tokens, 2.50 s");
  statistics.Add(AnswerOf(1, 0.5, 0.5), true);
  EXPECT_TRUE(statistics.Text(100).starts_with("  last answer   1 token in 0.50 s\n"))
      << statistics.Text(100);
  report::RunSummary summary;
  statistics.End(&summary);
  EXPECT_EQ(summary.rows_done, 2);
  EXPECT_EQ(summary.rows_failed, 1);
  EXPECT_EQ(summary.seconds, 3);
}

TEST(ChatStatisticsTest, SamplesAreDueWhileTheChatIsBusyAndOnceAfter) {
  ChatStatistics statistics;
  EXPECT_TRUE(statistics.IsSampleDue(true));
  EXPECT_FALSE(statistics.IsSampleDue(false)) << "idle since the beginning";
  statistics.RecordSample({}, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  EXPECT_TRUE(statistics.IsSampleDue(false)) << "the end of the busy time";
  statistics.RecordSample({}, false);
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  EXPECT_FALSE(statistics.IsSampleDue(false));
}

TEST(TurnProgressTest, SaysWhatATurnDoesAfterHalfASecond) {
  const struct {
    TurnStage stage;
    const char* line;
  } cases[] = {
      {{0.4, 1900, 100, 0, false}, ""},
      {{0.5, 1900, 1400, 0, false}, "reading 1,400 of 1,900 tokens"},
      {{0.5, 900, 0, 0, true}, "reading 0 of 900 tokens"},
      {{9, 1234567, -1, 0, false}, "reading 1,234,567 tokens"},
      {{9, 1900, 2000, 0, false}, "reading 1,900 of 1,900 tokens"},
      {{9, 1900, 1900, 1, false}, ""},
      {{0.4, 1900, 1900, 1, true}, ""},
      {{9, 1900, 1900, 1, true}, "(thinking, 1 token)"},
      {{9, 1900, 1900, 1230, true}, "(thinking, 1,230 tokens)"},
  };
  for (const auto& test : cases) EXPECT_EQ(LineOfStage(test.stage), test.line);
}

}  // namespace
}  // namespace minisgl::chat
