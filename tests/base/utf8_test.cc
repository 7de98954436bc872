// UTF-8 against the Unicode standard: every character, every prefix of one, and the standard's own
// examples of ill-formed text (chapter 3, tables 3-8 to 3-11).
#include "minisgl/base/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace minisgl {
namespace {

constexpr const char* kReplacement = "\uFFFD";

std::string Encode(char32_t code_point) {
  std::string text;
  AppendUtf8(code_point, &text);
  return text;
}

std::string Replacements(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kReplacement;
  return text;
}

TEST(Utf8Test, EveryCharacterIsWellFormedAndEachOfItsPrefixesIncomplete) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    const std::string text = Encode(code_point);
    if (code_point >= 0xD800 && code_point <= 0xDFFF) {
      ASSERT_EQ(Utf8CharLength(text), 0u) << static_cast<uint32_t>(code_point);
      continue;
    }
    ASSERT_EQ(Utf8CharLength(text), text.size()) << static_cast<uint32_t>(code_point);
    ASSERT_FALSE(IsIncompleteUtf8(text));
    for (size_t length = 1; length < text.size(); ++length) {
      ASSERT_TRUE(IsIncompleteUtf8(std::string_view(text).substr(0, length)));
      ASSERT_EQ(Utf8CharLength(std::string_view(text).substr(0, length)), 0u);
    }
  }
}

TEST(Utf8Test, OnlyPrefixesOfCharactersAreIncomplete) {
  std::set<std::string, std::less<>> prefixes;
  for (char32_t code_point = 0x80; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    const std::string text = Encode(code_point);
    if (text.back() != '\x80') continue;  // prefixes repeat: one last byte in 64 will do
    for (size_t length = 1; length < text.size(); ++length) prefixes.insert(text.substr(0, length));
  }
  for (int first = 0; first < 256; ++first) {
    const std::string one(1, static_cast<char>(first));
    ASSERT_EQ(IsIncompleteUtf8(one), prefixes.contains(one)) << first;
    for (int second = 0; second < 256; ++second) {
      const std::string two = one + static_cast<char>(second);
      ASSERT_EQ(IsIncompleteUtf8(two), prefixes.contains(two)) << first << " " << second;
    }
  }
  std::mt19937_64 rng(1);
  for (int i = 0; i < 100'000; ++i) {
    const std::string three = {static_cast<char>(0xE0 + rng() % 32), static_cast<char>(rng()),
                               static_cast<char>(0x80 + rng() % 64)};
    ASSERT_EQ(IsIncompleteUtf8(three), prefixes.contains(three)) << Visible(three);
  }
}

TEST(Utf8Test, ReplacesAsTheStandardRecommends) {
  struct Case {
    std::string_view text;
    std::string wanted;
  };
  const std::vector<Case> cases = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", Replacements(8) + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", Replacements(8) + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", Replacements(5) + "A" + Replacements(2) + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", Replacements(4) + "A"},
      {"", ""},
      {"plain", "plain"},
      {"\xF0\x9F\x98", Replacements(1)},
      {"\xF0\x9F\x98\x80", "\U0001F600"},
      {"\xC3\xA9\xC3", "\u00e9" + Replacements(1)},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ReplaceInvalidUtf8(c.text), c.wanted) << Visible(c.text);
    EXPECT_EQ(IsValidUtf8(c.text), c.text == c.wanted) << Visible(c.text);
  }
}

TEST(Utf8Test, ReplacementIsValidAndKeepsValidText) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 rng(seed);
    std::string bytes;
    for (uint64_t i = rng() % 12; i > 0; --i) bytes += static_cast<char>(0x70 + rng() % 0x90);
    const std::string replaced = ReplaceInvalidUtf8(bytes);
    ASSERT_TRUE(IsValidUtf8(replaced)) << "seed " << seed;
    ASSERT_EQ(ReplaceInvalidUtf8(replaced), replaced) << "seed " << seed;
    ASSERT_EQ(IsValidUtf8(bytes), replaced == bytes) << "seed " << seed;
  }
}

TEST(VisibleTest, ShowsControlAndIllFormedBytes) {
  EXPECT_EQ(Visible("a\n\t\r\x1b[2J\x7f"), "a\\n\\t\\r\\x1b[2J\\x7f");
  EXPECT_EQ(Visible("\xC2\x9B"
                    "31m"),
            "\\x9b31m");  // CSI as one character
  EXPECT_EQ(Visible("\xFF\xE2\x82"), "\\xff\\xe2\\x82");
  EXPECT_EQ(Visible("gr\u00fc\u00df \U0001F600"), "gr\u00fc\u00df \U0001F600");
  EXPECT_EQ(Visible(std::string_view("\0", 1)), "\\x00");
}

// Characters that show the text around them in another order, or hide in it: the class of
// CVE-2021-42574.
TEST(VisibleTest, ShowsControlsOfDisplayAsEscapes) {
  EXPECT_EQ(Visible("llama\u202e"), "llama\\u202e");
  EXPECT_EQ(Visible("a\u061c\u200e\u200f\u2028\u2029\u202a\u2066\u2069z"),
            "a\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a\\u2066\\u2069z");
  EXPECT_EQ(Visible("a\ufeff\U000e0041z"), "a\\ufeff\\U000e0041z");
  const std::string joiners =
      "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001F469\u200d\U0001F4BB";
  EXPECT_EQ(Visible(joiners), joiners);
}

// Every character of the standard's property Bidi_Control, and no letter beside one.
TEST(DisplayControlTest, HasAllControlsOfDirectionAndNoLetters) {
  const auto is_control = [](char32_t code) {
    std::string character;
    AppendUtf8(code, &character);
    return IsDisplayControl(character);
  };
  for (const char32_t code : {0x61C, 0x200E, 0x200F, 0x202A, 0x202B, 0x202C, 0x202D, 0x202E, 0x2066,
                              0x2067, 0x2068, 0x2069}) {
    EXPECT_TRUE(is_control(code)) << static_cast<uint32_t>(code);
  }
  for (const char32_t code : {0xA0, 0x61B, 0x61D, 0x200D, 0x2010, 0x2027, 0x202F, 0x2065, 0x2070,
                              0xFEFE, 0xFF01, 0xFFFD, 0x1F600, 0xE0080}) {
    EXPECT_FALSE(is_control(code)) << static_cast<uint32_t>(code);
  }
}

TEST(VisibleTest, CutsLongTextAtACharacter) {
  EXPECT_EQ(Visible(std::string(100, 'a'), 10), std::string(10, 'a') + "...");
  EXPECT_EQ(Visible(std::string(10, 'a'), 10), std::string(10, 'a'));
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "\u00e9";
  EXPECT_TRUE(IsValidUtf8(Visible(accents, 11)));
  EXPECT_LT(Visible(accents, 11).size(), 20u);
}

}  // namespace
}  // namespace minisgl
