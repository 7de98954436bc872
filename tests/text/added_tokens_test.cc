// Added tokens: which are found in untrusted text, and which of two that begin at the same place.
#include "text/tokenizer_json/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace minisgl::text {
namespace {

AddedTokenRule Rule(TokenId id, const std::string& text, bool special = false) {
  return {.id = id, .text = text, .special = special};
}

// Returns the tokens found in `text`, whose first `trusted` bytes are trusted.
std::vector<TokenId> Found(const std::vector<AddedTokenRule>& rules, const std::string& text,
                           size_t trusted) {
  const Result<AddedTokens> tokens = AddedTokens::Create(rules, nullptr);
  if (!tokens.ok()) {
    ADD_FAILURE() << tokens.status().message();
    return {};
  }
  std::vector<TextRange> ranges;
  if (trusted > 0) ranges.push_back({0, trusted});
  std::vector<TokenId> found;
  const auto visit = [&](const AddedTokens::Section& section) -> Result<bool> {
    if (section.id) found.push_back(*section.id);
    return true;
  };
  EXPECT_TRUE(tokens->Cut(text, ranges, /*normalized=*/false, visit).ok());
  return found;
}

TEST(AddedTokenRuleTest, OneCharacterAndWhiteSpaceAreOrdinary) {
  for (const std::string text : {"a", "~", "\u00E9", "\u4E2D", "\U0001F600", " ", "  ", "\n \t",
                                 "\u2581", "\u2581\u2581 ", "\u3000\u00A0"}) {
    EXPECT_TRUE(IsOrdinaryAddedToken(Rule(5, text))) << text;
    EXPECT_FALSE(IsOrdinaryAddedToken(Rule(5, text, /*special=*/true))) << text;
  }
}

TEST(AddedTokenRuleTest, WordsAndTagsOfHtmlAreOrdinary) {
  for (const std::string text :
       {"ab", "\u00E9\u00E9", " a", "a ", "  a", "\u2581a", "\u4E2D ", "New York", "it's", "x-ray",
        "v1.0", "<table>", "</table>", "<h1>", "<br/>", "<br />", "</code>", "<i>"}) {
    EXPECT_TRUE(IsOrdinaryAddedToken(Rule(5, text))) << text;
    EXPECT_FALSE(IsOrdinaryAddedToken(Rule(5, text, /*special=*/true))) << text;
  }
}

TEST(AddedTokenRuleTest, WhatMayBeAMarkIsOne) {
  for (const std::string text : {"<x>",
                                 "<think>",
                                 "</think>",
                                 "<tool_call>",
                                 "</tool_call>",
                                 "<tool_response>",
                                 "[INST]",
                                 "[TOOL_CALLS]",
                                 "<|user|>",
                                 "<|channel|>",
                                 "<table|>",
                                 "<table x>",
                                 "<summary>",
                                 "<output>",
                                 "<search>",
                                 "</s >",
                                 "<TABLE>",
                                 "USER:",
                                 "### User",
                                 "{{",
                                 "<",
                                 "<\uFF5CUser\uFF5C>",
                                 "<unused0>",
                                 "a\nb",
                                 "\xC3",
                                 "\x80",
                                 "\xC3\xA9\xC3",
                                 " \xC3"}) {
    if (text.size() == 1 && text[0] > 0) continue;  // a single character
    EXPECT_FALSE(IsOrdinaryAddedToken(Rule(5, text))) << text;
  }
}

TEST(AddedTokensCutTest, OrdinaryOnesAreFoundInAnyTextAndMarksInTrustedText) {
  const std::vector<AddedTokenRule> rules = {Rule(1, "~"), Rule(2, "  "), Rule(3, "<x>"),
                                             Rule(4, "!", /*special=*/true)};
  const std::string text = "a~b  <x>!";
  EXPECT_EQ(Found(rules, text, 0), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(Found(rules, text, 8), (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(Found(rules, text, 9), (std::vector<TokenId>{1, 2, 3, 4}));
}

TEST(AddedTokensCutTest, TheLongerOfAnOrdinaryOneAndAMarkIsFound) {
  const std::vector<AddedTokenRule> rules = {Rule(1, "<"), Rule(2, "<x>"), Rule(3, "    "),
                                             Rule(4, "  ", /*special=*/true)};
  EXPECT_EQ(Found(rules, "<x>", 3), (std::vector<TokenId>{2}));
  // The end of the mark is not trusted.
  EXPECT_EQ(Found(rules, "<x>", 2), (std::vector<TokenId>{1}));
  // Only the mark is within the trusted text; the ordinary token extends beyond it.
  EXPECT_EQ(Found(rules, "    ", 2), (std::vector<TokenId>{3}));
  EXPECT_EQ(Found(rules, "    ", 4), (std::vector<TokenId>{3}));
  EXPECT_EQ(Found({Rule(1, "   "), Rule(2, "  ", /*special=*/true)}, "   ", 2),
            (std::vector<TokenId>{1}));
  EXPECT_EQ(Found(rules, "  ", 2), (std::vector<TokenId>{4}));
  EXPECT_EQ(Found(rules, "  ", 1), (std::vector<TokenId>{}));
}

// The later of two rules with one spelling applies, but untrusted text still finds the ordinary
// one.
TEST(AddedTokensCutTest, AMarkOfTheSameSpellingIsFoundInTrustedText) {
  const std::vector<AddedTokenRule> rules = {Rule(1, "~"), Rule(2, "~", /*special=*/true)};
  EXPECT_EQ(Found(rules, "~", 1), (std::vector<TokenId>{2}));
  EXPECT_EQ(Found(rules, "~", 0), (std::vector<TokenId>{1}));
}

}  // namespace
}  // namespace minisgl::text
