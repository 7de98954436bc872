// Fields of rows for the form of their answers: response_format, structured_outputs, guided_*; and
// the prompts made from them.
#include "batch/row_grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "batch/grammar_texts.h"
#include "batch/row_output.h"
#include "batch/row_prompt.h"
#include "minisgl/grammar/json_schema.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

std::string OwnRow(const std::string& members) { return R"({"prompt": "a", )" + members + "}"; }

std::string ChatRow(const std::string& members) {
  return R"({"custom_id": "c", "url": "/v1/chat/completions", "body": {"messages": )"
         R"([{"role": "user", "content": "a"}], )" +
         members + "}}";
}

std::string CompletionRow(const std::string& members) {
  return R"({"custom_id": "c", "url": "/v1/completions", "body": {"prompt": "a", )" + members +
         "}}";
}

RowError ErrorOfRow(const std::string& row, bool lenient = false) {
  const ParsedRow parsed = ParseRow(row, 3, 7, lenient);
  EXPECT_TRUE(parsed.error) << row;
  return parsed.error.value_or(RowError());
}

GrammarText GrammarOfRow(const std::string& row) {
  const ParsedRow parsed = ParseRow(row, 3, 7);
  EXPECT_FALSE(parsed.error) << row << ": " << (parsed.error ? parsed.error->message : "");
  const bool has_one = parsed.row.grammar && parsed.row.grammar->text != nullptr;
  EXPECT_TRUE(has_one) << row;
  return has_one ? *parsed.row.grammar->text : GrammarText();
}

struct GoodGrammar {
  std::string members;
  std::string field;  // that is at fault if it cannot be compiled
  GrammarText grammar;
};

// A schema whose bytes matter: a number of 23 digits, blanks, an escape.
constexpr const char* kSchema = R"({"const":12345678901234567890123 ,"x" : "\u0041"})";

std::vector<GoodGrammar> GoodGrammars() {
  const std::string schema = kSchema;
  const std::string quoted = R"("{\"type\": \"null\"}")";
  const GrammarText null_schema{GrammarKind::kJsonSchema, R"({"type": "null"})", {}};
  const GrammarText choice{GrammarKind::kChoice, "", {"yes", "n\no", ""}};
  std::vector<GoodGrammar> good = {
      {R"("response_format": {"type": "json_object"})",
       "response_format",
       {GrammarKind::kJsonObject, "", {}}},
      {R"("response_format": {"type": "json_object", "json_schema": null})",
       "response_format",
       {GrammarKind::kJsonObject, "", {}}},
      {R"("structured_outputs": {"json_object": true, "json": null})",
       "structured_outputs.json_object",
       {GrammarKind::kJsonObject, "", {}}},
      {R"("structured_outputs": {"json": )" + quoted + "}", "structured_outputs.json", null_schema},
      {R"("structured_outputs": {"json": true})",
       "structured_outputs.json",
       {GrammarKind::kJsonSchema, "true", {}}},
      {R"("structured_outputs": {"regex": "a+\\d", "disable_any_whitespace": false})",
       "structured_outputs.regex",
       {GrammarKind::kRegularExpression, "a+\\d", {}}},
      {R"("structured_outputs": {"choice": ["yes", "n\no", ""], "json_object": false})",
       "structured_outputs.choice", choice},
      {R"("structured_outputs": {"grammar": "root ::= \"a\""})",
       "structured_outputs.grammar",
       {GrammarKind::kGbnf, "root ::= \"a\"", {}}},
      {R"("structured_outputs": {"json": )" + schema + "}",
       "structured_outputs.json",
       {GrammarKind::kJsonSchema, schema, {}}},
      {R"("structured_outputs": {"disable_any_whitespace": true, "json": )" + schema + "}",
       "structured_outputs.json",
       {GrammarKind::kJsonSchema, CompactJsonSchema(schema), {}}},
      {R"("structured_outputs": {"json_object": true, "disable_any_whitespace": true})",
       "structured_outputs.json_object",
       {GrammarKind::kJsonSchema, CompactJsonSchema(R"({"type":"object"})"), {}}},
      {R"("guided_json": )" + schema, "guided_json", {GrammarKind::kJsonSchema, schema, {}}},
      {R"("guided_json": )" + quoted, "guided_json", null_schema},
      {R"("guided_regex": "")", "guided_regex", {GrammarKind::kRegularExpression, "", {}}},
      {R"("guided_choice": ["yes", "n\no", ""])", "guided_choice", choice},
      {R"("guided_grammar": "x")", "guided_grammar", {GrammarKind::kGbnf, "x", {}}},
  };
  for (const char* more : {"", R"("name": "n", )", R"("name": null, "strict": true, )",
                           R"("strict": false, "description": "d", )", R"("strict": null, )"}) {
    good.push_back({std::string(R"("response_format": {"type": "json_schema", "json_schema": {)") +
                        more + R"("schema": )" + schema + "}}",
                    "response_format.json_schema.schema",
                    {GrammarKind::kJsonSchema, schema, {}}});
  }
  return good;
}

TEST(RowGrammarTest, EveryFieldIsReadInEveryFormat) {
  for (const GoodGrammar& good : GoodGrammars()) {
    std::vector<std::string> rows = {OwnRow(good.members), ChatRow(good.members),
                                     CompletionRow(good.members),
                                     OwnRow(R"("metadata": )" + std::string("{") + good.members +
                                            R"(}, "tools": null, )" + good.members)};
    for (const std::string& row : rows) {
      const GrammarText grammar = GrammarOfRow(row);
      EXPECT_EQ(grammar.kind, good.grammar.kind) << row;
      EXPECT_EQ(grammar.text, good.grammar.text) << row;
      EXPECT_EQ(grammar.choices, good.grammar.choices) << row;
      EXPECT_EQ(ParseRow(row, 0, 1).row.grammar_field, good.field) << row;
    }
  }
  EXPECT_EQ(GrammarOfRow(OwnRow(R"("sampling_params": {"structured_outputs": {"json": )" +
                                std::string(kSchema) + "}}"))
                .text,
            kSchema);
  EXPECT_EQ(
      GrammarOfRow(OwnRow(R"("sampling_params": {"guided_json": )" + std::string(kSchema) + "}"))
          .text,
      kSchema);
  EXPECT_EQ(GrammarOfRow(OwnRow(R"("sampling_params": {"guided_regex": "a+"})")).text, "a+");
  EXPECT_EQ(GrammarOfRow(OwnRow(R"("sampling_params": {"guided_choice": ["a"]})")).choices,
            std::vector<std::string>{"a"});
}

TEST(RowGrammarTest, TextIsAnyAnswer) {
  const Row row = ParseRow(OwnRow(R"("response_format": {"type": "text"})"), 0, 1).row;
  ASSERT_TRUE(row.grammar) << "it replaces the options'";
  EXPECT_EQ(row.grammar->text, nullptr);
  EXPECT_EQ(row.grammar_field, "");
  EXPECT_FALSE(
      ParseRow(OwnRow(R"("response_format": null, "guided_json": null)"), 0, 1).row.grammar);
  EXPECT_EQ(
      GrammarOfRow(OwnRow(R"("guided_regex": "a", "response_format": {"type": "text"})")).text,
      "a");
}

TEST(RowGrammarTest, WrongValuesAreRefusedNamingTheField) {
  const std::string format = R"("response_format": )", outputs = R"("structured_outputs": )";
  const std::string schema_format = format + R"({"type": "json_schema", "json_schema": )";
  const struct {
    std::string members;
    const char* field;
    const char* message;
  } cases[] = {
      {format + "{}", "response_format.type", "is missing"},
      {format + R"({"type": "grammar"})", "response_format.type", R"((found "grammar"))"},
      {format + R"({"type": ["text"]})", "response_format.type",
       "text, json_object or json_schema"},
      {format + R"("json_object")", "response_format", "must be an object"},
      {format + R"({"type": "json_schema"})", "response_format.json_schema", "is missing"},
      {schema_format + "7}", "response_format.json_schema", "must be an object"},
      {schema_format + "{}}", "response_format.json_schema.schema", "is missing"},
      {schema_format + R"({"schema": null}})", "response_format.json_schema.schema", "is missing"},
      {schema_format + R"({"schema": "{}"}})", "response_format.json_schema.schema",
       "an object or a boolean (found \"{}\")"},
      {schema_format + R"({"schema": {}, "strict": 1}})", "response_format.json_schema.strict",
       "true or false"},
      {schema_format + R"({"schema": {}, "name": ["n"]}})", "response_format.json_schema.name",
       "a string"},
      {outputs + "{}", "structured_outputs", "(found none)"},
      {outputs + R"({"json": null, "json_object": false})", "structured_outputs", "(found none)"},
      {outputs + R"({"json": 7})", "structured_outputs.json", "(found 7)"},
      {outputs + R"({"json": "{"})", "structured_outputs.json", "is a string, but no JSON: "},
      {outputs + R"({"json": "[]"})", "structured_outputs.json", "an object or a boolean"},
      {outputs + R"({"regex": ["a"]})", "structured_outputs.regex", "a string"},
      {outputs + R"({"choice": "a"})", "structured_outputs.choice", "an array of one string"},
      {outputs + R"({"choice": []})", "structured_outputs.choice", "an array of one string"},
      {outputs + R"({"choice": ["a", 1]})", "structured_outputs.choice", "(found 1)"},
      {outputs + R"({"grammar": 1})", "structured_outputs.grammar", "a string"},
      {outputs + R"({"json_object": "yes"})", "structured_outputs.json_object", "true or false"},
      {outputs + R"({"json": {}, "regex": "a"})", "structured_outputs.regex",
       "and structured_outputs.json both say"},
      {R"("guided_json": 1)", "guided_json", "a JSON schema"},
      {R"("guided_regex": 1)", "guided_regex", "a string"},
      {R"("guided_choice": [])", "guided_choice", "an array of one string"},
      {R"("guided_choice": [[]])", "guided_choice", "an array of one string"},
      {R"("guided_grammar": {})", "guided_grammar", "a string"},
      {R"("guided_json": {}, "guided_regex": "a")", "guided_regex", "guided_json both say"},
      {R"("guided_regex": "a", "response_format": {"type": "json_object"})", "response_format",
       "guided_regex both say"},
  };
  for (const auto& test : cases) {
    for (const std::string& row :
         {OwnRow(test.members), ChatRow(test.members), CompletionRow(test.members)}) {
      for (const bool lenient : {false, true}) {
        const RowError error = ErrorOfRow(row, lenient);
        EXPECT_EQ(error.code, "invalid_row") << row;
        EXPECT_EQ(error.field, test.field) << row;
        EXPECT_NE(error.message.find(test.message), std::string::npos) << error.message;
      }
    }
  }
  EXPECT_EQ(ErrorOfRow(OwnRow(R"("sampling_params": {"structured_outputs": {"regex": "a"}}, )"
                              R"("guided_regex": "a")"))
                .message,
            "guided_regex and sampling_params.structured_outputs.regex both say what the answer "
            "must be; give one of them");
}

TEST(RowGrammarTest, UnknownMembersAreRefusedNamingThem) {
  const struct {
    std::string members;
    const char* field;
  } cases[] = {
      {R"("response_format": {"type": "text", "schema": {}})", "response_format.schema"},
      {R"("response_format": {"type": "json_object", "schema": {}})", "response_format.schema"},
      {R"("response_format": {"type": "json_schema", "schema": {}, "json_schema": {"schema": {}}})",
       "response_format.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x\u001b": 1}})",
       "response_format.json_schema.x\\x1b"},
      {R"("structured_outputs": {"regex": "a", "whitespace_pattern": " "})",
       "structured_outputs.whitespace_pattern"},
      {R"("structured_outputs": {"regex": "a", "disable_any_whitespace": true})",
       "structured_outputs.disable_any_whitespace"},
      {R"("structured_outputs": {"structural_tag": "a"})", "structured_outputs.structural_tag"},
  };
  for (const auto& test : cases) {
    const RowError error = ErrorOfRow(OwnRow(test.members));
    EXPECT_EQ(error.code, "unsupported_field") << test.members;
    EXPECT_EQ(error.field, test.field) << error.message;
    const ParsedRow lenient = ParseRow(OwnRow(test.members), 0, 1, /*lenient=*/true);
    EXPECT_FALSE(lenient.error) << test.members;
    ASSERT_EQ(lenient.row.warnings.size(), 1u) << test.members;
    EXPECT_TRUE(lenient.row.warnings[0].starts_with(test.field)) << lenient.row.warnings[0];
  }
}

TEST(RowGrammarTest, RowsToScoreHaveNoAnswerToConstrain) {
  for (const GoodGrammar& good : GoodGrammars()) {
    const std::string row = R"({"text": "a b", )" + good.members + "}";
    const ParsedRow parsed = ParseRow(row, 0, 1, /*lenient=*/false, RowPurpose::kScore);
    EXPECT_EQ(parsed.error ? parsed.error->code : "", "unsupported_field") << row;
  }
}

class RowGrammarPromptTest : public ::testing::Test {
 protected:
  std::vector<Prompt> Build(const std::string& row) {
    ParsedRow parsed = ParseRow(row, 0, 1);
    std::vector<Prompt> prompts;
    if (!parsed.error) parsed.error = builder_.Build(&parsed.row, &prompts);
    EXPECT_FALSE(parsed.error) << row << ": " << (parsed.error ? parsed.error->message : "");
    EXPECT_FALSE(parsed.row.grammar) << "the prompts hold it";
    return prompts.empty() ? std::vector<Prompt>(1) : std::move(prompts);
  }
  static PromptBuilderOptions Options() {
    PromptBuilderOptions options;
    options.defaults.grammar.text = std::make_shared<const GrammarText>(
        GrammarText{GrammarKind::kRegularExpression, "of the options", {}});
    return options;
  }
  const TextModel text_ = FakeTextModel();
  const PromptBuilderOptions options_ = Options();
  const PromptBuilder builder_{&text_, SmallLimits(), options_};
};

TEST_F(RowGrammarPromptTest, ARowsGrammarReplacesThatOfTheOptions) {
  EXPECT_EQ(Build(OwnRow(R"("n": 1)"))[0].grammar, options_.defaults.grammar.text);
  EXPECT_EQ(Build(OwnRow(R"("guided_regex": "of the row")"))[0].grammar->text, "of the row");
  EXPECT_EQ(Build(OwnRow(R"("response_format": {"type": "text"})"))[0].grammar, nullptr);
  const std::vector<Prompt> several = Build(OwnRow(R"("n": 3, "guided_regex": "b")"));
  ASSERT_EQ(several.size(), 3u);
  for (const Prompt& prompt : several) EXPECT_EQ(prompt.grammar, several[0].grammar);
  EXPECT_EQ(Build(OwnRow(R"("max_tokens": 0, "echo": true, "guided_regex": "b")"))[0].grammar,
            nullptr)
      << "there is no answer";
}

TEST_F(RowGrammarPromptTest, EqualTextsAreKeptOnce) {
  const std::vector<Prompt> one = Build(OwnRow(R"("guided_choice": ["a", "bc"])"));
  EXPECT_EQ(Build(OwnRow(R"("structured_outputs": {"choice": ["a", "bc"]})"))[0].grammar,
            one[0].grammar);
  EXPECT_NE(Build(OwnRow(R"("guided_choice": ["ab", "c"])"))[0].grammar, one[0].grammar);
  EXPECT_NE(Build(OwnRow(R"("guided_regex": "x")"))[0].grammar,
            Build(OwnRow(R"("guided_grammar": "x")"))[0].grammar);
  // Texts out of use are forgotten, however many there are.
  std::weak_ptr<const GrammarText> first;
  for (int i = 0; i < 1000; ++i) {
    const std::string regex = std::to_string(i);
    const std::vector<Prompt> prompts = Build(OwnRow(R"("guided_regex": ")" + regex + "\""));
    EXPECT_EQ(prompts[0].grammar->text, regex);
    if (i == 0) first = prompts[0].grammar;
  }
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(Build(OwnRow(R"("guided_choice": ["a", "bc"])"))[0].grammar, one[0].grammar);
}

TEST_F(RowGrammarPromptTest, GrammarsThatCannotBeCompiledAreFoundInACheck) {
  GrammarCheck check;
  const auto error_of = [&](const std::string& members, std::vector<std::string>* warnings) {
    ParsedRow parsed = ParseRow(OwnRow(members), 0, 1);
    std::vector<Prompt> prompts;
    EXPECT_FALSE(builder_.Build(&parsed.row, &prompts)) << members;
    const auto error = check.Check(parsed.row, prompts, warnings);
    EXPECT_EQ(error ? error->code : "invalid_grammar", "invalid_grammar");
    return error ? error->field + ": " + error->message : "";
  };
  const std::string typo = R"("guided_json": {"propertes": {}})";
  std::vector<std::string> warnings;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(error_of(R"("guided_regex": "a(")", nullptr),
              "guided_regex: byte 2: a `(` without its `)`");
    EXPECT_EQ(error_of(R"("structured_outputs": {"regex": "a("})", nullptr),
              "structured_outputs.regex: byte 2: a `(` without its `)`");
    EXPECT_EQ(error_of(R"("response_format": {"type": "text"})", nullptr), "");
    EXPECT_EQ(error_of(R"("guided_regex": "a")", nullptr), "");
    warnings.clear();
    EXPECT_EQ(error_of(typo, &warnings), "");
    EXPECT_EQ(warnings.size(), round == 0 ? 1u : 0u) << "each text warns once";
  }
}

TEST(RowGrammarAnswerTest, AnswersThatAreNoWholeTextsWarn) {
  RowAnswer whole, cut;
  cut.cut_in_grammar = true;
  EXPECT_EQ(CutInGrammarWarning({whole}), std::nullopt);
  EXPECT_EQ(CutInGrammarWarning({cut}),
            "the answer ended before the grammar allowed an end: not a whole text of it");
  // As a resumed run reads them: a row has failed if all of its answers were cut.
  const auto is_cut_of = [](const std::vector<RowAnswer>& answers) {
    const Json warnings(Json::Array{Json("other"), Json(*CutInGrammarWarning(answers))});
    return HasCutWarning(warnings, answers.size());
  };
  EXPECT_TRUE(is_cut_of({cut}));
  EXPECT_TRUE(is_cut_of({cut, cut}));
  EXPECT_FALSE(is_cut_of({cut, whole}));
  EXPECT_FALSE(is_cut_of({cut, whole, cut}));
  EXPECT_EQ(CutInGrammarWarning({cut, whole, cut}),
            "of the answers, 0, 2 ended before the grammar allowed an end: not a whole text of it");
}

}  // namespace
}  // namespace minisgl::batch
