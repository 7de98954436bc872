// Reads calls in Python's notation: NAME(KEY=VALUE, ...), their values literals.
//
// Values become JSON text: numbers keep their digits, tuples are arrays, and the words of JSON
// (true, false, null) are accepted beside those of Python. A quotation mark ends a string only if
// a comma, colon or closing bracket follows, because templates of some models write strings without
// escapes. Strings may hold line breaks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/text/tool_calls.h"
#include "text/tool_calls/argument_list.h"

namespace minisgl::text {

class PythonReader {
 public:
  PythonReader(std::string_view text, size_t begin, bool at_end)
      : text_(text), at_(begin), at_end_(at_end) {}

  // Take a call, or a list of at least one: [CALL, ...]. If they return false, more() says whether
  // more text may make it one, and at() is where it fails.
  bool Call(ToolCall* call);
  bool List(std::vector<ToolCall>* calls);

  bool more() const { return more_; }
  size_t at() const { return at_; }
  // White space is taken.
  void Skip();
  bool TakeIf(char byte);

 private:
  bool Fail(bool more) {
    more_ = more;
    return false;
  }
  // Fails at the current byte, or because the text ends there.
  bool FailHere() { return Fail(at_ >= text_.size()); }
  bool Expect(char byte) { return TakeIf(byte) || FailHere(); }
  bool Name(bool with_dots, std::string* name);
  bool Value(int depth, std::string* json);
  bool Items(char close, int depth, std::string* json);
  bool Members(int depth, std::string* json);
  bool Word(std::string* json);
  bool Number(std::string* json);
  bool String(std::string* value);
  bool Escape(std::string* value);
  bool EndsString(size_t quote_end, bool* ends);
  bool Digits(std::string* digits);

  const std::string_view text_;
  size_t at_;
  const bool at_end_;
  bool more_ = false;
};

}  // namespace minisgl::text
