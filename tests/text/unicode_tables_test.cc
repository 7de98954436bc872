// Characters whose properties differ between the Unicode versions of the libraries here and of the
// reference (tokenizers 0.23), which decides.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "text/tokenizer_json/normalizer.h"
#include "text/tokenizer_json/regex.h"
#include "text/tokenizer_json/unicode.h"

namespace minisgl::text {
namespace {

std::string Normalized(const char* form, std::string text) {
  Json json;
  json.Set("type", form);
  const auto normalizer = Normalizer::Read(JsonPlace(&json));
  EXPECT_TRUE(normalizer.ok()) << normalizer.status().message();
  EXPECT_TRUE((*normalizer)->Run(&text).ok());
  return text;
}

size_t NumMatches(const char* pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  std::vector<TextRange> matches;
  EXPECT_TRUE(regex->FindAll(text, &matches).ok());
  return matches.size();
}

TEST(UnicodeTablesTest, CharactersNewInNormalizationStay) {
  EXPECT_EQ(Normalized("NFKC", "\u32fe\u32ff\ua7f2"), "\u30f2\u32ff\ua7f2");
  // U+1DF6 is a mark since Unicode 10; in earlier versions it separates its neighbours.
  EXPECT_EQ(Normalized("NFC", "a\u1df6\u0301"), "a\u1df6\u0301");
  EXPECT_EQ(Normalized("NFD", "a\u0301\u1df6\u0323"), "a\u0301\u1df6\u0323");
  EXPECT_EQ(Normalized("NFC", "e\u0301\u1df6e\u0301"), "\u00e9\u1df6\u00e9");
  EXPECT_EQ(Normalized("NFC", "a\u0301\u0323"), "\u1ea1\u0301");
}

TEST(UnicodeTablesTest, PunctuationAndNumbersAreTheReferences) {
  EXPECT_TRUE(IsPunctuation(0x3001));
  EXPECT_TRUE(IsPunctuation(0x166D));   // a symbol since Unicode 12
  EXPECT_FALSE(IsPunctuation(0x0C77));  // since Unicode 12
  EXPECT_FALSE(IsPunctuation(0x2E52));
  EXPECT_TRUE(IsPunctuation(0x2E42));
  EXPECT_TRUE(IsNumeric(0x0662));
  EXPECT_TRUE(IsNumeric(0x1CCF0));  // since Unicode 16
  EXPECT_FALSE(IsNumeric(0x1CCEF));
}

// What BERT's normalizer drops, compared with the reference for every character.
TEST(UnicodeTablesTest, ControlsAndMarksOfBertAreTheReferences) {
  EXPECT_TRUE(IsControl(0x200B) && IsControl(0xAD) && IsControl(0xE000) && IsControl(0x7F));
  EXPECT_FALSE(IsControl(0x378));  // not assigned
  EXPECT_FALSE(IsControl(0x8E2));  // since Unicode 9
  EXPECT_FALSE(IsControl(0x13430));
  EXPECT_TRUE(IsNonspacingMark(0x301) && IsNonspacingMark(0x1734) && IsNonspacingMark(0xFE0F));
  EXPECT_FALSE(IsNonspacingMark(0x903));   // spacing
  EXPECT_FALSE(IsNonspacingMark(0x180F));  // since Unicode 14
  EXPECT_EQ(Normalized("BertNormalizer", "\u00c9t\u00e9 \u4f60\u597d\u3042\t\u200b\u0000x"),
            "ete  \u4f60  \u597d \u3042 ");
}

TEST(UnicodeTablesTest, AScriptIsWhatBelongsToItAlone) {
  // "、" and "ー" are used with several scripts.
  EXPECT_EQ(NumMatches("\\p{Han}", "\u6f22\u3001\u30fc"), 1u);
  EXPECT_EQ(NumMatches("[\\p{Han}\\p{Katakana}]", "\u6f22\u3001\u30ab\u30fc"), 2u);
  EXPECT_EQ(NumMatches("\\P{Han}", "\u6f22\u3001"), 1u);
  EXPECT_EQ(NumMatches("\\p{Letter}", "a1\u6f22"), 2u);
  EXPECT_EQ(NumMatches("\\p{Alphabetic}", "a1"), 1u);
}

TEST(UnicodeTablesTest, ClassesWithNamesTakeInWhatOnigurumasDo) {
  EXPECT_EQ(NumMatches("\\w", "a\u00b2\u00bd-\u20ac"), 3u);
  EXPECT_EQ(NumMatches("[[:alpha:]]", "a\u0345\u0660"), 2u);
  EXPECT_EQ(NumMatches("[[:punct:]]", "!\u20aca+"), 3u);
  EXPECT_EQ(NumMatches("[[:space:]]", " \u3000\u180e"), 2u);
}

}  // namespace
}  // namespace minisgl::text
