// Regular expressions over the names of modules, in the part of Python's syntax that files of
// adapters use. Hostile input: matching takes time linear in the pattern and the name.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::weights {

class NamePattern {
 public:
  // Literals, ".", classes, escapes (\d \w \s and their opposites, \. and the like), groups without
  // names, alternatives, "^" and "$", the quantifiers * + ? {m} {m,} {m,n}, lazy or not. kBadInput
  // with what is wrong or not supported: look-around, references, flags; a pattern past the limits.
  static Result<NamePattern> Parse(std::string_view pattern);

  // Python's re.fullmatch.
  bool Matches(std::string_view name) const;

 private:
  friend class NamePatternParser;
  enum class Kind : uint8_t { kByte, kSplit, kBegin, kEnd, kMatch };
  struct Step {
    Kind kind = Kind::kMatch;
    int32_t next = 0;   // of all but kMatch
    int32_t other = 0;  // of kSplit; of kByte its set
  };
  std::vector<Step> steps_;  // begins at step 0
  std::vector<std::bitset<256>> sets_;
};

}  // namespace minisgl::weights
