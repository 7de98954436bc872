// Rebuilds a machine's tables from the states that are still in use.
#include <utility>

#include "grammar/machine.h"

namespace minisgl::grammar {

namespace {

// Searches that wait to go on would be lost: while there are any, tables may be larger.
constexpr size_t kStoppedFactor = 4;

}  // namespace

// Node ids in items are below the node's own, and interning keeps the order of ids: one pass down
// marks live nodes, one pass up copies them.
class Machine::Copier {
 public:
  explicit Copier(Machine* machine)
      : machine_(*machine),
        items_(std::exchange(machine->items_, {})),
        nodes_(std::exchange(machine->nodes_, {})),
        pairs_(std::exchange(machine->pairs_, {})),
        lexers_(std::exchange(machine->lexers_, {})),
        lanes_(std::exchange(machine->lanes_, {})),
        states_(std::exchange(machine->states_, {})) {}

  void Copy() {
    MarkLive();
    machine_.node_table_ = IdTable();
    machine_.cores_.clear();
    machine_.nodes_for_.Clear();
    machine_.finish_of_.Clear();
    machine_.shortened_.Clear();
    machine_.finishes_ = {};
    machine_.core_table_ = IdTable();
    machine_.core_bytes_ = 0;
    machine_.last_core_ = kUnknown;
    machine_.lexer_table_ = IdTable();
    machine_.state_table_ = IdTable();
    machine_.state_rows_ = {};
    machine_.lexer_rows_ = {};
    CopyExpressionsAndLexers();
    CopyNodes();
    CopyStates();
  }

 private:
  void MarkLive() {
    state_lives_.assign(states_.size(), false);
    lexer_lives_.assign(lexers_.size(), false);
    node_lives_.assign(nodes_.size(), false);
    state_lives_[kDeadState] = state_lives_[machine_.start_state_] = true;
    for (const auto& [states, unused] : machine_.roots_) {
      for (const uint32_t state : *states) state_lives_[state] = true;
    }
    for (size_t state = 0; state < states_.size(); ++state) {
      if (!state_lives_[state]) continue;
      for (uint32_t i = 0; i < states_[state].num_lanes; ++i) {
        const Lane& lane = lanes_[states_[state].first_lane + i];
        node_lives_[lane.node] = true;
        lexer_lives_[lane.lexer] = true;
      }
    }
    for (size_t node = nodes_.size(); node-- > 0;) {
      if (!node_lives_[node]) continue;
      for (uint32_t i = 0; i < nodes_[node].num_items; ++i) {
        const uint32_t to = items_[nodes_[node].first_item + i].to.node;
        if (to != kRootNode) node_lives_[to] = true;
      }
    }
  }

  void CopyExpressionsAndLexers() {
    std::vector<Id> roots = machine_.terminals_;
    roots.push_back(machine_.string_character_);
    for (size_t lexer = 0; lexer < lexers_.size(); ++lexer) {
      if (!lexer_lives_[lexer]) continue;
      for (uint32_t i = 0; i < lexers_[lexer].num_pairs; ++i) {
        roots.push_back(pairs_[lexers_[lexer].first_pair + i].rest);
      }
    }
    machine_.expressions_ = machine_.expressions_->CopyLive(roots);
    const auto copied = static_cast<std::ptrdiff_t>(machine_.terminals_.size());
    machine_.terminals_.assign(roots.begin(), roots.begin() + copied);
    machine_.string_character_ = roots[machine_.terminals_.size()];
    machine_.strings_ = StringLengthFinder(machine_.expressions_.get(), machine_.string_character_,
                                           machine_.limits_.emptiness_work_max);
    machine_.InternLexer({});
    lexer_ids_.assign(lexers_.size(), 0);
    size_t next = machine_.terminals_.size() + 1;
    for (size_t lexer = 0; lexer < lexers_.size(); ++lexer) {
      if (!lexer_lives_[lexer]) continue;
      std::vector<LexerPair> pairs;
      for (uint32_t i = 0; i < lexers_[lexer].num_pairs; ++i) {
        pairs.push_back({pairs_[lexers_[lexer].first_pair + i].terminal, roots[next++]});
      }
      lexer_ids_[lexer] = machine_.InternLexer(pairs);
    }
  }

  void CopyNodes() {
    node_ids_.assign(nodes_.size(), 0);
    for (size_t node = 0; node < nodes_.size(); ++node) {
      if (!node_lives_[node]) continue;
      std::vector<Item> items(items_.begin() + nodes_[node].first_item,
                              items_.begin() + nodes_[node].first_item + nodes_[node].num_items);
      for (Item& item : items) {
        if (item.to.node != kRootNode) item.to.node = node_ids_[item.to.node];
      }
      node_ids_[node] = machine_.InternNode(&items);
    }
  }

  void CopyStates() {
    std::vector<uint32_t> ids(states_.size(), kDeadState);
    for (size_t state = 0; state < states_.size(); ++state) {
      if (!state_lives_[state]) continue;
      std::vector<Lane> lanes;
      for (uint32_t i = 0; i < states_[state].num_lanes; ++i) {
        const Lane& lane = lanes_[states_[state].first_lane + i];
        lanes.push_back({node_ids_[lane.node], lexer_ids_[lane.lexer]});
      }
      ids[state] = machine_.InternState(&lanes, states_[state].accepting);
      machine_.states_[ids[state]].at_limit = states_[state].at_limit;
    }
    machine_.start_state_ = ids[machine_.start_state_];
    for (const auto& [states, unused] : machine_.roots_) {
      for (uint32_t& state : *states) state = ids[state];
    }
    decltype(machine_.masks_) masks;
    size_t mask_bytes = 0;
    for (auto& [key, mask] : machine_.masks_) {
      if (!state_lives_[key.state]) continue;
      mask_bytes += mask.size() * sizeof(uint32_t) + kMaskOverheadBytes;
      masks.emplace(MaskKey{key.owner, ids[key.state]}, std::move(mask));
    }
    machine_.masks_ = std::move(masks);
    machine_.mask_bytes_ = mask_bytes;
  }

  Machine& machine_;
  std::vector<Item> items_;
  std::vector<Node> nodes_;
  std::vector<LexerPair> pairs_;
  std::vector<LexerState> lexers_;
  std::vector<Lane> lanes_;
  std::vector<State> states_;
  std::vector<bool> state_lives_, lexer_lives_, node_lives_;
  std::vector<uint32_t> lexer_ids_, node_ids_;
};

void Machine::Trim() {
  // Masks have a limit of their own.
  // Well before the expressions reach a limit: beyond it what matches would depend on the past.
  const ExpressionLimits& limits = limits_.expressions;
  const bool has_room = expressions_->nodes.size() <= (live_expressions_ + limits.nodes_max) / 2 &&
                        expressions_->operands.size() <= (live_operands_ + limits.operands_max) / 2;
  if (has_room) {
    const bool stops_work = !expressions_->stopped_searches.empty();
    const size_t limit = stops_work ? kStoppedFactor * trim_bytes_ : trim_bytes_;
    if (memory_bytes() - mask_bytes_ <= limit) return;
    // Drop the remembered derivatives first.
    expressions_->derivatives.Clear();
    if (memory_bytes() - mask_bytes_ <= trim_bytes_ / 2) return;
  }
  Rebuild();
}

void Machine::DropCaches() {
  masks_ = {};
  mask_bytes_ = 0;
  Rebuild();
}

void Machine::Rebuild() {
  Copier(this).Copy();
  live_expressions_ = expressions_->nodes.size();
  live_operands_ = expressions_->operands.size();
  trim_bytes_ = std::max(limits_.table_bytes_max, 2 * (memory_bytes() - mask_bytes_));
}

}  // namespace minisgl::grammar
