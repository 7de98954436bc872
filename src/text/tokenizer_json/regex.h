// Regular expressions of tokenizer files (Oniguruma's syntax, as tokenizer.json is written for) on
// PCRE2 with Unicode properties.
//
// The properties are those of PCRE2's own version of Unicode (14 on Debian 12); the reference's
// know Unicode 16, so that characters added in between are letters there and not here.
//
// Matching is bounded: steps and memory for each match, no use of the machine's stack that grows
// with the text. Immutable; usable from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl {

struct TextRange {
  size_t begin = 0, end = 0;
};

class Regex {
 public:
  // kBadInput where `pattern` is none, is longer than 64 KiB, or has what is not supported.
  static Result<Regex> Compile(std::string_view pattern);

  // Appends the matches in `text` that do not overlap, from left to right; an empty match stands
  // nowhere directly behind another. kBadInput where a match takes too many steps.
  // REQUIRES well-formed UTF-8.
  Status FindAll(std::string_view text, std::vector<TextRange>* matches) const;
  // The same in each of `words` as if it were a whole text; places count in `text`.
  Status FindAllIn(std::string_view text, const std::vector<TextRange>& words,
                   std::vector<TextRange>* matches) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  Regex(std::string pattern, std::shared_ptr<const Code> code);
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

// `pattern` in PCRE2's syntax: what the two spell differently (`\h`, `\s`, `{2,3}+`, `\uHHHH`,
// classes within classes) is rewritten.
Result<std::string> PcrePattern(std::string_view pattern);

}  // namespace minisgl
