// Branches of a conversation in the chat: switching between them recomputes nothing, and messages
// of one branch are not in another.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "program/pty_chat.h"

namespace minisgl::chat {
namespace {

class ChatBranchTest : public ChatTest {
 protected:
  // Returns the chat's output for `lines`, through pipes.
  PipedResult Talk(const std::vector<std::string>& lines,
                   std::vector<std::string> more = {}) const {
    std::string input;
    for (const std::string& line : lines) input += line + '\n';
    more.push_back("--commands");
    PipedResult result = RunPiped(Arguments(std::move(more)), input);
    EXPECT_EQ(result.status, 0) << result.err;
    return result;
  }
  // Returns the number before the last occurrence of `after`.
  static int64_t NumberBefore(const std::string& text, const std::string& after) {
    const size_t at = text.rfind(after);
    if (at == std::string::npos) return -1;
    const size_t begin = text.find_last_not_of("0123456789", at - 1) + 1;
    return begin == at ? -1 : std::stoll(text.substr(begin, at - begin));
  }
};

// The cache's own counters prove it: all whole pages computed earlier in the branch are found.
TEST_F(ChatBranchTest, SwitchingComputesNothingAgain) {
  const std::vector<std::string> talk = {
      "What is the capital of France?",
      "My name is Ada, and I live near the river.",
      "What is the opposite of hot?",
      "/stats",  // how much of the context branch main fills
      "/branch other 1",
      "What is the capital of Italy?",
      "What is the capital of Spain?",
      "/switch main",
      "What is my name?",
      "/stats",
  };
  for (const int64_t page : {1, 4, 16}) {
    const PipedResult result = Talk(talk, {"--page-size", std::to_string(page)});
    const size_t second = result.err.rfind("  last answer");
    const int64_t before = NumberBefore(result.err.substr(0, second), " of 2048 tokens");
    const int64_t cached = NumberBefore(result.err, " of them cached");
    ASSERT_GT(before, 60) << result.err;
    // The last token of an answer is not computed.
    EXPECT_GE(cached, (before - 1) / page * page) << "pages of " << page << "\n" << result.err;
    EXPECT_NE(result.out.find("Your name is Ada"), std::string::npos) << result.out;
  }
}

TEST_F(ChatBranchTest, AGreedyAnswerIsTheSameAgain) {
  const auto messages = [this](const char* command) {
    return Talk({"Hello.", command}, {"--temperature", "0"}).err;
  };
  constexpr const char *kOne = "(the temperature is 0: the answer will be the same;",
                       *kAll = "(the temperature is 0: all answers will be the same;";
  EXPECT_NE(messages("/regen").find(kOne), std::string::npos);
  EXPECT_NE(messages("/regen 2").find(kAll), std::string::npos);
}

TEST_F(ChatBranchTest, SavingNeedsANameBesideItsOption) {
  for (const char* command : {"/save", "/save -f"}) {
    const PipedResult result = Talk({"Hello.", command});
    EXPECT_NE(result.err.find("/save needs the name of a file"), std::string::npos) << result.err;
  }
  EXPECT_FALSE(std::ifstream("-f").is_open());
}

TEST_F(ChatBranchTest, BranchesAreIndependent) {
  const PipedResult result =
      Talk({"My name is Ada.", "/branch ben 0", "My name is Ben.", "/branch", "/tree",
            "/switch main", "What is my name?", "/switch ben", "What is my name?", "/tree",
            "/save " + File("ben"), "/branch -d main", "/branch -d ben", "/switch main"});
  const size_t ada = result.out.find("Your name is Ada");
  const size_t ben = result.out.find("Your name is Ben");
  ASSERT_NE(ada, std::string::npos) << result.out;
  ASSERT_NE(ben, std::string::npos) << result.out;
  EXPECT_LT(ada, ben);
  EXPECT_NE(result.err.find("<- ben, branch-3 (here)"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("What is my name? -> Your name is Ben.   <- ben (here)"),
            std::string::npos)
      << result.err;
  // Only the current branch is saved, and a message says so.
  EXPECT_EQ(ReadAll(File("ben")).find("Ada"), std::string::npos);
  EXPECT_NE(result.err.find("other branches are not"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("Branch main is deleted"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("You are in that branch"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("There is no branch main; there are ben, branch-3"), std::string::npos)
      << result.err;
}

TEST_F(ChatBranchTest, InvalidBranchesAreRefused) {
  const PipedResult result =
      Talk({"/branch a b", "/branch a/b", "/branch x 1", "/branch main", "/branch a 0 c", "/switch",
            "/switch nowhere", "/branch -d none", "/tree"});
  EXPECT_EQ(result.err.find("Now in branch"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("There is no turn 1"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("Branch main exists already"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("(nothing said)   <- main (here)"), std::string::npos) << result.err;
}

TEST_F(ChatBranchTest, SeveralAnswersComeAtOnceAndInOrder) {
  const std::vector<std::string> options = {"--temperature", "2", "--seed", "1"};
  const PipedResult result =
      Talk({"Tell me a story.", "/save " + File("0"), "/regen 3", "/save " + File("1"), "/stats",
            "/pick 3", "/save " + File("3"), "/pick 0", "/save " + File("00"), "/pick 4", "/pick",
            "/pick 2", "What is the capital of France?", "/pick 1"},
           options);
  EXPECT_LT(result.err.find("[1/3]"), result.err.find("[2/3]")) << result.err;
  EXPECT_NE(result.err.find("[3/3]", result.err.find("[2/3]")), std::string::npos) << result.err;
  EXPECT_EQ(ReadAll(File("0")), ReadAll(File("00")));
  EXPECT_NE(ReadAll(File("1")), ReadAll(File("0")));
  EXPECT_NE(ReadAll(File("3")), ReadAll(File("1")));
  EXPECT_NE(result.err.find("There is no answer 4"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("  * 0  "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("There is nothing to pick from"), std::string::npos) << result.err;
  // Their prompt was computed before.
  const size_t at = result.err.find("  prompt  ");
  ASSERT_NE(at, std::string::npos) << result.err;
  const std::string line = result.err.substr(at, result.err.find('\n', at) - at);
  EXPECT_GE(NumberBefore(line, " of them cached"), (NumberBefore(line, " tokens") - 1) / 16 * 16)
      << line;
  // One at a time, the answers are the same: only the number of an answer selects its random
  // numbers.
  const PipedResult single = Talk({"Tell me a story.", "/regen", "/regen", "/regen"}, options);
  EXPECT_EQ(single.out, result.out.substr(0, single.out.size()));
}

TEST_F(ChatBranchTest, MinTokensAboveTheEffectiveMaxTokensIsReported) {
  const PipedResult by_options =
      RunPiped(Arguments({"--min-tokens", "3", "--max-tokens", "2"}), "hi\n");
  EXPECT_EQ(by_options.status, 64) << by_options.err;
  // The other value comes from the model's generation_config.json.
  const PipedResult by_model = RunPiped(Arguments({"--min-tokens", "300"}), "hi\n");
  EXPECT_EQ(by_model.status, 1) << by_model.err;
  EXPECT_NE(by_model.err.find("min_tokens is more than max_tokens (found 300 and 256)"),
            std::string::npos)
      << by_model.err;
  EXPECT_EQ(by_model.out, "");
}

TEST_F(ChatBranchTest, ARegenThatIsStoppedKeepsWhatWasSaid) {
  auto chat = Start({"--ignore-eos", "-n", "1500", "--cpu-target", "naive", "--temperature", "1"});
  ASSERT_TRUE(StopAnAnswer(chat.get(), "What is the capital of France?", "Paris"))
      << chat->output();
  chat->Send("/regen 3\r");
  ASSERT_TRUE(chat->WaitFor("[1/3]")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(" is ")) << chat->output();
  chat->Send(kCtrlC);
  ASSERT_TRUE(chat->WaitFor("[3/3]")) << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
  EXPECT_NE(Say(chat.get(), "/pick").find("* 1  "), std::string::npos) << chat->output();
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

}  // namespace
}  // namespace minisgl::chat
