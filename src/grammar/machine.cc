#include "grammar/machine.h"

#include <algorithm>

#include "grammar/expression_search.h"

namespace minisgl::grammar {

namespace {

constexpr size_t kRowBytesMax = size_t{16} << 20;
// Completions are few: they are compared one by one up to this number, then hashed.
constexpr size_t kCompletedListMax = 16;
// Items that a step may add, for each that a state may keep; the same item may be added many times.
constexpr size_t kAddedPerItemMax = 50;

// The cost of computing a state, in derivatives; items cost besides.
constexpr uint64_t kWorkOfState = 4;

// Where fewer bytes may come, each has a derivative of its own.
constexpr int kMergedBytesMin = 4;

// Where more terminals than this are under way, tokens are tried one by one.
constexpr uint32_t kStringTerminalsMax = 1000;

}  // namespace

Machine::Machine(std::unique_ptr<ExpressionTable> expressions, std::vector<Id> terminals,
                 Rules rules, const GrammarLimits& limits)
    : expressions_(std::move(expressions)),
      terminals_(std::move(terminals)),
      rules_(std::move(rules)),
      limits_(limits),
      string_character_(StringCharacter(expressions_.get())),
      strings_(expressions_.get(), string_character_, limits.emptiness_work_max),
      trim_bytes_(limits.table_bytes_max) {
  MakeStart();
  live_expressions_ = expressions_->nodes.size();
  live_operands_ = expressions_->operands.size();
}

Machine::~Machine() {
  if (limits_.memory != nullptr) limits_.memory->Forget(this);
}

void Machine::MakeStart() {
  std::vector<Lane> lanes;
  InternState(&lanes, false);  // kDeadState
  InternLexer({});
  new_items_ = {{rules_.start_dot(), {rules_.start_rule(), kRootNode}}};
  const uint32_t node = InternNode(&new_items_);
  lanes = {{node, cores_[nodes_[node].core].lexer_start}};
  start_state_ = InternState(&lanes, rules_.At(rules_.start_dot()).finishes);
}

size_t Machine::Walk(uint32_t* state, std::string_view bytes, std::vector<uint32_t>* history) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint32_t next = Step(*state, static_cast<uint8_t>(bytes[i]));
    if (next == kDeadState) return i;
    *state = next;
    if (history != nullptr) history->push_back(next);
  }
  return bytes.size();
}

ByteSet Machine::NextBytes(uint32_t state, int count_max) {
  ByteSet bytes;
  int count = 0;
  for (int byte = 0; byte < 256 && count < count_max; ++byte) {
    if (Step(state, static_cast<uint8_t>(byte)) != kDeadState) {
      bytes.Add(static_cast<uint8_t>(byte));
      ++count;
    }
  }
  return bytes;
}

uint32_t Machine::NewRow(std::vector<uint32_t>* rows) {
  const auto row = static_cast<uint32_t>(rows->size());
  rows->resize(rows->size() + expressions_->num_classes, kUnknown);
  return row;
}

uint32_t Machine::ComputeStep(uint32_t state, uint32_t byte_class) {
  // Most often nothing follows, or the one terminal under way goes on as it was.
  bool goes_on = false;
  for (uint32_t i = 0; i < states_[state].num_lanes && !goes_on; ++i) {
    const uint32_t before = lanes_[states_[state].first_lane + i].lexer;
    const uint32_t lexer = LexerStep(before, byte_class);
    if (lexer == kUnknown) return kUnknown;
    goes_on = lexer != kDeadLexer;
    if (lexer != before || lexers_[lexer].any_accepted || states_[state].accepting) continue;
    if (states_[state].num_lanes > 1) continue;
    KeepTransition(state, byte_class, state);
    return state;
  }
  if (!goes_on) {
    if (states_[state].row != kUnknown) KeepTransition(state, byte_class, kDeadState);
    return kDeadState;
  }
  const uint32_t next = ComputeState(state, byte_class);
  if (next == kUnknown) return kUnknown;
  work_ += kWorkOfState + num_added_;
  KeepTransition(state, byte_class, next);
  return next;
}

void Machine::KeepTransition(uint32_t state, uint32_t byte_class, uint32_t next) {
  if (state_rows_.size() * sizeof(uint32_t) > kRowBytesMax) {
    state_rows_.clear();
    for (State& other : states_) other.row = kUnknown;
  }
  State& from = states_[state];
  if (from.row == kUnknown) {
    if (from.only_class == UINT16_MAX) {
      from.only_class = static_cast<uint16_t>(byte_class);
      from.only_next = next;
      return;
    }
    from.row = NewRow(&state_rows_);
    state_rows_[from.row + from.only_class] = from.only_next;
  }
  state_rows_[from.row + byte_class] = next;
}

uint32_t Machine::ComputeState(uint32_t state, uint32_t byte_class) {
  num_added_ = 0;
  new_lanes_.clear();
  finished_.clear();
  const uint32_t first = states_[state].first_lane;
  for (uint32_t i = 0; i < states_[state].num_lanes; ++i) {
    const Lane lane = lanes_[first + i];
    const uint32_t lexer = LexerStep(lane.lexer, byte_class);
    if (lexer == kUnknown) return kUnknown;
    const LexerState& after = lexers_[lexer];
    if (after.goes_on) new_lanes_.push_back({lane.node, lexer});
    if (!after.any_accepted) continue;
    for (uint32_t pair = 0; pair < after.num_pairs; ++pair) {
      const LexerPair& under_way = pairs_[after.first_pair + pair];
      if (!expressions_->nodes[under_way.rest].nullable) continue;
      finished_.push_back({lane.node, under_way.terminal});
    }
  }
  const Finish finish = FinishTerminals();
  if (finish.is_too_large) {
    states_[state].at_limit = true;
    return kDeadState;
  }
  if (finish.node != kRootNode) {
    const uint32_t lexer = cores_[nodes_[finish.node].core].lexer_start;
    if (lexers_[lexer].num_pairs > 0) new_lanes_.push_back({finish.node, lexer});
  }
  return InternState(&new_lanes_, finish.accepting);
}

// Returns what follows the terminals in finished_, which end at the same byte. Remembers the result
// if there is one terminal: it is the same after each of many blanks.
Machine::Finish Machine::FinishTerminals() {
  if (finished_.empty()) return {};
  const uint64_t key = uint64_t{finished_[0].terminal} << 32 | finished_[0].node;
  if (finished_.size() == 1) {
    if (const uint32_t* known = finish_of_.Find(key)) return finishes_[*known];
  }
  new_items_.clear();
  completed_.clear();
  for (const FinishedTerminal& one : finished_) {
    AddMoves(one.node, cores_[nodes_[one.node].core].terminals, one.terminal);
  }
  Finish finish;
  finish.accepting = CompleteAll();
  finish.is_too_large = new_items_.size() > limits_.state_items_max;
  if (!finish.is_too_large && !new_items_.empty()) finish.node = InternNode(&new_items_);
  if (finished_.size() == 1) {
    finish_of_.Insert(key, static_cast<uint32_t>(finishes_.size()));
    finishes_.push_back(finish);
  }
  return finish;
}

void Machine::AddMoves(uint32_t node, const std::vector<MoveRange>& ranges, uint32_t symbol) {
  const auto range = std::lower_bound(
      ranges.begin(), ranges.end(), symbol,
      [](const MoveRange& element, uint32_t value) { return element.symbol < value; });
  if (range == ranges.end() || range->symbol != symbol) return;
  const uint32_t first = range->first;
  const uint32_t count = range->count;
  for (uint32_t i = 0; i < count; ++i) {
    // By index: NodeFor may move nodes and cores.
    const Core& core = cores_[nodes_[node].core];
    const Move move = core.moves[first + i];
    if (move.source == kSelf) {
      AddItem(move.dot, {move.rule, NodeFor(move.rule, node)});
      continue;
    }
    const Node& from = nodes_[node];
    if (from.num_items == core.dots.size()) {
      AddItem(move.dot, items_[from.first_item + move.source].to);
      continue;
    }
    const uint32_t dot = core.dots[move.source];
    const auto begin = items_.begin() + from.first_item;
    auto item =
        std::lower_bound(begin, begin + from.num_items, dot,
                         [](const Item& element, uint32_t value) { return element.dot < value; });
    for (; item != begin + from.num_items && item->dot == dot; ++item) {
      AddItem(move.dot, item->to);
    }
  }
}

// The node to return to when `rule`, predicted at `node`, is finished: the items of `node` that
// wait for it, directly or through other rules.
uint32_t Machine::NodeFor(uint32_t rule, uint32_t node) {
  const Core& core = cores_[nodes_[node].core];
  if (core.needs.empty()) return node;
  const uint64_t key = uint64_t{rule} << 32 | node;
  if (const uint32_t* found = nodes_for_.Find(key)) return *found;
  const auto waits = std::lower_bound(
      core.waits.begin(), core.waits.end(), rule,
      [](const MoveRange& element, uint32_t value) { return element.symbol < value; });
  const std::vector<uint32_t>& needs = core.needs[static_cast<size_t>(waits - core.waits.begin())];
  uint32_t result = node;
  if (!needs.empty()) {
    std::vector<Item> items;
    for (uint32_t i = 0; i < nodes_[node].num_items; ++i) {
      const Item& item = items_[nodes_[node].first_item + i];
      const auto index = std::lower_bound(core.dots.begin(), core.dots.end(), item.dot);
      if (std::binary_search(needs.begin(), needs.end(), index - core.dots.begin())) {
        items.push_back(item);
      }
    }
    result = InternNode(&items);
  }
  nodes_for_.Insert(key, result);
  return result;
}

void Machine::AddItem(uint32_t dot, Return to) {
  if (++num_added_ > limits_.state_items_max * kAddedPerItemMax) return;
  const Rules::Dot at = rules_.At(dot);
  if (at.symbol != kNoSymbol) new_items_.push_back({dot, to});
  if (!at.finishes) return;
  if (completed_.size() < kCompletedListMax) {
    if (std::find(completed_.begin(), completed_.end(), to) != completed_.end()) return;
  } else {
    if (completed_.size() == kCompletedListMax) {
      completed_set_.Clear();
      for (const Return& other : completed_) {
        completed_set_.Insert(uint64_t{other.rule} << 32 | other.node, 0);
      }
    }
    const uint64_t key = uint64_t{to.rule} << 32 | to.node;
    if (completed_set_.Find(key) != nullptr) return;
    completed_set_.Insert(key, 0);
  }
  completed_.push_back(to);
}

// Finishes rules until nothing new follows. True if the start rule is among them.
bool Machine::CompleteAll() {
  bool accepting = false;
  for (size_t i = 0; i < completed_.size(); ++i) {
    const Return to = completed_[i];
    if (to.node == kRootNode) {
      accepting = true;
    } else {
      AddMoves(to.node, cores_[nodes_[to.node].core].waits, to.rule);
    }
  }
  // A place too ambiguous to be computed: no text passes here.
  if (num_added_ > limits_.state_items_max * kAddedPerItemMax) {
    new_items_.resize(limits_.state_items_max + 1);
  }
  return accepting;
}

// Fills in most classes of bytes at once: they lead to nothing, or to the same state as another
// class.
void Machine::NewLexerRow(uint32_t lexer) {
  ByteSet first_bytes;
  rests_.clear();
  for (uint32_t i = 0; i < lexers_[lexer].num_pairs; ++i) {
    const Id rest = pairs_[lexers_[lexer].first_pair + i].rest;
    first_bytes = UnionOf(first_bytes, expressions_->FirstBytes(rest));
    rests_.push_back(rest);
  }
  // Within a literal there is nothing to merge.
  const bool merges = first_bytes.size() >= kMergedBytesMin;
  MergedClasses merged;
  if (merges) work_ += expressions_->MergeClasses(rests_, &merged);
  const uint32_t row = NewRow(&lexer_rows_);
  for (uint32_t byte_class = 0; byte_class < expressions_->num_classes; ++byte_class) {
    if (!first_bytes.Contains(expressions_->byte_of_class[byte_class])) {
      lexer_rows_[row + byte_class] = kDeadLexer;
    } else if (merges && merged.of[byte_class] != byte_class) {
      lexer_rows_[row + byte_class] = kSameAs | merged.of[byte_class];
    }
  }
  lexers_[lexer].row = row;
}

// The class that leads from `lexer` to where `byte_class` does and for which the row holds it.
uint32_t Machine::MergedClass(uint32_t lexer, uint32_t byte_class) {
  if (lexers_[lexer].row == kUnknown) {
    if (lexer_rows_.size() * sizeof(uint32_t) > kRowBytesMax) {
      lexer_rows_.clear();
      for (LexerState& other : lexers_) other.row = kUnknown;
    }
    NewLexerRow(lexer);
  }
  const uint32_t known = lexer_rows_[lexers_[lexer].row + byte_class];
  return known != kUnknown && (known & kSameAs) != 0 ? known & ~kSameAs : byte_class;
}

uint32_t Machine::LexerStep(uint32_t lexer, uint32_t byte_class) {
  byte_class = MergedClass(lexer, byte_class);
  const uint32_t known = lexer_rows_[lexers_[lexer].row + byte_class];
  if (known != kUnknown) return known;
  const uint32_t next = ComputeLexer(lexer, byte_class);
  if (next != kUnknown) lexer_rows_[lexers_[lexer].row + byte_class] = next;
  return next;
}

uint32_t Machine::ComputeLexer(uint32_t lexer, uint32_t byte_class) {
  std::vector<LexerPair> pairs;
  const uint32_t first = lexers_[lexer].first_pair;
  for (uint32_t i = 0; i < lexers_[lexer].num_pairs; ++i) {
    const LexerPair pair = pairs_[first + i];
    const Id rest = expressions_->Derive(pair.rest, byte_class);
    if (rest == kNothingId) continue;
    const Liveness liveness = FindLiveness(expressions_.get(), rest, limits_.emptiness_work_max);
    if (liveness == Liveness::kStopped) return kUnknown;
    if (liveness == Liveness::kLive) pairs.push_back({pair.terminal, rest});
  }
  // An expression past a limit matches nothing here; others are not concerned.
  ForgetLimit();
  return InternLexer(pairs);
}

// Collects the rests of the terminals under way in rests_.
void Machine::CollectRests(uint32_t state) {
  rests_.clear();
  const uint32_t first_lane = states_[state].first_lane;
  for (uint32_t i = 0; i < states_[state].num_lanes; ++i) {
    const LexerState& lexer = lexers_[lanes_[first_lane + i].lexer];
    for (uint32_t pair = 0; pair < lexer.num_pairs; ++pair) {
      rests_.push_back(pairs_[lexer.first_pair + pair].rest);
    }
  }
}

ByteSet Machine::StringBytesAt(uint32_t state) {
  CollectRests(state);
  ByteSet bytes;
  for (const Id rest : rests_) bytes = UnionOf(bytes, expressions_->FirstBytes(rest));
  return IntersectionOf(bytes, expressions_->FirstBytes(string_character_));
}

std::optional<StringLengths> Machine::StringsAt(uint32_t state) {
  const ByteSet begun = StringBytesAt(state);
  const ByteSet of_strings = expressions_->FirstBytes(string_character_);
  // No need to search where some character begins nothing: the walk finds soon how few may come.
  if (begun.empty()) return StringLengths{0, 0};
  if (begun != of_strings || rests_.size() > kStringTerminalsMax) return StringLengths();
  // Rests that any character may begin come first: most often one of them takes all strings.
  std::stable_partition(rests_.begin(), rests_.end(), [&](Id rest) {
    return IntersectionOf(expressions_->FirstBytes(rest), of_strings) == of_strings;
  });
  StringLengths lengths{0, 0};
  for (const Id rest : rests_) {
    const StringLengths of_one = strings_.Find(rest);
    if (strings_.TakeStopped()) return std::nullopt;
    lengths.all = std::max(lengths.all, of_one.all);
    lengths.some = std::max(lengths.some, of_one.some);
    if (lengths.all == kAnyLength) break;
  }
  ForgetLimit();  // as in ComputeLexer
  return lengths;
}

std::optional<StringRun> Machine::StringRunAt(uint32_t state) {
  if (states_[state].num_lanes != 1) return std::nullopt;
  const LexerState& lexer = lexers_[lanes_[states_[state].first_lane].lexer];
  if (lexer.num_pairs != 1) return std::nullopt;
  const std::optional<StringRun> run = strings_.FindRun(pairs_[lexer.first_pair].rest);
  ForgetLimit();
  if (strings_.TakeStopped()) return std::nullopt;
  return run;
}

void Machine::ForgetLimit() {
  is_past_limit_ = is_past_limit_ || !expressions_->status.ok();
  expressions_->status = Status();
}

std::optional<std::string> Machine::SpellRestAt(uint32_t state, size_t nodes_max) const {
  if (states_[state].num_lanes != 1) return std::nullopt;
  const LexerState& lexer = lexers_[lanes_[states_[state].first_lane].lexer];
  if (lexer.num_pairs != 1) return std::nullopt;
  return expressions_->Spell(pairs_[lexer.first_pair].rest, nodes_max);
}

FreeRun Machine::FindFreeRun(uint32_t state) {
  LexerState& lexer = lexers_[lanes_[states_[state].first_lane].lexer];
  lexer.knows_run = true;
  if (lexer.num_pairs == 1) lexer.run = strings_.FindFreeRun(pairs_[lexer.first_pair].rest);
  ForgetLimit();
  return lexer.run;
}

const std::vector<uint32_t>* Machine::FindMask(uint64_t owner, uint32_t state) const {
  const auto found = masks_.find({owner, state});
  return found == masks_.end() ? nullptr : &found->second;
}

void Machine::KeepMask(uint64_t owner, uint32_t state, std::span<const uint32_t> mask) {
  const size_t bytes = mask.size_bytes() + kMaskOverheadBytes;
  if (bytes > limits_.mask_cache_bytes_max) return;
  if (mask_bytes_ + bytes > limits_.mask_cache_bytes_max) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  masks_.emplace(MaskKey{owner, state}, std::vector<uint32_t>(mask.begin(), mask.end()));
  mask_bytes_ += bytes;
}

}  // namespace minisgl::grammar
