#include "grammar/rules.h"

#include <algorithm>

namespace minisgl::grammar {

namespace {

using BuilderRule = GrammarBuilder::Impl::Rule;

constexpr uint32_t kUnbounded = GrammarBuilder::kUnbounded;

bool IsTerminalSymbol(uint32_t symbol) { return (symbol & kTerminalBit) != 0; }

// Rules for which `holds` follows from their parts: of an alternative all symbols must have it. A
// symbol's own state is `terminal_has` for terminals. Linear in the size of the grammar.
class Fixpoint {
 public:
  Fixpoint(const std::vector<BuilderRule>& rules, const std::vector<bool>& terminal_has)
      : rules_(rules), terminal_has_(terminal_has), holds_(rules.size(), false) {
    for (uint32_t rule = 0; rule < rules.size(); ++rule) AddRule(rule);
    while (!open_.empty()) {
      const uint32_t rule = open_.back();
      open_.pop_back();
      for (const uint32_t waiting : uses_[rule]) {
        if (--missing_[waiting] == 0) Set(owner_[waiting]);
      }
    }
  }
  std::vector<bool> Take() { return std::move(holds_); }

 private:
  void AddRule(uint32_t rule) {
    uses_.resize(rules_.size());
    if (rules_[rule].repeated != kNoSymbol) {
      if (rules_[rule].min == 0) {
        Set(rule);
      } else {
        AddAlternative(rule, {rules_[rule].repeated});
      }
    }
    for (const auto& alternative : rules_[rule].alternatives) AddAlternative(rule, alternative);
  }
  void AddAlternative(uint32_t rule, const std::vector<uint32_t>& symbols) {
    uint32_t missing = 0;
    const auto index = static_cast<uint32_t>(owner_.size());
    for (const uint32_t symbol : symbols) {
      if (IsTerminalSymbol(symbol)) {
        if (!terminal_has_[symbol & ~kTerminalBit]) return;
      }
    }
    for (const uint32_t symbol : symbols) {
      if (IsTerminalSymbol(symbol)) continue;
      uses_[symbol].push_back(index);
      ++missing;
    }
    owner_.push_back(rule);
    missing_.push_back(missing);
    if (missing == 0) Set(rule);
  }
  void Set(uint32_t rule) {
    if (holds_[rule]) return;
    holds_[rule] = true;
    open_.push_back(rule);
  }

  const std::vector<BuilderRule>& rules_;
  const std::vector<bool>& terminal_has_;
  std::vector<bool> holds_;
  std::vector<std::vector<uint32_t>> uses_;  // alternatives, by rule
  std::vector<uint32_t> owner_;              // rule, by alternative
  std::vector<uint32_t> missing_;            // uses of rules that do not hold yet, by alternative
  std::vector<uint32_t> open_;
};

}  // namespace

Result<Rules> Rules::Make(const GrammarBuilder::Impl& builder, uint32_t start,
                          const std::vector<bool>& terminal_is_dead,
                          const std::vector<bool>& terminal_is_nullable) {
  std::vector<bool> terminal_lives = terminal_is_dead;
  terminal_lives.flip();
  const std::vector<bool> productive = Fixpoint(builder.rules, terminal_lives).Take();
  const bool start_lives =
      IsTerminalSymbol(start) ? terminal_lives[start & ~kTerminalBit] : productive[start];
  if (!start_lives) return BadInput("{}", kNothingMatches);
  Rules rules;
  rules.terminal_nullable_ = terminal_is_nullable;
  rules.FindNullable(builder);
  MINISGL_RETURN_IF_ERROR(rules.LayOut(builder, productive, start, terminal_is_dead));
  return rules;
}

void Rules::FindNullable(const GrammarBuilder::Impl& builder) {
  const std::vector<bool> nullable = Fixpoint(builder.rules, terminal_nullable_).Take();
  rules_.resize(builder.rules.size() + 1);
  for (size_t rule = 0; rule < nullable.size(); ++rule) rules_[rule].nullable = nullable[rule];
}

Status Rules::LayOut(const GrammarBuilder::Impl& builder, const std::vector<bool>& productive,
                     uint32_t start, const std::vector<bool>& terminal_is_dead) {
  const auto lives = [&](uint32_t symbol) {
    return IsTerminalSymbol(symbol) ? !terminal_is_dead[symbol & ~kTerminalBit]
                                    : productive[symbol];
  };
  const auto add = [&](size_t rule, const std::vector<uint32_t>& symbols) {
    if (!std::all_of(symbols.begin(), symbols.end(), lives)) return;
    const size_t first = places_.size();
    rules_[rule].dots.push_back(static_cast<uint32_t>(first));
    for (const uint32_t symbol : symbols) places_.push_back({symbol});
    places_.push_back({kNoSymbol, true, false});
    for (size_t i = places_.size() - 1; i-- > first;) {
      places_[i].skips = IsNullable(places_[i].symbol);
      places_[i].finishes = places_[i + 1].finishes && places_[i].skips;
    }
  };
  for (size_t rule = 0; rule < builder.rules.size(); ++rule) {
    const BuilderRule& from = builder.rules[rule];
    for (const auto& alternative : from.alternatives) add(rule, alternative);
    if (from.repeated != kNoSymbol && !lives(from.repeated) && from.min == 0) add(rule, {});
  }
  rules_.back().nullable = IsNullable(start);
  add(rules_.size() - 1, {start});
  uint64_t next_dot = places_.size();
  for (size_t rule = 0; rule < builder.rules.size(); ++rule) {
    const BuilderRule& from = builder.rules[rule];
    if (from.repeated == kNoSymbol || !lives(from.repeated)) continue;
    // Copies that match nothing add no text, so a count from 0 is equivalent.
    const uint32_t min = IsNullable(from.repeated) ? 0 : from.min;
    rules_[rule].dots.push_back(static_cast<uint32_t>(next_dot));
    repetitions_.push_back({static_cast<uint32_t>(next_dot), from.repeated, min, from.max});
    next_dot += uint64_t{from.max == kUnbounded ? min : from.max} + 1;
    if (next_dot >= UINT32_MAX) {
      return BadInput("counts of repetitions add up to more than {}", UINT32_MAX);
    }
  }
  return {};
}

Rules::Dot Rules::At(uint32_t dot) const {
  if (dot < places_.size()) {
    const Place& place = places_[dot];
    return {place.symbol, dot + 1, place.skips, place.finishes};
  }
  const auto after = std::upper_bound(
      repetitions_.begin(), repetitions_.end(), dot,
      [](uint32_t value, const Repetition& repetition) { return value < repetition.first_dot; });
  const Repetition& repetition = *std::prev(after);
  const uint32_t count = dot - repetition.first_dot;
  const bool finishes = count >= repetition.min;
  if (repetition.max == kUnbounded) {
    return {repetition.symbol, count < repetition.min ? dot + 1 : dot, false, finishes};
  }
  if (count == repetition.max) return {kNoSymbol, dot, false, true};
  return {repetition.symbol, dot + 1, false, finishes};
}

}  // namespace minisgl::grammar
