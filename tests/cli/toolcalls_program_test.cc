// `minisgl toolcalls`: rows whose calls are read.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "program/program.h"

namespace minisgl::cli {
namespace {

class ToolCallsProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static ProgramResult Read(const std::string& rows, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"toolcalls", "--file", "-"});
    return RunProgram(more, {rows, "", {}});
  }
};

TEST_F(ToolCallsProgramTest, RowsGiveTheirCalls) {
  const ProgramResult result = Read(
      R"j({"id": "a", "dialect": "hermes", "text": "<think>W</think>\n\nA\n<tool_call>{\"name\": )j"
      R"j(\"f\", \"arguments\": {\"n\": 9007199254740993}}</tool_call>"})j"
      "\n"
      R"j({"id": 12345678901234567890123, "dialect": "qwen3_coder", "tools": [{"type": )j"
      R"j("function", "function": {"name": "f", "parameters": {"type": "object", "properties": )j"
      R"j({"s": {"type": "string"}}}}}], "text": )j"
      R"j("<tool_call><function=f><parameter=s>7</parameter></function></tool_call>"})j"
      "\n\n"
      R"j({"dialect": "mistral_v3", "tools": null, "text": )j"
      R"j("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}]"})j"
      "\n"
      R"j({"dialect": "hermes", "text": "No call."})j"
      "\n"
      R"j({"dialect": "hermes", "text": ""})j"
      "\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      result.out,
      R"j({"id": "a", "content": "A", "reasoning": "W", "tool_calls": [{"name": "f", )j"
      R"j("arguments": "{\"n\": 9007199254740993}"}]})j"
      "\n"
      R"j({"id": 12345678901234567890123, "content": null, "reasoning": null, "tool_calls": )j"
      R"j([{"name": "f", "arguments": "{\"s\": \"7\"}"}]})j"
      "\n"
      R"j({"id": null, "content": null, "reasoning": null, "tool_calls": [{"name": "f", )j"
      R"j("arguments": "{}", "id": "abcdefghi"}]})j"
      "\n"
      R"j({"id": null, "content": "No call.", "reasoning": null, "tool_calls": []})j"
      "\n"
      R"j({"id": null, "content": "", "reasoning": null, "tool_calls": []})j"
      "\n");
}

TEST_F(ToolCallsProgramTest, ABadRowHasOneError) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"id": 1, "dialect": "hermes"})", "text is missing"},
      {R"({"id": 1, "text": "a"})", "dialect is missing; give one of hermes, "},
      {R"({"id": 1, "dialect": "Hermes", "text": "a"})", "(found \"Hermes\")"},
      {R"({"id": 1, "dialect": 2, "text": "a"})", "dialect must be a string"},
      {R"({"id": 1, "dialect": "hermes", "text": ["a"]})", "text must be a string"},
      {R"({"id": 1, "dialect": "hermes", "text": "a", "tools": {}})", "tools must be an array"},
      {R"({"id": 1, "dialect": "hermes", "text": "a", "tools": [1]})", "an array of objects"},
      {R"({"id": 1, "dialect": "hermes", "text": "a", "x": 1})", "unknown field \"x\""},
      {R"({"id": 1, "dialect": "hermes", "text": "a", "text": "b"})", "duplicate key"},
      {R"({"id": 1, "dialect": "hermes", "text": "a")", "not valid JSON"},
      {R"({"id": [], "dialect": "hermes", "text": "a"})", "id must be a string or a number"},
      {"7", "a row must be an object"},
  };
  for (const auto& [row, message] : cases) {
    const ProgramResult result =
        Read(row + "\n" + R"({"id": "good", "dialect": "glm4", "text": "a"})" + "\n");
    EXPECT_EQ(result.exit_code, 1) << row;
    const auto first = ParseJson(result.out.substr(0, result.out.find('\n')));
    ASSERT_TRUE(first.ok()) << result.out;
    const Json* error = first->Find("error");
    ASSERT_NE(error, nullptr) << result.out;
    EXPECT_EQ(*error->Find("code"), Json("invalid_row"));
    EXPECT_EQ(*error->Find("line"), Json(1));
    EXPECT_NE(error->Find("message")->as_string().find(message), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(R"({"id": "good", "content": "a")"), std::string::npos);
  }
}

TEST_F(ToolCallsProgramTest, OptionsNameTheDialectOfOtherRows) {
  const std::string row = R"({"text": "[f(a=1)]"})";
  const ProgramResult result = Read(row + "\n", {"--tool-dialect", "pythonic"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find(R"("arguments": "{\"a\": 1}")"), std::string::npos) << result.out;
  const ProgramResult unknown = Read(row, {"--tool-dialect", "python"});
  EXPECT_EQ(unknown.exit_code, 64);
  EXPECT_NE(unknown.err.find("--tool-dialect must be one of hermes, "), std::string::npos);
  const ProgramResult none = Read(row, {"-m", MINISGL_SOURCE_DIR "/tests/models/wren"});
  EXPECT_EQ(none.exit_code, 65) << none.err;
  EXPECT_NE(none.err.find("tells of no calls"), std::string::npos) << none.err;
  const ProgramResult no_file = RunProgram({"toolcalls"}, {"", "", {}});
  EXPECT_EQ(no_file.exit_code, 64);
}

TEST_F(ToolCallsProgramTest, AModelsTemplateNamesTheDialect) {
  const std::string model = MINISGL_SOURCE_DIR "/tests/models/wren";
  const std::string chat = MINISGL_SOURCE_DIR "/tests/text/tool_calls/templates/glm4.jinja";
  const ProgramResult result =
      Read(R"({"text": "<tool_call>f</tool_call>"})", {"-m", model, "--chat-template", chat});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find(R"("name": "f")"), std::string::npos) << result.out;
  const ProgramResult info =
      RunProgram({"info", "-m", model, "--chat-template", chat}, {"", "", {}});
  EXPECT_NE(info.out.find("tool dialect  glm4\n"), std::string::npos) << info.out << info.err;
}

}  // namespace
}  // namespace minisgl::cli
