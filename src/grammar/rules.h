// The rules of a grammar in the flat form that a machine reads.
//
// A dot is a place in an alternative, or in a counted repetition: there the dots of its rule are
// consecutive, one for each count, and stand for no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/grammar/expression.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl {

struct GrammarBuilder::Impl {
  static constexpr uint32_t kTerminalBit = 0x8000'0000;
  static constexpr uint32_t kNoSymbol = UINT32_MAX;

  struct Rule {
    std::string name;
    // Either alternatives, or `repeated` min to max times.
    std::vector<std::vector<uint32_t>> alternatives;
    uint32_t repeated = kNoSymbol;
    uint32_t min = 0;
    uint32_t max = 0;
  };

  explicit Impl(const GrammarLimits& limits_in)
      : limits(limits_in), expressions(limits_in.expressions) {}
  Symbol AddRule(Rule rule);
  void CountSymbols(size_t count);

  GrammarLimits limits;
  Status status;
  ExpressionSet expressions;
  std::vector<ExpressionId> terminals;
  std::vector<uint32_t> terminal_of;                   // by expression; UINT32_MAX if it is none
  std::unordered_map<uint32_t, std::string> place_of;  // by index of the terminal
  std::vector<Rule> rules;
  size_t num_symbols = 0;
};

namespace grammar {

inline constexpr std::string_view kNothingMatches =
    "no text matches: its conditions exclude each other";

inline constexpr uint32_t kTerminalBit = GrammarBuilder::Impl::kTerminalBit;
inline constexpr uint32_t kNoSymbol = GrammarBuilder::Impl::kNoSymbol;

// Immutable once made.
class Rules {
 public:
  // Removes what matches nothing and adds a start rule, the last one, of one alternative. kBadInput
  // if nothing is left or there are too many dots. `terminal_is_dead` and `terminal_is_nullable` by
  // terminal.
  static Result<Rules> Make(const GrammarBuilder::Impl& builder, uint32_t start,
                            const std::vector<bool>& terminal_is_dead,
                            const std::vector<bool>& terminal_is_nullable);

  uint32_t start_rule() const { return static_cast<uint32_t>(rules_.size()) - 1; }
  uint32_t start_dot() const { return rules_.back().dots[0]; }
  bool IsNullable(uint32_t symbol) const {
    return (symbol & kTerminalBit) != 0 ? terminal_nullable_[symbol & ~kTerminalBit]
                                        : rules_[symbol].nullable;
  }

  struct Dot {
    uint32_t symbol = kNoSymbol;  // the symbol behind the dot; kNoSymbol at the end
    uint32_t next = 0;            // the dot behind it
    bool skips = false;           // `symbol` may match nothing: `next` is reached without a byte
    bool finishes = false;        // all further symbols may match nothing
  };
  Dot At(uint32_t dot) const;
  // The dots at the beginning of `rule`.
  const std::vector<uint32_t>& FirstDots(uint32_t rule) const { return rules_[rule].dots; }

 private:
  struct Rule {
    std::vector<uint32_t> dots;
    bool nullable = false;
  };
  struct Repetition {
    uint32_t first_dot;
    uint32_t symbol;
    uint32_t min, max;
  };
  struct Place {
    uint32_t symbol = kNoSymbol;
    bool finishes = false;
    bool skips = false;
  };
  Status LayOut(const GrammarBuilder::Impl& builder, const std::vector<bool>& productive,
                uint32_t start, const std::vector<bool>& terminal_is_dead);
  void FindNullable(const GrammarBuilder::Impl& builder);

  std::vector<Rule> rules_;
  std::vector<Place> places_;            // dots of alternatives
  std::vector<Repetition> repetitions_;  // dots behind those, ascending
  std::vector<bool> terminal_nullable_;
};

}  // namespace grammar

}  // namespace minisgl
