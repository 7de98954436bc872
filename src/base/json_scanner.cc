// See json_scanner.h. The only state per open container is one bit: object or array.
#include "minisgl/base/json_scanner.h"

#include <algorithm>

#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

constexpr size_t kFoundBytesMax = 16;  // of the text quoted in an error

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The value of the four hexadecimal digits at the beginning of `text`; -1 if they are not digits.
int32_t FourHexDigits(std::string_view text) {
  if (text.size() < 4) return -1;
  int32_t value = 0;
  for (const char c : text.substr(0, 4)) {
    const int digit = HexDigit(c);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

struct Escape {
  size_t length = 0;  // in bytes; 0: not an escape
  char32_t code_point = 0;
};

// The escape at the beginning of `text`, without its backslash. Surrogates must come in pairs.
Escape ReadEscape(std::string_view text) {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (text.empty()) return {};
  if (const size_t which = kLetters.find(text[0]); which != std::string_view::npos) {
    return {1, static_cast<char32_t>(kMeanings[which])};
  }
  const int32_t unit = text[0] == 'u' ? FourHexDigits(text.substr(1)) : -1;
  if (unit < 0 || (unit >= 0xDC00 && unit < 0xE000)) return {};
  if (unit < 0xD800 || unit >= 0xE000) return {5, static_cast<char32_t>(unit)};
  const std::string_view rest = text.substr(5);
  const int32_t low = rest.starts_with("\\u") ? FourHexDigits(rest.substr(2)) : -1;
  if (low < 0xDC00 || low >= 0xE000) return {};
  return {11, static_cast<char32_t>(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))};
}

}  // namespace

JsonScanner::JsonScanner(std::string_view text, int depth_max)
    : text_(text), depth_max_(depth_max) {
  MINISGL_CHECK(depth_max <= kJsonDepthMax, "{} is deeper than a Json may be", depth_max);
}

bool JsonScanner::Fail(size_t at) {
  const std::string_view found = text_.substr(std::min(at, text_.size()), kFoundBytesMax);
  status_ = found.empty()
                ? BadInput("not valid JSON at byte {} (found its end)", at + 1)
                : BadInput("not valid JSON at byte {} (found \"{}\")", at + 1, Visible(found));
  return false;
}

void JsonScanner::SkipSpace() {
  while (At(at_) == ' ' || At(at_) == '\n' || At(at_) == '\t' || At(at_) == '\r') ++at_;
}

// Sets the token [at_, end) and what may follow it, as after a complete value. Callers change that
// for a key and for the begin of an object or array.
bool JsonScanner::Take(Token token, size_t end) {
  token_ = token;
  begin_ = at_;
  end_ = at_ = end;
  expect_ = depth_ == 0 ? Expect::kNothing : Expect::kCommaOrEnd;
  return true;
}

bool JsonScanner::Open(bool is_object) {
  if (depth_ >= depth_max_) {
    status_ = BadInput("nested more than {} deep", depth_max_);
    return false;
  }
  const uint64_t bit = uint64_t{1} << depth_;
  objects_ = is_object ? objects_ | bit : objects_ & ~bit;
  ++depth_;
  Take(is_object ? Token::kBeginObject : Token::kBeginArray, at_ + 1);
  expect_ = is_object ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
  return true;
}

bool JsonScanner::Close(bool is_object) {
  --depth_;
  return Take(is_object ? Token::kEndObject : Token::kEndArray, at_ + 1);
}

bool JsonScanner::TakeWord(std::string_view word, Token token) {
  if (!text_.substr(at_).starts_with(word)) return Fail(at_);
  return Take(token, at_ + word.size());
}

bool JsonScanner::TakeString(Token token) {
  for (size_t end = at_ + 1; end < text_.size(); ++end) {
    const char c = text_[end];
    if (c == '"') return Take(token, end + 1);
    if (static_cast<uint8_t>(c) < 0x20) return Fail(end);
    if (c != '\\') continue;
    const Escape escape = ReadEscape(text_.substr(end + 1));
    if (escape.length == 0) return Fail(end);
    end += escape.length;
  }
  return Fail(text_.size());
}

bool JsonScanner::TakeNumber() {
  size_t end = at_;
  const auto take_digits = [&] {
    const size_t first = end;
    while (IsDigit(At(end))) ++end;
    return end > first;
  };
  if (At(end) == '-') ++end;
  if (At(end) == '0') {
    ++end;
  } else if (!take_digits()) {
    return Fail(end);
  }
  if (At(end) == '.') {
    ++end;
    if (!take_digits()) return Fail(end);
  }
  if (At(end) == 'e' || At(end) == 'E') {
    ++end;
    if (At(end) == '+' || At(end) == '-') ++end;
    if (!take_digits()) return Fail(end);
  }
  return Take(Token::kNumber, end);
}

bool JsonScanner::TakeValue() {
  switch (At(at_)) {
    case '{':
      return Open(/*is_object=*/true);
    case '[':
      return Open(/*is_object=*/false);
    case '"':
      return TakeString(Token::kString);
    case 't':
      return TakeWord("true", Token::kBool);
    case 'f':
      return TakeWord("false", Token::kBool);
    case 'n':
      return TakeWord("null", Token::kNull);
    default:
      return TakeNumber();
  }
}

bool JsonScanner::TakeKey() {
  if (At(at_) != '"') return Fail(at_);
  if (!TakeString(Token::kKey)) return false;
  SkipSpace();
  if (At(at_) != ':') return Fail(at_);
  ++at_;
  expect_ = Expect::kValue;
  return true;
}

bool JsonScanner::Next() {
  if (!status_.ok()) return false;
  SkipSpace();
  switch (expect_) {
    case Expect::kValue:
      return TakeValue();
    case Expect::kValueOrEnd:
      return At(at_) == ']' ? Close(/*is_object=*/false) : TakeValue();
    case Expect::kKeyOrEnd:
      return At(at_) == '}' ? Close(/*is_object=*/true) : TakeKey();
    case Expect::kCommaOrEnd: {
      const bool in_object = InObject();
      if (At(at_) == (in_object ? '}' : ']')) return Close(in_object);
      if (At(at_) != ',') return Fail(at_);
      ++at_;
      SkipSpace();
      return in_object ? TakeKey() : TakeValue();
    }
    case Expect::kNothing:
      break;
  }
  if (at_ != text_.size()) return Fail(at_);
  token_ = Token::kEnd;
  begin_ = end_ = at_;
  return true;
}

bool JsonScanner::SkipValue(std::string_view* raw) {
  if (!Next()) return false;
  const size_t begin = begin_;
  const bool opens = token_ == Token::kBeginObject || token_ == Token::kBeginArray;
  const int outside = opens ? depth_ - 1 : depth_;
  while (depth_ > outside) {
    if (!Next()) return false;
  }
  *raw = text_.substr(begin, end_ - begin);
  return true;
}

std::string UnquoteJson(std::string_view raw) {
  std::string_view rest = raw.substr(1, raw.size() - 2);
  std::string out;
  while (true) {
    const size_t plain = std::min(rest.find('\\'), rest.size());
    out.append(rest.substr(0, plain));
    if (plain == rest.size()) return out;
    const Escape escape = ReadEscape(rest.substr(plain + 1));
    AppendUtf8(escape.code_point, &out);
    rest.remove_prefix(plain + 1 + escape.length);
  }
}

const char* JsonTypeName(std::string_view raw) {
  switch (raw[0]) {
    case '{':
      return "an object";
    case '[':
      return "an array";
    case '"':
      return "a string";
    case 'n':
      return "null";
    case 't':
    case 'f':
      return "true or false";
    default:
      return raw.find_first_of(".eE") == std::string_view::npos ? "an integer" : "a number";
  }
}

}  // namespace minisgl
