// A template's source as tokens. White space around tags is settled here: trim_blocks (the line
// break after a block or comment goes), lstrip_blocks (blanks before one that begins its line go),
// and the signs - and +.
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
  double number = 0;

  bool Is(Kind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
  bool IsName(std::string_view name) const { return Is(Kind::kName, name); }
  bool IsOperator(std::string_view op) const { return Is(Kind::kOperator, op); }
};

// The longest templates there are have some 5,000; each becomes some hundred bytes of the tree.
inline constexpr size_t kTokensMax = 32'768;

// The last token is kEnd. Throws Error with its line.
std::vector<Token> Lex(std::string_view source);

}  // namespace minisgl::text::jinja
