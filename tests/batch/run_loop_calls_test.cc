// Calls of tools in the answers to rows, in the loop of `minisgl run` over a fake runtime.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "batch/run_loop_fixture.h"

namespace minisgl::batch {
namespace {

const std::string kTools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
const std::string kOwnRow = R"({"id": "a", "messages": [{"role": "user", "content": "a"}], )";
const std::string kBatchRow =
    R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": )"
    R"([{"role": "user", "content": "a"}], )";
// It tells of the dialect by the text that it writes.
const std::string kCallTemplate =
    "{% if tools %}T{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
const std::string kCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>";

class RunLoopCallsTest : public RunLoopTest {
 protected:
  RunLoopCallsTest() {
    auto chat = ChatTemplate::Parse(kCallTemplate, "template");
    EXPECT_TRUE(chat.ok()) << chat.status().message();
    text_.chat_template = std::move(chat).value();
  }

  void AnswerWith(const std::string& text, FinishReason reason = FinishReason::kStop) {
    runtime_.on_submit = [this, text, reason](const FakeRuntime::Submission& request) {
      runtime_.Answer(request, text, reason);
    };
  }
  Json Own(const std::string& fields) { return RunFile(kOwnRow + fields + "}").at(0); }
  Json ChoiceOf(const std::string& fields) {
    const Json row = RunFile(kBatchRow + fields + "}}").at(0);
    return row.Find("response")->Find("body")->Find("choices")->as_array().at(0);
  }
  static std::string IdOf(const Json& calls, size_t index) {
    return calls.as_array().at(index).Find("id")->as_string();
  }
};

TEST_F(RunLoopCallsTest, CallsStandBesideTheTextOfARow) {
  AnswerWith("I look.\n" + kCall + "\n" + kCall);
  const Json row = Own(kTools);
  const Json& calls = *row.Find("tool_calls");
  EXPECT_EQ(row.Dump(),
            R"({"id": "a", "index": 0, "text": "I look.", "tool_calls": [{"id": ")" +
                IdOf(calls, 0) +
                R"(", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 1}"}}, )"
                R"({"id": ")" +
                IdOf(calls, 1) +
                R"(", "type": "function", "function": {"name": "f", "arguments": "{\"n\": )"
                R"(1}"}}], "finish_reason": "tool_calls", "usage": {"prompt_tokens": 19, )"
                R"("cached_tokens": 0, "completion_tokens": 131}})");
  EXPECT_TRUE(IdOf(calls, 0).starts_with("call_"));
  EXPECT_NE(IdOf(calls, 0), IdOf(calls, 1));
}

TEST_F(RunLoopCallsTest, CallsAreThoseOfTheService) {
  AnswerWith(kCall);
  const Json choice = ChoiceOf(kTools);
  const Json& message = *choice.Find("message");
  EXPECT_TRUE(message.Find("content")->is_null());
  EXPECT_EQ(message.Find("tool_calls")->as_array().at(0).Find("function")->Dump(),
            R"({"name": "f", "arguments": "{\"n\": 1}"})");
  EXPECT_EQ(*choice.Find("finish_reason"), Json("tool_calls"));
  AnswerWith("Look: " + kCall);
  EXPECT_EQ(*ChoiceOf(kTools).Find("message")->Find("content"), Json("Look:"));
}

TEST_F(RunLoopCallsTest, AnAnswerWithoutCallsIsThatOfARowWithoutTools) {
  for (const std::string& text :
       {std::string("no call"), std::string("<tool_call>{broken</tool_call>"),
        std::string("<tool_call>\n{\"name\": 5}\n</tool_call>")}) {
    AnswerWith(text);
    EXPECT_EQ(*Own(kTools).Find("text"), Json(text));
    EXPECT_EQ(Own(kTools).Find("tool_calls"), nullptr) << text;
    EXPECT_EQ(*Own(kTools).Find("finish_reason"), Json("stop"));
    EXPECT_EQ(ChoiceOf(kTools).Dump(), ChoiceOf("\"n\": 1").Dump()) << text;
  }
}

TEST_F(RunLoopCallsTest, RowsThatAskForNoReadingKeepTheText) {
  AnswerWith(kCall);
  for (const std::string& fields : {std::string("\"n\": 1"), kTools + R"(, "tool_choice": "none")",
                                    kTools + R"(, "parse_tool_calls": false)"}) {
    const Json row = Own(fields);
    EXPECT_EQ(*row.Find("text"), Json(kCall)) << fields;
    EXPECT_EQ(row.Find("tool_calls"), nullptr) << fields;
    EXPECT_EQ(*row.Find("finish_reason"), Json("stop")) << fields;
  }
  text_.tool_dialect = ToolDialect::kNone;
  EXPECT_EQ(*Own(kTools).Find("text"), Json(kCall));
}

TEST_F(RunLoopCallsTest, AnAnswerThatIsCutKeepsItsReason) {
  AnswerWith(kCall + "\n<tool_call>\n{\"name\": \"f\", \"argum", FinishReason::kLength);
  const Json row = Own(kTools);
  EXPECT_EQ(row.Find("tool_calls")->as_array().size(), 1u);
  EXPECT_EQ(*row.Find("finish_reason"), Json("length"));
  EXPECT_EQ(*row.Find("text"), Json("<tool_call>\n{\"name\": \"f\", \"argum"));
  EXPECT_EQ(*ChoiceOf(kTools).Find("finish_reason"), Json("length"));
  AnswerWith(kCall, FinishReason::kTimeout);
  EXPECT_EQ(*Own(kTools).Find("finish_reason"), Json("timeout"));
}

TEST_F(RunLoopCallsTest, OneCallIsKeptWithoutParallelOnes) {
  AnswerWith(kCall + "\n" + kCall + " end");
  for (const char* fields : {R"(, "parallel_tool_calls": false)",
                             R"(, "tool_choice": {"type": "function", "name": "f"})"}) {
    const Json row = Own(kTools + fields);
    ASSERT_NE(row.Find("tool_calls"), nullptr) << row.Dump();
    EXPECT_EQ(row.Find("tool_calls")->as_array().size(), 1u) << fields;
  }
}

TEST_F(RunLoopCallsTest, EveryAnswerHasIdsOfItsOwnThatNoScheduleChanges) {
  const std::string input = kOwnRow + kTools + ", \"n\": 3}\n" +
                            R"({"id": "b", "messages": [{"role": "user", "content": "a"}], )" +
                            kTools + "}\n";
  std::string before;
  for (const bool backwards : {false, true}) {
    runtime_.submissions.clear();
    runtime_.on_submit = [this, backwards](const FakeRuntime::Submission& request) {
      if (!backwards) return runtime_.Answer(request, kCall);
      if (runtime_.open.size() < 4) return;
      const auto submissions = runtime_.submissions;
      for (auto one = submissions.rbegin(); one != submissions.rend(); ++one) {
        if (runtime_.open.count(one->id) != 0) runtime_.Answer(*one, kCall);
      }
    };
    std::set<std::string> ids;
    std::string dump;
    for (const Json& row : RunFile(input)) {
      dump += row.Dump();
      const Json* const choices = row.Find("choices");
      if (choices == nullptr) {
        ids.insert(IdOf(*row.Find("tool_calls"), 0));
        continue;
      }
      for (const Json& choice : choices->as_array()) {
        EXPECT_EQ(*choice.Find("finish_reason"), Json("tool_calls"));
        ids.insert(IdOf(*choice.Find("tool_calls"), 0));
      }
    }
    EXPECT_EQ(ids.size(), 4u) << dump;
    if (backwards) {
      EXPECT_EQ(dump, before);
    }
    before = dump;
  }
}

// The next prompt of a session, asked after an answer with calls.
class CallSessionTest : public RunLoopCallsTest {
 protected:
  CallSessionTest() {
    limits_.num_pages = 64;
    limits_.max_seq_len = 1000;
  }
  std::string PromptAfter(const std::string& answer, bool is_resumed,
                          const std::string& fields = kTools) {
    const PromptBuilder builder(&text_, limits_, PromptBuilderOptions());
    SaidSoFar said(&text_);
    const auto build = [&](const std::string& row) {
      ParsedRow parsed = ParseRow(row, 0, 1);
      EXPECT_FALSE(parsed.error) << parsed.error->message;
      const auto error = builder.Build(&parsed.row, &prompts_, nullptr, &said);
      EXPECT_FALSE(error) << error->message;
    };
    build(R"({"session": "s", "id": "a", "messages": [{"role": "user", "content": "q"}], )" +
          fields + "}");
    std::vector<TokenId> ids;
    for (const char byte : answer) ids.push_back(static_cast<uint8_t>(byte));
    if (is_resumed) {
      said.AddAnswer(ids, /*stopped=*/true);
    } else {
      said.AddAnswer(answer, {}, ids, /*stopped=*/true);
    }
    build(R"({"session": "s", "messages": [{"role": "tool", "content": "7"}], )" + fields + "}");
    return text_.tokenizer->Decode(prompts_.front().ids, true);
  }

  EngineLimits limits_ = SmallLimits();
  std::vector<Prompt> prompts_;
};

TEST_F(CallSessionTest, ASessionGoesOnWithTheCalls) {
  for (const bool is_resumed : {false, true}) {
    EXPECT_EQ(PromptAfter("I look." + kCall, is_resumed),
              "T[user]q[assistant]I look." + kCall + "[tool]7[assistant]");
    EXPECT_EQ(PromptAfter("<tool_call>{\"arguments\": {\"n\": 1}, \"name\": \"f\"}</tool_call>",
                          is_resumed),
              "T[user]q[assistant]" + kCall + "[tool]7[assistant]")
        << "as the template writes it";
  }
}

TEST_F(CallSessionTest, CallsThatAreNotReadStayText) {
  const std::string text = "<tool_call>{\"arguments\": {\"n\": 1}, \"name\": \"f\"}</tool_call>";
  for (const bool is_resumed : {false, true}) {
    EXPECT_EQ(PromptAfter(text, is_resumed, R"("parse_tool_calls": false, )" + kTools),
              "T[user]q[assistant]" + text + "[tool]7[assistant]");
  }
}

// Answers that are not known stand for the calls whose results follow.
TEST_F(CallSessionTest, AResultHasItsCallBeforeItWhereAnswersAreNotKnown) {
  auto chat = ChatTemplate::Parse(
      "{% for m in messages %}{% if m.role == 'tool' and not messages[loop.index0 - 1].tool_calls "
      "and messages[loop.index0 - 1].role != 'tool' %}{{ raise_exception('no call') }}{% endif %}"
      "[{{ m.role }}]{% for c in m.tool_calls %}{{ c.function.name }}{{ c.id }};{% endfor %}"
      "{{ m.content }}{% endfor %}",
      "template");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  text_.chat_template = std::move(chat).value();
  const PromptBuilder builder(&text_, limits_, PromptBuilderOptions());
  UnaskedRows rows(&builder);
  std::string prompt;
  for (const char* messages :
       {R"([{"role": "user", "content": "q"}])",
        R"([{"role": "tool", "name": "f", "tool_call_id": "c1", "content": "7"}, )"
        R"({"role": "tool", "content": "8"}])",
        R"([{"role": "user", "content": "r"}])"}) {
    ParsedRow parsed =
        ParseRow(std::string(R"({"session": "s", "messages": )") + messages + "}", 0, 1);
    const auto error = rows.Build(&parsed, &prompts_);
    EXPECT_FALSE(error) << error->message;
    prompt = text_.tokenizer->Decode(prompts_.front().ids, true);
  }
  EXPECT_EQ(prompt, "[user]q[assistant]fc1;toolcall00000;[tool]7[tool]8[assistant][user]r");
}

// What a row has of a first answer can be copied into the messages of a second row.
TEST_F(CallSessionTest, ACopiedAnswerRendersAsTheModelWroteIt) {
  AnswerWith("I look." + kCall + kCall);
  const Json row = Own(kTools);
  Json message = Json(Json::Object());
  message.Set("role", "assistant").Set("content", *row.Find("text"));
  message.Set("tool_calls", *row.Find("tool_calls"));
  const Json of_service = *ChoiceOf(kTools).Find("message");
  for (const Json& copied : {message, of_service}) {
    const PromptBuilder builder(&text_, limits_, PromptBuilderOptions());
    ParsedRow parsed = ParseRow(R"({"messages": [{"role": "user", "content": "q"}, )" +
                                    copied.Dump() + R"(, {"role": "tool", "content": "7"}]})",
                                0, 1);
    ASSERT_FALSE(parsed.error) << parsed.error->message;
    const auto error = builder.Build(&parsed.row, &prompts_);
    ASSERT_FALSE(error) << error->message;
    EXPECT_EQ(text_.tokenizer->Decode(prompts_.front().ids, true),
              "[user]q[assistant]I look." + kCall + kCall + "[tool]7[assistant]");
  }
}

TEST_F(RunLoopCallsTest, MistralsIdsHaveNineLettersAndDigits) {
  text_.tool_dialect = ToolDialect::kMistralV3;
  Row row;
  std::vector<ToolCall> calls = {{"f", "{}", ""}, {"f", "{}", "own"}};
  CallIds(row, 0, ToolDialect::kMistralV3).Name(&calls);
  EXPECT_EQ(calls[0].id.size(), 9u);
  EXPECT_EQ(calls[0].id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789"),
            std::string::npos);
  EXPECT_EQ(calls[1].id, "own");
}

}  // namespace
}  // namespace minisgl::batch
