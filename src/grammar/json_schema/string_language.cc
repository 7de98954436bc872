#include "grammar/json_schema/string_language.h"

#include <algorithm>

#include "minisgl/base/utf8.h"

namespace minisgl::grammar {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

// The letter of the short escape of `c`, or 0.
char ShortEscape(uint32_t c) {
  switch (c) {
    case '\b':
      return 'b';
    case '\t':
      return 't';
    case '\n':
      return 'n';
    case '\f':
      return 'f';
    case '\r':
      return 'r';
    default:
      return 0;
  }
}

bool HasTwoSpellings(uint32_t c) { return c < 0x20 || c == 0x7F; }

ExpressionId HexDigit(ExpressionSet& set, uint32_t digit) {
  ByteSet bytes;
  bytes.Add(static_cast<uint8_t>(kHexDigits[digit]));
  if (digit >= 10) bytes.Add(static_cast<uint8_t>('A' + digit - 10));
  return set.Bytes(bytes);
}

}  // namespace

StringLanguage::StringLanguage(ExpressionSet& set) : set_(&set) {
  character_ = Characters(CodePointSet::All());
  all_ = set.Repeat(character_, 0, ExpressionSet::kUnbounded);
}

ExpressionId StringLanguage::Characters(const CodePointSet& characters) const {
  static const CodePointSet raw({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kCodePointMax}});
  ByteSet short_escapes;
  for (const char c : {'"', '\\'}) {
    const auto byte = static_cast<uint8_t>(c);
    if (characters.Contains(byte)) short_escapes.Add(byte);
  }
  // \u00XX, by its first digit: few expressions instead of one for each character.
  std::vector<ExpressionId> long_escapes;
  for (uint32_t high = 0; high < 8; ++high) {
    std::vector<ExpressionId> digits;
    for (uint32_t c = high * 16; c < high * 16 + 16; ++c) {
      if (!HasTwoSpellings(c) || !characters.Contains(c)) continue;
      if (ShortEscape(c) != 0) short_escapes.Add(static_cast<uint8_t>(ShortEscape(c)));
      digits.push_back(HexDigit(*set_, c & 15));
    }
    long_escapes.push_back(set_->Concat({HexDigit(*set_, high), set_->Or(digits)}));
  }
  const ExpressionId escapes = set_->Or(
      {set_->Bytes(short_escapes), set_->Concat({set_->Literal("u00"), set_->Or(long_escapes)})});
  return set_->Or({set_->CodePoints(characters.Intersection(raw)),
                   set_->Concat({set_->Literal("\\"), escapes})});
}

ExpressionId StringLanguage::Text(std::string_view text) const {
  std::vector<ExpressionId> parts;
  std::string plain;
  for (char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (!HasTwoSpellings(byte)) {
      if (c == '"' || c == '\\') plain += '\\';
      plain += c;
      continue;
    }
    parts.push_back(set_->Literal(plain));
    plain.clear();
    parts.push_back(Characters(CodePointSet({{byte, byte}})));
  }
  parts.push_back(set_->Literal(plain));
  return set_->Concat(parts);
}

ExpressionId StringLanguage::Texts(const std::vector<std::string>& texts) const {
  std::vector<std::string> plain;
  std::vector<ExpressionId> alternatives;
  for (const std::string& text : texts) {
    const bool two = std::any_of(text.begin(), text.end(),
                                 [](char c) { return HasTwoSpellings(static_cast<uint8_t>(c)); });
    if (two) {
      alternatives.push_back(Text(text));
    } else {
      plain.push_back(SpellString(text));
    }
  }
  if (!plain.empty()) alternatives.push_back(set_->Strings(std::move(plain)));
  return set_->Or(alternatives);
}

ExpressionId StringLanguage::Length(uint32_t min, uint32_t max) const {
  return set_->Repeat(character_, min, max);
}

ExpressionId StringLanguage::Not(ExpressionId strings) const {
  if (strings == all_) return set_->Nothing();
  return set_->Difference(all_, strings);
}

bool StringLanguage::Contains(ExpressionId strings, std::string_view text) const {
  if (strings == all_) return true;
  return set_->Matches(strings, SpellString(text));
}

std::string SpellString(std::string_view text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (ShortEscape(byte) != 0) {
      out += '\\';
      out += ShortEscape(byte);
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHexDigits[byte >> 4];
      out += kHexDigits[byte & 15];
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace minisgl::grammar
