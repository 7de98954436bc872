// A cursor over the text of a regular expression, which reads escapes and classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/grammar/code_point_set.h"

namespace minisgl::grammar {

// REQUIRES valid UTF-8.
class PatternReader {
 public:
  // `lenient_ranges`: a class such as [\w-.] has a literal '-', as ECMA-262 has it.
  PatternReader(std::string_view text, bool lenient_ranges)
      : text_(text), lenient_ranges_(lenient_ranges) {}

  bool AtEnd() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  void set_at(size_t at) { at_ = at; }
  std::string_view rest() const { return text_.substr(at_); }
  bool Peek(std::string_view ahead) const { return rest().starts_with(ahead); }
  bool Take(std::string_view ahead);
  // REQUIRES !AtEnd().
  uint32_t TakeCodePoint();

  // "byte N: " and `what`.
  Status ErrorAt(size_t at, const std::string& what) const;

  // A decimal number, at most `max`; nullopt (and nothing taken) if there is none.
  Result<std::optional<uint32_t>> TakeCount(uint32_t max);

  // Reads an escape. REQUIRES at() behind the backslash.
  Result<CodePointSet> TakeEscape(bool in_class);
  // After '['. Takes ']', too.
  Result<CodePointSet> TakeClass();

 private:
  Result<uint32_t> TakeHex(size_t begin, size_t digits_min, size_t digits_max);
  Result<uint32_t> TakeUnicode(size_t begin);
  Result<CodePointSet> TakeProperty(size_t begin, bool negated);
  Result<CodePointSet> TakeClassAtom(bool* is_set);

  std::string_view text_;
  bool lenient_ranges_;
  size_t at_ = 0;
};

}  // namespace minisgl::grammar
