// The scanner against the reader that keeps everything: both accept the same texts, and the tokens
// equal the values.
#include "minisgl/base/json_scanner.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

using Token = JsonScanner::Token;

// The scanner's error for `text`, or "" if it is valid JSON.
std::string ScanError(std::string_view text, int depth_max = kJsonDepthMax) {
  JsonScanner scanner(text, depth_max);
  while (scanner.Next()) {
    if (scanner.token() == Token::kEnd) return "";
  }
  EXPECT_EQ(scanner.status().code(), StatusCode::kBadInput);
  EXPECT_EQ(scanner.status().message(), Visible(scanner.status().message(), 1000));
  EXPECT_FALSE(scanner.Next()) << "goes on behind an error";
  return scanner.status().message();
}

TEST(JsonScannerTest, GoesThroughEveryKindOfToken) {
  const std::string text = R"( {"a" : [1, -2.5e3, "x\"", true], "b":{}, "c":[null ,false]} )";
  const std::vector<std::pair<Token, std::string>> tokens = {
      {Token::kBeginObject, "{"}, {Token::kKey, "\"a\""},     {Token::kBeginArray, "["},
      {Token::kNumber, "1"},      {Token::kNumber, "-2.5e3"}, {Token::kString, R"("x\"")"},
      {Token::kBool, "true"},     {Token::kEndArray, "]"},    {Token::kKey, "\"b\""},
      {Token::kBeginObject, "{"}, {Token::kEndObject, "}"},   {Token::kKey, "\"c\""},
      {Token::kBeginArray, "["},  {Token::kNull, "null"},     {Token::kBool, "false"},
      {Token::kEndArray, "]"},    {Token::kEndObject, "}"},   {Token::kEnd, ""},
      {Token::kEnd, ""}};
  JsonScanner scanner(text, 8);
  for (size_t i = 0; i < tokens.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(scanner.Next()) << scanner.status().message();
    EXPECT_EQ(scanner.token(), tokens[i].first);
    EXPECT_EQ(scanner.raw(), tokens[i].second);
    EXPECT_EQ(text.substr(scanner.begin(), scanner.raw().size()), scanner.raw());
  }
  EXPECT_EQ(scanner.depth(), 0);
}

TEST(JsonScannerTest, TakesAndRefusesWhatTheReaderDoes) {
  for (const char* text : {"",
                           " ",
                           "1",
                           "-1",
                           "-",
                           "+1",
                           "01",
                           "-0",
                           "-01",
                           "0.",
                           ".5",
                           "0.5",
                           "1.5e",
                           "1e+",
                           "1e+7",
                           "1E-7",
                           "1e7.5",
                           "0x10",
                           "NaN",
                           "Infinity",
                           "tru",
                           "true",
                           "truefalse",
                           "true false",
                           "null",
                           "nul",
                           "\"",
                           "\"\"",
                           "\"a",
                           "\"\\\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\\u00e9\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\n\"",
                           "\"\\udc00\"",
                           "\"\\ud83d\\ude00\"",
                           "\"\\ud83d\\u0041\"",
                           "\"a\nb\"",
                           "\"a\tb\"",
                           "\"\x7f\"",
                           "[",
                           "]",
                           "[]",
                           "[ ]",
                           "[,]",
                           "[1,]",
                           "[,1]",
                           "[1 2]",
                           "[1,2]",
                           "[[]",
                           "[]]",
                           "[}",
                           "{",
                           "}",
                           "{}",
                           "{]",
                           "{ }",
                           "{,}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1}",
                           "{\"a\" :1,}",
                           "{\"a\":1,\"b\":2}",
                           "{1:2}",
                           "{a:1}",
                           "{\"a\":1 \"b\":2}",
                           "{\"a\":{\"b\":[{}]}}",
                           "{\"a\"\"b\"}",
                           "//",
                           "[1]//",
                           "[/**/]",
                           "'a'",
                           "[1]\n",
                           "\v[1]",
                           "\f1",
                           "1,",
                           ",1",
                           "{\"a\":[1,{\"b\":2]}"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(ScanError(text).empty(), ParseJson(text).ok()) << ScanError(text);
  }
  EXPECT_EQ(ScanError(std::string_view("[1]\0", 4)), "not valid JSON at byte 4 (found \"\\x00\")");
  EXPECT_EQ(ScanError("[1"), "not valid JSON at byte 3 (found its end)");
}

// Texts of JSON's own characters in a random order, and changed ones that were right.
TEST(JsonScannerTest, AgreesWithTheReaderOnRandomTexts) {
  const std::vector<std::string> parts = {
      "{",  "}",     "[",  "]",       ",",       ":",    "\"a\"", "\"b\"", "1", "-0.5e1",
      "\"", "\\u00", "41", "\\ud83d", "\\ude00", "true", "null",  " ",     "e", "\"\\n\""};
  int taken = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    std::mt19937_64 rng(seed);
    std::string text = seed % 2 == 0 ? R"({"k": [1, {"l": "\ud83d\ude00"}], "m": -1.5e2})" : "";
    for (uint64_t i = rng() % 6; i > 0; --i) {
      const size_t at = rng() % (text.size() + 1);
      text.replace(at, seed % 2 == 0 ? rng() % 3 : 0, parts[rng() % parts.size()]);
    }
    const Result<Json> json = ParseJson(text);
    const std::string why = json.ok() ? "" : json.status().message();
    if (why.starts_with("duplicate key") || why.ends_with("is out of range")) continue;
    ASSERT_EQ(ScanError(text).empty(), json.ok()) << text;
    taken += json.ok() ? 1 : 0;
  }
  EXPECT_GT(taken, 1000);
}

TEST(JsonScannerTest, DepthIsBounded) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_EQ(ScanError(nested(8), 8), "");
  EXPECT_EQ(ScanError(nested(9), 8), "nested more than 8 deep");
  EXPECT_EQ(ScanError(nested(kJsonDepthMax)), "");
  EXPECT_EQ(ScanError(nested(1'000'000)), "nested more than 64 deep");
}

TEST(JsonScannerTest, SkipsWholeValues) {
  JsonScanner scanner(R"({"a": {"b": [1, {"c": []}]}, "d": 7, "e": "]"} )", 8);
  ASSERT_TRUE(scanner.Next());
  std::string_view raw;
  for (const char* value : {R"({"b": [1, {"c": []}]})", "7", "\"]\""}) {
    ASSERT_TRUE(scanner.Next());
    EXPECT_EQ(scanner.token(), Token::kKey);
    ASSERT_TRUE(scanner.SkipValue(&raw));
    EXPECT_EQ(raw, value);
  }
  ASSERT_TRUE(scanner.Next());
  EXPECT_EQ(scanner.token(), Token::kEndObject);
  JsonScanner broken("[[1, }]", 8);
  ASSERT_TRUE(broken.Next());
  EXPECT_FALSE(broken.SkipValue(&raw));
}

TEST(JsonScannerTest, UnquotesAndNamesValuesAsTheReaderDoes) {
  for (const char* raw : {R"("")", R"("plain")", R"("\"\\\/\b\f\n\r\t")", R"("\u0041\u00E9\u20ac")",
                          R"("a\ud83d\ude00b")", R"("\u0000x")"}) {
    EXPECT_EQ(UnquoteJson(raw), ParseJson(raw)->as_string()) << raw;
  }
  for (const char* raw : {"1", "-7", "1.0", "1e2", "true", "false", "null", "\"\"", "[]", "{}"}) {
    EXPECT_STREQ(JsonTypeName(raw), ParseJson(raw)->TypeName()) << raw;
  }
}

}  // namespace
}  // namespace minisgl
