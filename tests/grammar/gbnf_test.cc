#include <gtest/gtest.h>

#include <random>

#include "long_form.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl {
namespace {

// 1 or 0, or the message.
std::string JudgeGbnf(const std::string& grammar, const std::string& text) {
  const auto compiled = CompileGrammar({GrammarKind::kGbnf, grammar, {}});
  if (!compiled.ok()) return compiled.status().message();
  bool accepted = false;
  MatchText(**compiled, text, &accepted);
  return accepted ? "1" : "0";
}

void ExpectJudged(const std::string& grammar, const std::vector<std::string>& accepted,
                  const std::vector<std::string>& rejected) {
  for (const std::string& text : accepted) {
    EXPECT_EQ(JudgeGbnf(grammar, text), "1") << grammar << "\n" << text;
  }
  for (const std::string& text : rejected) {
    EXPECT_EQ(JudgeGbnf(grammar, text), "0") << grammar << "\n" << text;
  }
}

TEST(Gbnf, Notation) {
  ExpectJudged("root ::= \"yes\" | \"no\" # comment\n# more\n\n", {"yes", "no"}, {"", "maybe"});
  ExpectJudged("root ::= [a-c]+ \"x\"? [^0-9\\]]{2}", {"abxyz", "a--"}, {"xyz", "a1-", "a]-"});
  ExpectJudged("root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\"\\\\\\[\\]\"",
               {"A\xC3\xA9\xF0\x9F\x98\x80\n\t\"\\[]"}, {"A"});
  ExpectJudged("root ::= . .", {"\xC3\xA9\n"}, {"a", "\xC3"});
  ExpectJudged("root ::= \"ab\"{2,3} \"c\"{0,1}  \"d\"{2,}", {"ababdd", "abababcddd"},
               {"abdd", "ababd"});
  ExpectJudged("root ::= (\n \"a\"\n | \"b\"\n)* item-2\nitem-2 ::=\n  \"c\" |\n  \"d\"",
               {"abad", "c"}, {"ab", "cd"});
  ExpectJudged("root ::= | \"a\" root", {"", "aaa"}, {"b"});
  ExpectJudged("root ::= [a-] [-z] [\xC3\xA0-\xC3\xBC]", {"--\xC3\xA9", "az\xC3\xA0"},
               {"b-\xC3\xA9"});
}

// llama.cpp allows letters, digits and "-" alone; people write "_", which is no operator.
TEST(Gbnf, NamesMayHaveUnderscores) {
  ExpectJudged("root ::= my_rule _x{2} x_\nmy_rule ::= \"a\"\n_x ::= \"b\"\nx_ ::= \"c\"", {"abbc"},
               {"abc", "a_bc"});
  EXPECT_EQ(JudgeGbnf("root ::= my_rule", "a"), "line 1, column 10: there is no rule `my_rule`");
}

TEST(Gbnf, RecursionOfEveryKind) {
  ExpectJudged("root ::= root \"+\" term | term\nterm ::= \"(\" root \")\" | [0-9]+",
               {"1", "1+(2+34)", "((7))+1"}, {"1+", "()", "(1"});
  ExpectJudged("root ::= \"a\" root \"b\" | \"\"", {"", "aabb"}, {"aab", "ba"});
  // Indirect and hidden left recursion.
  ExpectJudged(
      "root ::= empty root \"x\" | other\nother ::= root \"y\" | \"z\"\nempty ::= \"\" | \"e\"",
      {"z", "zx", "zyx",
       "ez"
       "x",
       "eezyxx"},
      {"x", "e", "ez"});
  ExpectJudged("root ::= item{3}\nitem ::= [a-z] | \"(\" item \")\"", {"a(b)((c))"},
               {"ab", "abcd"});
}

TEST(Gbnf, RefusesWithLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "there is no rule `root`"},
      {"start ::= \"a\"", "there is no rule `root`"},
      {"root ::= a b\na ::= \"x\"", "line 1, column 12: there is no rule `b`"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: a second rule `root`"},
      {"root = \"a\"", "line 1, column 6: `=` where `::=` should stand"},
      {"root: \"a\"", "line 1, column 5: `:` where `::=` should stand"},
      {"root ::= \"a\" ;", "line 1, column 14: `;` where the rule should end"},
      {"<root> ::= \"a\"", "line 1, column 1: `<` where a rule `name ::= ...` should begin"},
      {"root ::= \"a\"\n | \"b\"",
       "line 2, column 2: `|` where a rule `name ::= ...` should begin"},
      {"root ::= 'a'", "line 1, column 10: `'` where the rule should end"},
      {"root ::= \"\xC3\xA9\\q\"", "line 1, column 12: unknown escape `\\q`"},
      {"root ::= \"\\x4\"", "line 1, column 11: an escape without its hexadecimal digits"},
      {"root ::= \"\\uD800\"", "line 1, column 11: an escape that is no character"},
      {"root ::= \"a", "line 1, column 10: a literal without its closing `\"`"},
      {"root ::= [a", "line 1, column 10: a class without its `]`"},
      {"root ::= []", "line 1, column 10: an empty class"},
      {"root ::= [z-a]", "line 1, column 11: a range that ends before it begins"},
      {"root ::= (\"a\"", "line 1, column 10: a `(` without its `)`"},
      {"root ::= \"a\")", "line 1, column 13: `)` where the rule should end"},
      {"root ::= *", "line 1, column 10: `*` with nothing before it"},
      {"root ::= \"a\"{2,1}", "line 1, column 13: a count whose bounds are exchanged"},
      {"root ::= \"a\"{x}", "line 1, column 14: `x` where a number should stand"},
      {"root ::= \"a\"{2", "line 1, column 15: the end where `}` should stand"},
      {"root ::= \"a\"{100001}", "line 1, column 14: a count above 100000"},
      {"root ::= <think> \"a\"", "line 1, column 10: token terminals are not supported"},
      {"root ::= \"a\" root", "no text matches: its conditions exclude each other"},
      {"root ::= \"\xFF\"", "the grammar is not valid UTF-8"},
      {"root ::= " + std::string(300, '('), "line 1, column 210: more than 200 nested parentheses"},
      {"root ::= \"a\"" + std::string(20, '+'), "line 1, column 10: too many quantifiers"},
  };
  for (const auto& [grammar, message] : cases) EXPECT_EQ(JudgeGbnf(grammar, ""), message);
}

TEST(Gbnf, LongChainsOfRules) {
  std::string grammar = "root ::= r0\n";
  const int count = 20'000;
  for (int i = 0; i < count; ++i) {
    grammar += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i + 1) + "?\n";
  }
  grammar += "r" + std::to_string(count) + " ::= \"b\"\n";
  ExpectJudged(grammar, {"a", std::string(count, 'a') + "b"},
               {"", "b", std::string(count + 1, 'a')});
}

TEST(Choices, AreTheseTextsAndNoOther) {
  std::vector<std::string> choices;
  for (int i = 0; i < 50'000; ++i) choices.push_back("choice " + std::to_string(i * 7919));
  choices.push_back("choice 1");
  const auto compiled = CompileGrammar({GrammarKind::kChoice, "", choices});
  ASSERT_TRUE(compiled.ok());
  bool accepted = false;
  MatchText(**compiled, choices[4711], &accepted);
  EXPECT_TRUE(accepted);
  MatchText(**compiled, "choice 1", &accepted);
  EXPECT_TRUE(accepted);
  for (const char* text : {"choice ", "choice 2", "choice 1x", ""}) {
    MatchText(**compiled, text, &accepted);
    EXPECT_FALSE(accepted) << text;
  }
  EXPECT_EQ(CompileGrammar({GrammarKind::kChoice, "", {}}).status().message(),
            "there are no choices");
  EXPECT_EQ(CompileGrammar({GrammarKind::kChoice, "", {"a", "\xFF"}}).status().message(),
            "choice 1 is not valid UTF-8");
}

TEST(Compile, ARegularExpressionIsTheWholeText) {
  const auto compiled = CompileGrammar({GrammarKind::kRegularExpression, "[a-z]{2}\\d*", {}});
  ASSERT_TRUE(compiled.ok());
  bool accepted = false;
  EXPECT_EQ(MatchText(**compiled, "ab12x", &accepted), 4u);
  EXPECT_FALSE(accepted);
  MatchText(**compiled, "ab12", &accepted);
  EXPECT_TRUE(accepted);
  EXPECT_EQ(CompileGrammar({GrammarKind::kRegularExpression, "(?>a)", {}}).status().message(),
            "byte 1: atomic groups are not supported");
}

bool Accepts(const CompiledGrammar& grammar, const std::string& text) {
  bool accepted = false;
  MatchText(grammar, text, &accepted);
  return accepted;
}

TEST(Choices, MayBeManyAndLong) {
  GrammarText grammar = {GrammarKind::kChoice, "", {}};
  std::mt19937 random(1);
  const int count = ShortOrLong(6'000, 36'000);
  for (int i = 0; i < count; ++i) {
    std::string text;
    while (text.size() < 62) text += std::to_string(random());
    grammar.choices.push_back(text);
  }
  const auto compiled = CompileGrammar(grammar);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  EXPECT_LT((*compiled)->memory_bytes() / grammar.choices.size(), 12'800u);
  for (size_t i = 0; i < grammar.choices.size(); i += 997) {
    EXPECT_TRUE(Accepts(**compiled, grammar.choices[i]));
    EXPECT_FALSE(Accepts(**compiled, grammar.choices[i].substr(1)));
  }
}

TEST(Choices, MayBeginEachOther) {
  GrammarText grammar = {GrammarKind::kChoice, "", {}};
  for (size_t i = 1; i <= 3000; i += 2) grammar.choices.emplace_back(i, 'a');
  const auto compiled = CompileGrammar(grammar);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  for (size_t i = 1; i <= 3002; ++i) {
    EXPECT_EQ(Accepts(**compiled, std::string(i, 'a')), i % 2 == 1 && i <= 3000) << i;
  }
}

// A try with little work gives the same result as compiling without a limit.
TEST(CompileGrammarTest, ATryTakesLittleWorkOrGivesTheSame) {
  const GrammarText cases[] = {
      {GrammarKind::kRegularExpression, "a{3}[b-d]*", {}},
      {GrammarKind::kRegularExpression, "a(", {}},
      {GrammarKind::kChoice, "", {"yes", "no"}},
      {GrammarKind::kJsonSchema,
       R"({"type": "string", "pattern": "a.{20}b", "minLength": 30})",
       {}},
      {GrammarKind::kJsonSchema, R"({"type": "integer", "not": {"multipleOf": 7}})", {}},
      {GrammarKind::kJsonSchema, R"({"type": "strin"})", {}},
      {GrammarKind::kJsonObject, "", {}},
      {GrammarKind::kGbnf, "root ::= \"a\" root | \"b\"", {}},
  };
  for (const GrammarText& text : cases) {
    const auto whole = CompileGrammar(text);
    bool was_enough = false;
    for (uint64_t work_max = 1; work_max < 1'000'000; work_max *= 3) {
      const auto tried = TryCompileGrammar(text, work_max);
      EXPECT_TRUE(!was_enough || tried) << work_max << " are not enough for " << text.text;
      was_enough = tried.has_value();
      if (!tried) continue;
      ASSERT_EQ(tried->ok(), whole.ok());
      EXPECT_EQ(tried->status().message(), whole.status().message());
      if (!tried->ok()) continue;
      // The limit was for compiling alone.
      for (const char* sample : {"aaabcd", "yes", "23", "7", "\"a123456789012345678901b34567890\"",
                                 R"({"a": [1, {"b": null}]})", "aaaaaaaab"}) {
        EXPECT_EQ(Accepts(***tried, sample), Accepts(**whole, sample)) << sample;
      }
    }
    EXPECT_TRUE(was_enough) << text.text;
  }
}

}  // namespace
}  // namespace minisgl
