#include "text/tool_calls/json_span.h"

#include <algorithm>

#include "minisgl/base/json.h"

namespace minisgl::text {
namespace {

using State = JsonSpan::State;

bool IsDecimal(char byte) { return byte >= '0' && byte <= '9'; }
bool IsHex(char byte) {
  return IsDecimal(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

// Follows one value, token by token. The only state per open container is one bit.
class SpanScanner {
 public:
  SpanScanner(std::string_view text, size_t begin, bool goes_on)
      : text_(text), at_(begin), goes_on_(goes_on) {}

  JsonSpan Run() {
    while (Value()) {
      if (!Close()) return {state_, at_};
      if (depth_ == 0) return {State::kWhole, at_};
    }
    return {state_, at_};
  }

 private:
  bool Fail() {
    state_ = at_ >= text_.size() ? State::kCut : State::kBad;
    return false;
  }
  bool InObject() const { return (objects_ >> (depth_ - 1) & 1) != 0; }
  void Skip() { at_ = SkipSpace(text_, at_); }

  // Takes a byte that must be `byte`.
  bool Byte(char byte) {
    if (at_ >= text_.size() || text_[at_] != byte) return Fail();
    ++at_;
    return true;
  }

  // Takes a value that is no container, or containers up to the first such value or an empty one.
  bool Value() {
    for (;;) {
      Skip();
      if (at_ >= text_.size()) return Fail();
      const char first = text_[at_];
      if (first == '"') return String();
      if (first == '-' || IsDecimal(first)) return Number();
      if (first == 't') return Word("true");
      if (first == 'f') return Word("false");
      if (first == 'n') return Word("null");
      if (first != '{' && first != '[') return Fail();
      if (depth_ >= kJsonDepthMax) return Fail();
      const uint64_t bit = uint64_t{1} << depth_;
      objects_ = first == '{' ? objects_ | bit : objects_ & ~bit;
      ++depth_;
      ++at_;
      Skip();
      if (at_ >= text_.size()) return Fail();
      if (text_[at_] == (first == '{' ? '}' : ']')) {
        ++at_;
        --depth_;
        return true;
      }
      if (first == '{' && !Key()) return false;
    }
  }

  bool Key() {
    Skip();
    if (!String()) return false;
    Skip();
    return Byte(':');
  }

  // Behind a value: closes containers, up to a comma.
  bool Close() {
    while (depth_ > 0) {
      Skip();
      if (at_ >= text_.size()) return Fail();
      const bool in_object = InObject();
      if (text_[at_] == ',') {
        ++at_;
        return !in_object || Key();
      }
      if (!Byte(in_object ? '}' : ']')) return false;
      --depth_;
    }
    return true;
  }

  bool Word(std::string_view word) {
    return std::ranges::all_of(word, [this](char byte) { return Byte(byte); });
  }

  bool Hex4() {
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ >= text_.size() || !IsHex(text_[at_])) return Fail();
    }
    return true;
  }

  // An escape behind its backslash. Surrogates must come in pairs.
  bool Escape() {
    if (at_ >= text_.size()) return Fail();
    if (text_[at_] != 'u') {
      if (std::string_view("\"\\/bfnrt").find(text_[at_]) == std::string_view::npos) return Fail();
      ++at_;
      return true;
    }
    ++at_;
    const size_t digits = at_;
    if (!Hex4()) return false;
    const char first = static_cast<char>(text_[digits] | 0x20), second = text_[digits + 1];
    if (first != 'd' || second < '8') return true;
    const bool is_low =
        second != '8' && second != '9' && (second | 0x20) != 'a' && (second | 0x20) != 'b';
    if (is_low) {
      at_ = digits;
      return Fail();
    }
    if (!Byte('\\') || !Byte('u')) return false;
    const size_t low = at_;
    if (!Hex4()) return false;
    const bool pairs = (text_[low] | 0x20) == 'd' && text_[low + 1] >= 'B' &&
                       std::string_view("cdefCDEF").find(text_[low + 1]) != std::string_view::npos;
    if (pairs) return true;
    at_ = low;
    return Fail();
  }

  bool String() {
    if (!Byte('"')) return false;
    for (; at_ < text_.size(); ++at_) {
      const char byte = text_[at_];
      if (byte == '"') {
        ++at_;
        return true;
      }
      if (static_cast<uint8_t>(byte) < 0x20) return Fail();
      if (byte != '\\') continue;
      ++at_;
      if (!Escape()) return false;
      --at_;
    }
    return Fail();
  }

  bool Digits() {
    if (at_ >= text_.size() || !IsDecimal(text_[at_])) return Fail();
    while (at_ < text_.size() && IsDecimal(text_[at_])) ++at_;
    return true;
  }

  bool Number() {
    if (text_[at_] == '-') ++at_;
    if (at_ < text_.size() && text_[at_] == '0') {
      ++at_;
      if (at_ < text_.size() && IsDecimal(text_[at_])) return Fail();
    } else if (!Digits()) {
      return false;
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      if (!Digits()) return false;
    }
    if (at_ < text_.size() && (text_[at_] | 0x20) == 'e') {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (!Digits()) return false;
    }
    return at_ < text_.size() || !goes_on_ || Fail();
  }

  const std::string_view text_;
  size_t at_;
  const bool goes_on_;
  State state_ = State::kBad;
  int depth_ = 0;
  uint64_t objects_ = 0;  // bit i is set if the open container at depth i + 1 is an object
};

}  // namespace

JsonSpan SpanJson(std::string_view text, size_t begin, bool goes_on) {
  return SpanScanner(text, begin, goes_on).Run();
}

bool IsJson(std::string_view text) {
  const std::string_view value = WithoutSpace(text);
  const JsonSpan span = SpanJson(value, 0, /*goes_on=*/false);
  return span.state == State::kWhole && span.end == value.size();
}

size_t SkipSpace(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kJsonSpace, at), text.size());
}

std::string_view WithoutSpace(std::string_view text) {
  text.remove_prefix(SkipSpace(text, 0));
  return text.substr(0, text.find_last_not_of(kJsonSpace) + 1);
}

}  // namespace minisgl::text
