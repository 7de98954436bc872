// Malformed and extreme rows: every field with values of every kind, texts at the limits of UTF-8
// and JSON, lengths around the context, duplicate ids. Each row has a defined answer or is an error
// of its own, and the rows around it are unaffected.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "batch/row_fields.h"
#include "batch/row_output.h"
#include "batch/row_prompt.h"
#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::batch {
namespace {

constexpr const char* kGoodRow = R"({"id": "good %", "prompt": "Once", "max_tokens": 1})";

std::string GoodRow(size_t number) {
  std::string row = kGoodRow;
  return row.replace(row.find('%'), 1, std::to_string(number));
}

// A row that is valid except for `field` with `value`.
std::string RowWith(const RowField& field, const std::string& value, FieldFlags place) {
  const std::string member = "\"" + std::string(field.name) + "\": " + value;
  const std::string_view name = field.canonical_name();
  const bool is_prompt = name == "prompt" || name == "messages" || name == "prompt_token_ids";
  const bool for_chat = place == kInChat || (place == kAtTop && (field.flags & kInChat) != 0 &&
                                             (field.flags & kInCompletion) == 0);
  std::string prompt =
      for_chat ? R"("messages": [{"role": "user", "content": "a"}], )" : R"("prompt": "a", )";
  if (is_prompt) prompt = "";
  switch (place) {
    case kInSamplingParams:
      return "{" + prompt + R"("sampling_params": {)" + member + "}}";
    case kInChat:
      return R"({"custom_id": "b", "url": "/v1/chat/completions", "body": {)" + prompt + member +
             "}}";
    case kInCompletion:
      return R"({"custom_id": "b", "url": "/v1/completions", "body": {)" + prompt + member + "}}";
    default:
      return "{" + prompt + member + "}";
  }
}

// Every field in every place, with eight values.
std::vector<std::string> HostileRows() {
  static const char* const values[] = {"true",         "-1",    "1e308",     "9223372036854775808",
                                       R"("\u0000x")", R"([])", R"([[{}]])", R"({"\u001b[2J": 1})"};
  std::vector<std::string> rows;
  for (const RowField& field : RowFields()) {
    for (const FieldFlags place : {kAtTop, kInSamplingParams, kInChat, kInCompletion}) {
      if ((field.flags & place) == 0) continue;
      for (const char* value : values) rows.push_back(RowWith(field, value, place));
    }
  }
  return rows;
}

PromptBuilder SmallBuilder(const TextModel& text, int32_t num_pages = 16,
                           bool truncate_left = false) {
  EngineLimits limits = SmallLimits();
  limits.num_pages = num_pages;
  PromptBuilderOptions options;
  options.eos_ids = {ByteTokenizer::kEos};
  options.truncate_left = truncate_left;
  return PromptBuilder(&text, limits, options);
}

TEST(HostileRowTest, EveryFieldWithEveryKindOfValueIsAnswered) {
  const std::vector<std::string> rows = HostileRows();
  EXPECT_GE(rows.size(), 1000u);
  const TextModel text = FakeTextModel();
  const PromptBuilder builder = SmallBuilder(text);
  size_t refused = 0;
  for (const std::string& row : rows) {
    ParsedRow parsed = ParseRow(row, 3, 7);
    std::vector<Prompt> prompts;
    if (!parsed.error) parsed.error = builder.Build(&parsed.row, &prompts);
    if (!parsed.error) {
      EXPECT_EQ(prompts.size(), static_cast<size_t>(parsed.row.n)) << row;
      continue;
    }
    ++refused;
    EXPECT_FALSE(parsed.error->field.empty()) << row << ": " << parsed.error->message;
    const std::string line = FormatErrorRow(parsed.row, *parsed.error);
    const auto json = ParseJson(line);
    ASSERT_TRUE(json.ok()) << row;
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
    EXPECT_NE(line.find("\"line\": 7"), std::string::npos) << line;
  }
  EXPECT_GE(refused, 700u);
}

TEST(HostileRowTest, EveryFieldOfARowToScoreIsAnsweredOrRefused) {
  const TextModel text = FakeTextModel();
  const PromptBuilder builder = SmallBuilder(text);
  size_t refused = 0, answered = 0;
  for (const RowField& field : RowFields()) {
    for (const char* value : {"true", "-1", "1e308", "\"\\u0000x\"", "[]", "[[{}]]", "null", "2"}) {
      const std::string name(field.name);
      const std::string row = "{" + std::string(name == "text" ? "" : "\"text\": \"a b\", ") +
                              "\"" + name + "\": " + value + "}";
      ParsedRow parsed = ParseRow(row, 3, 7, /*lenient=*/false, RowPurpose::kScore);
      std::vector<Prompt> prompts;
      if (!parsed.error) parsed.error = builder.Build(&parsed.row, &prompts);
      if ((field.flags & kInScored) == 0 && FindRowField(name, kInScored) == nullptr) {
        EXPECT_EQ(parsed.error ? parsed.error->code : "", "unsupported_field") << row;
      }
      if (!parsed.error) {
        ++answered;
        ASSERT_EQ(prompts.size(), 1u) << row;
        EXPECT_EQ(prompts[0].max_tokens, 0) << row;
        continue;
      }
      ++refused;
      EXPECT_FALSE(parsed.error->field.empty()) << row << ": " << parsed.error->message;
      const std::string line = FormatErrorRow(parsed.row, *parsed.error);
      EXPECT_TRUE(ParseJson(line).ok()) << line;
      EXPECT_NE(line.find("\"line\": 7"), std::string::npos) << line;
    }
  }
  EXPECT_GE(refused, 300u);
  EXPECT_GE(answered, 15u);
}

TEST(HostileRowTest, EveryFieldOfARowForVectorsIsAnsweredOrRefused) {
  const TextModel text = FakeTextModel();
  const VectorPipeline pipeline;
  PromptBuilderOptions options;
  options.embedding.pipeline = &pipeline;
  const PromptBuilder builder(&text, SmallLimits(), options);
  size_t refused = 0, answered = 0;
  for (const RowField& field : RowFields()) {
    for (const char* value : {"true", "-1", "1e308", "\"\\u0000x\"", "[]", "[[{}]]", "[[2]]",
                              "null", "2", "[\"a\", 2]", "[2, -3]"}) {
      const std::string name(field.name);
      const bool is_text = name == "text" || name == "input";
      const std::string row = "{" + std::string(is_text ? "" : "\"text\": \"a b\", ") + "\"" +
                              name + "\": " + value + "}";
      ParsedRow parsed = ParseRow(row, 3, 7, /*lenient=*/false, RowPurpose::kEmbed);
      std::vector<Prompt> prompts;
      if (!parsed.error) parsed.error = builder.Build(&parsed.row, &prompts);
      if (FindRowField(name, kInEmbedded) == nullptr && std::string(value) != "null") {
        EXPECT_EQ(parsed.error ? parsed.error->code : "", "unsupported_field") << row;
      }
      if (!parsed.error) {
        ++answered;
        ASSERT_EQ(prompts.size(), 1u) << row;
        EXPECT_EQ(prompts[0].max_tokens, 0) << row;
        EXPECT_TRUE(prompts[0].extras->pooling.has_value()) << row;
        continue;
      }
      ++refused;
      EXPECT_FALSE(parsed.error->field.empty()) << row << ": " << parsed.error->message;
      EXPECT_TRUE(ParseJson(FormatErrorRow(parsed.row, *parsed.error)).ok()) << row;
    }
  }
  EXPECT_GE(refused, 300u);
  EXPECT_GE(answered, 15u);
}

TEST(HostileRowTest, EveryFieldOfARowToRankOrToClassifyIsAnsweredOrRefused) {
  const TextModel text = FakeTextModel();
  const VectorPipeline pipeline;
  const RerankTemplate form = {"<", ">", "Judge.", "y", "n"};
  for (const RowPurpose purpose : {RowPurpose::kClassify, RowPurpose::kRerank}) {
    const bool ranks = purpose == RowPurpose::kRerank;
    PromptBuilderOptions options;
    options.embedding.pipeline = &pipeline;
    if (ranks) options.embedding.form = &form;
    options.embedding.rank.query = "q";
    const PromptBuilder builder(&text, SmallLimits(), options);
    size_t refused = 0, answered = 0;
    for (const RowField& field : RowFields()) {
      for (const char* value :
           {"true", "-1", "1e308", "\"\\u0000x\"", "[]", "[[{}]]", "[[2]]", "null", "2",
            "[\"a\", 2]", "[{\"text\": \"a\"}, \"b\"]", "{\"text\": 1}"}) {
        const std::string name(field.name);
        const std::string row = "{\"text\": \"a b\", \"" + name + "\": " + value + "}";
        ParsedRow parsed = ParseRow(row, 3, 7, /*lenient=*/false, purpose);
        std::vector<Prompt> prompts;
        if (!parsed.error) parsed.error = builder.Build(&parsed.row, &prompts);
        if (!parsed.error) {
          ++answered;
          ASSERT_EQ(prompts.size(), 1u) << row;
          EXPECT_TRUE(prompts[0].extras->pooling.has_value()) << row;
          continue;
        }
        ++refused;
        EXPECT_TRUE(ParseJson(FormatErrorRow(parsed.row, *parsed.error)).ok()) << row;
      }
    }
    EXPECT_GE(refused, 300u);
    EXPECT_GE(answered, 15u);
  }
}

// One row for each kind of error, and its error code; "" means it is answered.
struct HostileLine {
  std::string line;
  const char* code;
};

std::string PromptRow(const std::string& escaped) { return R"({"prompt": ")" + escaped + "\"}"; }

std::vector<HostileLine> HostilePrompts() {
  return {
      {PromptRow(""), ""},  // the token that starts every text is a prompt
      {R"({"prompt": "", "add_special_tokens": false})", "invalid_row"},
      {PromptRow("a\\u0000b"), ""},
      {PromptRow("\\ufeffa"), ""},
      {PromptRow("\xEF\xBB\xBF"
                 "a"),
       ""},
      {PromptRow("a\\r\\nb\\rc"), ""},
      {PromptRow("a\xFFz"), "invalid_row"},
      {PromptRow("\xC0\xAF"), "invalid_row"},
      {PromptRow("\xED\xA0\x80"), "invalid_row"},
      {PromptRow("\xF4\x90\x80\x80"), "invalid_row"},
      {PromptRow("\xE2\x82"), "invalid_row"},
      {PromptRow("\\ud800"), "invalid_row"},
      {PromptRow("\\udc00"), "invalid_row"},
      {PromptRow("\\udc00\\ud800"), "invalid_row"},
      {PromptRow("\\ud83d\\ude00"), ""},
      {PromptRow("\\uffff\\u200d"), ""},
      {PromptRow("a\tb"), "invalid_row"},
      {R"({"messages": [{"role": "user", "content": ""}]})", ""},
      {R"({"messages": [{"role": "user", "content": " \n\t "}]})", ""},
      {R"({"messages": [{"role": "user", "content": []}]})", ""},
  };
}

TEST(HostilePromptTest, TextsAtTheLimitsAreExactOrErrors) {
  const TextModel text = FakeTextModel();
  const PromptBuilder builder = SmallBuilder(text);
  for (const auto& [line, code] : HostilePrompts()) {
    ParsedRow parsed = ParseRow(line, 0, 1);
    std::vector<minisgl::Prompt> prompts;
    const std::string prompt = parsed.row.prompt;
    if (!parsed.error) parsed.error = builder.Build(&parsed.row, &prompts);
    EXPECT_EQ(parsed.error ? parsed.error->code : "", code) << line;
    if (parsed.error || parsed.row.kind != PromptKind::kText) continue;
    // Bytes are preserved: the tokenizer of these tests has one token for each byte.
    EXPECT_EQ(text.tokenizer->Decode(prompts[0].ids, false), prompt) << line;
  }
  EXPECT_EQ(ParseRow(PromptRow("a\\u0000b"), 0, 1).row.prompt, std::string("a\0b", 3));
  EXPECT_EQ(ParseRow(PromptRow("\\ud83d\\ude00"), 0, 1).row.prompt, "\xF0\x9F\x98\x80");
}

TEST(HostilePromptTest, LengthsAroundTheContextAreAnsweredOrRefused) {
  const TextModel text = FakeTextModel();
  // A context of 64 tokens, or of two pages plus the last token, which is never computed.
  const struct {
    int32_t num_pages;
    size_t length;
    const char* more;
    bool truncate_left;
    size_t kept;  // 0 means length_exceeded
  } cases[] = {
      {16, 1, "", false, 1},
      {16, 63, "", false, 63},
      {16, 64, "", false, 0},
      {16, 65, "", false, 0},
      {16, 100000, "", false, 0},
      {16, 63, R"(, "max_tokens": 2147483647)", false, 63},
      {16, 64, R"(, "n": 128)", false, 0},
      {16, 63, R"(, "min_tokens": 2147483647)", false, 63},
      {2, 32, "", false, 32},
      {2, 33, "", false, 0},
      {16, 64, "", true, 48},
      {16, 100000, R"(, "max_tokens": 1)", true, 63},
      {16, 63, "", true, 63},
      {2, 33, R"(, "max_tokens": 100)", true, 25},
  };
  for (const auto& c : cases) {
    std::string row = R"({"prompt_token_ids": [65)";
    for (size_t i = 1; i < c.length; ++i) row += ",66";
    row += std::string("]") + c.more + "}";
    ParsedRow parsed = ParseRow(row, 0, 1);
    ASSERT_FALSE(parsed.error) << row.substr(0, 80);
    std::vector<minisgl::Prompt> prompts;
    const auto error =
        SmallBuilder(text, c.num_pages, c.truncate_left).Build(&parsed.row, &prompts);
    EXPECT_EQ(error ? error->code : "", c.kept == 0 ? "length_exceeded" : "") << c.length << c.more;
    if (c.kept == 0) continue;
    ASSERT_FALSE(prompts.empty());
    EXPECT_EQ(prompts[0].ids.size(), c.kept) << c.length << c.more;
    EXPECT_EQ(parsed.row.warnings.size(), c.kept < c.length ? 1u : 0u);
  }
  for (const char* none : {"0", "-2"}) {
    const ParsedRow parsed =
        ParseRow(std::string(R"({"prompt": "a", "max_tokens": )") + none + "}", 0, 1);
    ASSERT_TRUE(parsed.error);
    EXPECT_EQ(parsed.error->field, "max_tokens");
  }
}

class HostileFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  ProgramResult Run(const std::string& input, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        "run",         "-m",     DemoModel(),
        "--num-pages", "64",     "--threads",
        "1",           "--file", folder_.Write("in.jsonl", input)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  }
  static std::vector<Json> Rows(const ProgramResult& result) {
    std::vector<Json> rows;
    for (const std::string& line : Lines(result.out)) {
      auto row = ParseJson(line);
      EXPECT_TRUE(row.ok()) << line;
      rows.push_back(row.ok() ? *row : Json());
    }
    return rows;
  }

  TemporaryFolder folder_;
};

TEST_F(HostileFileTest, BadPromptsDoNotAffectOtherRows) {
  std::string input = "\xEF\xBB\xBF";
  size_t number = 0;
  for (const HostileLine& hostile : HostilePrompts()) {
    std::string line = hostile.line;
    line.insert(line.size() - 1, R"(, "max_tokens": 1)");
    input += GoodRow(number++) + "\r\n" + line + "\r\n";
  }
  const ProgramResult result = Run(input);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::vector<Json> rows = Rows(result);
  ASSERT_EQ(rows.size(), 2 * HostilePrompts().size());
  const Json* first_text = rows[0].Find("text");
  ASSERT_NE(first_text, nullptr);
  for (size_t i = 0; i < HostilePrompts().size(); ++i) {
    const Json *good = rows[2 * i].Find("text"), *error = rows[2 * i + 1].Find("error");
    ASSERT_NE(good, nullptr) << i;
    EXPECT_EQ(*good, *first_text);
    EXPECT_EQ(error == nullptr ? "" : error->Find("code")->as_string(), HostilePrompts()[i].code)
        << HostilePrompts()[i].line;
  }
}

TEST_F(HostileFileTest, DeepAndDuplicateJsonDoesNotAffectOtherRows) {
  const std::string deep(100000, '['), deep_objects = [] {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += "{\"a\":";
    return text;
  }();
  const std::vector<std::string> bad = {
      deep,
      deep_objects,
      R"({"prompt": "a", "metadata": )" + deep + std::string(100000, ']') + "}",
      R"({"messages": )" + deep + std::string(100000, ']') + "}",
      R"({"custom_id": "c", "body": )" + deep_objects + "1" + std::string(100000, '}') + "}",
      R"({"prompt": "a", "prompt": "b"})",
      R"({"prompt": "a", "metadata": {"k": 1, "k": 2}})",
      R"({"custom_id": "d", "custom_id": "e", "body": {"prompt": "a"}})",
      R"({"custom_id": "d", "body": {"prompt": "a", "prompt": "a"}})"};
  std::string input;
  for (size_t i = 0; i < bad.size(); ++i) input += bad[i] + "\n" + GoodRow(i) + "\n";
  const ProgramResult result = Run(input);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::vector<Json> rows = Rows(result);
  ASSERT_EQ(rows.size(), 2 * bad.size());
  for (size_t i = 0; i < bad.size(); ++i) {
    const Json* response = rows[2 * i].Find("response");  // of a row of a Batch file
    const Json* error = (response == nullptr ? rows[2 * i] : *response->Find("body")).Find("error");
    ASSERT_NE(error, nullptr) << i;
    EXPECT_EQ(*error->Find("code"), Json("invalid_row"));
    EXPECT_EQ(*error->Find("line"), Json(static_cast<int64_t>(2 * i + 1)));
    EXPECT_NE(rows[2 * i + 1].Find("text"), nullptr) << i;
  }
}

TEST_F(HostileFileTest, DuplicateIdsAreErrorRowsThatNameTheFirstLine) {
  const auto batch = [](const std::string& id) {
    return R"({"custom_id": )" + id + R"(, "body": {"prompt": "a", "max_tokens": 1}})" + "\n";
  };
  const auto own = [](const std::string& id) {
    return R"({"id": )" + id + R"(, "prompt": "a", "max_tokens": 1})" + "\n";
  };
  const struct {
    std::string input;
    int exit_code;
    bool clash;
  } cases[] = {
      {batch("\"x\"") + own("2") + batch("\"x\""), 1, true},
      {own("\"x\"") + own("2") + batch("\"x\""), 1, true},
      {own("7") + own("2") + own("7"), 1, true},
      {own("\"x\"") + own("2") + R"({"id": "x", "prompt": 5})" + "\n", 1, false},
      {R"({"id": "x", "prompt": NaN})" + std::string("\n") + own("2") + own("\"x\""), 1, true},
      {own("7") + own("2") + own("\"7\""), 0, false},
      {own("null") + own("2") + own("null"), 0, false},
      {own("\"\"") + own("2") + own("\"\""), 1, false},
      {own("\"" + std::string(1 << 20, 'i') + "\"") + own("2") + own("3"), 1, false},
  };
  for (const auto& [input, exit_code, clash] : cases) {
    const ProgramResult result = Run(input);
    EXPECT_EQ(result.exit_code, exit_code) << input.substr(0, 200) << result.err.substr(0, 400);
    const std::vector<std::string> rows = Lines(result.out);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[2].find("\"duplicate_id\"") != std::string::npos, clash) << rows[2];
    EXPECT_EQ(rows[2].find("was already on line 1") != std::string::npos, clash) << rows[2];
    EXPECT_EQ(rows[0].find("duplicate_id"), std::string::npos) << rows[0];
    if (!clash) continue;
    const ProgramResult strict = Run(input, {"--strict"});
    EXPECT_EQ(strict.exit_code, 65) << strict.err;
    EXPECT_EQ(strict.out, "");
  }
}

}  // namespace
}  // namespace minisgl::batch
