// With the templates of real models: the answer to a first row, with calls, is part of the messages
// of a second row, and the template writes the calls as the model did.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch/row.h"
#include "batch/row_output.h"
#include "batch/row_prompt.h"
#include "minisgl/text/chat_messages.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

std::string TemplateFolder() {
  const char* const given = std::getenv("MINISGL_SHARED");
  return (given != nullptr ? given : MINISGL_SOURCE_DIR "/../shared") + std::string("/templates");
}

const std::string kQuestion = R"({"role": "user", "content": "Weather in Oslo?"})";
const std::string kWeatherTools =
    R"("tools": [{"type": "function", "function": {"name": "weather", "description": "Weather", )"
    R"("parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": )"
    R"({"type": "integer"}}, "required": ["city"]}}}])";
const std::string kResult =
    R"({"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "7"})";
// As a template that takes objects writes them.
const std::string kArguments = R"({"city": "Oslo \"S\"", "days": 9007199254740993})";

class CallTemplateTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string file = TemplateFolder() + "/" + GetParam() + ".jinja";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
    std::ifstream stream(file);
    const std::string source(std::istreambuf_iterator<char>(stream), {});
    auto chat = ChatTemplate::Parse(source, GetParam());
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    text_.chat_template = std::move(chat).value();
    EngineLimits limits = SmallLimits();
    limits.num_pages = 4096;
    limits.max_seq_len = 60'000;
    builder_ = std::make_unique<PromptBuilder>(&text_, limits, PromptBuilderOptions());
  }

  // The prompt of a row with these messages.
  std::string PromptOf(const std::string& messages, Row* row) {
    ParsedRow parsed = ParseRow(
        R"({"id": 1, "messages": [)" + messages + "], " + kWeatherTools + fields_ + "}", 0, 1);
    EXPECT_FALSE(parsed.error) << parsed.error->message;
    std::vector<Prompt> prompts;
    const auto error = builder_->Build(&parsed.row, &prompts);
    EXPECT_FALSE(error) << error->message;
    *row = std::move(parsed.row);
    return error ? "" : text_.tokenizer->Decode(prompts.front().ids, true);
  }

  // What the template writes of an answer with a call.
  std::string WrittenCall() {
    ChatInput input;
    input.tools = *ParseJson("{" + kWeatherTools + "}")->Find("tools");
    input.messages = *ParseJson(
        "[" + kQuestion + R"(, {"role": "assistant", "content": "", "tool_calls": [{"id": )" +
        R"("call00001", "type": "function", "function": {"name": "weather", "arguments": )" +
        kArguments + "}}]}]");
    input.bos_token = "<s>";
    input.eos_token = "</s>";
    input.add_generation_prompt = false;
    const auto pieces = RenderMessages(*text_.chat_template, &input);
    EXPECT_TRUE(pieces.ok()) << pieces.status().message();
    std::string whole;
    for (const TextPiece& piece : *pieces) whole += piece.text;
    Row row;
    const std::string before = PromptOf(kQuestion, &row);
    EXPECT_TRUE(whole.starts_with(before)) << whole << "\n" << before;
    std::string call = whole.substr(std::min(before.size(), whole.size()));
    for (const std::string end : {"\n", "<|im_end|>", "</s>"}) {
      if (call.ends_with(end)) call.resize(call.size() - end.size());
    }
    return call;
  }

  TextModel text_ = FakeTextModel();
  std::unique_ptr<PromptBuilder> builder_;
  std::string fields_;
};

TEST_P(CallTemplateTest, AnAnswerWithCallsIsAMessageOfTheNextRow) {
  const std::string call = WrittenCall();
  ASSERT_NE(call, "");
  Row row;
  const std::string before = PromptOf(kQuestion, &row);
  ASSERT_NE(row.calls, nullptr);
  for (const RowFormat format : {RowFormat::kOwn, RowFormat::kBatchChat}) {
    row.format = format;
    RowAnswer answer;
    answer.text = call;
    answer.finish_reason = "stop";
    TakeCalls(row, 0, &answer);
    ASSERT_EQ(answer.calls.size(), 1u) << call;
    EXPECT_EQ(answer.calls[0].name, "weather");
    EXPECT_EQ(answer.calls[0].arguments, kArguments);
    const Json line = *ParseJson(FormatAnswerRow(row, {answer}, *text_.tokenizer));
    Json message = Json(Json::Object());
    if (format == RowFormat::kOwn) {
      message.Set("role", "assistant").Set("content", *line.Find("text"));
      message.Set("tool_calls", *line.Find("tool_calls"));
    } else {
      const Json& body = *line.Find("response")->Find("body");
      message = *body.Find("choices")->as_array().at(0).Find("message");
    }
    const std::string id = message.Find("tool_calls")->as_array().at(0).Find("id")->as_string();
    std::string result = kResult;
    result.replace(result.find("call00001"), 9, id);
    Row next;
    const std::string prompt = PromptOf(kQuestion + ", " + message.Dump() + ", " + result, &next);
    // An id that the model did not write is another one.
    std::string expected = call;
    if (const size_t at = expected.find("call00001"); at != std::string::npos) {
      expected.replace(at, 9, id);
    }
    EXPECT_NE(prompt.find(expected), std::string::npos) << prompt << "\nlacks\n" << expected;
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, CallTemplateTest,
                         testing::Values("mistral-v11", "mistral-v11_think", "mistral-v13",
                                         "qwen2.5-instruct"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

}  // namespace
}  // namespace minisgl::batch
