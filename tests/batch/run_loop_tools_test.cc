// Rows whose calls of tools are run, in the loop of `minisgl run` over a fake runtime: the rows
// are asked again with the results, other rows go on, and stops end the calls.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batch/run_loop_fixture.h"

namespace minisgl::batch {
namespace {

const std::string kAskingQ = R"("messages": [{"role": "user", "content": "q"}])";
const std::string kCallOfF =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>";
const std::string kCallOfG =
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"n\": 1}}\n</tool_call>";
const std::string kToolF = R"({"type": "function", "function": {"name": "f"}})";
const std::string kToolG = R"({"type": "function", "function": {"name": "g"}})";
constexpr const char* kToolTemplate =
    "{% if tools %}T{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

class RunLoopToolsTest : public RunLoopTest {
 protected:
  using Stops = std::function<bool()>;

  RunLoopToolsTest() {
    auto chat = ChatTemplate::Parse(kToolTemplate, "template");
    EXPECT_TRUE(chat.ok()) << chat.status().message();
    text_.chat_template = std::move(chat).value();
    load::ToolOptions options;
    options.tools = {"f=true"};
    auto tools = load::UserTools::Take(options);
    EXPECT_TRUE(tools.ok()) << tools.status().message();
    tools_ = std::move(tools).value();
    loop_options_.tools.knows = [](const std::string& name) { return name == "f"; };
    loop_options_.tools.run = [this](const ToolCall& call, const Stops&) {
      ++num_run_;
      return "seven for " + call.arguments;
    };
    AnswerWith([](const std::string& prompt) {
      return prompt.ends_with("[user]q[assistant]") ? kCallOfF : "It is 7.";
    });
    EngineLimits limits = SmallLimits();
    limits.num_pages = 64;
    limits.max_seq_len = 1000;
    runtime_.set_limits(limits);
  }

  // `answer`: to a prompt.
  void AnswerWith(std::function<std::string(const std::string&)> answer) {
    runtime_.on_submit = [this, answer](const FakeRuntime::Submission& request) {
      const std::string prompt = text_.tokenizer->Decode(request.prompt.ids, false);
      prompts_.push_back(prompt);
      has_grammar_.push_back(request.prompt.grammar != nullptr);
      runtime_.Answer(request, answer(prompt));
    };
  }
  Json Own(const std::string& fields = "") {
    const std::string more = fields.empty() ? "" : ", " + fields;
    return RunFile(R"({"id": "a", )" + kAskingQ + more + "}\n").at(0);
  }
  static std::string Code(const Json& row) {
    const Json* const error = row.Find("error");
    return error == nullptr ? "" : error->Find("code")->as_string();
  }

  std::vector<std::string> prompts_;
  std::vector<bool> has_grammar_;
  std::atomic<int> num_run_ = 0;
};

TEST_F(RunLoopToolsTest, ARowIsAskedAgainWithTheResults) {
  const Json row = Own();
  ASSERT_EQ(prompts_.size(), 2u);
  EXPECT_EQ(prompts_[0], "T[user]q[assistant]");
  EXPECT_EQ(prompts_[1],
            "T[user]q[assistant]" + kCallOfF + "[tool]seven for {\"n\": 1}[assistant]");
  const Json& messages = *row.Find("tool_messages");
  const std::string id =
      messages.as_array().at(0).Find("tool_calls")->as_array().at(0).Find("id")->as_string();
  EXPECT_EQ(
      row.Dump(),
      R"({"id": "a", "index": 0, "text": "It is 7.", "finish_reason": "stop", )"
      R"("tool_messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": ")" +
          id +
          R"(", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 1}"}}]}, )"
          R"({"role": "tool", "tool_call_id": ")" +
          id +
          R"(", "name": "f", "content": "seven for {\"n\": 1}"}], "usage": )"
          R"({"prompt_tokens": 134, "cached_tokens": 0, "completion_tokens": 69}})");
  EXPECT_EQ(rows_done_, 1);
}

TEST_F(RunLoopToolsTest, RowsOfTheServiceHaveTheMessagesBesideTheChoices) {
  const std::vector<Json> rows =
      RunFile(R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {)" +
              kAskingQ + "}}");
  const Json& body = *rows.at(0).Find("response")->Find("body");
  const Json& choice = body.Find("choices")->as_array().at(0);
  EXPECT_EQ(*choice.Find("message")->Find("content"), Json("It is 7."));
  EXPECT_EQ(*choice.Find("finish_reason"), Json("stop"));
  EXPECT_EQ(body.Find("tool_messages")->as_array().size(), 2u);
  EXPECT_EQ(body.Find("usage")->Dump(),
            R"({"prompt_tokens": 134, "completion_tokens": 69, "total_tokens": 203, )"
            R"("prompt_tokens_details": {"cached_tokens": 0}})");
}

TEST_F(RunLoopToolsTest, ToolsOfTheRowAloneAreNotRun) {
  AnswerWith([](const std::string&) { return kCallOfG; });
  const Json row = Own("\"tools\": [" + kToolG + "]");
  EXPECT_EQ(*row.Find("finish_reason"), Json("tool_calls"));
  EXPECT_EQ(row.Find("tool_messages"), nullptr);
  EXPECT_EQ(*Own("\"tools\": [" + kToolF + ", " + kToolG + "]").Find("finish_reason"),
            Json("tool_calls"));
  AnswerWith([](const std::string&) { return kCallOfF + kCallOfG; });
  const Json both = Own("\"tools\": [" + kToolF + ", " + kToolG + "]");
  EXPECT_EQ(both.Find("tool_calls")->as_array().size(), 2u) << "all or none";
  EXPECT_EQ(num_run_, 0);
}

TEST_F(RunLoopToolsTest, ARowWithANamedToolKeepsItsOwnList) {
  const Json row = Own("\"tools\": [" + kToolF + "]");
  EXPECT_EQ(*row.Find("text"), Json("It is 7."));
  EXPECT_EQ(num_run_, 1);
}

TEST_F(RunLoopToolsTest, RowsThatWantNoCallsAreLeftAlone) {
  for (const char* fields :
       {R"("tool_choice": "none")", R"("tools": [])", R"("parse_tool_calls": false)"}) {
    const Json row = Own(fields);
    EXPECT_EQ(*row.Find("text"), Json(kCallOfF)) << fields;
    EXPECT_FALSE(prompts_.back().starts_with('T')) << fields;
  }
  EXPECT_EQ(num_run_, 0);
}

TEST_F(RunLoopToolsTest, ACallOfNoToolIsAnsweredWithWhatTheToolsAre) {
  AnswerWith([](const std::string& prompt) {
    return prompt.ends_with("[user]q[assistant]") ? kCallOfG : "Sorry.";
  });
  EXPECT_EQ(*Own().Find("text"), Json("Sorry."));
  EXPECT_EQ(num_run_, 1);
}

TEST_F(RunLoopToolsTest, TheTurnsAreBounded) {
  AnswerWith([](const std::string&) { return kCallOfF; });
  loop_options_.tools.turns_max = 3;
  const Json row = Own();
  EXPECT_EQ(num_run_, 3);
  EXPECT_EQ(*row.Find("finish_reason"), Json("tool_calls"));
  EXPECT_EQ(row.Find("tool_messages")->as_array().size(), 6u);
  EXPECT_NE(row.Find("warnings")->Dump().find("those of 3 answers were"), std::string::npos);
  std::set<std::string> ids;
  for (const Json& message : row.Find("tool_messages")->as_array()) {
    if (const Json* const id = message.Find("tool_call_id")) ids.insert(id->as_string());
  }
  ids.insert(row.Find("tool_calls")->as_array().at(0).Find("id")->as_string());
  EXPECT_EQ(ids.size(), 4u) << "of its own for each call";
}

TEST_F(RunLoopToolsTest, OtherRowsGoOnWhileAToolRuns) {
  std::promise<void> answered;
  loop_options_.tools.run = [done = answered.get_future().share()](const ToolCall&, const Stops&) {
    done.wait();  // for ever, if the run waits for the tool
    return std::string("7");
  };
  AnswerWith([&](const std::string& prompt) {
    if (prompt.ends_with("[user]last[assistant]")) answered.set_value();
    return prompt.ends_with("[user]q[assistant]") ? kCallOfF : "It is 7.";
  });
  std::string input = R"({"id": "a", )" + kAskingQ + "}\n";
  for (int i = 0; i < 20; ++i) {
    input += R"({"messages": [{"role": "user", "content": "r"}]})"
             "\n";
  }
  input += R"({"messages": [{"role": "user", "content": "last"}]})"
           "\n";
  loop_options_.answers_ahead_max = 1;
  const std::vector<Json> rows = RunFile(input, /*ordered=*/false);
  ASSERT_EQ(rows.size(), 22u);
  EXPECT_EQ(*rows.back().Find("id"), Json("a"));
}

TEST_F(RunLoopToolsTest, ChosenCallsAreForcedOnce) {
  const std::string tools = "\"tools\": [" + kToolF + "], ";
  for (const char* choice : {R"("tool_choice": "required")",
                             R"("tool_choice": {"type": "function", "function": {"name": "f"}})"}) {
    has_grammar_.clear();
    EXPECT_EQ(*Own(tools + choice).Find("text"), Json("It is 7.")) << choice;
    EXPECT_EQ(has_grammar_, (std::vector<bool>{true, false})) << choice;
  }
  has_grammar_.clear();
  const std::string strict = R"("tools": [{"type": "function", "function": {"name": "f", )"
                             R"("strict": true, "parameters": {"type": "object"}}}], )";
  EXPECT_EQ(*Own(strict + R"("tool_choice": "required")").Find("text"), Json("It is 7."));
  EXPECT_EQ(has_grammar_, (std::vector<bool>{true, true})) << "strict holds for every answer";
}

TEST_F(RunLoopToolsTest, EveryTurnOfARowHasItsCalls) {
  const Json row =
      RunFile(
          R"({"id": "a", "answer_all_turns": true, "messages": [{"role": "user", "content": "q"}, )"
          R"({"role": "user", "content": "q"}], "return_token_ids": true, )"
          R"("tool_choice": "required", "tools": [)" +
          kToolF + "]}")
          .at(0);
  const Json::Array& turns = row.Find("turns")->as_array();
  ASSERT_EQ(turns.size(), 2u) << row.Dump();
  for (const Json& turn : turns) {
    EXPECT_EQ(*turn.Find("text"), Json("It is 7."));
    EXPECT_EQ(turn.Find("tool_messages")->as_array().size(), 2u);
    EXPECT_NE(turn.Find("tool_messages")->as_array()[0].Find("token_ids"), nullptr);
  }
  EXPECT_EQ(has_grammar_, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(prompts_.back(), "T[user]q[assistant]" + kCallOfF +
                                 "[tool]seven for {\"n\": 1}[assistant]It is 7.[user]q[assistant]" +
                                 kCallOfF + "[tool]seven for {\"n\": 1}[assistant]");
}

TEST_F(RunLoopToolsTest, ASessionGoesOnBehindTheCalls) {
  const std::string row = R"({"session": "s", )" + kAskingQ + "}\n";
  const std::vector<Json> rows = RunFile(row + row);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(*rows[1].Find("text"), Json("It is 7."));
  ASSERT_EQ(prompts_.size(), 4u);
  EXPECT_EQ(prompts_[2], "T[user]q[assistant]" + kCallOfF +
                             "[tool]seven for {\"n\": 1}[assistant]It is 7.[user]q[assistant]");
}

TEST_F(RunLoopToolsTest, PartsOfAnswersHaveCallsAndResults) {
  streams_ = true;
  const std::vector<Json> lines = RunFile(R"({"id": "a", )" + kAskingQ + "}\n", false);
  std::string text, kinds;
  std::string call_id, result_id;
  for (const Json& line : lines) {
    if (const Json* const delta = line.Find("delta")) text += delta->as_string();
    if (const Json* const calls = line.Find("tool_calls_delta")) {
      call_id = calls->as_array().at(0).Find("id")->as_string();
      kinds += "c";
    }
    if (const Json* const results = line.Find("tool_results")) {
      result_id = results->as_array().at(0).Find("tool_call_id")->as_string();
      kinds += "r";
    }
  }
  EXPECT_EQ(text, "It is 7.");
  EXPECT_EQ(kinds, "cr");
  EXPECT_EQ(call_id, result_id);
}

TEST_F(RunLoopToolsTest, WhatCannotBeHadIsRefusedByName) {
  EXPECT_EQ(Code(Own("\"n\": 2")), "unsupported_field");
  EXPECT_EQ(Code(Own("\"prompt_logprobs\": 1")), "unsupported_field");
  EXPECT_EQ(Code(Own("\"add_generation_prompt\": false")), "unsupported_field");
  EXPECT_EQ(num_run_, 0);
}

TEST_F(RunLoopToolsTest, ResultsThatDoNotFitAreAnErrorWithTheMessages) {
  loop_options_.tools.run = [](const ToolCall&, const Stops&) { return std::string(2000, 'x'); };
  const Json row = Own();
  EXPECT_EQ(Code(row), "length_exceeded");
  EXPECT_EQ(row.Find("tool_messages")->as_array().size(), 2u);
  EXPECT_EQ(rows_failed_, 1);
}

TEST_F(RunLoopToolsTest, ARowThatTookTooLongIsAskedAgainBehindItsResults) {
  loop_options_.timeout_retries = 1;
  int num_second = 0;
  runtime_.on_submit = [&](const FakeRuntime::Submission& request) {
    const std::string prompt = text_.tokenizer->Decode(request.prompt.ids, false);
    const bool is_first = prompt.ends_with("[user]q[assistant]");
    const bool is_late = !is_first && ++num_second == 1;
    runtime_.Answer(request, is_first ? kCallOfF : "It is 7.",
                    is_late ? FinishReason::kTimeout : FinishReason::kStop);
  };
  const Json row = Own("\"timeout_s\": 1000");
  EXPECT_EQ(*row.Find("finish_reason"), Json("stop"));
  EXPECT_EQ(row.Find("tool_messages")->as_array().size(), 2u);
  EXPECT_EQ(num_second, 2);
  EXPECT_EQ(num_run_, 1);
}

// A row, and a line that aborts it when its tool has begun.
class AbortedRow : public RowSource {
 public:
  explicit AbortedRow(const std::atomic<bool>* has_begun) : has_begun_(*has_begun) {}
  Outcome Next(int, ParsedRow* row) override {
    if (num_read_ == 0) {
      ++num_read_;
      *row = ParseRow(R"({"id": "a", )" + kAskingQ + "}", 0, 1);
      return Outcome::kRow;
    }
    if (!has_begun_) return Outcome::kNotYet;
    return ++num_read_ == 2 ? Outcome::kControl : Outcome::kEnd;
  }
  size_t row_bytes() const override { return 1; }
  const RunControl& control() const override { return control_; }

 private:
  const std::atomic<bool>& has_begun_;
  int num_read_ = 0;
  const RunControl control_ = {Json("a"), false};
};

TEST_F(RunLoopToolsTest, AnAbortedRowHasItsCallStopped) {
  std::atomic<bool> has_begun = false, was_stopped = false;
  loop_options_.tools.run = [&](const ToolCall&, const Stops& stops) {
    has_begun = true;
    while (!stops()) std::this_thread::yield();
    was_stopped = true;
    return std::string();
  };
  AbortedRow source(&has_begun);
  EXPECT_TRUE(RunRows(&source, folder_.Path("out.jsonl"), true).ok());
  const Result<Json> row = ParseJson(folder_.Read("out.jsonl"));
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(Code(*row), "aborted");
  EXPECT_EQ(prompts_.size(), 1u);
  EXPECT_TRUE(was_stopped);
}

// The tool has begun when the stop comes, and ends because it is stopped.
TEST_F(RunLoopToolsTest, AStopEndsTheCallAndLeavesTheRow) {
  for (const bool at_once : {false, true}) {
    std::atomic<bool> has_begun = false, was_stopped = false;
    loop_options_.grace = std::chrono::milliseconds(0);
    loop_options_.tools.run = [&](const ToolCall&, const Stops& stops) {
      has_begun = true;
      while (!stops()) std::this_thread::yield();
      was_stopped = true;
      return std::string();
    };
    loop_options_.stop = [&] {
      return has_begun ? term::StopRequest{SIGTERM, at_once} : term::StopRequest{};
    };
    EXPECT_TRUE(RunFile(R"({"id": "a", )" + kAskingQ + "}\n").empty());
    EXPECT_TRUE(was_stopped);
    EXPECT_EQ(rows_done_, 0);
  }
}

TEST_F(RunLoopToolsTest, WithinTheGraceACallGoesOn) {
  std::atomic<bool> has_begun = false;
  std::promise<void> stopping;
  const auto stopped = stopping.get_future().share();
  loop_options_.grace = std::chrono::hours(1);
  loop_options_.tools.run = [&, stopped](const ToolCall&, const Stops&) {
    has_begun = true;
    stopped.wait();
    return std::string("7");
  };
  loop_options_.stop = [&, is_said = false]() mutable {
    if (!has_begun) return term::StopRequest{};
    if (!std::exchange(is_said, true)) stopping.set_value();
    return term::StopRequest{SIGTERM, false};
  };
  EXPECT_EQ(*RunFile(R"({"id": "a", )" + kAskingQ + "}\n").at(0).Find("text"), Json("It is 7."));
}

}  // namespace
}  // namespace minisgl::batch
