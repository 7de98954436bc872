// The automaton of a grammar, built as far as it is used.
//
// It is an Earley recogniser whose sets of items stand for themselves rather than for a position in
// a text: equal sets are one node, so results computed at one place hold at every equal one.
//
//   item   a dot, and where to go on when its rule is finished: (rule, node), all items of that
//          node which wait for that rule
//   node   the items reached by terminals and completions, interned
//   core   the dots of a node, interned: predicted items, which terminals may come, who waits for
//          which rule. Independent of where the items return to
//   lexer state   the terminals that may be under way, each with the expression of its rest
//   state  lanes of (node, lexer state), and whether the text may end: everything that the future
//          depends on. State 0 accepts nothing
//
// A return is to a node with only the items that wait for the rule: other items under way there do
// not make two returns different.
//
// An item that would return to a finished item returns to that item's target instead (Leo's trick,
// done when the item is predicted): lists by right recursion are as flat as lists by left
// recursion.
//
// Tables of transitions are caches: dropped when they grow too large. The other tables are rebuilt
// from the states of live matchers then. Results depend on neither.
//
// Not thread-safe; its users hold `mutex`. Long work releases it now and then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "grammar/expression_table.h"
#include "grammar/rules.h"
#include "grammar/string_characters.h"
#include "minisgl/base/ids.h"

namespace minisgl::grammar {

class TokenTrie;

// A mutex that long work can take when no one else wants it.
class MachineMutex {
 public:
  void lock() {
    ++num_waiting_;
    mutex_.lock();
    --num_waiting_;
  }
  void unlock() { mutex_.unlock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void LockAfterOthers() {
    while (num_waiting_ > 0) std::this_thread::yield();
    mutex_.lock();
  }

 private:
  std::mutex mutex_;
  std::atomic<int> num_waiting_ = 0;
};

inline constexpr std::string_view kBlanks = " \t\n\r";

class Machine {
 public:
  static constexpr uint32_t kDeadState = 0;
  static constexpr uint32_t kUnknown = UINT32_MAX;

  Machine(std::unique_ptr<ExpressionTable> expressions, std::vector<Id> terminals, Rules rules,
          const GrammarLimits& limits);
  ~Machine();

  MachineMutex mutex;

  uint32_t start_state() const { return start_state_; }
  bool IsAccepting(uint32_t state) const { return states_[state].accepting; }
  // The state after `byte`; kDeadState if no text goes on with it; kUnknown if SetWorkMax stopped
  // the work on it.
  uint32_t Step(uint32_t state, uint8_t byte) {
    const uint32_t byte_class = expressions_->class_of[byte];
    const State& from = states_[state];
    if (from.row != kUnknown) {
      const uint32_t next = state_rows_[from.row + byte_class];
      if (next != kUnknown) return next;
    } else if (from.only_class == byte_class) {
      return from.only_next;
    }
    return ComputeStep(state, byte_class);
  }
  // Steps over a prefix of `bytes`; returns its length. Appends each state to `history` if given.
  size_t Walk(uint32_t* state, std::string_view bytes, std::vector<uint32_t>* history);
  // The bytes that may follow, or the first `count_max` of them.
  ByteSet NextBytes(uint32_t state, int count_max = 256);

  // True if only the limit of items is why no byte may follow. REQUIRES that NextBytes or a mask
  // found none that may.
  bool IsAtLimit(uint32_t state) const { return states_[state].at_limit; }

  // States that must stay valid: `Trim` changes their ids. REQUIRES mutex, as all.
  void AddRoot(std::vector<uint32_t>* states) { roots_.emplace(states, true); }
  void RemoveRoot(std::vector<uint32_t>* states) { roots_.erase(states); }
  // Rebuilds the tables if they are too large. Every id that is not in a root becomes invalid.
  void Trim();
  // Forgets all masks and rebuilds the tables.
  void DropCaches();
  // After work: lets GrammarLimits::memory make room. Ids stay valid.
  void ReportMemory() {
    if (limits_.memory != nullptr) limits_.memory->Report(this, memory_bytes());
  }

  // The lengths of texts of StringCharacter()s that may follow here; nullopt if SetWorkMax stopped
  // the search.
  std::optional<StringLengths> StringsAt(uint32_t state);

  // The run of StringCharacter()s that is under way alone.
  std::optional<StringRun> StringRunAt(uint32_t state);

  // The spelling (ExpressionTable::Spell) of the rest of the only terminal under way; nullopt if
  // there are several, or it has no spelling.
  std::optional<std::string> SpellRestAt(uint32_t state, size_t nodes_max) const;
  // True if an expression was ever past a limit: masks then hold for this grammar alone.
  bool IsPastLimit() const { return is_past_limit_; }
  // True if the terminal of the state's only lane may end with `byte`.
  bool MayEndWith(uint32_t state, uint8_t byte) {
    const uint32_t lexer = lanes_[states_[state].first_lane].lexer;
    const uint32_t after = LexerStep(lexer, expressions_->class_of[byte]);
    return after == kUnknown || lexers_[after].any_accepted;
  }
  // Bytes that a character of a string begins with and that terminals under way go on with: an
  // upper bound.
  ByteSet StringBytesAt(uint32_t state);

  // A run of bytes that some terminal under way takes without an end or a choice: a lower bound.
  FreeRun FreeRunAt(uint32_t state) {
    if (states_[state].num_lanes == 0) return {};
    const LexerState& lexer = lexers_[lanes_[states_[state].first_lane].lexer];
    return lexer.knows_run ? lexer.run : FindFreeRun(state);
  }

  // Computes the transitions that the first masks are likely to need, with about `work_max` of
  // work.
  void Prepare(uint64_t work_max);

  // Finds the tokens of `blanks`, which consist of kBlanks alone, that may follow. kUndecided: the
  // states behind them decide. kStopped: SetWorkMax stopped the search.
  enum class Blanks : uint8_t { kFound, kUndecided, kStopped };
  Blanks FindBlanks(uint32_t state, const TokenTrie& blanks, std::vector<TokenId>* allowed);

  // A state that goes on with the same texts of up to `bytes_max` bytes, one for many: repetitions
  // left are counted only as far as such a text can get.
  uint32_t ShortenCounts(uint32_t state, size_t bytes_max);

  // The mask kept for a state; null if there is none. `owner` tells vocabularies apart.
  const std::vector<uint32_t>* FindMask(uint64_t owner, uint32_t state) const;
  void KeepMask(uint64_t owner, uint32_t state, std::span<const uint32_t> mask);

  // The work done so far: derivatives and items computed. Look-ups count nothing.
  uint64_t work() const { return work_ + expressions_->work; }
  // Makes Step and StringsAt stop after about so much more work; called again, they go on.
  void SetWorkMax(uint64_t work_max) { expressions_->work_stop = expressions_->work + work_max; }
  void SetNoWorkMax() { expressions_->work_stop = UINT64_MAX; }
  // Makes stopped searches begin anew.
  void ForgetStopped() { expressions_->stopped_searches.clear(); }
  size_t memory_bytes() const;
  size_t num_states() const { return states_.size(); }
  size_t num_nodes() const { return nodes_.size(); }

 private:
  static constexpr uint32_t kRootNode = UINT32_MAX;
  static constexpr uint32_t kSelf = UINT32_MAX;
  static constexpr uint32_t kDeadLexer = 0;  // no terminal is under way
  // An entry of a lexer's row with this bit names another class of bytes, whose entry holds here,
  // too.
  static constexpr uint32_t kSameAs = 1U << 31;
  static constexpr size_t kMaskOverheadBytes = 96;  // of a mask kept, about

  struct Return {
    uint32_t rule, node;
    bool operator==(const Return&) const = default;
  };
  struct Item {
    uint32_t dot;
    Return to;
    bool operator==(const Item&) const = default;
  };
  // Nodes that return to a node, and its states, are in short lists, so that deep texts find
  // neighbours in memory. Past kListMax they are in the tables.
  static constexpr uint32_t kListMax = 8;
  struct Node {
    uint32_t first_item, num_items;
    uint32_t core = 0;
    uint32_t first_child = kUnknown, next_child = kUnknown;
    uint32_t first_state = kUnknown;
    uint8_t num_children = 0, num_states = 0;
  };
  // An item that has passed one symbol. It returns to where items of the kernel's dot `source` do,
  // or, if that is kSelf, to (rule, this node).
  struct Move {
    uint32_t dot;
    uint32_t source;
    uint32_t rule;
  };
  struct MoveRange {
    uint32_t symbol;  // terminal or rule
    uint32_t first, count;
  };
  struct Core {
    std::vector<uint32_t> dots;  // of the kernel, ascending
    std::vector<Move> moves;
    std::vector<MoveRange> terminals, waits;  // ascending by symbol
    // For each of `waits`: the indices of the dots on which completing that rule here depends; an
    // empty vector stands for all dots. Empty until computed.
    std::vector<std::vector<uint32_t>> needs;
    uint32_t lexer_start = 0;
  };
  struct LexerPair {
    uint32_t terminal;
    Id rest;
    bool operator==(const LexerPair&) const = default;
  };
  struct LexerState {
    uint32_t first_pair, num_pairs;
    uint32_t row = kUnknown;
    bool goes_on = false;       // some rest is more than the empty text
    bool any_accepted = false;  // some rest may be the empty text
    bool knows_run = false;
    FreeRun run;  // of one of its rests
  };
  struct Lane {
    uint32_t node, lexer;
    bool operator==(const Lane&) const = default;
  };
  struct State {
    uint32_t first_lane, num_lanes;
    uint32_t next_of_node = kUnknown;
    // Transitions: a row of the table, or the first one computed alone.
    uint32_t row = kUnknown;
    uint32_t only_next = kUnknown;
    uint16_t only_class = UINT16_MAX;
    bool accepting = false;
    bool at_limit = false;  // after some byte there would be more items than a state may have
  };
  struct FinishedTerminal {
    uint32_t node, terminal;
  };
  // The result of the end of a terminal.
  struct Finish {
    uint32_t node = kRootNode;  // kRootNode: no item
    bool accepting = false;
    bool is_too_large = false;  // more items than a state may have
  };
  class CoreBuilder;
  class Copier;
  class Preparer;
  struct MaskKey {
    uint64_t owner;
    uint32_t state;
    bool operator==(const MaskKey&) const = default;
  };
  struct MaskKeyHash {
    size_t operator()(const MaskKey& key) const { return MixHash(key.owner, key.state); }
  };

  void MakeStart();
  void Rebuild();
  uint32_t ShortenLexer(uint32_t lexer, uint32_t repetitions_max);
  bool BeginsWithBlank(uint32_t lexer);
  bool BlankMayFollow(uint32_t node, uint32_t lexer);
  uint32_t ComputeStep(uint32_t state, uint32_t byte_class);
  uint32_t ComputeState(uint32_t state, uint32_t byte_class);
  void NewLexerRow(uint32_t lexer);
  uint32_t MergedClass(uint32_t lexer, uint32_t byte_class);
  uint32_t LexerStep(uint32_t lexer, uint32_t byte_class);
  uint32_t ComputeLexer(uint32_t lexer, uint32_t byte_class);
  Finish FinishTerminals();
  void AddMoves(uint32_t node, const std::vector<MoveRange>& ranges, uint32_t symbol);
  void AddItem(uint32_t dot, Return to);
  uint32_t NodeFor(uint32_t rule, uint32_t node);
  bool CompleteAll();
  uint32_t InternState(std::vector<Lane>* lanes, bool accepting);
  uint32_t InternNode(std::vector<Item>* items);
  static uint64_t HashItems(std::span<const Item> items);
  static uint64_t HashLanes(std::span<const Lane> lanes, bool accepting);
  uint32_t FindNode(uint32_t parent, const std::vector<Item>& items) const;
  uint32_t FindState(uint32_t node, const std::vector<Lane>& lanes, bool accepting) const;
  void KeepTransition(uint32_t state, uint32_t byte_class, uint32_t next);
  uint32_t InternCore(const std::vector<uint32_t>& dots);
  uint32_t InternLexer(const std::vector<LexerPair>& pairs);
  uint64_t HashOfLexer(uint32_t lexer) const;
  void CollectRests(uint32_t state);
  // An expression past a limit matches nothing at one place; others are not concerned.
  void ForgetLimit();
  FreeRun FindFreeRun(uint32_t state);
  uint32_t NewRow(std::vector<uint32_t>* rows);

  std::unique_ptr<ExpressionTable> expressions_;
  std::vector<Id> terminals_;
  Rules rules_;
  GrammarLimits limits_;
  Id string_character_;
  uint32_t start_state_ = 0;

  std::vector<Item> items_;
  std::vector<Node> nodes_;
  IdTable node_table_;
  std::vector<Core> cores_;
  IdTable core_table_;
  size_t core_bytes_ = 0;
  KeyMap nodes_for_;  // by rule and node: NodeFor
  KeyMap shortened_;  // by number of repetitions and lexer state: ShortenLexer
  KeyMap finish_of_;  // by terminal and node: index in finishes_
  std::vector<Finish> finishes_;
  uint32_t last_core_ = kUnknown;
  std::vector<LexerPair> pairs_;
  std::vector<LexerState> lexers_;
  IdTable lexer_table_;
  std::vector<Lane> lanes_;
  std::vector<State> states_;
  IdTable state_table_;

  std::vector<uint32_t> state_rows_, lexer_rows_;
  StringLengthFinder strings_;
  bool is_past_limit_ = false;
  std::unordered_map<MaskKey, std::vector<uint32_t>, MaskKeyHash> masks_;
  size_t mask_bytes_ = 0;
  size_t trim_bytes_;
  size_t live_expressions_ = 0, live_operands_ = 0;  // after the last trim
  std::unordered_map<std::vector<uint32_t>*, bool> roots_;

  // Scratch of the step under way.
  std::vector<Item> new_items_;
  std::vector<Lane> new_lanes_;
  std::vector<uint32_t> new_dots_;
  std::vector<Id> rests_;
  std::vector<FinishedTerminal> finished_;
  std::vector<Return> completed_;
  KeyMap completed_set_;
  size_t num_added_ = 0;
  uint64_t work_ = 0;
};

}  // namespace minisgl::grammar
