// The exception of the lexer, parser and interpreter. It does not leave this room: guard.h
// converts it to a Status. Evaluation is deep mutual recursion, in which a Result at each level
// would obscure the rules.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace minisgl::text::jinja {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int line = 0)
      : std::runtime_error(message), line_(line) {}
  int line() const { return line_; }  // the template's line; 0 if not yet known
  // Sets the line unless it is known: the innermost node sets it.
  void SetLine(int line) {
    if (line_ == 0) line_ = line;
  }

 private:
  int line_;
};

// Throws an Error with a formatted message.
template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace minisgl::text::jinja
