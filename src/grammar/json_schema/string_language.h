// Sets of JSON strings, as expressions over their spelling between the quotes.
//
// A character is spelled as it is, if JSON allows; `"` and `\` with a backslash; a control one
// with its short escape, if it has one, or as \u00XX. No printable character has two spellings, so
// lengths and patterns are exact, and Not() is the set of the other strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "minisgl/grammar/code_point_set.h"
#include "minisgl/grammar/expression.h"

namespace minisgl::grammar {

class StringLanguage {
 public:
  explicit StringLanguage(ExpressionSet& set);

  ExpressionSet& set() const { return *set_; }
  ExpressionId All() const { return all_; }
  // The spellings of one character of `characters`.
  ExpressionId Characters(const CodePointSet& characters) const;
  // The one string `text`. REQUIRES valid UTF-8.
  ExpressionId Text(std::string_view text) const;
  ExpressionId Texts(const std::vector<std::string>& texts) const;
  // Strings of `min` to `max` code points.
  ExpressionId Length(uint32_t min, uint32_t max) const;
  ExpressionId Not(ExpressionId strings) const;
  // True if `strings` has the string `text`.
  bool Contains(ExpressionId strings, std::string_view text) const;

 private:
  ExpressionSet* set_;
  ExpressionId character_;
  ExpressionId all_;
};

// The usual spelling of `text`, without quotes: short escapes, \u00XX for other control characters.
std::string SpellString(std::string_view text);

}  // namespace minisgl::grammar
