// How the interpreter stops: one exception type that never leaves this room (chat_template.cc turns
// it into a Status). Evaluation is deeply mutual recursion, where a Result at each level would hide
// the rules it is about.
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
  int line() const { return line_; }  // 0: not yet known
  // Set once, by the innermost node that knows.
  void SetLine(int line) {
    if (line_ == 0) line_ = line;
  }

 private:
  int line_;
};

template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace minisgl::text::jinja
