// Converts the source of a template to tokens. Also removes white space around tags:
//   trim_blocks    the line break after a block or comment
//   lstrip_blocks  blanks before a block or comment that begins a line
//   - and +        the signs in a tag, which trim all blanks or none
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::text::jinja {

struct Token {
  enum class Kind {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;  // of data, a name, a string (escapes resolved), an operator
  int64_t integer = 0;
  bool is_long = false;  // an integer that `integer` does not hold; `text` is its digits
  double number = 0;

  bool Is(Kind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
  bool IsName(std::string_view name) const { return Is(Kind::kName, name); }
  bool IsOperator(std::string_view op) const { return Is(Kind::kOperator, op); }
};

// The longest known templates have about 5,000 tokens; each becomes a few hundred bytes of tree.
inline constexpr size_t kTokensMax = 32'768;

// Returns the tokens of `source`; the last is kEnd. Throws Error with the line.
std::vector<Token> Lex(std::string_view source);

}  // namespace minisgl::text::jinja
