// Random grammars, and a recogniser that computes all spans of a text: slow and plain.
#pragma once

#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/grammar/grammar.h"

namespace minisgl {

class RandomGrammar {
 public:
  explicit RandomGrammar(uint32_t seed);

  // The same rules for a builder; returns the start symbol.
  Symbol Build(GrammarBuilder* builder) const;
  // True if the start rule derives `text`.
  bool Matches(std::string_view text) const;
  std::string Describe() const;

 private:
  struct RuleText {
    std::vector<std::vector<int>> alternatives;  // rules from 0, terminals as -1 - index
    int repeated = 0;                            // if `counted`
    bool counted = false;
    uint32_t min = 0, max = 0;
  };
  struct TerminalText {
    std::string bytes;  // any of these
    uint32_t min = 1, max = 1;
  };
  class Spans;

  std::vector<RuleText> rules_;
  std::vector<TerminalText> terminals_;
};

}  // namespace minisgl
