#include "grammar/regular_expression.h"

#include <gtest/gtest.h>

#include <optional>

namespace minisgl::grammar {
namespace {

// 1 or 0, or the message.
std::string Judge(std::string_view pattern, std::string_view text, bool search = false) {
  ExpressionSet set;
  RegularExpressionOptions options;
  options.search = search;
  const auto id = ParseRegularExpression(pattern, options, set);
  if (!id.ok()) return id.status().message();
  const bool matches = set.Matches(*id, text);
  return !set.status().ok() ? set.status().message() : matches ? "1" : "0";
}

struct Case {
  const char* pattern;
  const char* accepted;
  const char* rejected;
};

TEST(RegularExpression, MatchesTheWholeText) {
  for (const Case& c : std::initializer_list<Case>{
           {"abc", "abc", "abcd"},
           {"a|bc|", "", "b"},
           {"(ab|c)*d", "abcabd", "abca"},
           {"a{3}", "aaa", "aa"},
           {"a{2,}", "aaaaa", "a"},
           {"a{2,3}?b", "aaab", "aaaab"},
           {"a+?b*?c??", "abbc", "bc"},
           {"[a-c]+", "abccba", "abd"},
           {"[^a-c]", "\xC3\xA9", "a"},
           {"[]\\-]x", nullptr, nullptr},
           {"[a\\]\\-z]+", "a]-z", "b"},
           {"[-a]+", "-a-", "b"},
           {"[a-]+", "-a-", "b"},
           {"[a[]+", "[a[", "]"},
           {".", "\xF0\x9F\x98\x80", "\n"},
           {".", "\r", "ab"},
           {"\\d{2}-\\w\\s\\S", "12-_ x", "12-  x"},
           {"\\D\\W\\S", "a-b", "1-b"},
           {"\\s", "\xC2\xA0", "\xE2\x80\x8B"},
           {"\\t\\n\\r\\f\\v\\0", nullptr, "tnrfv0"},
           {"\\x41\\u00e9\\u{1F600}\\U0001F600\\x{42}",
            "A\xC3\xA9\xF0\x9F\x98\x80\xF0\x9F\x98\x80"
            "B",
            "A"},
           {"\\uD83D\\uDE00", "\xF0\x9F\x98\x80", "x"},
           {"\\.\\*\\\\\\/\\-\\ \\#", ".*\\/- #", "x"},
           {"\\p{Lu}\\p{Letter}\\pN\\P{L}", "\xC3\x89x7-", "xx7-"},
           {"[\\p{Greek_}]", nullptr, nullptr},
           {"(?:a)(b)(?<n1>c)(?P<n2>d)", "abcd", "abc"},
           {"^abc$", "abc", "^abc$"},
           {"^a|b$", "b", "ab"},
           {"(^a|b)c", "ac", "c"},
           {"(?:^|x)(a)(?:$|y)", "xay", "xx"},
           {"\\Aab\\z", "ab", "b"},
           {"a{,x}", "a{,x}", "a"},
           {"{a}", "{a}", "a"},
           {"a{1", "a{1", "a"},
           {"()", "", "x"},
           {"(a|)+b", "aab", "c"},
           {"((a*)*)*", "aaa", "b"},
           {"\xC3\xA9+", "\xC3\xA9\xC3\xA9", "\xC3"},
       }) {
    if (c.accepted != nullptr) {
      EXPECT_EQ(Judge(c.pattern, c.accepted), "1") << c.pattern;
    }
    if (c.rejected != nullptr) {
      EXPECT_EQ(Judge(c.pattern, c.rejected), "0") << c.pattern;
    }
  }
}

TEST(RegularExpression, SearchLooksAnywhere) {
  for (const Case& c : std::initializer_list<Case>{
           {"b", "abc", "ac"},
           {"^b", "bc", "abc"},
           {"b$", "ab", "abc"},
           {"^b$", "b", "bb"},
           {"^a|b", "xxb", "xa"},
           {"(^|,)a(,|$)", "x,a", "xa"},
           {"(^|,)a(,|$)", "a,x", "ab"},
           {"", "anything\n", nullptr},
           {"^.*$", "a b", "a\nb"},
           {"^.$", "a", "\r"},
           {"[\\w-.]+@", "a.b-@", "!"},
       }) {
    EXPECT_EQ(Judge(c.pattern, c.accepted, true), "1") << c.pattern;
    if (c.rejected != nullptr) {
      EXPECT_EQ(Judge(c.pattern, c.rejected, true), "0") << c.pattern;
    }
  }
}

TEST(RegularExpression, RefusesByNameAndPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"(a)\\1", "byte 4: backreferences are not supported"},
      {"(?<n>a)\\k<n>", "byte 8: backreferences are not supported"},
      {"(?P<n>a)(?P=n)", "byte 9: backreferences are not supported"},
      {"(a)?(?(1)b|c)", "byte 5: conditionals are not supported"},
      {"(?>a)", "byte 1: atomic groups are not supported"},
      {"(?i)a", "byte 1: flags are not supported"},
      {"(?i:a)", "byte 1: flags are not supported"},
      {"(?#x)a", "byte 1: comments are not supported"},
      {"a\\q", "byte 2: unknown escape `\\q`"},
      {"a\\", "byte 2: a backslash at the end"},
      {"\\x4", "byte 1: the escape `\\x4` without its hexadecimal digits"},
      {"\\u12", "byte 1: the escape `\\u12` without its hexadecimal digits"},
      {"\\uD83Dx", "byte 1: `\\uD83D` is no character"},
      {"\\u{110000}", "byte 1: `\\u{110000}` is no character"},
      {"\\07", "byte 1: an octal escape; write \\xHH"},
      {"\\c1", "byte 1: the escape `\\c` without a letter"},
      {"\\p{Greek}", "byte 1: unknown property `Greek`; general categories are supported"},
      {"\\p{L", "byte 1: a property without its `}`"},
      {"a**", "byte 3: a quantifier behind a quantifier"},
      {"a++", "byte 2: possessive quantifiers are not supported"},
      {"a{2}{3}", "byte 5: a quantifier behind a quantifier"},
      {"*a", "byte 1: a quantifier with nothing before it"},
      {"(?:|+)", "byte 5: a quantifier with nothing before it"},
      {"^*", "byte 2: a quantifier with nothing before it"},
      {"{2}", "byte 1: a quantifier with nothing before it"},
      {"a{3,2}", "byte 2: a count whose bounds are exchanged"},
      {"a{,3}", "byte 2: a count without its lower bound; write {0,n}"},
      {"a{100001}", "byte 3: a count above 100000"},
      {"a{1,99999999999999999999}", "byte 5: a count above 100000"},
      {"(a", "byte 1: a `(` without its `)`"},
      {"a)", "byte 2: a `)` without its `(`"},
      {"[a", "byte 1: a class without its `]`"},
      {"[]a]", "byte 1: an empty class; escape `]` to mean the character"},
      {"[^]", "byte 1: an empty class; escape `]` to mean the character"},
      {"[z-a]", "byte 2: a range that ends before it begins"},
      {"[\\w-.]", "byte 4: a range whose end is a class; escape `-`"},
      {"[[:alpha:]]", "byte 2: named classes such as [:alpha:] are not supported"},
      {"[a&&b]", "byte 3: set operations are not supported; escape `&`"},
      {"a^b", "byte 2: `^` is supported at the beginning only"},
      {"a$b", "byte 2: `$` is supported at the end only"},
      {"(?<1a>b)", "byte 1: a group name that is no identifier"},
      {"(?<a>b)(?P<a>c)", "byte 8: a second group of the name `a`"},
      {"\xFF", "the regular expression is not valid UTF-8"},
      {std::string(300, '(') + std::string(300, ')'), "byte 201: more than 200 nested groups"},
  };
  for (const auto& [pattern, message] : cases) {
    EXPECT_EQ(Judge(pattern, ""), message) << pattern;
  }
}

// Each code point spelled as in a JSON string with \u.
TEST(RegularExpression, SpellingOfCodePointsIsTheCallers) {
  ExpressionSet set;
  RegularExpressionOptions options;
  options.code_points = [&](const CodePointSet& points) {
    std::vector<ExpressionId> spelled;
    for (const CodePointRange& range : points.ranges()) {
      for (uint32_t c = range.first; c <= range.last && c < 0x80; ++c) {
        spelled.push_back(set.Literal("<" + std::to_string(c) + ">"));
      }
    }
    return set.Or(spelled);
  };
  const auto id = ParseRegularExpression("a[bc]+", options, set);
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(set.Matches(*id, "<97><98><99>"));
  EXPECT_FALSE(set.Matches(*id, "<97><100>"));
}

TEST(RegularExpression, LargeOnesAreLimited) {
  const auto nested = [](int depth) {
    std::string text = "a";
    for (int i = 0; i < depth; ++i) text = "(" + text + "b){0,9}";
    return text;
  };
  EXPECT_EQ(Judge(nested(10), "bbbbb"), "1");
  const std::string judged = Judge(nested(150), std::string(20, 'b'));
  EXPECT_TRUE(judged.starts_with("the expressions are too complex")) << judged;
  std::string words = "x";
  for (int i = 0; i < 30'000; ++i) words += "|w" + std::to_string(i);
  EXPECT_EQ(Judge(words, "w777"), "1");
  std::string sets = "x";
  for (int i = 0; i < 6'000; ++i) sets += "|[ab]w" + std::to_string(i);
  EXPECT_EQ(Judge(sets, "w777"),
            "the expressions are too complex: more than 5000 alternatives in one");
  EXPECT_EQ(Judge(std::string(1 << 18, 'a'), std::string(1 << 18, 'a')), "1");
  EXPECT_EQ(Judge("(.|..)*x.{1000}", "x" + std::string(1000, 'y')), "1");
}

}  // namespace
}  // namespace minisgl::grammar
