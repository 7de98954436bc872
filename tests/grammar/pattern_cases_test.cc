// Patterns with assertions beside Python's re: pattern_cases.jsonl, made by make_pattern_cases.py.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "grammar/regular_expression.h"
#include "minisgl/base/json.h"
#include "minisgl/grammar/json_schema.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl::grammar {
namespace {

// 1 or 0, or the message.
std::string JudgeLook(const std::string& pattern, const std::string& text, bool search) {
  ExpressionSet set;
  RegularExpressionOptions options;
  options.search = search;
  const auto id = ParseRegularExpression(pattern, options, set);
  if (!id.ok()) return id.status().message();
  const bool matches = set.Matches(*id, text);
  return !set.status().ok() ? set.status().message() : matches ? "1" : "0";
}

// Each pattern over plain characters, and as that of a schema, over the characters of JSON strings.
TEST(PatternCases, MatchWhatPythonMatches) {
  std::ifstream file(MINISGL_SOURCE_DIR "/tests/grammar/pattern_cases.jsonl");
  std::string line;
  int num_texts = 0;
  while (std::getline(file, line)) {
    const auto row = ParseJson(line, {.values_max = 1000});
    ASSERT_TRUE(row.ok()) << line;
    const std::string pattern = row->Find("pattern")->as_string();
    SCOPED_TRACE(pattern);
    Json schema = Json(Json::Object());
    schema.Set("type", "string");
    schema.Set("pattern", pattern);
    const auto grammar = CompileJsonSchema(schema.Dump());
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    const std::string matches = row->Find("matches")->as_string();
    size_t i = 0;
    for (const Json& text : row->Find("texts")->as_array()) {
      const std::string wanted(1, matches.at(i++));
      EXPECT_EQ(JudgeLook(pattern, text.as_string(), true), wanted) << text.as_string();
      bool accepted = false;
      MatchText(**grammar, text.Dump(), &accepted);
      EXPECT_EQ(accepted ? "1" : "0", wanted) << text.Dump();
      ++num_texts;
    }
  }
  EXPECT_GT(num_texts, 1500);
}

struct LookCase {
  const char* pattern;
  const char* accepted;
  const char* rejected;
};

TEST(RegularExpressionLooks, AlsoInExpressionsOfTheWholeText) {
  for (const LookCase& c : std::initializer_list<LookCase>{
           {"(?!ab)[a-c]+", "ba", "abc"},
           {"a(?=b)[bc]", "ab", "ac"},
           {"a(?<!b)c", "ac", "c"},
           {"(?<![a-z])b", "b", "ab"},
           {"(a$|b)c?", "bc", "ac"},
           {"(^a)*b", "ab", "aab"},
           {"(?:a|(?!b)[bc])+", "acca", "ab"},
           {"(?:(?!bb)[ab])*b", "abab", "abbab"},
           {"(?:(?!b)[ab]c?){2,}", "acaac", "ab"},
           {"(?=a)*(?=b)?b", "b", "a"},
           {"\\ba\\b", "a", "ab"},
           {"a\\B.", "ab", "a-"},
           {"(?:\\b|x)a", "xa", "ya"},
           {"(?=.{2})\\ba+", "aa", "a"},
       }) {
    EXPECT_EQ(JudgeLook(c.pattern, c.accepted, false), "1") << c.pattern;
    EXPECT_EQ(JudgeLook(c.pattern, c.rejected, false), "0") << c.pattern;
  }
}

TEST(RegularExpressionLooks, AreRefusedByNameAndPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"x(a(?=b)b?)*c", "byte 2: a repeated group with lookahead or `$` inside is not supported"},
      {"x(a$)*c", "byte 2: a repeated group with lookahead or `$` inside is not supported"},
      {"(?:(?!bb)[ab])*(?<=a)c", "byte 1: a lookbehind, or `^`, in or behind a repeated group"},
      {"(a|b(?=c))(?<=ab)c", nullptr},
      {"(?:a(?<=xa))*b", "byte 5: a lookbehind, or a word boundary, that looks further back"},
      {"x(?<=a(?=b))", "byte 2: `$` and lookahead in a lookbehind are not supported"},
      {"(?=a", "byte 1: a `(` without its `)`"},
      {"a^b", "byte 2: `^` is supported at the beginning only"},
      {"(?<=a", "byte 1: a `(` without its `)`"},
  };
  for (const auto& [pattern, message] : cases) {
    const std::string judged = JudgeLook(pattern, "", true);
    if (message == nullptr) {
      EXPECT_EQ(judged, "0") << pattern;
    } else {
      EXPECT_TRUE(judged.starts_with(message)) << pattern << ": " << judged;
    }
  }
}

TEST(RegularExpressionLooks, LargeOnesAreLimited) {
  std::string looks;
  for (int i = 0; i < 51; ++i) looks += "(?=a)";
  EXPECT_EQ(JudgeLook(looks, "", true), "byte 251: more than 50 lookaheads and lookbehinds");
  EXPECT_EQ(JudgeLook("(?:(?=a.*b)a|b){0,100000}c", "ac", false),
            "byte 1: the assertions are too many together");
  std::string boundaries = "x";
  for (int i = 0; i < 100'000; ++i) boundaries += "\\b";
  EXPECT_EQ(JudgeLook(boundaries, "x", true), "byte 1: the assertions are too many together");
  std::string groups = "x";
  for (int i = 0; i < 30; ++i) groups += "(?:^|a|b(?=c))";
  const std::string judged = JudgeLook(groups + "\\b", "xab", true);
  EXPECT_TRUE(judged.ends_with("the assertions are too many together") || judged == "0") << judged;
  EXPECT_EQ(JudgeLook("^(?:(?!a.{12}b).)*$", "a", true),
            "byte 2: a repeated group with lookahead inside that is too complex");
  std::string anchors = "^a";
  for (int i = 0; i < 4'000; ++i) anchors += fmt::format("|^w{}$", i);
  EXPECT_EQ(JudgeLook(anchors, "w777", true), "1");
}

}  // namespace
}  // namespace minisgl::grammar
