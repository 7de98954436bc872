// The nodes of an ExpressionSet.
//
// A node's operands have smaller ids than the node itself, because it is interned after them: one
// pass over ids in order visits operands first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/grammar/expression.h"

namespace minisgl::grammar {

using Id = uint32_t;

inline constexpr Id kNothingId = 0;
inline constexpr Id kEmptyId = 1;
inline constexpr Id kAnythingId = 2;

enum class NodeKind : uint8_t {
  kNothing,
  kEmpty,
  kBytes,      // operand: index of a byte set
  kConcat,     // operands: head (no Concat), tail
  kOr,         // operands: sorted ids
  kAnd,        // operands: sorted ids
  kNot,        // operand
  kRepeat,     // operands: operand, min, max
  kAutomaton,  // operands: index of an automaton, state
};

inline constexpr uint16_t kFarthest = UINT16_MAX;
static_assert(kFarthest == ByteAutomaton::kNoText);

// Fills `distances` in.
void FindDistances(ByteAutomaton* automaton);

struct ExpressionNode {
  NodeKind kind = NodeKind::kNothing;
  bool nullable = false;
  // An And, Not or automaton inside: may match nothing without being Nothing().
  bool has_boolean = false;
  // Matches finitely many texts; false if that does not follow from its form.
  bool finite = false;
  uint16_t depth = 0;
  // The estimate that guides searches: about the bytes of the shortest text, up to kFarthest. An
  // And has the sum over its conditions, so that a search goes on in all of them.
  uint16_t distance = 0;
  uint32_t first = 0;  // operands[first, first + count)
  uint32_t count = 0;
};

// Open addressing from a 64-bit key to a 32-bit value; the key ~0 is none. Values are never erased.
class KeyMap {
 public:
  static constexpr uint64_t kNoKey = ~0ULL;

  const uint32_t* Find(uint64_t key) const;
  void Insert(uint64_t key, uint32_t value);  // REQUIRES that `key` is absent
  void Clear();
  size_t size() const { return size_; }
  size_t memory_bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    uint64_t key = kNoKey;
    uint32_t value = 0;
  };
  void Grow();
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

inline ByteSet UnionOf(const ByteSet& a, const ByteSet& b) {
  ByteSet result = a;
  for (size_t i = 0; i < result.words.size(); ++i) result.words[i] |= b.words[i];
  return result;
}

inline ByteSet IntersectionOf(const ByteSet& a, const ByteSet& b) {
  ByteSet result = a;
  for (size_t i = 0; i < result.words.size(); ++i) result.words[i] &= b.words[i];
  return result;
}

inline uint64_t MixHash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29);
}

// A hash table of ids. The owner computes the hashes of the ids' values and compares values.
class IdTable {
 public:
  // The id for which `equals(id)` holds, among those inserted with `hash`; UINT32_MAX if none.
  template <typename Equals>
  uint32_t Find(uint64_t hash, const Equals& equals) const {
    if (slots_.empty()) return UINT32_MAX;
    const size_t mask = slots_.size() - 1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.id == UINT32_MAX) return UINT32_MAX;
      if (slot.tag == tag && equals(slot.id)) return slot.id;
    }
  }
  // `hash_of(id)` gives the hash again when the table grows.
  template <typename HashOf>
  void Insert(uint64_t hash, uint32_t id, const HashOf& hash_of) {
    if ((size_ + 1) * 3 > slots_.size() * 2) {
      std::vector<Slot> old = std::move(slots_);
      slots_.assign(old.empty() ? 64 : old.size() * 2, Slot{});
      for (const Slot& slot : old) {
        if (slot.id != UINT32_MAX) Place(hash_of(slot.id), slot.id);
      }
    }
    Place(hash, id);
    ++size_;
  }
  size_t memory_bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t id = UINT32_MAX;
  };
  void Place(uint64_t hash, uint32_t id) {
    const size_t mask = slots_.size() - 1;
    size_t i = hash & mask;
    while (slots_[i].id != UINT32_MAX) i = (i + 1) & mask;
    slots_[i] = {static_cast<uint32_t>(hash >> 32), id};
  }
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

class LivenessSearch;

// Merges classes of bytes: of[c] is the class that stands for c and all classes that need not be
// told apart from it.
struct MergedClasses {
  std::array<uint8_t, 256> of{};
};

struct ExpressionTable {
  using Node = ExpressionNode;
  using Kind = NodeKind;
  static constexpr uint32_t kUnbounded = ExpressionSet::kUnbounded;

  explicit ExpressionTable(const ExpressionLimits& limits_in);

  // Interns a node as it is. Nothing, and an error in `status`, past a limit.
  Id Make(Kind kind, std::span<const uint32_t> node_operands);
  Id MakeBytes(const ByteSet& bytes);
  Id Concat(Id head, Id tail);
  Id Or(std::vector<Id>* alternatives);
  Id And(std::vector<Id>* conditions);
  Id Not(Id operand);
  Id Repeat(Id operand, uint32_t min, uint32_t max);
  Id Automaton(std::shared_ptr<const ByteAutomaton> automaton);
  // By class of bytes; remembered.
  Id Derive(Id expression, uint32_t byte_class);

  // Upper bound on the bytes that texts of the expression begin with. Remembered.
  ByteSet FirstBytes(Id expression);
  // Merges classes of bytes by which each of `expressions` has the same derivative. The result is
  // not remembered and the work not counted in `work`, but returned, for callers that keep the
  // result.
  uint64_t MergeClasses(std::span<const Id> expressions, MergedClasses* merged);

  // The operands of `node` that are expressions; they stand first.
  static size_t NumExpressions(Kind kind, size_t num_operands) {
    if (kind == Kind::kBytes || kind == Kind::kAutomaton) return 0;
    return kind == Kind::kRepeat ? 1 : num_operands;
  }
  std::span<const uint32_t> Operands(const Node& node) const {
    return {operands.data() + node.first, node.count};
  }
  const ByteSet& BytesOf(const Node& node) const { return byte_sets[operands[node.first]]; }
  bool Is(Id id, Kind kind) const { return nodes[id].kind == kind; }
  // For an expression of the form r{min,max} or r{min,max} tail. False for any other.
  struct RepeatHead {
    Id operand, tail;
    uint32_t min, max;
  };
  bool SplitRepeat(Id id, RepeatHead* head) const;
  // Bytes that are the same for an expression of this form in any table, and for no other one.
  // Nothing if it has more than `nodes_max` parts, or has_boolean.
  std::optional<std::string> Spell(Id expression, size_t nodes_max) const;
  void MergeRepeats(std::vector<Id>* alternatives);
  void Fail(const char* what, size_t limit);
  void CountWork(uint64_t count) {
    work += count;
    if (work > limits.work_max) FailWork();
  }
  void FailWork();
  // From here on all work is allowed.
  void ForgetWorkLimit() {
    limits.work_max = UINT64_MAX;
    limits.out_of_work = nullptr;
  }
  size_t memory_bytes() const;
  // A copy with only what `roots` need; `roots` become their new ids. Byte classes stay.
  std::unique_ptr<ExpressionTable> CopyLive(std::span<Id> roots) const;

  ExpressionLimits limits;
  Status status;
  std::vector<Node> nodes;
  std::vector<uint32_t> operands;
  std::vector<ByteSet> byte_sets;
  std::vector<std::shared_ptr<const ByteAutomaton>> automata;
  std::vector<std::vector<ByteSet>> automaton_bytes;  // by automaton, and class of its bytes
  IdTable node_table;
  IdTable byte_set_table;

  // Bytes that no byte set tells apart have the same class.
  std::array<uint8_t, 256> class_of{};
  std::array<uint8_t, 256> byte_of_class{};  // one byte of each class
  uint32_t num_classes = 1;

  KeyMap derivatives;  // expression * 256 + class
  KeyMap first_bytes;  // by expression: index in first_byte_sets
  std::vector<ByteSet> first_byte_sets;
  // Scratch of MergeClasses: when it passed each expression last, and the expressions still to
  // pass.
  std::vector<uint32_t> merged_at;
  uint32_t merge_time = 0;
  std::vector<Id> merge_open;
  // The work on the table: derivatives computed so far, their operands, and expressions made.
  uint64_t work = 0;
  uint64_t work_stop = UINT64_MAX;  // where a search stops: see FindLiveness
  uint64_t num_searched = 0;        // looked at in all searches, as FindLiveness counts
  std::vector<std::shared_ptr<LivenessSearch>> stopped_searches;
  std::vector<uint8_t> liveness;  // by id: see expression_search.cc

 private:
  ByteSet FirstBytesOf(uint32_t automaton, uint32_t state) const;
  class ClassDivider;
  static constexpr uint64_t kMergedPerWork = 8;  // expressions passed that count as one unit

  uint64_t HashOf(Id id) const;
  void Refine(const ByteSet& bytes);
  Id ComputeDerivative(Id expression, uint32_t byte_class);
  void DeriveConcat(Id expression, uint32_t byte_class, std::vector<Id>* terms);
  void AppendDistributed(Id alternatives, Id tail, std::vector<Id>* terms);
  Node Describe(Kind kind, std::span<const uint32_t> node_operands) const;
};

}  // namespace minisgl::grammar
