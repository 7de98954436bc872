// The lexer alternates between two modes: text up to the next tag, and tokens up to its end.
#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/tracked_text.h"

namespace minisgl::text::jinja {
namespace {

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

// Converts line breaks to \n and removes the last one, as the reference does when it reads a
// template.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) LexText();
    Emit(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  [[noreturn]] void FailHere(const std::string& message) { throw Error(message, line_); }
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  bool At(std::string_view text) const { return Rest().starts_with(text); }
  void Advance(size_t count) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + count, '\n'));
    at_ += count;
  }
  void SkipBlanks() {
    size_t count = 0;
    while (at_ + count < source_.size() && IsBlank(source_[at_ + count])) ++count;
    Advance(count);
  }
  Token& Emit(Kind kind, std::string text) {
    if (tokens_.size() == kTokensMax) {
      FailHere(fmt::format("it has more than {} names, signs and texts", kTokensMax));
    }
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  // Reads text up to the next tag, trims it as the tag requires, and reads the tag.
  void LexText() {
    size_t tag = at_;
    do {
      tag = source_.find('{', tag);
    } while (tag != std::string::npos &&
             (tag + 1 >= source_.size() || !IsTagSecond(source_[tag + 1])) && ++tag);
    if (tag == std::string::npos) tag = source_.size();
    std::string_view data = std::string_view(source_).substr(at_, tag - at_);
    const size_t data_size = data.size();
    if (tag < source_.size()) data = TrimBeforeTag(data, tag);
    if (!data.empty()) Emit(Kind::kData, std::string(data));
    Advance(data_size);
    if (at_ == source_.size()) return;
    if (At("{#")) {
      LexComment();
    } else if (!LexRaw()) {
      LexTag();
    }
  }

  static bool IsTagSecond(char c) { return c == '{' || c == '%' || c == '#'; }

  std::string_view TrimBeforeTag(std::string_view data, size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') {
      while (!data.empty() && IsBlank(data.back())) data.remove_suffix(1);
    } else if (sign != '+' && source_[tag + 1] != '{') {
      const size_t line_begin =
          data.rfind('\n') == std::string_view::npos ? 0 : data.rfind('\n') + 1;
      const bool begins_line = line_begin > 0 || line_starting_;
      if (begins_line && std::all_of(data.begin() + line_begin, data.end(), IsBlank)) {
        data = data.substr(0, line_begin);
      }
    }
    return data;
  }

  // Skips white space after a tag: all blanks if its end sign is `-`; one line break if it has no
  // sign and `trims_line` (all tags except {{ }}).
  void TrimAfterTag(char sign, bool trims_line) {
    const size_t begin = at_;
    if (sign == '-') {
      SkipBlanks();
    } else if (sign != '+' && trims_line && At("\n")) {
      Advance(1);
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void LexComment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) FailHere("a comment without an end #}");
    const char sign = end > at_ + 2 && (source_[end - 1] == '-' || source_[end - 1] == '+')
                          ? source_[end - 1]
                          : '\0';
    Advance(end + 2 - at_);
    TrimAfterTag(sign, /*trims_line=*/true);
  }

  // Returns the length of `{%[-+] NAME [-+]%}` at `at`, and its signs; 0 if there is none.
  size_t MatchBareTag(size_t at, std::string_view name, char* begin_sign, char* end_sign) const {
    const std::string_view text = std::string_view(source_).substr(at);
    size_t i = 2;
    if (!text.starts_with("{%")) return 0;
    *begin_sign = *end_sign = '\0';
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) *begin_sign = text[i++];
    while (i < text.size() && IsBlank(text[i])) ++i;
    if (!text.substr(i).starts_with(name)) return 0;
    i += name.size();
    while (i < text.size() && IsBlank(text[i])) ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) *end_sign = text[i++];
    return text.substr(i).starts_with("%}") ? i + 2 : 0;
  }

  // Reads `{% raw %}` text `{% endraw %}`; false if there is none here.
  bool LexRaw() {
    char begin_sign = 0, end_sign = 0;
    const size_t length = MatchBareTag(at_, "raw", &begin_sign, &end_sign);
    if (length == 0) return false;
    Advance(length);
    TrimAfterTag(end_sign, /*trims_line=*/false);
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      const size_t end_length = MatchBareTag(tag, "endraw", &begin_sign, &end_sign);
      if (end_length == 0) continue;
      std::string_view data = std::string_view(source_).substr(at_, tag - at_);
      const size_t data_size = data.size();
      data = TrimBeforeTag(data, tag);
      if (!data.empty()) Emit(Kind::kData, std::string(data));
      Advance(data_size + end_length);
      TrimAfterTag(end_sign, /*trims_line=*/true);
      return true;
    }
    FailHere("raw without endraw");
  }

  void LexTag() {
    const bool is_variable = At("{{");
    Emit(is_variable ? Kind::kVariableBegin : Kind::kBlockBegin, "");
    Advance(2);
    if (At("-") || At("+")) Advance(1);
    const std::string_view close = is_variable ? "}}" : "%}";
    std::string brackets;
    while (true) {
      SkipBlanks();
      if (at_ == source_.size()) FailHere(fmt::format("a tag without an end {}", close));
      if (brackets.empty()) {
        const bool has_sign =
            (At("-") || (At("+") && !is_variable)) && Rest().substr(1).starts_with(close);
        if (has_sign || At(close)) {
          const char sign = has_sign ? source_[at_] : '\0';
          Emit(is_variable ? Kind::kVariableEnd : Kind::kBlockEnd, "");
          Advance(close.size() + (has_sign ? 1 : 0));
          TrimAfterTag(sign, !is_variable);
          return;
        }
      }
      LexToken(&brackets);
    }
  }

  void LexToken(std::string* brackets) {
    const char c = source_[at_];
    if (IsNameStart(c)) {
      size_t length = 1;
      while (at_ + length < source_.size() && IsNamePart(source_[at_ + length])) ++length;
      if (length > kNameBytesMax)
        FailHere(
            fmt::format("a name has {} bytes; at most {} are supported", length, kNameBytesMax));
      Emit(Kind::kName, std::string(Rest().substr(0, length)));
      Advance(length);
    } else if (IsDigit(c)) {
      LexNumber();
    } else if (c == '"' || c == '\'') {
      LexString(c);
    } else {
      LexOperator(brackets);
    }
  }

  void LexNumber() {
    std::string digits;
    size_t length = 0;
    int base = 10;
    bool is_float = false;
    const std::string_view rest = Rest();
    if (rest.size() > 2 && rest[0] == '0' && IsNameStart(rest[1]) && rest[1] != 'e' &&
        rest[1] != 'E') {
      base = rest[1] == 'x' || rest[1] == 'X' ? 16 : rest[1] == 'o' || rest[1] == 'O' ? 8 : 2;
      length = 2;
    }
    while (length < rest.size()) {
      const char c = rest[length];
      const bool begins_fraction = base == 10 && c == '.' && !is_float &&
                                   length + 1 < rest.size() && IsDigit(rest[length + 1]);
      const bool is_exponent = base == 10 && (c == 'e' || c == 'E');
      if (begins_fraction || is_exponent) is_float = true;
      if (!IsNamePart(c) && !begins_fraction &&
          !((c == '+' || c == '-') && is_float &&
            (rest[length - 1] == 'e' || rest[length - 1] == 'E'))) {
        break;
      }
      if (c != '_') digits += c;
      ++length;
    }
    Token& token =
        Emit(is_float ? Kind::kFloat : Kind::kInteger, std::string(rest.substr(0, length)));
    const char* end = digits.data() + digits.size();
    const auto result = is_float ? std::from_chars(digits.data(), end, token.number)
                                 : std::from_chars(digits.data(), end, token.integer, base);
    token.is_long =
        !is_float && base == 10 && result.ptr == end && result.ec == std::errc::result_out_of_range;
    if (token.is_long) {
      token.text = digits;
    } else if (result.ec != std::errc() || result.ptr != end) {
      FailHere(fmt::format("\"{}\" is not a number", Visible(rest.substr(0, length))));
    }
    Advance(length);
  }

  void LexString(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) FailHere("a string without an end");
    const std::string_view body = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    Emit(Kind::kString, Unescape(body));
    Advance(end + 1 - at_);
  }

  std::string Unescape(std::string_view body) {
    std::string out;
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] != '\\' || i + 1 == body.size()) {
        out += body[i];
        continue;
      }
      static constexpr std::string_view kLetters = "abfnrtv\\'\"",
                                        kMeanings = "\a\b\f\n\r\t\v\\'\"";
      const char c = body[++i];
      const size_t letter = kLetters.find(c);
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (letter != std::string_view::npos) {
        out += kMeanings[letter];
      } else if (digits > 0) {
        AppendUtf8(CodePoint(body.substr(i + 1, digits), digits, 16), &out);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t length = 1;
        while (length < 3 && i + length < body.size() && body[i + length] >= '0' &&
               body[i + length] <= '7')
          ++length;
        AppendUtf8(CodePoint(body.substr(i, length), length, 8), &out);
        i += length - 1;
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  char32_t CodePoint(std::string_view digits, size_t wanted, int base) {
    uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || digits.size() != wanted || end != digits.data() + digits.size() ||
        value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      FailHere("an escape in a string is not a character");
    }
    return value;
  }

  void LexOperator(std::string* brackets) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (std::string_view op : kOperators) {
      if (!At(op)) continue;
      if (op == "(" || op == "[" || op == "{")
        brackets->push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      if (op == ")" || op == "]" || op == "}") {
        if (brackets->empty() || brackets->back() != op[0])
          FailHere(fmt::format("unexpected '{}'", op));
        brackets->pop_back();
      }
      Emit(Kind::kOperator, std::string(op));
      Advance(op.size());
      return;
    }
    FailHere(fmt::format("unexpected character \"{}\"", Visible(Rest().substr(0, 1))));
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the next text begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) { return Lexer(NormalizeLines(source)).Run(); }

}  // namespace minisgl::text::jinja
