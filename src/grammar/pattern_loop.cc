// Loops whose group looks ahead, as automata.
//
// A state is what may follow: `end`, a language, or one of some ways under way, each with the rest
// of its body, behind which the loop goes on, and the conditions on all that follows. A byte takes
// the derivative of each.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "grammar/pattern_language.h"

namespace minisgl::grammar {

namespace {

constexpr size_t kStatesMax = 2'000;
constexpr size_t kWaysMax = 200;  // of one state

class LoopBuilder {
 public:
  LoopBuilder(ExpressionSet* set, const std::vector<LoopWay>& ways, ExpressionId end)
      : set_(*set), ways_(ways), end_(end) {}

  Result<ExpressionId> Build() {
    State first;
    first.end = end_;
    for (const LoopWay& way : ways_) Add(way.condition, way.body, way.after, &first);
    IndexOf(first);
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_.size() > kStatesMax || states_[i].under_way.size() > kWaysMax) {
        return BadInput("a repeated group with lookahead inside that is too complex");
      }
      const State state = states_[i];
      set_.CountWork(256 * (1 + state.under_way.size()));
      MINISGL_RETURN_IF_ERROR(set_.status());
      std::array<uint32_t, 256> row{};
      for (size_t byte = 0; byte < row.size(); ++byte) {
        row[byte] = IndexOf(Next(state, static_cast<uint8_t>(byte)));
      }
      rows_.push_back(row);
    }
    return set_.Automaton(Merged());
  }

 private:
  struct State {
    ExpressionId end{};
    // The rest of a body and what must follow it: the condition.
    std::map<std::pair<ExpressionId, ExpressionId>, ExpressionId> under_way;
    bool operator<(const State& other) const {
      return std::tie(end, under_way) < std::tie(other.end, other.under_way);
    }
  };

  void Add(ExpressionId condition, ExpressionId body, ExpressionId after, State* state) {
    if (condition == set_.Nothing() || body == set_.Nothing()) return;
    const auto [at, added] = state->under_way.emplace(std::pair(body, after), condition);
    if (!added) at->second = set_.Or({at->second, condition});
  }

  State Next(const State& state, uint8_t byte) {
    State next;
    std::vector<ExpressionId> ends{set_.Derivative(state.end, byte)};
    for (const auto& [way_left, condition] : state.under_way) {
      const auto& [body, after] = way_left;
      const ExpressionId rest = set_.Derivative(body, byte);
      if (rest == set_.Nothing()) continue;
      const ExpressionId left = set_.Derivative(condition, byte);
      if (left == set_.Nothing()) continue;
      if (rest != set_.Empty()) Add(left, rest, after, &next);
      if (!set_.IsNullable(rest)) continue;
      const ExpressionId behind = set_.And({left, after});
      ends.push_back(set_.And({behind, end_}));
      for (const LoopWay& way : ways_) {
        Add(set_.And({behind, way.condition}), way.body, way.after, &next);
      }
    }
    next.end = set_.Or(ends);
    return next;
  }

  uint32_t IndexOf(const State& state) {
    if (state.end == set_.Nothing() && state.under_way.empty()) return ByteAutomaton::kNoState;
    const auto [at, added] = known_.emplace(state, static_cast<uint32_t>(states_.size()));
    if (added) states_.push_back(state);
    return at->second;
  }

  // Bytes with the same next state everywhere share a class.
  std::shared_ptr<const ByteAutomaton> Merged() const {
    auto automaton = std::make_shared<ByteAutomaton>();
    std::map<std::vector<uint32_t>, uint8_t> classes;
    std::vector<size_t> members;  // a byte of each class
    for (size_t byte = 0; byte < 256; ++byte) {
      std::vector<uint32_t> column;
      for (const auto& row : rows_) column.push_back(row[byte]);
      const auto [at, added] =
          classes.emplace(std::move(column), static_cast<uint8_t>(classes.size()));
      if (added) members.push_back(byte);
      automaton->class_of_byte[byte] = at->second;
    }
    automaton->num_classes = static_cast<uint32_t>(members.size());
    for (size_t i = 0; i < states_.size(); ++i) {
      for (const size_t byte : members) automaton->next.push_back(rows_[i][byte]);
      automaton->accepting.push_back(set_.IsNullable(states_[i].end));
    }
    return automaton;
  }

  ExpressionSet& set_;
  const std::vector<LoopWay>& ways_;
  ExpressionId end_;
  std::vector<State> states_;
  std::map<State, uint32_t> known_;
  std::vector<std::array<uint32_t, 256>> rows_;
};

}  // namespace

Result<ExpressionId> LoopLanguage(ExpressionSet& set, const std::vector<LoopWay>& ways,
                                  ExpressionId end) {
  if (end == set.Nothing()) return end;
  return LoopBuilder(&set, ways, end).Build();
}

}  // namespace minisgl::grammar
