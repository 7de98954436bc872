// Tool calls, null and large integers in the rows of files, and marks before texts, as the program
// reads them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

const char* const kTextMark = "\xEF\xBB\xBF";

class RunCallsTest : public RunProgramTest {
 protected:
  // The prompts of the rows of `text` with the chat template `source`.
  std::vector<std::string> Prompts(const std::string& text, const std::string& source,
                                   const Arguments& more = {}) {
    Arguments arguments = {"tokenize",
                           "-m",
                           DemoModel(),
                           "--file",
                           folder_.Write("rows.jsonl", text),
                           "--chat-template",
                           folder_.Write("chat.jinja", source)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(arguments);
    std::vector<std::string> prompts;
    for (const Json& row : Rows(result.out)) {
      const Json* const prompt = row.Find("prompt");
      prompts.push_back(prompt != nullptr ? prompt->as_string() : row.Dump());
    }
    return prompts;
  }
};

const char* const kCallLoop =
    "{%- for m in messages %}{%- if m.tool_calls %}{%- for c in m.tool_calls %}<{{ c.function.name "
    "}}>{% if m.content is none %}null{% endif %}";
const char* const kCallLoopEnd =
    "{% endfor %}{%- else %}[{{ m.role }}]{{ m.content }}{% endif %}{%- endfor %}";

std::string CallRow(const std::string& content, const std::string& arguments) {
  return R"("messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": )" +
         content +
         R"(, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", )"
         R"("arguments": )" +
         arguments + R"(}}]}, {"role": "tool", "tool_call_id": "c1", "content": "r"}])";
}

TEST_F(RunCallsTest, ArgumentsReachTheTemplateAsItTakesThem) {
  const std::string rows =
      R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {)" +
      CallRow("null", R"("{\"city\": \"Oslo\", \"days\": 2}")") + "}}\n{" +
      CallRow(R"("")", R"("{\"city\": \"Oslo\", \"days\": 2}")") + "}\n{" +
      CallRow(R"("")", R"({"city": "Oslo", "days": 2})") + "}\n{" + CallRow(R"("")", R"("")") +
      "}\n";
  const std::string before = "[user]q<f>", after = "[tool]r";
  const struct {
    const char* call;
    const char* written;
    const char* empty;
  } cases[] = {
      {"{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}",
       "city=Oslo;days=2;", ""},
      {"{{ c.function.arguments | tojson }}", R"({"city": "Oslo", "days": 2})", "{}"},
      {"{{ '' + c.function.arguments }}", R"({"city": "Oslo", "days": 2})", ""},
  };
  for (const auto& [call, written, empty] : cases) {
    EXPECT_EQ(Prompts(rows, std::string(kCallLoop) + call + kCallLoopEnd),
              (std::vector<std::string>{before + "null" + written + after, before + written + after,
                                        before + written + after, before + empty + after}))
        << call;
  }
}

TEST_F(RunCallsTest, IntegersKeepEveryDigit) {
  const std::string question = R"("messages": [{"role": "user", "content": "q"}])";
  EXPECT_EQ(Prompts("{" + question +
                        R"(, "tools": [{"maximum": 18446744073709551615}]})"
                        "\n{" +
                        question + R"(, "chat_template_kwargs": {"big": 10881715073803520453}})",
                    "{{ messages[0].content }}{{ tools | tojson }}|{{ big }}"),
            (std::vector<std::string>{R"(q[{"maximum": 18446744073709551615}]|)",
                                      "qnull|10881715073803520453"}));
  const std::string rows =
      folder_.Write("ids.jsonl", "{\"id\": 10881715073803520453, " + question + "}\n{\"id\": 1" +
                                     std::string(40, '0') + ", " + question + "}\n");
  const ProgramResult run = RunModel({"--file", rows, "--max-tokens", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  ASSERT_EQ(Rows(run.out).size(), 2u) << run.out;
  EXPECT_EQ(Rows(run.out)[0].Find("id")->Dump(), "10881715073803520453");
  EXPECT_EQ(Rows(run.out)[1].Find("id")->Dump(), "1" + std::string(40, '0'));
}

TEST_F(RunCallsTest, ColumnsKeepEveryDigitAndTheirNames) {
  const std::string echo = "{{ messages[0].content }}";
  EXPECT_EQ(Prompts("{\"doc\":10881715073803520453,\"ok\":1470944601309528072}\n", echo,
                    {"--template", "{{ doc }} {{ ok }}"}),
            (std::vector<std::string>{"10881715073803520453 1470944601309528072"}));
  EXPECT_EQ(
      Prompts("country,row\nPeru,5\n", echo,
              {"--template", "{{ country }} {{ row }} {{ row.country }}", "--input-format", "csv"}),
      (std::vector<std::string>{"Peru 5 Peru"}));
}

// A mark before the text changes nothing, whichever option reads it.
TEST_F(RunCallsTest, AByteOrderMarkIsNoPartOfATextFile) {
  const std::string table = folder_.Write("table.csv", "country\nPeru\n");
  const std::string chat = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  const struct {
    const char* name;
    std::string text;
    Arguments before;
    std::string prefix;
    Arguments after;
  } cases[] = {
      {"-p", "What is the capital of Peru?", {"-p"}, "@", {}},
      {"-p, raw", "The capital of Peru", {"--raw", "-p"}, "@", {}},
      {"--system", "Be brief.", {"-p", "Hi", "--system"}, "@", {}},
      {"--file", "{\"prompt\": \"Hi\"}\n", {"--chat", "--file"}, "", {}},
      {"--file, a table",
       "a,b\n1,2\n",
       {"--template", "{{ a }} {{ b }}", "--input-format", "csv", "--file"},
       "",
       {}},
      {"--template", "Where is {{ country }}?", {"--file", table, "--template"}, "@", {}},
      {"--system-template",
       "Of {{ country }}",
       {"--file", table, "--template", "{{ country }}", "--system-template"},
       "@",
       {}},
      {"--chat-template", chat, {"-p", "Hi", "--chat-template"}, "", {}},
      {"--json-schema", R"({"enum": ["a"]})", {"-p", "Hi", "--json-schema"}, "", {}},
      {"--grammar", "root ::= \"ab\"", {"-p", "Hi", "--grammar"}, "", {}},
  };
  for (const auto& [name, text, before, prefix, after] : cases) {
    std::map<bool, std::string> outputs;
    for (const bool has_mark : {false, true}) {
      Arguments arguments = before;
      arguments.push_back(prefix + folder_.Write("text", (has_mark ? kTextMark : "") + text));
      arguments.insert(arguments.end(), after.begin(), after.end());
      arguments.insert(arguments.end(), {"--temperature", "0", "--max-tokens", "8"});
      if (before[0] == "-p" || before[0] == "--raw") arguments.emplace_back("--json");
      const ProgramResult result = RunModel(arguments);
      EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.err;
      for (const Json& row : Rows(result.out)) {
        const Json* const usage = row.Find("usage");
        outputs[has_mark] += Text(row) + (usage == nullptr ? "" : usage->Dump());
      }
    }
    EXPECT_EQ(outputs[true], outputs[false]) << name;
    EXPECT_NE(outputs[false], "") << name;
  }
}

TEST_F(RunCallsTest, AByteOrderMarkIsNoPartOfStandardInput) {
  const Arguments more = {"--json", "--temperature", "0", "--max-tokens", "8"};
  const ProgramResult plain = RunModel(more, "What is the capital of Peru?");
  const ProgramResult marked =
      RunModel(more, std::string(kTextMark) + "What is the capital of Peru?");
  ASSERT_EQ(Rows(plain.out).size(), 1u) << plain.err;
  ASSERT_EQ(Rows(marked.out).size(), 1u) << marked.err;
  EXPECT_EQ(Text(Rows(marked.out)[0]), Text(Rows(plain.out)[0]));
  EXPECT_EQ(Rows(marked.out)[0].Find("usage")->Dump(), Rows(plain.out)[0].Find("usage")->Dump());
}

}  // namespace
}  // namespace minisgl::batch
