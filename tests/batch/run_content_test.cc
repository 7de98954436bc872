// Templates that take the content of messages as a list of parts, and messages that a template
// leaves out.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

// The demo model's template for contents that are lists of parts, and for nothing else.
constexpr const char* kPartsTemplate =
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] }}{% endfor %}{{ eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

class RunContentTest : public RunProgramTest {
 protected:
  // The rows that the command writes, without the lines' other parts that count time.
  static std::string Out(const Arguments& more) {
    const ProgramResult result = RunModel(more);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result.out;
  }
  std::string Parts() const { return folder_.Write("parts.jinja", kPartsTemplate); }
};

TEST_F(RunContentTest, ATemplateOfPartsAnswersAsOneOfStrings) {
  const std::string rows = folder_.Write(
      "in.jsonl",
      R"({"id": 1, "max_tokens": 8, "messages": [{"role": "user", "content": "What is red?"}]}
{"id": 2, "max_tokens": 8, "messages": [{"role": "system", "content": "Be brief."}, )"
      R"({"role": "user", "content": [{"type": "text", "text": "What is "}, )"
      R"({"type": "text", "text": "red?", "image": "x"}]}]}
{"id": 3, "max_tokens": 4, "session": "s", "messages": [)"
      R"({"role": "user", "content": "Who are you?"}]}
{"id": 4, "max_tokens": 4, "session": "s", "messages": [)"
      R"({"role": "user", "content": [{"type": "text", "text": "And I?"}]}]}
{"id": 5, "max_tokens": 4, "answer_all_turns": true, "messages": [)"
      R"({"role": "user", "content": "Hi"}, {"role": "user", "content": "Again"}]}
{"id": 6, "max_tokens": 4, "prompt": "What is the capital of Peru?"}
{"custom_id": "7", "method": "POST", "url": "/v1/chat/completions", "body": {"max_tokens": 4, )"
      R"("messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}}
)");
  const std::string expected = Out({"--file", rows, "--chat", "--system", "Be kind."});
  EXPECT_EQ(Out({"--file", rows, "--chat", "--system", "Be kind.", "--chat-template", Parts()}),
            expected);
  EXPECT_EQ(Out({"-p", kPeru, "--chat-template", Parts()}), std::string(kLima) + "\n");
}

TEST_F(RunContentTest, AMessageThatIsLeftOutIsAnErrorRow) {
  const std::string rows =
      folder_.Write("in.jsonl",
                    R"({"session": "s", "max_tokens": 1, "prompt_token_ids": [1]}
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "xyz"}]}
{"prompt": "xyz"}
)");
  const ProgramResult result = RunModel(
      {"--file", rows, "--chat", "--chat-template", Parts(), "--template-content", "string"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::vector<Json> out = Rows(result.out);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(Code(out[0]), "");
  const std::string advice =
      ": the chat template leaves out its text; pass it in another form with --template-content "
      "parts";
  for (const auto& [row, message] : std::vector<std::pair<size_t, std::string>>{
           {1, "messages[0] (role system)"}, {2, "messages[0] (role user)"}}) {
    EXPECT_EQ(Code(out[row]), "template_error");
    EXPECT_EQ(out[row].Find("error")->Find("message")->as_string(), message + advice);
  }
  ExpectFails(RunModel({"-p", "xyz", "--chat-template", Parts(), "--template-content", "string"}),
              65, "messages[0] (role user)" + advice);
}

// The demo model's template, which does not show messages of developers.
TEST_F(RunContentTest, AMessageIsNamedByItsPlaceInTheRow) {
  const std::string no_developers = folder_.Write(
      "users.jinja",
      "{{ bos_token }}{% for m in messages if m.role != 'developer' %}"
      "{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}<|assistant|>\n");
  const std::string rows = folder_.Write(
      "in.jsonl", R"({"session": "s", "max_tokens": 1, "messages": [)"
                  R"({"role": "user", "content": "Hi"}, {"role": "user", "content": "Hi"}]}
{"session": "s", "max_tokens": 1, "messages": [)"
                  R"({"role": "user", "content": "x"}, {"role": "developer", "content": "y"}]}
{"answer_all_turns": true, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}, )"
                  R"({"role": "developer", "content": "y"}, {"role": "user", "content": "x"}]}
{"messages": [{"role": "developer", "content": "x"}]}
{"messages": [{"role": "user", "content": "x"}]}
)");
  const ProgramResult result =
      RunModel({"--file", rows, "--chat-template", no_developers, "--max-tokens", "2"});
  const std::vector<Json> out = Rows(result.out);
  ASSERT_EQ(out.size(), 5u);
  EXPECT_EQ(Code(out[0]) + Code(out[4]), "");
  for (const auto& [row, index] : std::vector<std::pair<size_t, int>>{{1, 1}, {2, 1}, {3, 0}}) {
    EXPECT_EQ(Code(out[row]), "template_error") << out[row].Dump();
    EXPECT_EQ(out[row].Find("error")->Find("message")->as_string(),
              "messages[" + std::to_string(index) +
                  "] (role developer): the chat template leaves out its text; give it another "
                  "role, or use another template with --chat-template");
  }
}

TEST_F(RunContentTest, TokenizeShowsThePromptOfEachForm) {
  const std::string rows = folder_.Write(
      "in.jsonl", R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, )"
                  R"({"type": "text", "text": "b"}]}]}
{"messages": [{"role": "user", "content": "ab"}]}
)");
  for (const Arguments& form : {Arguments{}, Arguments{"--chat-template", Parts()}}) {
    Arguments arguments = {"tokenize", "-m", DemoModel(), "--file", rows};
    arguments.insert(arguments.end(), form.begin(), form.end());
    const std::vector<Json> out = RunContentTest::Rows(RunProgram(arguments).out);
    ASSERT_EQ(out.size(), 2u);
    for (const Json& row : out) {
      EXPECT_EQ(*row.Find("prompt"), Json("<s><|user|>\nab</s>\n<|assistant|>\n")) << row.Dump();
    }
  }
  const ProgramResult result =
      RunProgram({"tokenize", "-m", DemoModel(), "--file", rows, "--chat-template", Parts(),
                  "--template-content", "string"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(Code(RunContentTest::Rows(result.out).at(1)), "template_error") << result.out;
}

// So that a user sees what the template does with it.
TEST_F(RunContentTest, TokenizeShowsAPromptThatLacksAText) {
  const std::string roles = folder_.Write("roles.jinja",
                                          "{% for g in messages | groupby('role') %}{{ g.grouper "
                                          "}}:{{ g.list | length }};{% endfor %}");
  const std::string rows =
      folder_.Write("in.jsonl", R"({"id": "a", "messages": [{"role": "user", "content": "xyz"}]})");
  const ProgramResult result =
      RunProgram({"tokenize", "-m", DemoModel(), "--file", rows, "--chat-template", roles});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const Json row = RunContentTest::Rows(result.out).at(0);
  EXPECT_EQ(*row.Find("id"), Json("a"));
  EXPECT_EQ(*row.Find("prompt"), Json("user:1;"));
  ASSERT_NE(row.Find("prompt_token_ids"), nullptr) << result.out;
  EXPECT_EQ(Code(row), "template_error") << result.out;
  EXPECT_EQ(row.Find("error")->Find("message")->as_string().find("messages[0] (role user): "), 0u);
}

TEST_F(RunContentTest, TheFormIsPartOfTheRun) {
  const std::string rows = folder_.Write(
      "in.jsonl", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]})");
  const std::string out = folder_.Path("out.jsonl");
  EXPECT_EQ(RunModel({"--file", rows, "-o", out}).exit_code, 0);
  const ProgramResult other =
      RunModel({"--file", rows, "-o", out, "--resume", "--template-content", "string"});
  EXPECT_EQ(other.exit_code, 73) << other.err;
  EXPECT_NE(other.err.find("--template-content"), std::string::npos) << other.err;
  EXPECT_EQ(RunModel({"--file", rows, "-o", out, "--resume"}).exit_code, 0);
}

TEST_F(RunContentTest, InfoShowsTheForm) {
  const auto info = [](const Arguments& more) {
    Arguments arguments = {"info", "-m", DemoModel()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments).out;
  };
  const std::string string = "takes the content of messages as a string\n";
  const std::string parts = "takes the content of messages as a list of parts\n";
  EXPECT_NE(info({}).find(string), std::string::npos);
  EXPECT_NE(info({"--chat-template", Parts()}).find(parts), std::string::npos);
  EXPECT_NE(info({"--template-content", "parts"}).find(parts), std::string::npos);
}

}  // namespace
}  // namespace minisgl::batch
