// Answers of a form, of the whole program with the demo model: whole texts of their grammar unless
// they are cut, and then with a warning; the same with options as in rows, and after a kill.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/matcher.h"
#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

constexpr const char* kPersonSchema =
    R"({"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]{1,8}$"}, )"
    R"("age": {"type": "integer", "minimum": 0, "maximum": 150}}, )"
    R"("required": ["name", "age"], "additionalProperties": false})";

class RunGrammarTest : public RunProgramTest {
 protected:
  static std::shared_ptr<const CompiledGrammar> Compiled(GrammarKind kind,
                                                         const std::string& text) {
    const auto compiled = CompileGrammar({kind, text, {}});
    EXPECT_TRUE(compiled.ok()) << compiled.status().message();
    return *compiled;
  }
  static bool Matches(const CompiledGrammar& grammar, const std::string& text) {
    bool accepted = false;
    MatchText(grammar, text, &accepted);
    return accepted;
  }
  static std::string RowsWith(const std::string& members, int count) {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      rows += R"({"id": "r)" + std::to_string(i) + R"(", "prompt": "Number )" + std::to_string(i) +
              R"(", "temperature": 1.5, "seed": )" + std::to_string(i) + members + "}\n";
    }
    return rows;
  }
  // Rows without the cache statistics, which depend on the order of the work.
  static std::vector<std::string> SortedTexts(const std::string& output) {
    std::vector<std::string> texts;
    for (const Json& row : Rows(output)) {
      const Json* choices = row.Find("choices");
      const std::string answer = choices == nullptr ? Text(row) : choices->Dump();
      texts.push_back(row.Find("id")->Dump() + " " + answer);
    }
    std::sort(texts.begin(), texts.end());
    return texts;
  }
  std::string Schema() const { return folder_.Write("person.json", kPersonSchema); }
};

TEST_F(RunGrammarTest, EveryAnswerIsAWholeTextUnlessItIsCut) {
  const auto grammar = Compiled(GrammarKind::kJsonSchema, kPersonSchema);
  const std::string rows = RowsWith(R"(, "n": 3, "max_tokens": 120, "logprobs": 0)", 20);
  const std::string file = folder_.Write("rows.jsonl", rows);
  const ProgramResult result = RunModel({"--raw", "--file", file, "--json-schema", Schema()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  int whole = 0, cut = 0;
  for (const Json& row : Rows(result.out)) {
    std::string indexes;
    for (const Json& choice : row.Find("choices")->as_array()) {
      const bool matches = Matches(*grammar, Text(choice));
      ++(matches ? whole : cut);
      if (!matches) {
        EXPECT_EQ(*choice.Find("finish_reason"), Json("length")) << choice.Dump();
        indexes += (indexes.empty() ? "" : ", ") + choice.Find("index")->Dump();
      } else if (*choice.Find("finish_reason") == Json("stop")) {
        EXPECT_TRUE(ParseJson(Text(choice)).ok());
      }
    }
    const Json* warnings = row.Find("warnings");
    EXPECT_EQ(warnings == nullptr ? "" : warnings->as_array()[0].as_string().substr(0, 16),
              indexes.empty() ? "" : "of the answers, ")
        << row.Dump();
  }
  EXPECT_GE(whole, 20) << cut;
}

TEST_F(RunGrammarTest, RowsAndOptionsSayTheSame) {
  const std::string plain = RowsWith(R"(, "max_tokens": 40)", 6);
  const std::string same =
      RowsWith(R"(, "max_tokens": 40, "guided_json": )" + std::string(kPersonSchema), 6);
  const ProgramResult options =
      RunModel({"--raw", "--file", folder_.Write("a.jsonl", plain), "--json-schema", Schema()});
  const ProgramResult rows = RunModel({"--raw", "--file", folder_.Write("b.jsonl", same)});
  EXPECT_EQ(SortedTexts(options.out), SortedTexts(rows.out)) << options.err << rows.err;
  EXPECT_NE(SortedTexts(options.out), SortedTexts(RunModel({"--raw", "--file", "-"}, plain).out));
  // A row's own constraint counts, and so does its wish for none.
  const std::string any = RowsWith(R"(, "max_tokens": 40, "response_format": {"type": "text"})", 6);
  EXPECT_EQ(SortedTexts(RunModel({"--raw", "--file", "-", "--json-schema", Schema()}, any).out),
            SortedTexts(RunModel({"--raw", "--file", "-"}, plain).out));
  const std::string choice = RowsWith(R"(, "guided_choice": ["yes", "no"])", 6);
  for (const Json& row : Rows(RunModel({"--raw", "--file", "-", "--regex", "x"}, choice).out)) {
    EXPECT_TRUE(Text(row) == "yes" || Text(row) == "no") << row.Dump();
  }
}

// A grammar's warnings stand in the rows that bring it, and --strict compiles before it runs.
TEST_F(RunGrammarTest, RowsBringTheirGrammarsWarningsAndStrictCompiles) {
  const std::string misspelled =
      R"({"prompt": "Once", "guided_json": {"type": "integer", "Maximum": 5, "maximum": 9}})"
      "\n";
  const ProgramResult result = RunModel({"--raw", "--file", "-"}, misspelled + misspelled);
  const std::vector<Json> answers = Rows(result.out);
  ASSERT_EQ(answers.size(), 2u) << result.err;
  for (const Json& answer : answers) {
    ASSERT_NE(answer.Find("warnings"), nullptr) << result.out;
    EXPECT_NE(answer.Find("warnings")->Dump().find("Maximum"), std::string::npos);
  }
  const std::string rows =
      folder_.Write("bad.jsonl", misspelled + R"({"prompt": "a", "guided_regex": "("})"
                                              "\n");
  const ProgramResult strict = RunModel({"--raw", "--file", rows, "--strict"});
  EXPECT_EQ(strict.exit_code, 65);
  EXPECT_EQ(strict.out, "");
  EXPECT_NE(strict.err.find("bad.jsonl:2: "), std::string::npos) << strict.err;
}

TEST_F(RunGrammarTest, AnAnswerThatIsCutInsideWarns) {
  const std::string rows =
      R"({"prompt": "Once", "max_tokens": 3, "guided_regex": "[a-z ]{40,80}"})"
      "\n"
      R"({"prompt": "Once", "stop": "b", "guided_regex": "[ab]{4}b{20}"})"
      "\n"
      R"({"prompt": "Once", "guided_choice": ["yes", "no"]})"
      "\n"
      R"({"custom_id": "c", "url": "/v1/completions", "body": {"prompt": "Once", )"
      R"("max_tokens": 3, "structured_outputs": {"regex": "[a-z ]{40,80}"}}})"
      "\n";
  const ProgramResult result = RunModel({"--raw", "--file", "-"}, rows);
  const std::vector<Json> answers = Rows(result.out);
  ASSERT_EQ(answers.size(), 4u) << result.err;
  const std::string warning =
      "[\"the answer ended before the grammar allowed an end: not a whole text of it\"]";
  EXPECT_EQ(*answers[0].Find("finish_reason"), Json("length"));
  ASSERT_NE(answers[0].Find("warnings"), nullptr);
  EXPECT_EQ(answers[0].Find("warnings")->Dump(), warning);
  EXPECT_EQ(*answers[1].Find("finish_reason"), Json("stop"));
  ASSERT_NE(answers[1].Find("warnings"), nullptr);
  EXPECT_EQ(answers[1].Find("warnings")->Dump(),
            "[\"the answer ended at a stop string: it may not be a whole text of the grammar\"]");
  EXPECT_EQ(answers[2].Find("warnings"), nullptr);
  EXPECT_TRUE(Text(answers[2]) == "yes" || Text(answers[2]) == "no") << answers[2].Dump();
  const Json* body = answers[3].Find("response")->Find("body");
  ASSERT_NE(body->Find("warnings"), nullptr);
  EXPECT_EQ(body->Find("warnings")->Dump(), warning);
  EXPECT_EQ(*body->Find("choices")->as_array()[0].Find("finish_reason"), Json("length"));
  // One prompt as text: the warning goes to standard error.
  const ProgramResult text =
      RunModel({"-p", "Once", "--no-stdin", "-n", "3", "--regex", "[a-z ]{40,80}"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_NE(text.err.find("the answer ended before the grammar allowed an end"), std::string::npos)
      << text.err;
}

// Its text is written but breaks the grammar: counts, exit status and --errors say so.
TEST_F(RunGrammarTest, AnAnswerThatIsCutIsAFailure) {
  const std::string cut = R"("max_tokens": 3, "guided_regex": "[a-z ]{40,80}")";
  const std::string rows = folder_.Write(
      "in.jsonl", "{\"prompt\": \"Once\", " + cut +
                      "}\n{\"prompt\": \"Once\", \"guided_choice\": [\"yes\"]}\n{\"custom_id\": "
                      "\"c\", \"body\": {\"prompt\": \"Once\", " +
                      cut + "}}\n{\"prompt\": \"Once\", \"n\": 2, \"guided_regex\": \"a|b\"}\n");
  const std::string out = folder_.Path("out"), errors = folder_.Path("errors");
  const Arguments run = {"--raw", "--file", rows, "-o", out, "--summary", folder_.Path("sum")};
  const auto with = [&run](const Arguments& more) {
    Arguments all = run;
    all.insert(all.end(), more.begin(), more.end());
    return RunModel(all);
  };
  const ProgramResult whole = with({});
  EXPECT_EQ(whole.exit_code, 1);
  EXPECT_NE(whole.err.find("2 done, 2 failed"), std::string::npos) << whole.err;
  EXPECT_NE(whole.err.find("finish reasons  3 stop, 2 length\n"), std::string::npos) << whole.err;
  EXPECT_NE(whole.err.find("2 failed: 2 incomplete_answer; first: line 1: "), std::string::npos);
  const Result<Json> figures = ParseJson(folder_.Read("sum"));
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->Find("finish_reasons")->Dump(), R"({"length": 2, "stop": 3})");
  EXPECT_EQ(figures->Find("failures")->Dump(), R"({"incomplete_answer": 2})");
  for (const Json& row : Rows(folder_.Read("out"))) {
    if (row.Find("custom_id") != nullptr) {
      EXPECT_EQ(*row.Find("response")->Find("status_code"), Json(200)) << "as the service has it";
    } else if (*row.Find("index") == Json(0)) {
      EXPECT_EQ(*row.Find("finish_reason"), Json("length"));
      EXPECT_FALSE(Text(row).empty());
      EXPECT_EQ(Code(row), "incomplete_answer");
    } else {
      EXPECT_EQ(Code(row), "");
    }
  }
  // They stay failed, and can be asked again.
  EXPECT_EQ(with({"--resume"}).exit_code, 1);
  const ProgramResult again = with({"--resume", "--retry-failed"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.err.find("2 rows answered, 0 failed, 2 to run"), std::string::npos) << again.err;
  const ProgramResult apart = with({"--force", "--errors", errors});
  EXPECT_EQ(apart.exit_code, 1);
  EXPECT_EQ(Rows(folder_.Read("out")).size(), 2u);
  EXPECT_EQ(Rows(folder_.Read("errors")).size(), 2u);
  const ProgramResult resumed = with({"--resume", "--errors", errors});
  EXPECT_EQ(resumed.exit_code, 1) << resumed.err;
  EXPECT_NE(resumed.err.find("2 rows answered, 2 failed"), std::string::npos) << resumed.err;
}

TEST_F(RunGrammarTest, ABadGrammarIsAnErrorOfItsRow) {
  const std::string rows =
      R"({"prompt": "Once", "response_format": {"type": "json_schema", "json_schema": )"
      R"({"schema": {"properties": {"a": {"type": "strin"}}}}}})"
      "\n"
      R"({"custom_id": "c", "url": "/v1/completions", "body": {"prompt": "Once", )"
      R"("guided_regex": "a("}})"
      "\n"
      R"({"prompt": "Once", "guided_choice": ["yes", "no"], "n": 2})"
      "\n";
  const ProgramResult result = RunModel({"--raw", "--file", "-"}, rows);
  EXPECT_EQ(result.exit_code, 1);
  const std::vector<Json> answers = Rows(result.out);
  ASSERT_EQ(answers.size(), 3u) << result.err;
  EXPECT_EQ(answers[0].Find("error")->Dump(),
            R"({"code": "invalid_grammar", "message": "#/properties/a/type: unknown type )"
            R"(\"strin\"", "line": 1, "field": "response_format.json_schema.schema"})");
  const Json* response = answers[1].Find("response");
  EXPECT_EQ(*response->Find("status_code"), Json(400));
  EXPECT_EQ(response->Find("body")->Find("error")->Dump(),
            R"({"message": "byte 2: a `(` without its `)`", "type": "invalid_request_error", )"
            R"("param": "guided_regex", "code": "invalid_grammar", "line": 2})");
  EXPECT_EQ(answers[2].Find("choices")->as_array().size(), 2u);
}

TEST_F(RunGrammarTest, AKilledRunResumesWithTheSameAnswers) {
  const std::string rows = RowsWith(R"(, "n": 2, "max_tokens": 30)", 30);
  const std::string file = folder_.Write("rows.jsonl", rows), out = folder_.Path("out.jsonl");
  const Arguments arguments = {"--raw", "--file", file, "--json-schema", Schema(), "-q"};
  const ProgramResult whole = RunModel(arguments);
  ASSERT_EQ(whole.exit_code, 1) << "some answers are cut" << whole.err;
  Arguments resumed = arguments;
  resumed.insert(resumed.end(), {"-o", out, "--resume"});
  Program program(Run(resumed), {});
  while (program.Runs() && folder_.Read("out.jsonl").empty()) {
  }
  program.Signal(SIGKILL);
  program.Wait();
  EXPECT_EQ(RunModel(resumed).exit_code, 1);
  EXPECT_EQ(SortedTexts(folder_.Read("out.jsonl")), SortedTexts(whole.out));
}

TEST_F(RunGrammarTest, SettingsOfTheEngineChangeNoAnswer) {
  const std::string rows = RowsWith(R"(, "max_tokens": 30)", 12);
  const std::string file = folder_.Write("rows.jsonl", rows);
  const Arguments arguments = {"--raw", "--file", file, "--json-schema", Schema(), "-q"};
  const std::vector<std::string> texts = SortedTexts(RunModel(arguments).out);
  ASSERT_EQ(texts.size(), 12u);
  for (const Arguments& more : {Arguments{"--disable-overlap"},
                                {"--speculate", "ngram:4"},
                                {"--max-running-requests", "2"},
                                {"--cache", "naive"},
                                {"--max-prefill-length", "3", "--page-size", "1"}}) {
    Arguments changed = arguments;
    changed.insert(changed.end(), more.begin(), more.end());
    EXPECT_EQ(SortedTexts(RunModel(changed).out), texts) << more[0];
  }
}

}  // namespace
}  // namespace minisgl::batch
