// Rows of prompt files: every field of the table with values that it must reject, and the spellings
// in rows of other programs.
#include "batch/row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row_fields.h"

namespace minisgl::batch {
namespace {

ParsedRow Parse(std::string_view text, bool lenient = false) {
  return ParseRow(text, 3, 7, lenient);
}

Row Good(std::string_view text, bool lenient = false) {
  ParsedRow parsed = Parse(text, lenient);
  EXPECT_FALSE(parsed.error) << text << ": " << (parsed.error ? parsed.error->message : "");
  return std::move(parsed.row);
}

RowError Bad(std::string_view text) {
  ParsedRow parsed = Parse(text);
  EXPECT_TRUE(parsed.error) << text;
  return parsed.error.value_or(RowError());
}

// Returns a number just past `bound` in `direction`, as JSON of the field's type.
Json Past(const RowField& field, double bound, int direction) {
  if (field.type == FieldType::kInteger) return Json(static_cast<int64_t>(bound) + direction);
  return Json(std::nextafter(bound, direction * HUGE_VAL));
}

// Returns values that `field` must reject: each wrong type, and both sides of its range.
std::vector<Json> BadValues(const RowField& field) {
  const std::vector<std::pair<FieldType, Json>> of_type = {
      {FieldType::kBool, Json(true)},
      {FieldType::kInteger, Json(1)},
      {FieldType::kNumber, Json(0.5)},
      {FieldType::kString, Json("x")},
      {FieldType::kArray, Json(Json::Array{Json(1)})},
      {FieldType::kObject, Json(Json::Object{{"x", Json(1)}})}};
  std::vector<Json> values;
  if (field.type != FieldType::kAny) {
    for (const auto& [type, value] : of_type) {
      const bool number_for_number =
          field.type == FieldType::kNumber && type == FieldType::kInteger;
      if (type != field.type && !number_for_number) values.push_back(value);
    }
  }
  if (std::isfinite(field.range.min)) {
    values.push_back(field.range.above_min ? Json(field.range.min)
                                           : Past(field, field.range.min, -1));
  }
  if (std::isfinite(field.range.max)) values.push_back(Past(field, field.range.max, 1));
  return values;
}

constexpr FieldFlags kPlaces[] = {kAtTop, kInSamplingParams, kInChat, kInCompletion};

// Returns a row with `name` in one of those places.
std::string RowWith(const std::string& name, const Json& value, FieldFlags place) {
  Json row = Json(Json::Object());
  if (place == kInChat || place == kInCompletion) {
    Json body = Json(Json::Object());
    body.Set(name, value);
    row.Set("custom_id", "the row").Set("method", "POST");
    row.Set("url", place == kInChat ? "/v1/chat/completions" : "/v1/completions");
    row.Set("body", std::move(body));
    return row.Dump();
  }
  row.Set("id", "the row");
  if (place == kInSamplingParams) {
    Json params = Json(Json::Object());
    params.Set(name, value);
    row.Set("text", "a");
    row.Set("sampling_params", std::move(params));
  } else {
    row.Set(name, value);
  }
  return row.Dump();
}

TEST(RowFieldTest, EveryFieldRefusesWrongTypesAndValuesPastItsRange) {
  int cases = 0;
  for (const RowField& field : RowFields()) {
    for (const FieldFlags place : kPlaces) {
      if ((field.flags & place) == 0) continue;
      const std::string shown =
          (place == kInSamplingParams ? "sampling_params." : "") + std::string(field.name);
      for (const Json& value : BadValues(field)) {
        const ParsedRow parsed = Parse(RowWith(field.name, value, place));
        ASSERT_TRUE(parsed.error) << shown << " = " << value.Dump();
        EXPECT_EQ(parsed.error->field, shown);
        EXPECT_EQ(parsed.error->code,
                  (field.flags & kUnsupported) != 0 ? "unsupported_field" : "invalid_row");
        EXPECT_NE(parsed.error->message.find(shown), std::string::npos) << parsed.error->message;
        EXPECT_NE(parsed.error->message.find(Expects(field)), std::string::npos)
            << parsed.error->message;
        EXPECT_EQ(parsed.row.id, Json("the row"));
        EXPECT_EQ(parsed.row.index, 3);
        EXPECT_EQ(parsed.row.line, 7);
        ++cases;
      }
    }
  }
  EXPECT_GE(cases, 700);
}

TEST(RowFieldTest, EveryFieldAcceptsTheBoundsOfItsRange) {
  for (const RowField& field : RowFields()) {
    if (!std::isfinite(field.range.min) || (field.flags & kAtTop) == 0) continue;
    const auto as_json = [&field](double value) {
      return field.type == FieldType::kInteger ? Json(static_cast<int64_t>(value)) : Json(value);
    };
    std::vector<Json> values = {as_json(field.range.max)};
    values.push_back(field.range.above_min ? Past(field, field.range.min, 1)
                                           : as_json(field.range.min));
    for (const Json& value : values) {
      Json row = Json(Json::Object());
      row.Set("prompt", "a");
      if (std::string_view(field.name) == "top_logprobs") row.Set("logprobs", true);
      if (std::string_view(field.name) == "min_tokens") row.Set("max_tokens", 2147483647);
      if (std::string_view(field.name) == "best_of") row.Set("n", value);
      row.Set(field.name, value);
      EXPECT_FALSE(Parse(row.Dump()).error) << field.name << " = " << value.Dump();
    }
  }
}

// Returns the numbers in a text like "an integer from -1 to 20".
std::vector<double> NumbersIn(const std::string& text) {
  std::vector<double> numbers;
  for (size_t at = 0; at < text.size();) {
    const bool begins = std::isdigit(static_cast<unsigned char>(text[at])) != 0 || text[at] == '-';
    size_t used = 0;
    if (begins) numbers.push_back(std::stod(text.substr(at), &used));
    at += std::max<size_t>(used, 1);
  }
  return numbers;
}

TEST(RowFieldTest, ErrorsNameTheActualRange) {
  int ranges = 0;
  for (const RowField& field : RowFields()) {
    if (!std::isfinite(field.range.min)) continue;
    const std::vector<double> numbers = NumbersIn(Expects(field));
    ASSERT_FALSE(numbers.empty()) << field.name;
    const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
    EXPECT_EQ(*low, field.range.min) << field.name;
    EXPECT_EQ(*high, field.range.max) << field.name;
    EXPECT_EQ(Expects(field).find("above") != std::string::npos, field.range.above_min)
        << field.name;
    ++ranges;
  }
  EXPECT_GE(ranges, 15);
}

TEST(RowFieldTest, ErrorsSpellRangesInFull) {
  for (const auto& [member, error] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("top_p": 1.5)", "top_p must be a number from 0 to 1 (found 1.5)"},
           {R"("repetition_penalty": 0)",
            "repetition_penalty must be a number above 0 and at most 100 (found 0)"},
           {R"("max_tokens": 0)",
            "max_tokens must be an integer from 1 to 2147483647, or -1 for no limit; 0 needs echo "
            "or "
            "prompt_logprobs (found 0)"},
           {R"("logprobs": 21)",
            "logprobs must be true, false, or an integer from 0 to 20 (found 21)"},
           {R"("timeout_s": 0)",
            "timeout_s must be a number of seconds above 0 and at most 1e9 (found 0)"}}) {
    const auto parsed = Parse(std::string(R"({"prompt": "a", )") + member + "}");
    EXPECT_EQ(parsed.error.value_or(RowError()).message, error);
  }
}

TEST(RowFieldTest, NullMeansNotGiven) {
  for (const RowField& field : RowFields()) {
    if ((field.flags & kAtTop) == 0 || field.canonical_name() == "prompt") continue;
    Json row = Json(Json::Object());
    row.Set("prompt", "a");
    row.Set(field.name, Json());
    EXPECT_FALSE(Parse(row.Dump()).error) << field.name;
  }
}

TEST(RowFieldTest, AliasesAndNamesAreKnownFields) {
  for (const RowField& field : RowFields()) {
    if (field.alias_of == nullptr) continue;
    EXPECT_NE(FindRowField(field.alias_of, static_cast<FieldFlags>(field.flags & ~kUnsupported)),
              nullptr)
        << field.name;
  }
}

TEST(RowTest, ValuesWithInvalidPartsAreRefusedNamingTheField) {
  const struct {
    const char* row;
    const char* field;
  } cases[] = {
      {R"({"id": "", "prompt": "a"})", "id"},
      {R"({"id": true, "prompt": "a"})", "id"},
      {R"({"messages": [{"role": "user", "content": "a"}], )"
       R"("chat_template_kwargs": {"a": 1, "bos_token": "b"}})",
       "chat_template_kwargs.bos_token"},
      {R"({"id": ["x"], "prompt": "a"})", "id"},
      {R"({"prompt": {"a": 1}})", "prompt"},
      {R"({"prompt": ["a", "b"]})", "prompt"},
      {R"({"prompt": [[1], [2]]})", "prompt"},
      {R"({"prompt": [["a"]]})", "prompt"},
      {R"({"prompt": "a", "reasoning_effort": "low"})", "reasoning_effort"},
      {R"({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "much"})",
       "reasoning_effort"},
      {R"({"messages": [{"role": "assistant", "content": "a", "refusal": "no"}]})",
       "messages[0].refusal"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt_token_ids": []})", "prompt_token_ids"},
      {R"({"prompt_token_ids": [1, -1]})", "prompt_token_ids"},
      {R"({"prompt_token_ids": [1, 2.5]})", "prompt_token_ids"},
      {R"({"prompt_token_ids": [1, 4294967296]})", "prompt_token_ids"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": ["hi"]})", "messages[0]"},
      {R"({"messages": [{"content": "a"}]})", "messages[0].role"},
      {R"({"messages": [{"role": 1, "content": "a"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "", "content": "a"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": 3}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": "a"}, )"
       R"({"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[1].content[0]"},
      {R"({"prompt": "a", "stop": ""})", "stop"},
      {R"({"prompt": "a", "stop": ["x", ""]})", "stop"},
      {R"({"prompt": "a", "stop": ["x", 1]})", "stop"},
      {R"({"prompt": "a", "stop": 5})", "stop"},
      {R"({"prompt": "a", "stop_token_ids": ["x"]})", "stop_token_ids"},
      {R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": {"-1": 1}})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": {"": 1}})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": {"1 ": 1}})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": {"5": "1"}})", "logit_bias"},
      {R"({"prompt": "a", "logit_bias": {"5": 100.5}})", "logit_bias"},
      {R"({"prompt": "a", "logprobs": 21})", "logprobs"},
      {R"({"prompt": "a", "logprobs": -1})", "logprobs"},
      {R"({"prompt": "a", "logprobs": "yes"})", "logprobs"},
      {R"({"prompt": "a", "top_logprobs": 2})", "top_logprobs"},
      {R"({"prompt": "a", "logprobs": 3, "top_logprobs": 2})", "top_logprobs"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 3, "min_tokens": 4})", "min_tokens"},
      {R"({"prompt": "a", "max_tokens": 3, "max_new_tokens": 3})", "max_new_tokens"},
      {R"({"prompt": "a", "max_tokens": 3, "sampling_params": {"max_new_tokens": 3}})",
       "sampling_params.max_new_tokens"},
      {R"({"id": "a", "custom_id": "a", "prompt": "a"})", "custom_id"},
      {R"({"prompt": "a", "tools": []})", "tools"},
      {R"({"prompt": "a", "documents": []})", "documents"},
      {R"({"prompt": "a", "chat_template_kwargs": {}})", "chat_template_kwargs"},
      {R"({"prompt_token_ids": [1], "add_special_tokens": true})", "add_special_tokens"},
      {R"({"text": "a", "sampling_params": [1]})", "sampling_params"},
      {R"({"prompt": "a", "seed": 18446744073709551616})", "seed"},
      {R"({"prompt": "a", "seed": 9223372036854775807.0})", "seed"},
      {R"({"prompt": "a", "max_tokens": 2.5})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 9007199254740992.0})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": -2})", "max_tokens"},
      {R"({"prompt": "a", "top_k": 18446744073709551615})", "top_k"},
      {R"({"prompt_token_ids": [1, 18446744073709551615]})", "prompt_token_ids"},
      {R"({"id": 1e300, "prompt": "a"})", "id"},
      {R"({"id": 9007199254740992.0, "prompt": "a"})", "id"},
  };
  for (const auto& [row, field] : cases) {
    const RowError error = Bad(row);
    EXPECT_EQ(error.code, "invalid_row") << row;
    EXPECT_EQ(error.field, field) << row << ": " << error.message;
    EXPECT_FALSE(error.message.empty());
  }
}

TEST(RowTest, UnsupportedFieldsAreNamed) {
  const struct {
    const char* row;
    const char* field;
  } cases[] = {
      {R"({"prompt": "a", "colour": "red"})", "colour"},
      {R"({"prompt": "a", "Temperature": 1})", "Temperature"},
      {R"({"prompt": "a", "best_of": 2})", "best_of"},
      {R"({"prompt": "a", "sampling_params": {"prompt": "a"}})", "sampling_params.prompt"},
      {R"({"prompt": "a", "sampling_params": {"stop_regex": "a+"}})", "sampling_params.stop_regex"},
      {R"({"prompt": "a", "n": 2, "best_of": 3})", "best_of"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix"},
      {R"({"prompt": "a", "audio": {"voice": "x"}})", "audio"},
      {R"({"prompt": "a", "functions": []})", "functions"},
      {R"({"prompt": "a", "mirostat": 2})", "mirostat"},
      {R"({"prompt": "a", "modalities": ["text", "audio"]})", "modalities"},
      {R"({"prompt": "a", "\u001b[2J": 1})", "\\x1b[2J"},
  };
  for (const auto& [row, field] : cases) {
    const RowError error = Bad(row);
    EXPECT_EQ(error.code, "unsupported_field") << row;
    EXPECT_EQ(error.field, field) << row;
  }
}

TEST(RowTest, AMisspeltFieldGetsASuggestion) {
  const auto message = [](const std::string& name) {
    return Bad("{\"prompt\": \"a\", \"" + name + "\": 1}").message;
  };
  EXPECT_TRUE(message("temprature").ends_with("did you mean temperature?"));
  EXPECT_TRUE(message("mesages").ends_with("did you mean messages?"));
  EXPECT_TRUE(message("top-k").ends_with("did you mean top_k?"));
  EXPECT_TRUE(message("max_token").ends_with("did you mean max_tokens?"));
  for (const std::string& name : {std::string("colour"), std::string("xy"), std::string("regex"),
                                  std::string(100, 'n'), std::string()}) {
    EXPECT_EQ(message(name).find("did you mean"), std::string::npos) << message(name);
  }
}

TEST(RowTest, AnUnknownFieldIsNamedWithItsPlace) {
  EXPECT_EQ(Bad(R"({"prompt": "a", "colour": 1})").message, "colour is not a known field");
  for (const std::string url : {"/v1/chat/completions", "/v1/completions"}) {
    EXPECT_EQ(Bad(R"({"custom_id": "a", "method": "POST", "url": ")" + url +
                  R"(", "body": {"colour": 1}})")
                  .message,
              "colour is not a known field of " + url);
  }
}

TEST(RowTest, LenientTurnsUnsupportedFieldsIntoWarningsAndNothingElse) {
  const Row row = Good(R"({"prompt": "a", "colour": "red", "mirostat": 2})", true);
  ASSERT_EQ(row.warnings.size(), 2u);
  EXPECT_NE(row.warnings[0].find("colour"), std::string::npos);
  EXPECT_NE(row.warnings[1].find("mirostat"), std::string::npos);
  EXPECT_TRUE(Parse(R"({"prompt": "a", "temperature": "hot"})", true).error);
}

TEST(RowTest, UnknownFieldsOfMessagesAreTreatedLikeThoseOfRows) {
  const char* const row = R"({"messages": [{"role": "user", "content": "a", "colour": 1}]})";
  EXPECT_EQ(Bad(row).code, "unsupported_field");
  EXPECT_EQ(Bad(row).field, "messages[0].colour");
  const Row taken = Good(row, true);
  ASSERT_EQ(taken.warnings.size(), 1u);
  EXPECT_NE(taken.warnings[0].find("messages[0].colour"), std::string::npos);
}

TEST(RowTest, AContentThatIsNullIsMissing) {
  EXPECT_EQ(Bad(R"({"messages": [{"role": "user", "content": null}]})").message,
            "messages[0].content is missing");
  Good(R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{}]}]})");
}

TEST(RowTest, ARowNeedsExactlyOnePrompt) {
  for (const char* row : {R"({})", R"({"id": 1})",
                          R"({"prompt": "a", "messages": [{"role": "user", "content": "a"}]})",
                          R"({"prompt": "a", "prompt_token_ids": [1]})", R"({"prompt": null})"}) {
    EXPECT_NE(Bad(row).message.find("exactly one"), std::string::npos) << row;
  }
}

TEST(RowTest, InvalidJsonIsARowErrorWithIndexAndLine) {
  const std::string deep(100000, '[');
  for (const std::string& row :
       {std::string("{"), std::string("nonsense"), std::string(R"({"prompt": "a"} x)"),
        std::string(R"({"prompt": "a", "prompt": "b"})"), std::string("{\"prompt\": \"\xff\"}"),
        std::string(R"({"prompt": "\ud800"})"), std::string("{\"prompt\": \"a\0b\"}", 17), deep,
        R"({"metadata": )" + deep, std::string("3"), std::string("null"), std::string("[1]"),
        std::string("")}) {
    const ParsedRow parsed = Parse(row);
    ASSERT_TRUE(parsed.error) << row.substr(0, 40);
    EXPECT_EQ(parsed.error->code, "invalid_row");
    EXPECT_EQ(parsed.row.index, 3);
    EXPECT_EQ(parsed.row.line, 7);
    EXPECT_LT(parsed.error->message.size(), 400u);
  }
}

TEST(RowTest, AStringIsAPrompt) {
  const Row row = Good(R"("once upon\na time")");
  EXPECT_EQ(row.kind, PromptKind::kText);
  EXPECT_EQ(row.prompt, "once upon\na time");
}

TEST(RowTest, ErrorsCarryTheIdWhereverItStands) {
  EXPECT_EQ(Parse(R"({"prompt": "a", "colour": 1, "id": 17})").row.id, Json(17));
  EXPECT_EQ(Parse(R"({"colour": 1, "custom_id": "x"})").row.id, Json("x"));
}

TEST(RowTest, ReadsEveryFieldOfARow) {
  const Row row = Good(
      R"({"id": "r", "messages": [{"role": "user", "content": "a"}],)"
      R"( "temperature": 0.5, "top_k": 3,)"
      R"( "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": 0.2,)"
      R"( "frequency_penalty": -0.2, "logit_bias": {"5": -100, "7": 2.5},)"
      R"( "seed": 9, "max_tokens": 8,)"
      R"( "min_tokens": 2, "stop": ["x", "y"], "stop_token_ids": [3], "ignore_eos": true, "n": 2,)"
      R"( "logprobs": true, "top_logprobs": 4, "priority": -3, "timeout_s": 1.5,)"
      R"( "tools": [{"name": "t"}], "documents": ["d"], "chat_template_kwargs": {"k": 1},)"
      R"( "return_token_ids": true, "metadata": {"a": [1]}})");
  EXPECT_EQ(row.id, Json("r"));
  EXPECT_EQ(row.kind, PromptKind::kMessages);
  EXPECT_EQ(row.temperature, 0.5);
  EXPECT_EQ(row.top_k, 3);
  EXPECT_EQ(row.top_p, 0.9);
  EXPECT_EQ(row.min_p, 0.1);
  EXPECT_EQ(row.repetition_penalty, 1.1);
  EXPECT_EQ(row.presence_penalty, 0.2);
  EXPECT_EQ(row.frequency_penalty, -0.2);
  ASSERT_EQ(row.logit_bias.size(), 2u);
  EXPECT_EQ(row.logit_bias[1], (std::pair<TokenId, float>(7, 2.5f)));
  EXPECT_EQ(row.seed, 9u);
  EXPECT_EQ(row.max_tokens, 8);
  EXPECT_EQ(row.min_tokens, 2);
  EXPECT_EQ(row.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(row.stop_token_ids, std::vector<TokenId>{3});
  EXPECT_EQ(row.ignore_eos, true);
  EXPECT_EQ(row.n, 2);
  EXPECT_EQ(row.num_logprobs, 4);
  EXPECT_EQ(row.priority, -3);
  EXPECT_EQ(row.timeout_s, 1.5);
  EXPECT_TRUE(row.tools.is_array());
  EXPECT_TRUE(row.documents.is_array());
  EXPECT_EQ(*row.template_kwargs.Find("k"), Json(1));
  EXPECT_TRUE(row.return_token_ids);
  EXPECT_EQ(row.metadata, R"({"a": [1]})");
}

TEST(RowTest, InvalidJsonKeepsTheIdBeforeTheError) {
  const std::string deep(70, '[');
  const struct {
    std::string row;
    Json id;
  } cases[] = {
      {R"({"id": "a", "max_tokens": 2, "max_tokens": 5})", "a"},
      {R"({"max_tokens": 2, "max_tokens": 5, "id": "a"})", "a"},
      {R"({"id": "a", "metadata": )" + deep, "a"},
      {R"({"id": "a", "metadata": )" + deep + std::string(70, ']') + "}", "a"},
      {R"({"id": "a", "temperature": 1e999})", "a"},
      {R"({"temperature": 1e999, "id": "a"})", "a"},
      {R"({"id": "a", "temperature": NaN})", "a"},
      {R"({"temperature": NaN, "id": "a"})", Json()},
      {R"({"id": "a", "prompt": "\ud800"})", "a"},
      {"{\"id\": \"a\", \"prompt\": \"\xff\"}", "a"},
      {std::string("{\"id\": \"a\", \"prompt\": \"\0\"}", 26), "a"},
      {R"({"id": 17, "prompt": "cut)", 17},
      {R"({"id": 1e3, "prompt": "cut)", 1e3},
      {R"({"id": "\u00e9", "prompt": "cut)", "\u00e9"},
      {"\xEF\xBB\xBF{\"id\": \"a\", \"prompt\": \"cut", "a"},
      {R"({"custom_id": "a", "prompt": "cut)", "a"},
      {R"({"id": "b", "custom_id": "a", "prompt": "cut)", "a"},
      {R"({"id": "a", "id": "b", "prompt": "x"})", "a"},
      {R"({"metadata": {"id": "a"}, "prompt": "cut)", Json()},
      {R"({"id": ["a"], "prompt": "cut)", Json()},
      {R"({"id": "", "prompt": "cut)", Json()},
      {R"({"id": 18446744073709551615, "prompt": "cut)", Json(~uint64_t{0})},
      {R"({"id": 1e300, "prompt": "cut)", Json()},
      {R"({"id": ")" + std::string(100000, 'x') + R"(", "prompt": "cut)", Json()},
      {R"({"id": "a)", Json()},
      {R"(["id": "a")", Json()},
      {"", Json()},
  };
  for (const auto& [row, id] : cases) {
    const ParsedRow parsed = Parse(row);
    ASSERT_TRUE(parsed.error) << row;
    EXPECT_EQ(parsed.error->code, "invalid_row");
    EXPECT_EQ(parsed.row.id, id) << row.substr(0, 80);
    EXPECT_EQ(parsed.row.format, RowFormat::kOwn);
  }
}

// Integers as written by programs whose columns have gaps.
TEST(RowTest, IntegersWithADecimalPointAreIntegers) {
  const Row row =
      Good(R"({"prompt_token_ids": [1.0, 2e1], "max_tokens": 2.0, "min_tokens": 1.0, "top_k": 3.0,)"
           R"( "seed": 4.0, "n": 2.0, "priority": -5.0, "stop_token_ids": [6.0], "logprobs": 7.0,)"
           R"( "top_logprobs": 7.0})");
  EXPECT_EQ(row.prompt_token_ids, (std::vector<TokenId>{1, 20}));
  EXPECT_EQ(row.max_tokens, 2);
  EXPECT_EQ(row.min_tokens, 1);
  EXPECT_EQ(row.top_k, 3);
  EXPECT_EQ(row.seed, 4u);
  EXPECT_EQ(row.n, 2);
  EXPECT_EQ(row.priority, -5);
  EXPECT_EQ(row.stop_token_ids, std::vector<TokenId>{6});
  EXPECT_EQ(row.num_logprobs, 7);
  EXPECT_EQ(Good(R"({"id": 2.0, "prompt": "a"})").id, Json(2.0));
  EXPECT_EQ(Good(R"({"prompt": [1.0]})").prompt_token_ids, std::vector<TokenId>{1});
  EXPECT_EQ(Good(R"({"prompt": "a", "n": 3.0, "best_of": 3.0})").n, 3);
  for (const RowField& field : RowFields()) {
    if (field.type != FieldType::kInteger || (field.flags & kAtTop) == 0) continue;
    const double value = std::isfinite(field.range.max) ? field.range.max : 5;
    const ParsedRow parsed = Parse(RowWith(field.name, Json(value), kAtTop));
    ASSERT_TRUE(parsed.error);  // it has no prompt
    EXPECT_EQ(parsed.error->field, "") << field.name << ": " << parsed.error->message;
  }
}

TEST(RowTest, SeedsHave64BitsAndMinusOneIsNone) {
  const auto seed_of = [](const std::string& seed) {
    return Good(R"({"prompt": "a", "seed": )" + seed + "}").seed;
  };
  EXPECT_EQ(seed_of("18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(seed_of("9223372036854775808"), uint64_t{1} << 63);
  EXPECT_EQ(seed_of("18446744073709551557"), ~uint64_t{0} - 58);  // not representable as a double
  EXPECT_EQ(seed_of("-2"), ~uint64_t{0} - 1);
  EXPECT_EQ(seed_of("-1"), std::nullopt);
  EXPECT_EQ(seed_of("-1.0"), std::nullopt);
  EXPECT_TRUE(Good(R"({"prompt": "a", "seed": -1})").any_seed);
  EXPECT_FALSE(Good(R"({"prompt": "a", "seed": 1})").any_seed);
  EXPECT_EQ(Good(R"({"prompt": "a", "sampling_params": {"seed": 18446744073709551615}})").seed,
            ~uint64_t{0});
}

TEST(RowTest, AMaxTokensOfMinusOneIsNoLimit) {
  EXPECT_EQ(Good(R"({"prompt": "a", "max_tokens": -1, "min_tokens": 7})").max_tokens, -1);
  EXPECT_EQ(Good(R"({"prompt": "a", "max_new_tokens": -1.0})").max_tokens, -1);
}

TEST(RowTest, MetadataIsKeptByteForByte) {
  for (const char* metadata :
       {"1e3", "1.0", "-0", "0.10", "123456789012345678901234567890", R"({"b":1,"a" : 2 ,"c":{}})",
        R"("\u0041\/\ud83d\ude00")", "null", "true", R"([ 1,2 ])", R"({"metadata": 1e2})",
        "18446744073709551615", "1.10000000000000000000001", R"("a\u007fb")"}) {
    EXPECT_EQ(Good(R"({"prompt": "a", "metadata":)" + std::string(metadata) + "}").metadata,
              metadata);
    EXPECT_EQ(Good(R"({"tools": [{"metadata": 1}], "metadata": )" + std::string(metadata) +
                   R"( , "messages": [{"role": "user", "content": "a"}]})")
                  .metadata,
              metadata);
    EXPECT_EQ(Good(R"({"custom_id": "a", "body": {"metadata": )" + std::string(metadata) +
                   R"(, "prompt": "a"}})")
                  .metadata,
              metadata);
  }
  EXPECT_EQ(Good(R"({"prompt": "a", "\u006detadata": 1e3})").metadata, "1e3");
  EXPECT_EQ(Good("\xEF\xBB\xBF{\"prompt\": \"a\", \"metadata\": 1e3}").metadata, "1e3");
  // Answers contain no line break.
  EXPECT_EQ(Good("{\"prompt\": \"a\", \"metadata\": [1,\r2]}").metadata, "[1, 2]");
  EXPECT_EQ(Good(R"({"prompt": "a"})").metadata, std::nullopt);
}

TEST(RowTest, ReadsOtherProgramsSpellings) {
  const Row sglang = Good(
      R"({"text": "a", "sampling_params": {"max_new_tokens": 5, "min_new_tokens": 1, "stop": "x",)"
      R"( "sampling_seed": 4, "temperature": 0}})");
  EXPECT_EQ(sglang.prompt, "a");
  EXPECT_EQ(sglang.max_tokens, 5);
  EXPECT_EQ(sglang.min_tokens, 1);
  EXPECT_EQ(sglang.seed, 4u);
  const Row openai =
      Good(R"({"model": "m", "user": "u", "store": false, "stream": false, "service_tier": "auto",)"
           R"( "max_completion_tokens": 6, "response_format": {"type": "text"}, "stop": null,)"
           R"( "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, )"
           R"({"type": "text", "text": "b"}]}]})");
  EXPECT_EQ(openai.max_tokens, 6);
  EXPECT_EQ(openai.messages.as_array()[0].Find("content")->Dump(),
            R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])");
  EXPECT_EQ(Good(R"({"prompt": [1, 2]})").prompt_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(Good(R"({"prompt": ["b"]})").prompt, "b");
  EXPECT_EQ(Good(R"({"prompt": [[1, 2]]})").prompt_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(Good(R"({"prompt": "a", "top_k": -1})").top_k, 0);
  EXPECT_EQ(Good(R"({"prompt": "a", "n": 3, "best_of": 3})").n, 3);
}

// A message of an answer can be part of the next conversation.
TEST(RowTest, MessagesOfAnswersAreMessages) {
  const Row row = Good(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b",)"
      R"( "refusal": null, "annotations": [], "audio": null, "function_call": null,)"
      R"( "tool_calls": null, "reasoning": "c"}, {"role": "user", "content": "d"}]})");
  EXPECT_EQ(row.messages.as_array()[1].Find("refusal"), nullptr);
  EXPECT_EQ(*row.messages.as_array()[1].Find("reasoning"), Json("c"));
}

TEST(RowTest, LogprobsAreANumberOrTrueWithTopLogprobs) {
  EXPECT_EQ(Good(R"({"prompt": "a"})").num_logprobs, std::nullopt);
  EXPECT_EQ(Good(R"({"prompt": "a", "logprobs": false})").num_logprobs, -1);
  EXPECT_EQ(Good(R"({"prompt": "a", "logprobs": true})").num_logprobs, 0);
  EXPECT_EQ(Good(R"({"prompt": "a", "logprobs": 0})").num_logprobs, 0);
  EXPECT_EQ(Good(R"({"prompt": "a", "logprobs": 5})").num_logprobs, 5);
  EXPECT_EQ(Good(R"({"prompt": "a", "logprobs": 5, "top_logprobs": 5})").num_logprobs, 5);
}

}  // namespace
}  // namespace minisgl::batch
