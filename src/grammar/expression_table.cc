// Interning of expressions, and the simplification that their constructors do.
#include "grammar/expression_table.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace minisgl::grammar {

const uint32_t* KeyMap::Find(uint64_t key) const {
  if (slots_.empty()) return nullptr;
  const size_t mask = slots_.size() - 1;
  for (size_t i = MixHash(0, key) & mask;; i = (i + 1) & mask) {
    if (slots_[i].key == key) return &slots_[i].value;
    if (slots_[i].key == kNoKey) return nullptr;
  }
}

void KeyMap::Insert(uint64_t key, uint32_t value) {
  if ((size_ + 1) * 3 > slots_.size() * 2) Grow();
  const size_t mask = slots_.size() - 1;
  size_t i = MixHash(0, key) & mask;
  while (slots_[i].key != kNoKey) i = (i + 1) & mask;
  slots_[i] = {key, value};
  ++size_;
}

void KeyMap::Clear() {
  slots_.clear();
  slots_.shrink_to_fit();
  size_ = 0;
}

void KeyMap::Grow() {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(old.empty() ? 64 : old.size() * 2, Slot{});
  size_ = 0;
  for (const Slot& slot : old) {
    if (slot.key != kNoKey) Insert(slot.key, slot.value);
  }
}

namespace {

uint64_t HashNode(NodeKind kind, std::span<const uint32_t> operands) {
  uint64_t hash = MixHash(static_cast<uint64_t>(kind) + 1, operands.size());
  for (const uint32_t operand : operands) hash = MixHash(hash, operand);
  return MixHash(hash, 0);
}

uint64_t HashBytes(const ByteSet& bytes) {
  uint64_t hash = 1;
  for (const uint64_t word : bytes.words) hash = MixHash(hash, word);
  return MixHash(hash, 0);
}

uint16_t Saturated(uint64_t distance) {
  return static_cast<uint16_t>(std::min<uint64_t>(distance, kFarthest));
}

void SortUnique(std::vector<Id>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

}  // namespace

void FindDistances(ByteAutomaton* of) {
  ByteAutomaton& automaton = *of;
  const size_t num_states = automaton.accepting.size();
  // The states before each one: before[first[state], first[state + 1]).
  std::vector<uint32_t> first(num_states + 2, 0);
  for (const uint32_t next : automaton.next) {
    if (next != ByteAutomaton::kNoState) ++first[next + 2];
  }
  for (size_t state = 2; state < first.size(); ++state) first[state] += first[state - 1];
  std::vector<uint32_t> before(first.back());
  for (size_t i = 0; i < automaton.next.size(); ++i) {
    const uint32_t next = automaton.next[i];
    if (next == ByteAutomaton::kNoState) continue;
    before[first[next + 1]++] = static_cast<uint32_t>(i / automaton.num_classes);
  }
  std::vector<uint16_t>& distances = automaton.distances;
  distances.assign(num_states, kFarthest);
  std::vector<uint32_t> found;
  for (uint32_t state = 0; state < num_states; ++state) {
    if (!automaton.accepting[state]) continue;
    distances[state] = 0;
    found.push_back(state);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const int distance = std::min(distances[found[i]] + 1, kFarthest - 1);
    for (uint32_t edge = first[found[i]]; edge < first[found[i] + 1]; ++edge) {
      const uint32_t state = before[edge];
      if (distances[state] != kFarthest) continue;
      distances[state] = static_cast<uint16_t>(distance);
      found.push_back(state);
    }
  }
}

ExpressionTable::ExpressionTable(const ExpressionLimits& limits_in) {
  // These are there whatever the limits are.
  Make(NodeKind::kNothing, {});
  Make(NodeKind::kEmpty, {});
  Make(NodeKind::kNot, std::array{kNothingId});
  nodes[kAnythingId].has_boolean = false;
  limits = limits_in;
  work = 0;
}

void ExpressionTable::Fail(const char* what, size_t limit) {
  if (status.ok()) {
    status = BadInput("the expressions are too complex: more than {} {}", limit, what);
  }
}

void ExpressionTable::FailWork() {
  if (status.ok() && limits.out_of_work != nullptr) *limits.out_of_work = true;
  Fail("units of work", static_cast<size_t>(limits.work_max));
}

uint64_t ExpressionTable::HashOf(Id id) const {
  return HashNode(nodes[id].kind, Operands(nodes[id]));
}

ExpressionTable::Node ExpressionTable::Describe(Kind kind,
                                                std::span<const uint32_t> node_operands) const {
  Node node;
  node.kind = kind;
  if (kind == Kind::kNothing || kind == Kind::kEmpty || kind == Kind::kBytes) {
    node.nullable = kind == Kind::kEmpty;
    node.finite = true;
    node.distance = kind == Kind::kBytes ? 1 : kind == Kind::kNothing ? kFarthest : 0;
    return node;
  }
  if (kind == Kind::kAutomaton) {
    node.nullable = automata[node_operands[0]]->accepting[node_operands[1]];
    node.has_boolean = true;
    node.distance = automata[node_operands[0]]->distances[node_operands[1]];
    return node;
  }
  const size_t num_expressions = NumExpressions(kind, node_operands.size());
  bool all_nullable = true;
  bool any_nullable = false;
  bool all_finite = true;
  bool any_finite = false;
  int depth = 0;
  uint64_t sum = 0;
  uint16_t nearest = kFarthest;
  for (size_t i = 0; i < num_expressions; ++i) {
    const Node& operand = nodes[node_operands[i]];
    sum += operand.distance;
    nearest = std::min(nearest, operand.distance);
    all_nullable = all_nullable && operand.nullable;
    any_nullable = any_nullable || operand.nullable;
    all_finite = all_finite && operand.finite;
    any_finite = any_finite || operand.finite;
    node.has_boolean = node.has_boolean || operand.has_boolean;
    // A chain of Concats is as deep as its deepest head.
    const int below = kind == Kind::kConcat && i == 1 ? operand.depth : operand.depth + 1;
    depth = std::max(depth, below);
  }
  node.depth = static_cast<uint16_t>(std::min(depth, 65535));
  node.has_boolean = node.has_boolean || kind == Kind::kAnd || kind == Kind::kNot;
  node.finite = kind == Kind::kAnd ? any_finite : all_finite && kind != Kind::kNot;
  switch (kind) {
    case Kind::kOr:
      node.nullable = any_nullable;
      node.distance = nearest;
      break;
    case Kind::kAnd:
      node.nullable = all_nullable;
      node.distance = Saturated(sum);
      break;
    case Kind::kNot:
      node.nullable = !any_nullable;
      node.distance = any_nullable ? 1 : 0;
      break;
    case Kind::kRepeat:
      node.nullable = node_operands[1] == 0 || any_nullable;
      node.finite = all_finite && node_operands[2] != kUnbounded;
      node.distance = Saturated(sum * node_operands[1]);
      break;
    default:  // kConcat
      node.nullable = all_nullable;
      node.distance = Saturated(sum);
  }
  return node;
}

Id ExpressionTable::Make(Kind kind, std::span<const uint32_t> node_operands) {
  const uint64_t hash = HashNode(kind, node_operands);
  const uint32_t found = node_table.Find(hash, [&](uint32_t id) {
    return nodes[id].kind == kind && std::ranges::equal(Operands(nodes[id]), node_operands);
  });
  if (found != UINT32_MAX) return found;
  CountWork(1);
  if (!status.ok()) return kNothingId;
  Node node = Describe(kind, node_operands);
  if (nodes.size() >= limits.nodes_max) Fail("expressions", limits.nodes_max);
  if (operands.size() + node_operands.size() > limits.operands_max) {
    Fail("operands", limits.operands_max);
  }
  if (node_operands.size() > limits.width_max) Fail("alternatives in one", limits.width_max);
  if (node.depth > limits.depth_max) {
    Fail("levels of nesting", static_cast<size_t>(limits.depth_max));
  }
  if (!status.ok()) return kNothingId;
  node.first = static_cast<uint32_t>(operands.size());
  node.count = static_cast<uint32_t>(node_operands.size());
  operands.insert(operands.end(), node_operands.begin(), node_operands.end());
  const auto id = static_cast<Id>(nodes.size());
  nodes.push_back(node);
  node_table.Insert(hash, id, [&](uint32_t other) { return HashOf(other); });
  return id;
}

void ExpressionTable::Refine(const ByteSet& bytes) {
  std::array<int, 256> inside{};
  std::array<int, 256> members{};
  for (int byte = 0; byte < 256; ++byte) {
    const uint8_t old = class_of[static_cast<size_t>(byte)];
    ++members[old];
    inside[old] += bytes.Contains(static_cast<uint8_t>(byte)) ? 1 : 0;
  }
  std::array<int, 256> split_to{};
  for (uint32_t old = 0, end = num_classes; old < end; ++old) {
    split_to[old] = -1;
    if (inside[old] > 0 && inside[old] < members[old]) {
      split_to[old] = static_cast<int>(num_classes++);
    }
  }
  for (int byte = 255; byte >= 0; --byte) {
    uint8_t& byte_class = class_of[static_cast<size_t>(byte)];
    if (bytes.Contains(static_cast<uint8_t>(byte)) && split_to[byte_class] >= 0) {
      byte_class = static_cast<uint8_t>(split_to[byte_class]);
    }
    byte_of_class[byte_class] = static_cast<uint8_t>(byte);
  }
}

Id ExpressionTable::MakeBytes(const ByteSet& bytes) {
  if (bytes.empty()) return kNothingId;
  const uint64_t hash = HashBytes(bytes);
  uint32_t index =
      byte_set_table.Find(hash, [&](uint32_t other) { return byte_sets[other] == bytes; });
  if (index == UINT32_MAX) {
    index = static_cast<uint32_t>(byte_sets.size());
    byte_sets.push_back(bytes);
    byte_set_table.Insert(hash, index, [&](uint32_t other) { return HashBytes(byte_sets[other]); });
    Refine(bytes);
  }
  return Make(Kind::kBytes, std::array{index});
}

Id ExpressionTable::Concat(Id head, Id tail) {
  if (head == kNothingId || tail == kNothingId) return kNothingId;
  if (head == kEmptyId) return tail;
  if (tail == kEmptyId) return head;
  if (Is(head, Kind::kConcat)) {
    std::vector<Id> heads;
    for (; Is(head, Kind::kConcat); head = operands[nodes[head].first + 1]) {
      heads.push_back(operands[nodes[head].first]);
    }
    Id result = Concat(head, tail);
    for (size_t i = heads.size(); i-- > 0;) result = Concat(heads[i], result);
    return result;
  }
  if (head == kAnythingId && nodes[tail].nullable) return kAnythingId;
  // r{a,b} r{c,d} = r{a+c,b+d}
  RepeatHead next{};
  if (Is(head, Kind::kRepeat) && SplitRepeat(tail, &next) &&
      next.operand == operands[nodes[head].first]) {
    const uint64_t min = uint64_t{operands[nodes[head].first + 1]} + next.min;
    const uint32_t max = operands[nodes[head].first + 2];
    const uint64_t sum =
        max == kUnbounded || next.max == kUnbounded ? kUnbounded : uint64_t{max} + next.max;
    if (min < kUnbounded && (sum < kUnbounded || max == kUnbounded || next.max == kUnbounded)) {
      return Concat(Repeat(next.operand, static_cast<uint32_t>(min), static_cast<uint32_t>(sum)),
                    next.tail);
    }
  }
  return Make(Kind::kConcat, std::array{head, tail});
}

bool ExpressionTable::SplitRepeat(Id id, RepeatHead* head) const {
  head->tail = kEmptyId;
  if (Is(id, Kind::kConcat)) {
    head->tail = operands[nodes[id].first + 1];
    id = operands[nodes[id].first];
  }
  if (!Is(id, Kind::kRepeat)) return false;
  const std::span<const uint32_t> parts = Operands(nodes[id]);
  head->operand = parts[0];
  head->min = parts[1];
  head->max = parts[2];
  return true;
}

// r{a,b} t | r{c,d} t = r{min(a,c),max(b,d)} t if the ranges touch. Keeps states of counted
// repetitions from growing by one alternative a byte.
void ExpressionTable::MergeRepeats(std::vector<Id>* alternatives) {
  std::vector<RepeatHead> heads;
  size_t kept = 0;
  for (const Id id : *alternatives) {
    RepeatHead head{};
    if (SplitRepeat(id, &head)) {
      heads.push_back(head);
    } else {
      (*alternatives)[kept++] = id;
    }
  }
  std::sort(heads.begin(), heads.end(), [](const RepeatHead& a, const RepeatHead& b) {
    return std::tie(a.operand, a.tail, a.min, a.max) < std::tie(b.operand, b.tail, b.min, b.max);
  });
  alternatives->resize(kept);
  for (size_t i = 0; i < heads.size();) {
    RepeatHead merged = heads[i++];
    while (i < heads.size() && heads[i].operand == merged.operand && heads[i].tail == merged.tail &&
           (merged.max == kUnbounded || heads[i].min <= merged.max + 1)) {
      merged.max = std::max(merged.max, heads[i++].max);
    }
    alternatives->push_back(Concat(Repeat(merged.operand, merged.min, merged.max), merged.tail));
  }
  SortUnique(alternatives);
}

Id ExpressionTable::Or(std::vector<Id>* alternatives) {
  std::vector<Id> flat;
  ByteSet bytes;
  int num_repeats = 0;
  const auto add = [&](Id id) {
    if (id == kNothingId) return;
    if (Is(id, Kind::kBytes)) {
      bytes = UnionOf(bytes, BytesOf(nodes[id]));
      return;
    }
    RepeatHead head{};
    num_repeats += SplitRepeat(id, &head) ? 1 : 0;
    flat.push_back(id);
  };
  for (const Id id : *alternatives) {
    if (id == kAnythingId) return kAnythingId;
    if (Is(id, Kind::kOr)) {
      for (const Id inner : Operands(nodes[id])) add(inner);
    } else {
      add(id);
    }
  }
  if (!bytes.empty()) flat.push_back(MakeBytes(bytes));
  SortUnique(&flat);
  if (num_repeats > 1) MergeRepeats(&flat);
  if (flat.size() > 1 && flat.front() == kEmptyId &&
      std::any_of(flat.begin() + 1, flat.end(), [&](Id id) { return nodes[id].nullable; })) {
    flat.erase(flat.begin());
  }
  for (const Id id : flat) {
    if (Is(id, Kind::kNot) &&
        std::binary_search(flat.begin(), flat.end(), operands[nodes[id].first])) {
      return kAnythingId;
    }
  }
  if (flat.empty()) return kNothingId;
  if (flat.size() == 1) return flat[0];
  if (flat.size() == 2 && flat[0] == kEmptyId) return Repeat(flat[1], 0, 1);
  return Make(Kind::kOr, flat);
}

Id ExpressionTable::And(std::vector<Id>* conditions) {
  std::vector<Id> flat;
  std::optional<ByteSet> bytes;
  const auto add = [&](Id id) {
    if (Is(id, Kind::kBytes)) {
      const ByteSet& own = BytesOf(nodes[id]);
      bytes = bytes.has_value() ? IntersectionOf(*bytes, own) : own;
    } else if (id != kAnythingId) {
      flat.push_back(id);
    }
  };
  for (const Id id : *conditions) {
    if (id == kNothingId) return kNothingId;
    if (Is(id, Kind::kAnd)) {
      for (const Id inner : Operands(nodes[id])) add(inner);
    } else {
      add(id);
    }
  }
  if (bytes.has_value()) {
    if (bytes->empty()) return kNothingId;
    flat.push_back(MakeBytes(*bytes));
  }
  SortUnique(&flat);
  if (!flat.empty() && flat.front() == kEmptyId) {
    const bool all =
        std::all_of(flat.begin(), flat.end(), [&](Id id) { return nodes[id].nullable; });
    return all ? kEmptyId : kNothingId;
  }
  for (const Id id : flat) {
    if (Is(id, Kind::kNot) &&
        std::binary_search(flat.begin(), flat.end(), operands[nodes[id].first])) {
      return kNothingId;
    }
  }
  if (flat.empty()) return kAnythingId;
  if (flat.size() == 1) return flat[0];
  return Make(Kind::kAnd, flat);
}

Id ExpressionTable::Not(Id operand) {
  if (Is(operand, Kind::kNot)) return operands[nodes[operand].first];
  return Make(Kind::kNot, std::array{operand});
}

Id ExpressionTable::Automaton(std::shared_ptr<const ByteAutomaton> automaton) {
  std::vector<ByteSet> sets(automaton->num_classes);
  for (size_t byte = 0; byte < 256; ++byte)
    sets[automaton->class_of_byte[byte]].Add(static_cast<uint8_t>(byte));
  for (const ByteSet& set : sets) MakeBytes(set);  // bytes of two classes are told apart
  if (automaton->distances.empty()) {
    auto copy = std::make_shared<ByteAutomaton>(*automaton);
    FindDistances(copy.get());
    automaton = std::move(copy);
  }
  if (automaton->distances[0] == kFarthest) return kNothingId;
  automata.push_back(std::move(automaton));
  automaton_bytes.push_back(std::move(sets));
  return Make(Kind::kAutomaton, std::array{static_cast<uint32_t>(automata.size() - 1), 0U});
}

Id ExpressionTable::Repeat(Id operand, uint32_t min, uint32_t max) {
  if (max == 0 || operand == kEmptyId) return kEmptyId;
  if (operand == kNothingId) return min == 0 ? kEmptyId : kNothingId;
  if (operand == kAnythingId) return kAnythingId;
  if (nodes[operand].nullable) min = 0;
  if (max == 1) {
    if (min == 1 || nodes[operand].nullable) return operand;
  }
  if (Is(operand, Kind::kRepeat)) {
    // (r{a,b}){min,max} = r{min*a,max*b} if the ranges of neighbouring counts touch.
    const std::span<const uint32_t> inner = Operands(nodes[operand]);
    const uint64_t a = inner[1];
    const uint64_t b = inner[2];
    const bool touches = min == max || b == kUnbounded || min * b + 1 >= (uint64_t{min} + 1) * a;
    // An unbounded r{a,} repeated from 0 has a gap between no and `a` copies.
    const bool gap = b == kUnbounded && min == 0 && a > 1;
    const uint64_t product = b == kUnbounded || max == kUnbounded ? kUnbounded : b * max;
    const bool fits = product < kUnbounded || b == kUnbounded || max == kUnbounded;
    if (touches && !gap && fits && min * a < kUnbounded) {
      const Id base = inner[0];
      return Repeat(base, static_cast<uint32_t>(min * a), static_cast<uint32_t>(product));
    }
  }
  if (min == 0 && max == kUnbounded && Is(operand, Kind::kBytes) &&
      BytesOf(nodes[operand]) == ByteSet::All()) {
    return kAnythingId;
  }
  return Make(Kind::kRepeat, std::array{operand, min, max});
}

}  // namespace minisgl::grammar
