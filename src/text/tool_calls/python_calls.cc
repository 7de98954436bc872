#include "text/tool_calls/python_calls.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "minisgl/base/utf8.h"
#include "text/tool_calls/json_span.h"

namespace minisgl::text {
namespace {

bool IsPythonDigit(char byte) { return byte >= '0' && byte <= '9'; }
bool IsOfIdentifier(char byte) {
  return IsPythonDigit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         byte == '_' || static_cast<uint8_t>(byte) >= 0x80;
}

int HexValue(char byte) {
  if (IsPythonDigit(byte)) return byte - '0';
  const char letter = static_cast<char>(byte | 0x20);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

bool IsHighSurrogate(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLowSurrogate(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// The number of `count` hexadecimal digits; nothing if they are not there.
std::optional<uint32_t> HexNumber(std::string_view text, size_t at, size_t count) {
  if (text.size() < at + count) return std::nullopt;
  uint32_t value = 0;
  for (const char byte : text.substr(at, count)) {
    const int digit = HexValue(byte);
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return value;
}

}  // namespace

void PythonReader::Skip() { at_ = SkipSpace(text_, at_); }

bool PythonReader::TakeIf(char byte) {
  if (at_ >= text_.size() || text_[at_] != byte) return false;
  ++at_;
  return true;
}

bool PythonReader::Name(bool with_dots, std::string* name) {
  const size_t begin = at_;
  while (at_ < text_.size() &&
         (IsOfIdentifier(text_[at_]) || (with_dots && (text_[at_] == '.' || text_[at_] == '-')))) {
    ++at_;
  }
  if (at_ == begin) return FailHere();
  *name = std::string(text_.substr(begin, at_ - begin));
  return !IsPythonDigit((*name)[0]) || Fail(false);
}

bool PythonReader::Call(ToolCall* call) {
  if (!Name(/*with_dots=*/true, &call->name)) return false;
  if (!Expect('(')) return false;
  ArgumentList arguments;
  Skip();
  while (!TakeIf(')')) {
    std::string name, value;
    if (!Name(/*with_dots=*/false, &name)) return false;
    Skip();
    if (!Expect('=')) return false;
    if (!Value(0, &value)) return false;
    arguments.Add(name, std::move(value));
    Skip();
    if (TakeIf(',')) {
      Skip();
    } else if (at_ >= text_.size() || text_[at_] != ')') {
      return FailHere();
    }
  }
  call->arguments = arguments.ToJson();
  return true;
}

bool PythonReader::List(std::vector<ToolCall>* calls) {
  if (!Expect('[')) return false;
  Skip();
  do {
    ToolCall call;
    if (!Call(&call)) return false;
    calls->push_back(std::move(call));
    Skip();
    if (TakeIf(',')) {
      Skip();
    } else if (at_ >= text_.size() || text_[at_] != ']') {
      return FailHere();
    }
  } while (!TakeIf(']'));
  return true;
}

bool PythonReader::Value(int depth, std::string* json) {
  Skip();
  if (at_ >= text_.size() || depth >= kJsonDepthMax - 1) return FailHere();
  const char first = text_[at_];
  if (first == '"' || first == '\'') {
    std::string value;
    if (!String(&value)) return false;
    AppendJsonString(value, json);
    return true;
  }
  if (first == '[' || first == '(') return Items(first == '[' ? ']' : ')', depth + 1, json);
  if (first == '{') return Members(depth + 1, json);
  if (IsOfIdentifier(first) && !IsPythonDigit(first)) return Word(json);
  return Number(json);
}

bool PythonReader::Items(char close, int depth, std::string* json) {
  ++at_;
  *json += '[';
  bool is_first = true;
  for (;;) {
    Skip();
    if (TakeIf(close)) break;
    if (!is_first) *json += ", ";
    is_first = false;
    if (!Value(depth, json)) return false;
    Skip();
    if (!TakeIf(',') && (at_ >= text_.size() || text_[at_] != close)) return FailHere();
  }
  *json += ']';
  return true;
}

bool PythonReader::Members(int depth, std::string* json) {
  ++at_;
  ArgumentList members;
  for (;;) {
    Skip();
    if (TakeIf('}')) break;
    std::string key, value;
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      if (!String(&key)) return false;
    } else if (!Number(&key)) {
      return false;
    }
    Skip();
    if (!Expect(':') || !Value(depth, &value)) return false;
    members.Add(key, std::move(value));
    Skip();
    if (!TakeIf(',') && (at_ >= text_.size() || text_[at_] != '}')) return FailHere();
  }
  *json += members.ToJson();
  return true;
}

bool PythonReader::Word(std::string* json) {
  const size_t begin = at_;
  while (at_ < text_.size() && IsOfIdentifier(text_[at_])) ++at_;
  const std::string_view word = text_.substr(begin, at_ - begin);
  if (at_ >= text_.size() && !at_end_) return Fail(true);
  if (word == "True" || word == "true") {
    *json += "true";
  } else if (word == "False" || word == "false") {
    *json += "false";
  } else if (word == "None" || word == "null") {
    *json += "null";
  } else {
    return Fail(false);
  }
  return true;
}

// Takes digits, which underscores may divide.
bool PythonReader::Digits(std::string* digits) {
  const size_t begin = at_;
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '_' && at_ > begin) continue;
    if (!IsPythonDigit(text_[at_])) break;
    *digits += text_[at_];
  }
  return at_ > begin;
}

bool PythonReader::Number(std::string* json) {
  std::string whole, fraction, exponent;
  if (TakeIf('-')) {
    *json += '-';
  } else {
    TakeIf('+');
  }
  const bool has_whole = Digits(&whole);
  const bool has_point = TakeIf('.');
  const bool has_fraction = has_point && Digits(&fraction);
  if (!has_whole && !has_fraction) return FailHere();
  if (at_ < text_.size() && (text_[at_] | 0x20) == 'e') {
    exponent = "e";
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) exponent += text_[at_++];
    if (!Digits(&exponent)) return FailHere();
  }
  if (at_ >= text_.size() && !at_end_) return Fail(true);
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  *json += whole.empty() ? "0" : whole;
  if (has_point) *json += "." + (fraction.empty() ? "0" : fraction);
  *json += exponent;
  return true;
}

// Sets *ends to whether a quotation mark before `at` ends its string. Returns false if that is not
// known yet.
bool PythonReader::EndsString(size_t at, bool* ends) {
  const size_t next = SkipSpace(text_, at);
  *ends =
      next >= text_.size() || std::string_view(",)]}:").find(text_[next]) != std::string_view::npos;
  return next < text_.size() || at_end_;
}

bool PythonReader::String(std::string* value) {
  const char quote = text_[at_];
  const std::string triple(3, quote);
  const bool is_triple = text_.substr(at_).starts_with(triple);
  at_ += is_triple ? 3 : 1;
  while (at_ < text_.size()) {
    const char byte = text_[at_];
    if (byte == quote && is_triple && text_.substr(at_).starts_with(triple)) {
      at_ += 3;
      return true;
    }
    if (byte == quote && !is_triple) {
      bool ends = false;
      if (!EndsString(at_ + 1, &ends)) return Fail(true);
      ++at_;
      if (ends) return true;
      *value += byte;
      continue;
    }
    if (byte != '\\') {
      *value += byte;
      ++at_;
      continue;
    }
    ++at_;
    if (!Escape(value)) return false;
  }
  return Fail(true);
}

// Takes an escape behind its backslash. One that Python does not know stays as it is.
bool PythonReader::Escape(std::string* value) {
  if (at_ >= text_.size()) return Fail(true);
  const char letter = text_[at_];
  constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
  if (const size_t which = kLetters.find(letter); which != std::string_view::npos) {
    *value += kMeanings[which];
    ++at_;
    return true;
  }
  if (letter == '\n') {  // continues the line
    ++at_;
    return true;
  }
  const size_t num_digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
  const std::optional<uint32_t> unit =
      num_digits == 0 ? std::nullopt : HexNumber(text_, at_ + 1, num_digits);
  if (!unit) {
    *value += '\\';
    return true;
  }
  at_ += 1 + num_digits;
  uint32_t code_point = *unit;
  if (IsHighSurrogate(code_point) && text_.substr(at_).starts_with("\\u")) {
    const std::optional<uint32_t> low = HexNumber(text_, at_ + 2, 4);
    if (low && IsLowSurrogate(*low)) {
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (*low - 0xDC00);
      at_ += 6;
    }
  }
  const bool is_character =
      code_point <= 0x10FFFF && !IsHighSurrogate(code_point) && !IsLowSurrogate(code_point);
  AppendUtf8(is_character ? static_cast<char32_t>(code_point) : U'\uFFFD', value);
  return true;
}

}  // namespace minisgl::text
