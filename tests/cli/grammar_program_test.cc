// `minisgl grammar`: rows and single texts, judged.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"
#include "temporary_folder.h"

namespace minisgl::cli {
namespace {

class GrammarProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static ProgramResult Grammar(std::vector<std::string> arguments, const std::string& input) {
    arguments.insert(arguments.begin(), "grammar");
    return RunProgram(arguments, {input, "", {}});
  }
  // The answers to `rows`, one a line.
  static std::vector<Json> Judge(const std::string& rows, int exit_code,
                                 std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--file", "-"});
    const ProgramResult result = Grammar(more, rows);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    std::vector<Json> answers;
    for (size_t at = 0; at < result.out.size();) {
      const size_t end = result.out.find('\n', at);
      auto json = ParseJson(std::string_view(result.out).substr(at, end - at));
      EXPECT_TRUE(json.ok()) << result.out;
      if (json.ok()) answers.push_back(*std::move(json));
      at = end == std::string::npos ? result.out.size() : end + 1;
    }
    return answers;
  }
  static std::string Message(const Json& answer) {
    const Json* error = answer.Find("error");
    return error->is_null() ? "" : error->Find("message")->as_string();
  }
};

TEST_F(GrammarProgramTest, RowsOfEveryKindAreJudged) {
  const std::vector<Json> answers =
      Judge(R"j({"id": "r", "regex": "[a-c]+\\d", "texts": ["abc1", "abc", "", "d1"]})j"
            "\n"
            R"j({"id": 2, "choice": ["yes", "no", "maybe"], "texts": ["no", "n", "yes "]})j"
            "\n\n"
            R"j({"grammar": "root ::= \"(\" root \")\" | \"x\"", "texts": ["((x))", "((x)"]})j"
            "\n",
            0);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(*answers[0].Find("id"), Json("r"));
  EXPECT_EQ(answers[0].Find("accepted")->Dump(), "[true, false, false, false]");
  EXPECT_EQ(*answers[0].Find("compiled"), Json(true));
  EXPECT_TRUE(answers[0].Find("error")->is_null());
  EXPECT_TRUE(answers[0].Find("compile_us")->is_number());
  EXPECT_TRUE(answers[0].Find("check_us")->is_number());
  EXPECT_EQ(answers[0].Find("mask_us_mean"), nullptr);
  EXPECT_EQ(*answers[1].Find("id"), Json(2));
  EXPECT_EQ(answers[1].Find("accepted")->Dump(), "[true, false, false]");
  EXPECT_TRUE(answers[2].Find("id")->is_null());
  EXPECT_EQ(answers[2].Find("accepted")->Dump(), "[true, false]");
}

TEST_F(GrammarProgramTest, AnIdIsRepeatedToItsLastDigit) {
  const ProgramResult result =
      Grammar({"--file", "-"},
              "{\"id\": 9007199254740993, \"regex\": \"a\", \"texts\": []}\n"
              "{\"id\": 123456789012345678901234567890, \"regex\": \"a\", \"texts\": []}\n"
              "{\"id\": \"\\u00e9\", \"regex\": \"a\", \"texts\": []}\n"
              "{\"regex\": \"a\", \"texts\": []}\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* id : {"{\"id\": 9007199254740993, \"compiled\": true, ",
                         "{\"id\": 123456789012345678901234567890, ", "{\"id\": \"\xC3\xA9\", ",
                         "{\"id\": null, "}) {
    EXPECT_NE(result.out.find(id), std::string::npos) << result.out;
  }
}

TEST_F(GrammarProgramTest, StandardInputIsTheText) {
  for (const char* option : {"--json-schema", "--grammar"}) {
    const ProgramResult result = Grammar({option, "-"}, "{}");
    EXPECT_EQ(result.exit_code, 64);
    EXPECT_EQ(result.err, std::string("minisgl: ") + option +
                              " - is not read from standard input; give a file, or /dev/stdin\n");
  }
}

TEST_F(GrammarProgramTest, OptionsThatWouldHaveNoEffectAreErrors) {
  const ProgramResult both = Grammar({"--file", "-", "--regex", "a"}, "");
  EXPECT_EQ(both.exit_code, 64);
  EXPECT_NE(both.err.find("--file has a grammar in each row"), std::string::npos) << both.err;
  const ProgramResult model = Grammar({"--regex", "a", "-m", "somewhere"}, "a");
  EXPECT_EQ(model.exit_code, 64);
  EXPECT_NE(model.err.find("give it with --file"), std::string::npos) << model.err;
}

TEST_F(GrammarProgramTest, TheGrammarMayComeFromAPipe) {
  TemporaryFolder folder;
  const std::string pipe = folder.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "root ::= \"x\"*"; });
  EXPECT_EQ(Grammar({"--grammar", pipe}, "xxx").exit_code, 0);
  writer.join();
}

TEST_F(GrammarProgramTest, BadRowsAreNamedAndTheNextOnesJudged) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"j({"id": "a", "texts": ["x"]})j",
       "no constraints; give one of json_schema, regex, choice, grammar"},
      {R"j({"id": "a", "regex": "a", "choice": ["a"], "texts": []})j",
       "several constraints; give one of json_schema, regex, choice, grammar"},
      {R"j({"id": "a", "regex": "a", "text": []})j", "unknown field \"text\""},
      {R"j({"id": "a", "regex": "a"})j", "texts is missing; give an array of strings"},
      {R"j({"id": "a", "regex": "a", "texts": "a"})j", "texts must be an array of strings"},
      {R"j({"id": "a", "regex": "a", "texts": ["a", 1]})j", "texts must be an array of strings"},
      {R"j({"id": "a", "regex": 1, "texts": []})j", "regex must be a string (found an integer)"},
      {R"j({"id": "a", "json_schema": "{}", "texts": []})j",
       "json_schema must be an object or a boolean (found a string)"},
      {R"j({"id": "a", "choice": [], "texts": ["a"]})j", "there are no choices"},
      {R"j({"id": "a", "choice": ["a", null], "texts": []})j",
       "choice must be an array of strings"},
      {R"j({"id": "a", "regex": "a", "regex": "a", "texts": []})j", "a second field \"regex\""},
      {R"j({"id": "a", "regex": "(?=a)", "texts": ["a"]})j",
       "no text matches: its conditions exclude each other"},
      {R"j({"id": "a", "regex": "\ud800", "texts": []})j", "regex is not Unicode"},
      {R"j({"id": "a", "grammar": "start ::= \"a\"", "texts": ["a"]})j", "there is no rule `root`"},
      {R"j([1])j", "a row must be an object"},
  };
  std::string rows;
  for (const auto& [row, message] : cases) rows += row + "\n";
  rows += "{\"id\": \n";
  rows += R"j({"id": "last", "regex": "a", "texts": ["a"]})j";
  const std::vector<Json> answers = Judge(rows, 1);
  ASSERT_EQ(answers.size(), cases.size() + 2);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(*answers[i].Find("compiled"), Json(false)) << cases[i].first;
    EXPECT_EQ(Message(answers[i]), cases[i].second) << cases[i].first;
  }
  EXPECT_EQ(*answers[cases.size()].Find("compiled"), Json(false));
  EXPECT_EQ(answers.back().Find("accepted")->Dump(), "[true]");
}

TEST_F(GrammarProgramTest, ATextThatIsNotUnicodeIsNotAccepted) {
  const std::vector<Json> answers = Judge(
      "{\"regex\": \".*\", \"texts\": [\"\\ud83d\\ude00\", \"\\ud83d\", \"\\ude00x\", "
      "\"\\\\ud83d\", \"\xFF\", \"\xC3\xA9\"]}\n",
      0);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].Find("accepted")->Dump(), "[true, false, false, true, false, true]");
}

TEST_F(GrammarProgramTest, ManyChoicesCompile) {
  std::string choices;
  for (int i = 0; i < 50'000; ++i) {
    choices += (i == 0 ? "\"choice " : ",\"choice ") + std::to_string(i * 31) + "\"";
  }
  const std::vector<Json> answers =
      Judge("{\"choice\": [" + choices + "], \"texts\": [\"choice 62\", \"choice 63\"]}", 0);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].Find("accepted")->Dump(), "[true, false]");
}

TEST_F(GrammarProgramTest, MasksAreTimedOverAVocabulary) {
  const std::vector<Json> answers =
      Judge(R"j({"regex": "The [a-z ]{0,40}\\.", "texts": ["The river is long.", "No"]})j", 0,
            {"-m", DemoModel()});
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_GT(answers[0].Find("mask_us_mean")->as_double(), 0);
  EXPECT_GE(answers[0].Find("mask_us_max")->as_double(),
            answers[0].Find("mask_us_mean")->as_double());
}

TEST_F(GrammarProgramTest, OneTextIsJudgedWithThePlace) {
  ProgramResult result = Grammar({"--regex", "\\d{4}-\\d\\d"}, "2026-11\n");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "accepted: 7 bytes\n");
  result = Grammar({"--regex", "\\d{4}-\\d\\d"}, "2026/11\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "rejected at byte 5: found `/11\\n`; expected `-`\n");
  result = Grammar({"--choice", "yes", "--choice", "yeah"}, "ye");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "rejected at byte 3: found the end; expected `a`, `s`\n");
  result = Grammar({"--choice", "yes"}, "yes!");
  EXPECT_EQ(result.out, "rejected at byte 4: found `!`; expected the end\n");
  TemporaryFolder folder;
  folder.Write("list.gbnf", "root ::= \"[\" [0-9]+ (\",\" [0-9]+)* \"]\"");
  result = Grammar({"--grammar", folder.Path("list.gbnf")}, "[1,2,x]");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.out.starts_with("rejected at byte 6: found `x]`; expected `0`, `1`, "));
  result = Grammar({"--regex", "a("}, "a");
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_EQ(result.err, "minisgl: regular expression: byte 2: a `(` without its `)`\n");
  EXPECT_EQ(Grammar({}, "a").exit_code, 64);
  EXPECT_EQ(Grammar({"--regex", "a", "--choice", "a"}, "a").exit_code, 64);
}

}  // namespace
}  // namespace minisgl::cli
