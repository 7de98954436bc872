#include "grammar/escapes.h"

#include <fmt/core.h>

#include "grammar/unicode_categories.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {

namespace {

bool IsAsciiLetterOrDigit(uint32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// ECMA-262: WhiteSpace and LineTerminator.
CodePointSet WhiteSpace() {
  return CodePointSet({{0x09, 0x0D},
                       {0x20, 0x20},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}

CodePointSet One(uint32_t code_point) { return CodePointSet({{code_point, code_point}}); }

}  // namespace

bool PatternReader::Take(std::string_view ahead) {
  if (!Peek(ahead)) return false;
  at_ += ahead.size();
  return true;
}

uint32_t PatternReader::TakeCodePoint() {
  const size_t length = Utf8CharLength(rest());
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text_[at_ + i]); };
  uint32_t code_point = byte(0);
  if (length > 1) code_point &= 0xFFU >> (length + 1);
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (byte(i) & 0x3FU);
  at_ += length;
  return code_point;
}

Status PatternReader::ErrorAt(size_t at, const std::string& what) const {
  return BadInput("byte {}: {}", at + 1, what);  // as errors of JSON, from 1
}

Result<std::optional<uint32_t>> PatternReader::TakeCount(uint32_t max) {
  const size_t begin = at_;
  uint64_t value = 0;
  while (!AtEnd() && text_[at_] >= '0' && text_[at_] <= '9') {
    value = value * 10 + static_cast<uint64_t>(text_[at_++] - '0');
    if (value > max) return ErrorAt(begin, fmt::format("a count above {}", max));
  }
  if (at_ == begin) return std::optional<uint32_t>();
  return std::optional<uint32_t>(static_cast<uint32_t>(value));
}

Result<uint32_t> PatternReader::TakeHex(size_t begin, size_t digits_min, size_t digits_max) {
  uint32_t value = 0;
  size_t digits = 0;
  for (; digits < digits_max && !AtEnd() && HexDigit(text_[at_]) >= 0; ++digits) {
    value = value * 16 + static_cast<uint32_t>(HexDigit(text_[at_++]));
  }
  if (digits < digits_min) {
    return ErrorAt(begin, fmt::format("the escape `{}` without its hexadecimal digits",
                                      Visible(text_.substr(begin, at_ - begin))));
  }
  return value;
}

// After \x, \u or \U, which begins at `begin`.
Result<uint32_t> PatternReader::TakeUnicode(size_t begin) {
  const char kind = text_[at_ - 1];
  uint32_t value = 0;
  if (kind != 'U' && Take("{")) {
    MINISGL_ASSIGN_OR_RETURN(value, TakeHex(begin, 1, 6));
    if (!Take("}")) return ErrorAt(begin, "an escape without its `}`");
  } else {
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
    MINISGL_ASSIGN_OR_RETURN(value, TakeHex(begin, digits, digits));
  }
  if (value >= 0xD800 && value <= 0xDBFF && Take("\\u")) {
    MINISGL_ASSIGN_OR_RETURN(const uint32_t low, TakeHex(begin, 4, 4));
    if (low >= 0xDC00 && low <= 0xDFFF) {
      return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  if (value > kCodePointMax || (value >= 0xD800 && value <= 0xDFFF)) {
    return ErrorAt(begin,
                   fmt::format("`{}` is no character", Visible(text_.substr(begin, at_ - begin))));
  }
  return value;
}

Result<CodePointSet> PatternReader::TakeProperty(size_t begin, bool negated) {
  std::string_view name;
  if (Take("{")) {
    const size_t end = rest().find('}');
    if (end == std::string_view::npos) return ErrorAt(begin, "a property without its `}`");
    name = rest().substr(0, end);
    at_ += end + 1;
  } else if (!AtEnd()) {
    name = rest().substr(0, 1);
    at_ += 1;
  }
  std::string_view category = name;
  if (!category.empty() && category[0] == '^') {
    return ErrorAt(begin, "a negated property; write \\P{...}");
  }
  for (const std::string_view prefix : {"General_Category=", "gc="}) {
    if (category.starts_with(prefix)) category.remove_prefix(prefix.size());
  }
  const auto set = UnicodeCategory(category);
  if (!set.has_value()) {
    return ErrorAt(begin, fmt::format("unknown property `{}`; general categories are supported",
                                      Visible(name)));
  }
  return negated ? set->Complement() : *set;
}

Result<CodePointSet> PatternReader::TakeEscape(bool in_class) {
  const size_t begin = at_ - 1;
  if (AtEnd()) return ErrorAt(begin, "a backslash at the end");
  const uint32_t c = TakeCodePoint();
  const CodePointSet digits({{'0', '9'}});
  const CodePointSet word({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  switch (c) {
    case 'd':
      return digits;
    case 'D':
      return digits.Complement();
    case 'w':
      return word;
    case 'W':
      return word.Complement();
    case 's':
      return WhiteSpace();
    case 'S':
      return WhiteSpace().Complement();
    case 'p':
    case 'P':
      return TakeProperty(begin, c == 'P');
    case 't':
      return One('\t');
    case 'n':
      return One('\n');
    case 'r':
      return One('\r');
    case 'f':
      return One('\f');
    case 'v':
      return One('\v');
    case 'x':
    case 'u':
    case 'U': {
      MINISGL_ASSIGN_OR_RETURN(const uint32_t value, TakeUnicode(begin));
      return One(value);
    }
    case 'c':
      if (!AtEnd() && (text_[at_] | 0x20) >= 'a' && (text_[at_] | 0x20) <= 'z') {
        return One(TakeCodePoint() & 0x1F);
      }
      return ErrorAt(begin, "the escape `\\c` without a letter");
    case '0':
      if (!AtEnd() && text_[at_] >= '0' && text_[at_] <= '9') {
        return ErrorAt(begin, "an octal escape; write \\xHH");
      }
      return One(0);
    case 'b':
      if (in_class) return One('\b');
      [[fallthrough]];
    case 'B':
      return ErrorAt(begin, "word boundaries are not supported");
    case 'k':
      return ErrorAt(begin, "backreferences are not supported");
    default:
      break;
  }
  if (c >= '1' && c <= '9') return ErrorAt(begin, "backreferences are not supported");
  if (!IsAsciiLetterOrDigit(c)) return One(c);
  return ErrorAt(begin, fmt::format("unknown escape `\\{}`", static_cast<char>(c)));
}

// One member of a class, or both ends' first. `*is_set` is true for an escape that stands for many.
Result<CodePointSet> PatternReader::TakeClassAtom(bool* is_set) {
  *is_set = false;
  if (Peek("[:") || Peek("[=") || Peek("[.")) {
    return ErrorAt(at_, "named classes such as [:alpha:] are not supported");
  }
  if (Peek("&&")) return ErrorAt(at_, "set operations are not supported; escape `&`");
  if (!Take("\\")) return One(TakeCodePoint());
  const char kind = AtEnd() ? '\0' : text_[at_];
  *is_set = std::string_view("dDwWsSpP").find(kind) != std::string_view::npos;
  return TakeEscape(true);
}

Result<CodePointSet> PatternReader::TakeClass() {
  const size_t begin = at_ - 1;
  const bool negated = Take("^");
  if (Peek("]")) return ErrorAt(begin, "an empty class; escape `]` to mean the character");
  std::vector<CodePointRange> ranges;
  const auto add = [&](const CodePointSet& set) {
    ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
  };
  while (!Take("]")) {
    if (AtEnd()) return ErrorAt(begin, "a class without its `]`");
    const size_t first_at = at_;
    bool first_is_set = false;
    MINISGL_ASSIGN_OR_RETURN(const CodePointSet first, TakeClassAtom(&first_is_set));
    add(first);
    if (!Peek("-") || Peek("-]") || rest().size() < 2) continue;
    const size_t dash = at_;
    Take("-");
    bool last_is_set = false;
    MINISGL_ASSIGN_OR_RETURN(const CodePointSet last, TakeClassAtom(&last_is_set));
    if (first_is_set || last_is_set) {
      if (!lenient_ranges_) return ErrorAt(dash, "a range whose end is a class; escape `-`");
      add(One('-'));
      add(last);
      continue;
    }
    const uint32_t from = first.ranges()[0].first;
    const uint32_t to = last.ranges()[0].first;
    if (from > to) return ErrorAt(first_at, "a range that ends before it begins");
    ranges.push_back({from, to});
  }
  CodePointSet set(std::move(ranges));
  return negated ? set.Complement() : set;
}

}  // namespace minisgl::grammar
