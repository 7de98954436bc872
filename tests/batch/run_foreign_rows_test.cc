// Rows that were written for other engines, through the program: it does what they ask for, and
// reports ignored fields once.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

class RunForeignRowsTest : public RunProgramTest {
 protected:
  std::string FileOf(const std::vector<std::string>& rows) {
    std::string text;
    for (const std::string& row : rows) text += row + "\n";
    return folder_.Write("in.jsonl", text);
  }
  // A row with the question after the capital of Peru, and `more`.
  static std::string Peru(const std::string& more, const std::string& answer = "") {
    const std::string assistant =
        answer.empty() ? "" : R"(, {"role": "assistant", "content": ")" + answer + "\"}";
    return R"({"messages": [{"role": "user", "content": "What is the capital of Peru?"})" +
           assistant + "]" + (more.empty() ? "" : ", ") + more + "}";
  }
  static std::string InBatch(const std::string& id, const std::string& row) {
    return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": "/v1/chat/completions", )" +
           R"("body": )" + row + "}";
  }
  static std::string TextOfChoice(const Json& line) {
    const Json* const body = line.Find("response")->Find("body");
    const Json* const choices = body->Find("choices");
    if (choices == nullptr) return line.Dump();
    return choices->as_array()[0].Find("message")->Find("content")->as_string();
  }
};

constexpr const char* kContinue =
    R"("continue_final_message": true, "add_generation_prompt": false)";

TEST_F(RunForeignRowsTest, AnAnswerContinuesTheLastMessage) {
  const std::string file = FileOf({Peru(""), Peru(kContinue, "The capital of"),
                                   InBatch("a", Peru(kContinue, "The capital of")),
                                   Peru("\"return_token_ids\": true", "The capital of")});
  const ProgramResult result = RunModel({"--file", file, "--temperature", "0", "-n", "20"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> rows = Rows(result.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(Text(rows[0]), kLima);
  EXPECT_EQ("The capital of" + Text(rows[1]), kLima);
  EXPECT_EQ("The capital of" + TextOfChoice(rows[2]), kLima);
}

TEST_F(RunForeignRowsTest, APrefillBeginsEveryAnswer) {
  const Arguments prefill = {"--prefill", "The capital of", "--temperature", "0"};
  Arguments one = prefill;
  one.insert(one.end(), {"-p", kPeru, "--no-stdin"});
  const ProgramResult answer = RunModel(one);
  EXPECT_EQ(answer.out, " Peru is Lima.\n") << answer.err;
  Arguments chat = prefill;
  chat.insert(chat.end(), {"--chat", "--file",
                           FileOf({R"({"prompt": "What is the capital of Peru?"})", Peru("")})});
  const std::vector<Json> rows = Rows(RunModel(chat).out);
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) EXPECT_EQ(Text(row), " Peru is Lima.");
  ExpectFails(RunModel({"--raw", "--prefill", "a", "-p", "b", "--no-stdin"}), 64, "--prefill");
}

TEST_F(RunForeignRowsTest, TokensAreLimited) {
  // The model answers " Lima". Without that token, and its spellings at a beginning, the answer is
  // another.
  const std::string file = FileOf(
      {Peru(R"("bad_words": ["Lima"])"), Peru(R"("bad_words": ["The capital of Peru", "Lima"])"),
       Peru(R"("allowed_token_ids": [100, 101], "max_tokens": 6, "return_token_ids": true)"),
       Peru(R"("allowed_token_ids": [100, 2], "return_token_ids": true, "min_tokens": 3)")});
  const ProgramResult result = RunModel({"--file", file, "--temperature", "0", "-n", "20"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> rows = Rows(result.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(Text(rows[0]).starts_with("The capital of Peru is")) << Text(rows[0]);
  EXPECT_EQ(Text(rows[0]).find("Lima"), std::string::npos) << Text(rows[0]);
  EXPECT_EQ(Text(rows[1]).find("The capital of Peru"), std::string::npos) << Text(rows[1]);
  for (const size_t row : {2, 3}) {
    for (const Json& id : rows[row].Find("token_ids")->as_array()) {
      EXPECT_TRUE(id == Json(100) || id == Json(101) || id == Json(2)) << id.Dump();
    }
  }
  EXPECT_EQ(rows[2].Find("token_ids")->as_array().size(), 6u);
}

TEST_F(RunForeignRowsTest, WhatEndsAnAnswerIsShownIfAskedFor) {
  const std::string file = FileOf(
      {Peru(R"("stop": ["Peru"])"), Peru(R"("stop": ["Peru"], "include_stop_str_in_output": true)"),
       Peru(R"("skip_special_tokens": false)"),
       Peru(R"("skip_special_tokens": false, "include_stop_str_in_output": true)")});
  const std::vector<Json> rows = Rows(RunModel({"--file", file, "--temperature", "0"}).out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(Text(rows[0]), "The capital of ");
  EXPECT_EQ(Text(rows[1]), "The capital of Peru");
  EXPECT_EQ(Text(rows[2]), kLima);
  EXPECT_EQ(Text(rows[3]), std::string(kLima) + "</s>");
}

TEST_F(RunForeignRowsTest, ATopPOfZeroIsGreedy) {
  const std::string file = FileOf({Peru(R"("temperature": 5, "top_p": 0, "seed": 3)"), Peru("")});
  const std::vector<Json> rows =
      Rows(RunModel({"--file", file, "--temperature", "3", "--top-p", "0"}).out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(Text(rows[0]), kLima);
  EXPECT_EQ(Text(rows[1]), kLima) << "the option, too";
}

TEST_F(RunForeignRowsTest, AChatShowsTheLogProbabilitiesOfItsPrompt) {
  const std::string file = FileOf({InBatch("a", Peru(R"("prompt_logprobs": 1, "max_tokens": 2)"))});
  const std::vector<Json> rows = Rows(RunModel({"--file", file}).out);
  ASSERT_EQ(rows.size(), 1u);
  const Json* const body = rows[0].Find("response")->Find("body");
  const Json* const list = body->Find("prompt_logprobs");
  ASSERT_NE(list, nullptr) << body->Dump();
  EXPECT_EQ(Json(std::ssize(list->as_array())), *body->Find("usage")->Find("prompt_tokens"));
  EXPECT_TRUE(list->as_array().front().is_null());
  EXPECT_TRUE(list->as_array().back().is_object());
}

TEST_F(RunForeignRowsTest, WhatIsIgnoredIsSaidOnceARun) {
  const std::vector<std::string> rows = {
      Peru(R"("stream": true, "stream_options": {"include_usage": true})"),
      InBatch("a", Peru(R"("stream": true, "reasoning_effort": "low")")),
      InBatch("b", Peru(R"("stream": true, "reasoning_effort": "high", "verbosity": "low")"))};
  const std::string file = FileOf(rows);
  const ProgramResult result = RunModel({"--file", file, "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(CountOf(result.err, "rows ask for stream, which is ignored"), 1u) << result.err;
  EXPECT_EQ(CountOf(result.err, "rows ask for stream_options"), 1u) << result.err;
  EXPECT_EQ(CountOf(result.err, "reasoning_effort: the chat template has no switch"), 1u);
  EXPECT_EQ(CountOf(result.err, "verbosity: the chat template has no switch"), 1u);
  EXPECT_EQ(CountOf(result.out, "warnings"), 0u) << result.out;
  const std::vector<Json> answers = Rows(result.out);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(Text(answers[0]), kLima);
  EXPECT_EQ(TextOfChoice(answers[2]), kLima);
  const ProgramResult quiet = RunModel({"--file", file, "--quiet"});
  EXPECT_EQ(CountOf(quiet.err, "rows ask for"), 0u) << "a note";
  EXPECT_EQ(CountOf(quiet.err, "reasoning_effort:"), 1u) << "a warning";
  ExpectFails(RunModel({"--file", file, "--strict"}), 65,
              "in.jsonl:2: reasoning_effort: the chat template has no switch for it; leave it out");
}

// The template of the model has no place for them: the answer is one without tools.
TEST_F(RunForeignRowsTest, ToolsThatTheTemplateDropsAreWarnedOf) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  const std::string file =
      FileOf({Peru(R"("tools": [])"), Peru(tools + R"(, "tool_choice": "none")"),
              InBatch("a", Peru(tools)), Peru(tools)});
  const std::string warning = "tools: the chat template does not read them";
  const ProgramResult result = RunModel({"--file", file, "-q", "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(CountOf(result.err, warning + " (they were ignored)"), 1u) << result.err;
  EXPECT_EQ(CountOf(result.out, "\"warnings\": [\"" + warning + "\"]"), 2u) << result.out;
  const ProgramResult check = RunModel({"--file", file, "--check"});
  EXPECT_EQ(CountOf(check.err, warning), 1u) << check.err;
  const ProgramResult plan = RunProgram({"plan", "-m", DemoModel(), file});
  EXPECT_EQ(CountOf(plan.err, warning), 1u) << plan.err;
  ExpectFails(RunModel({"--file", file, "--strict"}), 65, "in.jsonl:3: " + warning);
}

TEST_F(RunForeignRowsTest, APrefillIsAnOptionThatChangesAnswers) {
  const std::string file = FileOf({Peru(""), Peru("")});
  const std::string output = folder_.Path("out.jsonl");
  ASSERT_EQ(RunModel({"--file", file, "-o", output, "--prefill", "The"}).exit_code, 0);
  const ProgramResult other =
      RunModel({"--file", file, "-o", output, "--prefill", "A", "--resume"});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_NE(other.err.find("--prefill"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace minisgl::batch
