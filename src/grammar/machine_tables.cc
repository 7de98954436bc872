// Interning of the machine's states, nodes, cores and lexer states.
#include <algorithm>
#include <tuple>
#include <utility>

#include "grammar/machine.h"

namespace minisgl::grammar {

namespace {

// Before elements are appended to a table that may become large: fewer moves, and fewer new pages,
// than by doubling.
template <typename T>
void GrowTable(std::vector<T>* table, size_t count) {
  if (table->size() + count > table->capacity()) {
    table->reserve(std::max<size_t>(1024, 4 * (table->size() + count)));
  }
}

}  // namespace

// Finds what follows a set of dots without a byte.
class Machine::CoreBuilder {
 public:
  CoreBuilder(const Rules& rules, Core* core) : rules_(rules), core_(core) {}

  void Build() {
    for (uint32_t i = 0; i < core_->dots.size(); ++i) AddDot(core_->dots[i], i, 0);
    for (size_t i = 0; i < predicted_.size(); ++i) {
      const uint32_t rule = predicted_[i];
      for (const uint32_t dot : rules_.FirstDots(rule)) AddDot(dot, kSelf, rule);
    }
    Sort(&terminal_moves_, &core_->terminals);
    Sort(&waiting_moves_, &core_->waits);
    ShortenReturns();
    FindNeeds();
  }

 private:
  struct SymbolMove {
    uint32_t symbol;
    Move move;
  };
  struct ReturnPlace {
    uint32_t source, rule;
  };

  void AddDot(uint32_t dot, uint32_t source, uint32_t rule) {
    for (;;) {
      const Rules::Dot at = rules_.At(dot);
      if (at.symbol == kNoSymbol) return;
      const Move move{at.next, source, rule};
      if ((at.symbol & kTerminalBit) != 0) {
        terminal_moves_.push_back({at.symbol & ~kTerminalBit, move});
      } else {
        waiting_moves_.push_back({at.symbol, move});
        if (seen_.Find(at.symbol) == nullptr) {
          seen_.Insert(at.symbol, 0);
          predicted_.push_back(at.symbol);
        }
      }
      if (!at.skips) return;
      dot = at.next;
    }
  }

  void Sort(std::vector<SymbolMove>* moves, std::vector<MoveRange>* ranges) {
    std::stable_sort(moves->begin(), moves->end(),
                     [](const SymbolMove& a, const SymbolMove& b) { return a.symbol < b.symbol; });
    for (const SymbolMove& move : *moves) {
      const auto index = static_cast<uint32_t>(core_->moves.size());
      if (ranges->empty() || ranges->back().symbol != move.symbol) {
        ranges->push_back({move.symbol, index, 0});
      }
      ++ranges->back().count;
      core_->moves.push_back(move.move);
    }
  }

  // An item predicted for one finished item alone returns where that one does.
  void ShortenReturns() {
    for (Move& move : core_->moves) {
      if (move.source != kSelf) continue;
      const ReturnPlace place = PlaceOf(move.rule);
      move.source = place.source;
      move.rule = place.rule;
    }
  }

  // Where items of `rule` return to in the end. Remembered for all rules on the way: a chain of
  // them may be as long as an object has members.
  ReturnPlace PlaceOf(uint32_t rule) {
    std::vector<uint32_t> way;
    ReturnPlace place{kSelf, rule};
    while (place.source == kSelf) {
      if (const uint32_t* known = place_of_.Find(place.rule)) {
        place = places_[*known];
        break;
      }
      const auto waits = std::lower_bound(
          core_->waits.begin(), core_->waits.end(), place.rule,
          [](const MoveRange& range, uint32_t value) { return range.symbol < value; });
      if (waits->count != 1) break;
      const Move& waiting = core_->moves[waits->first];
      if (rules_.At(waiting.dot).symbol != kNoSymbol) break;
      if (way.size() > predicted_.size()) return {kSelf, rule};  // a ring: nothing gets there
      way.push_back(place.rule);
      place = {waiting.source, waiting.rule};
    }
    if (!way.empty()) places_.push_back(place);
    for (const uint32_t passed : way) {
      place_of_.Insert(passed, static_cast<uint32_t>(places_.size() - 1));
    }
    return place;
  }

  // By rule, the dots that some chain of waiting items leads back to.
  void FindNeeds() {
    const size_t num_dots = core_->dots.size();
    const size_t num_rules = core_->waits.size();
    if (num_dots < 2 || num_dots * num_rules > kNeedsMax ||
        core_->moves.size() * num_rules > kNeedsMax) {
      return;
    }
    std::vector<std::vector<bool>> needs(num_rules, std::vector<bool>(num_dots, false));
    const auto index_of = [&](uint32_t rule) {
      return static_cast<size_t>(std::lower_bound(core_->waits.begin(), core_->waits.end(), rule,
                                                  [](const MoveRange& range, uint32_t value) {
                                                    return range.symbol < value;
                                                  }) -
                                 core_->waits.begin());
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t rule = 0; rule < num_rules; ++rule) {
        const auto set = [&](size_t dot) {
          changed = changed || !needs[rule][dot];
          needs[rule][dot] = true;
        };
        for (uint32_t i = 0; i < core_->waits[rule].count; ++i) {
          const Move& move = core_->moves[core_->waits[rule].first + i];
          if (move.source != kSelf) {
            set(move.source);
            continue;
          }
          const std::vector<bool>& above = needs[index_of(move.rule)];
          for (size_t dot = 0; dot < num_dots; ++dot) {
            if (above[dot]) set(dot);
          }
        }
      }
    }
    core_->needs.resize(num_rules);
    for (size_t rule = 0; rule < num_rules; ++rule) {
      for (uint32_t dot = 0; dot < num_dots; ++dot) {
        if (needs[rule][dot]) core_->needs[rule].push_back(dot);
      }
      if (core_->needs[rule].size() == num_dots) core_->needs[rule].clear();
    }
  }

  // Larger cores keep all items for every return.
  static constexpr size_t kNeedsMax = size_t{1} << 18;

  const Rules& rules_;
  Core* core_;
  std::vector<uint32_t> predicted_;
  KeyMap seen_;
  std::vector<SymbolMove> terminal_moves_, waiting_moves_;
  std::vector<ReturnPlace> places_;
  KeyMap place_of_;  // by rule: index of its place
};

uint64_t Machine::HashItems(std::span<const Item> items) {
  uint64_t hash = items.size();
  for (const Item& item : items) {
    hash = MixHash(hash, item.dot);
    hash = MixHash(hash, uint64_t{item.to.rule} << 32 | item.to.node);
  }
  return MixHash(hash, 0);
}

uint64_t Machine::HashLanes(std::span<const Lane> lanes, bool accepting) {
  uint64_t hash = accepting ? 1 : 0;
  for (const Lane& lane : lanes) hash = MixHash(hash, uint64_t{lane.node} << 32 | lane.lexer);
  return MixHash(hash, 0);
}

uint32_t Machine::FindNode(uint32_t parent, const std::vector<Item>& items) const {
  const auto equals = [&](uint32_t other) {
    return nodes_[other].num_items == items.size() &&
           std::equal(items.begin(), items.end(), items_.begin() + nodes_[other].first_item);
  };
  if (parent == kRootNode) return node_table_.Find(HashItems(items), equals);
  for (uint32_t id = nodes_[parent].first_child; id != kUnknown; id = nodes_[id].next_child) {
    if (equals(id)) return id;
  }
  return nodes_[parent].num_children < kListMax ? kUnknown
                                                : node_table_.Find(HashItems(items), equals);
}

uint32_t Machine::InternNode(std::vector<Item>* items) {
  std::sort(items->begin(), items->end(), [](const Item& a, const Item& b) {
    return std::tie(a.dot, a.to.rule, a.to.node) < std::tie(b.dot, b.to.rule, b.to.node);
  });
  items->erase(std::unique(items->begin(), items->end()), items->end());
  uint32_t parent = kRootNode;
  for (const Item& item : *items) {
    if (item.to.node == kRootNode) continue;
    parent = parent == kRootNode ? item.to.node : std::max(parent, item.to.node);
  }
  const uint32_t found = FindNode(parent, *items);
  if (found != kUnknown) return found;
  const auto id = static_cast<uint32_t>(nodes_.size());
  Node node{static_cast<uint32_t>(items_.size()), static_cast<uint32_t>(items->size())};
  GrowTable(&items_, items->size());
  items_.insert(items_.end(), items->begin(), items->end());
  if (parent != kRootNode && nodes_[parent].num_children < kListMax) {
    ++nodes_[parent].num_children;
    node.next_child = std::exchange(nodes_[parent].first_child, id);
  } else {
    node_table_.Insert(HashItems(*items), id, [&](uint32_t other) {
      return HashItems({items_.data() + nodes_[other].first_item, nodes_[other].num_items});
    });
  }
  new_dots_.clear();
  for (const Item& item : *items) {
    if (new_dots_.empty() || new_dots_.back() != item.dot) new_dots_.push_back(item.dot);
  }
  GrowTable(&nodes_, 1);
  nodes_.push_back(node);
  nodes_[id].core = InternCore(new_dots_);
  return id;
}

uint32_t Machine::InternCore(const std::vector<uint32_t>& dots) {
  // Most often what follows is like what came before.
  if (last_core_ < cores_.size() && cores_[last_core_].dots == dots) return last_core_;
  const auto hash_of = [](const std::vector<uint32_t>& values) {
    uint64_t hash = values.size();
    for (const uint32_t value : values) hash = MixHash(hash, value);
    return MixHash(hash, 0);
  };
  const uint64_t hash = hash_of(dots);
  const uint32_t found =
      core_table_.Find(hash, [&](uint32_t other) { return cores_[other].dots == dots; });
  if (found != UINT32_MAX) return last_core_ = found;
  Core core;
  core.dots = dots;
  CoreBuilder(rules_, &core).Build();
  std::vector<LexerPair> pairs;
  for (const MoveRange& range : core.terminals) {
    const Id expression = terminals_[range.symbol];
    if (expression != kEmptyId && expression != kNothingId) {
      pairs.push_back({range.symbol, expression});
    }
  }
  core.lexer_start = InternLexer(pairs);
  core_bytes_ += sizeof(Core) + core.dots.size() * sizeof(uint32_t) +
                 core.moves.size() * sizeof(Move) +
                 (core.terminals.size() + core.waits.size()) * sizeof(MoveRange);
  const auto id = static_cast<uint32_t>(cores_.size());
  cores_.push_back(std::move(core));
  core_table_.Insert(hash, id, [&](uint32_t other) { return hash_of(cores_[other].dots); });
  return last_core_ = id;
}

uint64_t Machine::HashOfLexer(uint32_t lexer) const {
  uint64_t hash = lexers_[lexer].num_pairs;
  for (uint32_t i = 0; i < lexers_[lexer].num_pairs; ++i) {
    const LexerPair& pair = pairs_[lexers_[lexer].first_pair + i];
    hash = MixHash(hash, uint64_t{pair.terminal} << 32 | pair.rest);
  }
  return MixHash(hash, 0);
}

uint32_t Machine::InternLexer(const std::vector<LexerPair>& pairs) {
  const auto id = static_cast<uint32_t>(lexers_.size());
  LexerState lexer{static_cast<uint32_t>(pairs_.size()), static_cast<uint32_t>(pairs.size())};
  for (const LexerPair& pair : pairs) {
    lexer.goes_on = lexer.goes_on || pair.rest != kEmptyId;
    lexer.any_accepted = lexer.any_accepted || expressions_->nodes[pair.rest].nullable;
  }
  lexers_.push_back(lexer);
  pairs_.insert(pairs_.end(), pairs.begin(), pairs.end());
  const uint64_t hash = HashOfLexer(id);
  const uint32_t found = lexer_table_.Find(hash, [&](uint32_t other) {
    return lexers_[other].num_pairs == pairs.size() &&
           std::equal(pairs.begin(), pairs.end(), pairs_.begin() + lexers_[other].first_pair);
  });
  if (found != UINT32_MAX) {
    pairs_.resize(lexers_[id].first_pair);
    lexers_.pop_back();
    return found;
  }
  lexer_table_.Insert(hash, id, [&](uint32_t other) { return HashOfLexer(other); });
  return id;
}

uint32_t Machine::FindState(uint32_t node, const std::vector<Lane>& lanes, bool accepting) const {
  const auto equals = [&](uint32_t other) {
    return states_[other].accepting == accepting && states_[other].num_lanes == lanes.size() &&
           std::equal(lanes.begin(), lanes.end(), lanes_.begin() + states_[other].first_lane);
  };
  if (node == kRootNode) return state_table_.Find(HashLanes(lanes, accepting), equals);
  for (uint32_t id = nodes_[node].first_state; id != kUnknown; id = states_[id].next_of_node) {
    if (equals(id)) return id;
  }
  return nodes_[node].num_states < kListMax
             ? kUnknown
             : state_table_.Find(HashLanes(lanes, accepting), equals);
}

uint32_t Machine::InternState(std::vector<Lane>* lanes, bool accepting) {
  std::sort(lanes->begin(), lanes->end(), [](const Lane& a, const Lane& b) {
    return std::tie(a.node, a.lexer) < std::tie(b.node, b.lexer);
  });
  lanes->erase(std::unique(lanes->begin(), lanes->end()), lanes->end());
  const uint32_t node = lanes->empty() ? kRootNode : lanes->back().node;
  const uint32_t found = FindState(node, *lanes, accepting);
  if (found != kUnknown) return found;
  const auto id = static_cast<uint32_t>(states_.size());
  State state{static_cast<uint32_t>(lanes_.size()), static_cast<uint32_t>(lanes->size())};
  state.accepting = accepting;
  GrowTable(&lanes_, lanes->size());
  lanes_.insert(lanes_.end(), lanes->begin(), lanes->end());
  if (node != kRootNode && nodes_[node].num_states < kListMax) {
    ++nodes_[node].num_states;
    state.next_of_node = std::exchange(nodes_[node].first_state, id);
  } else {
    state_table_.Insert(HashLanes(*lanes, accepting), id, [&](uint32_t other) {
      const State& known = states_[other];
      return HashLanes({lanes_.data() + known.first_lane, known.num_lanes}, known.accepting);
    });
  }
  GrowTable(&states_, 1);
  states_.push_back(state);
  return id;
}

size_t Machine::memory_bytes() const {
  return expressions_->memory_bytes() + items_.size() * sizeof(Item) +
         nodes_.size() * sizeof(Node) + core_bytes_ + pairs_.size() * sizeof(LexerPair) +
         lexers_.size() * sizeof(LexerState) + lanes_.size() * sizeof(Lane) +
         states_.size() * sizeof(State) + node_table_.memory_bytes() + core_table_.memory_bytes() +
         lexer_table_.memory_bytes() + state_table_.memory_bytes() + nodes_for_.memory_bytes() +
         shortened_.memory_bytes() + finish_of_.memory_bytes() +
         finishes_.capacity() * sizeof(Finish) + strings_.memory_bytes() + mask_bytes_ +
         (state_rows_.size() + lexer_rows_.size()) * sizeof(uint32_t);
}

}  // namespace minisgl::grammar
