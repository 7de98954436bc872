// Derivatives: what may follow one byte.
//
// A state is kept as a union of concatenations (an Or under a Concat is distributed), so that the
// distinct derivatives of an expression without And and Not are sets of its places.
#include <algorithm>

#include "grammar/expression_table.h"

namespace minisgl::grammar {

Id ExpressionTable::Derive(Id expression, uint32_t byte_class) {
  const Node& node = nodes[expression];
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNothingId;
    case Kind::kBytes:
      return BytesOf(node).Contains(byte_of_class[byte_class]) ? kEmptyId : kNothingId;
    case Kind::kAutomaton: {
      const uint32_t index = operands[node.first];
      const ByteAutomaton& automaton = *automata[index];
      const size_t state = operands[node.first + 1];
      const uint8_t own_class = automaton.class_of_byte[byte_of_class[byte_class]];
      const uint32_t next = automaton.next[state * automaton.num_classes + own_class];
      if (next == ByteAutomaton::kNoState) return kNothingId;
      if (automaton.distances[next] == kFarthest) return kNothingId;
      return Make(Kind::kAutomaton, std::array{index, next});
    }
    default:
      break;
  }
  if (node.kind == Kind::kConcat) {
    // A literal, most often: not worth remembering.
    const Node& head = nodes[operands[node.first]];
    if (head.kind == Kind::kBytes) {
      return BytesOf(head).Contains(byte_of_class[byte_class]) ? operands[node.first + 1]
                                                               : kNothingId;
    }
  }
  if (expression == kAnythingId) return kAnythingId;
  const uint64_t key = uint64_t{expression} << 8 | byte_class;
  if (const uint32_t* found = derivatives.Find(key)) return *found;
  const Id result = ComputeDerivative(expression, byte_class);
  if (status.ok()) derivatives.Insert(key, result);
  return result;
}

Id ExpressionTable::ComputeDerivative(Id expression, uint32_t byte_class) {
  const Kind kind = nodes[expression].kind;
  CountWork(1 + nodes[expression].count);
  std::vector<Id> terms;
  if (kind == Kind::kConcat) {
    DeriveConcat(expression, byte_class, &terms);
    return Or(&terms);
  }
  if (kind == Kind::kRepeat) {
    const std::span<const uint32_t> parts = Operands(nodes[expression]);
    const Id operand = parts[0];
    const uint32_t min = parts[1] == 0 ? 0 : parts[1] - 1;
    const uint32_t max = parts[2] == kUnbounded ? kUnbounded : parts[2] - 1;
    const Id derivative = Derive(operand, byte_class);
    if (derivative == kNothingId) return kNothingId;
    AppendDistributed(derivative, Repeat(operand, min, max), &terms);
    return Or(&terms);
  }
  // By index: deriving an operand may move the operands of all nodes.
  const uint32_t first = nodes[expression].first;
  const uint32_t count = nodes[expression].count;
  for (uint32_t i = 0; i < count; ++i) {
    const Id derivative = Derive(operands[first + i], byte_class);
    if (kind == Kind::kNot) return Not(derivative);
    if (kind == Kind::kAnd && derivative == kNothingId) return kNothingId;
    if (derivative != kNothingId) terms.push_back(derivative);
  }
  return kind == Kind::kOr ? Or(&terms) : And(&terms);
}

void ExpressionTable::DeriveConcat(Id expression, uint32_t byte_class, std::vector<Id>* terms) {
  Id rest = expression;
  while (Is(rest, Kind::kConcat)) {
    const Id head = operands[nodes[rest].first];
    const Id tail = operands[nodes[rest].first + 1];
    AppendDistributed(Derive(head, byte_class), tail, terms);
    if (!nodes[head].nullable) return;
    rest = tail;
  }
  terms->push_back(Derive(rest, byte_class));
}

void ExpressionTable::AppendDistributed(Id alternatives, Id tail, std::vector<Id>* terms) {
  if (!Is(alternatives, Kind::kOr)) {
    terms->push_back(Concat(alternatives, tail));
    return;
  }
  const uint32_t first = nodes[alternatives].first;
  const uint32_t count = nodes[alternatives].count;
  for (uint32_t i = 0; i < count; ++i) terms->push_back(Concat(operands[first + i], tail));
}

size_t ExpressionTable::memory_bytes() const {
  return nodes.capacity() * sizeof(Node) + operands.capacity() * sizeof(uint32_t) +
         byte_sets.capacity() * sizeof(ByteSet) + node_table.memory_bytes() +
         derivatives.memory_bytes() + first_bytes.memory_bytes() +
         first_byte_sets.capacity() * sizeof(ByteSet) + liveness.capacity() +
         merged_at.capacity() * sizeof(uint32_t);
}

std::unique_ptr<ExpressionTable> ExpressionTable::CopyLive(std::span<Id> roots) const {
  std::vector<bool> live(nodes.size(), false);
  live[kNothingId] = live[kEmptyId] = live[kAnythingId] = true;
  for (const Id root : roots) live[root] = true;
  for (size_t id = nodes.size(); id-- > 0;) {
    if (!live[id]) continue;
    const std::span<const uint32_t> parts = Operands(nodes[id]);
    const size_t num_expressions = NumExpressions(nodes[id].kind, parts.size());
    for (size_t i = 0; i < num_expressions; ++i) live[parts[i]] = true;
  }
  auto copy = std::make_unique<ExpressionTable>(limits);
  copy->byte_sets = byte_sets;
  copy->automata = automata;
  copy->automaton_bytes = automaton_bytes;
  copy->byte_set_table = byte_set_table;
  copy->class_of = class_of;
  copy->byte_of_class = byte_of_class;
  copy->num_classes = num_classes;
  copy->work = work;
  copy->liveness.assign(copy->nodes.size(), 0);
  std::vector<Id> new_ids(nodes.size(), kNothingId);
  std::vector<uint32_t> parts;
  for (Id id = 0; id < nodes.size(); ++id) {
    if (!live[id]) continue;
    const std::span<const uint32_t> old_parts = Operands(nodes[id]);
    parts.assign(old_parts.begin(), old_parts.end());
    const size_t num_expressions = NumExpressions(nodes[id].kind, parts.size());
    for (size_t i = 0; i < num_expressions; ++i) parts[i] = new_ids[parts[i]];
    new_ids[id] = copy->Make(nodes[id].kind, parts);
    copy->liveness.resize(copy->nodes.size(), 0);
    if (id < liveness.size()) copy->liveness[new_ids[id]] = liveness[id];
  }
  for (Id& root : roots) root = new_ids[root];
  return copy;
}

}  // namespace minisgl::grammar
