// Which bytes an expression tells apart at its beginning.
//
// An expression's derivatives are few where its classes of bytes are many: inside a string, all
// letters that begin none of the names under way lead to the same place. Each is computed once.
#include <algorithm>
#include <utility>

#include "grammar/expression_table.h"

namespace minisgl::grammar {

ByteSet ExpressionTable::FirstBytes(Id expression) {
  ByteSet bytes;
  for (; Is(expression, Kind::kConcat); expression = operands[nodes[expression].first + 1]) {
    const Id head = operands[nodes[expression].first];
    bytes = UnionOf(bytes, FirstBytes(head));
    if (!nodes[head].nullable) return bytes;
  }
  const Node& node = nodes[expression];
  const std::span<const uint32_t> parts = Operands(node);
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return bytes;
    case Kind::kBytes:
      return UnionOf(bytes, BytesOf(node));
    case Kind::kRepeat:
      return UnionOf(bytes, FirstBytes(parts[0]));
    case Kind::kOr:
    case Kind::kAnd:
    case Kind::kAutomaton:
      break;
    default:  // kNot; kConcat is above
      return ByteSet::All();
  }
  if (const uint32_t* found = first_bytes.Find(expression)) {
    return UnionOf(bytes, first_byte_sets[*found]);
  }
  ByteSet of_parts = node.kind == Kind::kAnd ? ByteSet::All() : ByteSet();
  if (node.kind == Kind::kAutomaton) {
    of_parts = FirstBytesOf(parts[0], parts[1]);
  } else {
    for (const Id part : parts) {
      const ByteSet of_part = FirstBytes(part);
      of_parts =
          node.kind == Kind::kOr ? UnionOf(of_parts, of_part) : IntersectionOf(of_parts, of_part);
    }
  }
  first_bytes.Insert(expression, static_cast<uint32_t>(first_byte_sets.size()));
  first_byte_sets.push_back(of_parts);
  return UnionOf(bytes, of_parts);
}

ByteSet ExpressionTable::FirstBytesOf(uint32_t index, uint32_t state) const {
  const ByteAutomaton& automaton = *automata[index];
  const uint32_t* const next = automaton.next.data() + size_t{state} * automaton.num_classes;
  ByteSet bytes;
  for (uint32_t i = 0; i < automaton.num_classes; ++i) {
    if (next[i] == ByteAutomaton::kNoState || automaton.distances[next[i]] == kFarthest) continue;
    bytes = UnionOf(bytes, automaton_bytes[index][i]);
  }
  return bytes;
}

// Divides bytes, one of each class, into blocks by the sets at the heads of expressions.
class ExpressionTable::ClassDivider {
 public:
  explicit ClassDivider(const ExpressionTable& table) : table_(table) {
    ByteSet all;
    for (uint32_t byte_class = 0; byte_class < table.num_classes; ++byte_class) {
      all.Add(table.byte_of_class[byte_class]);
    }
    blocks_.reserve(32);
    blocks_.push_back(all);
  }

  void Divide(const ByteSet& by) {
    for (size_t i = 0, end = blocks_.size(); i < end; ++i) {
      const ByteSet inside = IntersectionOf(blocks_[i], by);
      if (inside.empty() || inside == blocks_[i]) continue;
      for (size_t word = 0; word < inside.words.size(); ++word) {
        blocks_[i].words[word] &= ~inside.words[word];
      }
      blocks_.push_back(inside);
    }
  }

  // By the next state of an automaton.
  void Divide(uint32_t index, uint32_t state) {
    const ByteAutomaton& automaton = *table_.automata[index];
    const std::vector<ByteSet>& bytes_of = table_.automaton_bytes[index];
    const uint32_t* const next = automaton.next.data() + size_t{state} * automaton.num_classes;
    for (uint32_t i = 0; i < automaton.num_classes; ++i) {
      if (std::find(next, next + i, next[i]) != next + i) continue;
      ByteSet bytes = bytes_of[i];
      for (uint32_t j = i + 1; j < automaton.num_classes; ++j) {
        if (next[j] == next[i]) bytes = UnionOf(bytes, bytes_of[j]);
      }
      Divide(bytes);
    }
  }

  void Write(MergedClasses* merged) const {
    for (const ByteSet& block : blocks_) {
      int first = -1;
      for (size_t word = 0; word < block.words.size(); ++word) {
        for (uint64_t bits = block.words[word]; bits != 0; bits &= bits - 1) {
          const size_t byte = word * 64 + static_cast<size_t>(__builtin_ctzll(bits));
          const uint8_t byte_class = table_.class_of[byte];
          if (first < 0) first = byte_class;
          merged->of[byte_class] = static_cast<uint8_t>(first);
        }
      }
    }
  }

 private:
  const ExpressionTable& table_;
  std::vector<ByteSet> blocks_;
};

uint64_t ExpressionTable::MergeClasses(std::span<const Id> expressions, MergedClasses* merged) {
  ClassDivider divider(*this);
  if (++merge_time == 0) {
    std::fill(merged_at.begin(), merged_at.end(), 0);
    merge_time = 1;
  }
  merged_at.resize(nodes.size(), 0);
  std::vector<Id>& open = merge_open;
  open.assign(expressions.begin(), expressions.end());
  uint64_t num_passed = 0;
  while (!open.empty()) {
    const Id id = open.back();
    open.pop_back();
    if (std::exchange(merged_at[id], merge_time) == merge_time) continue;
    ++num_passed;
    const Node& node = nodes[id];
    const std::span<const uint32_t> parts = Operands(node);
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
        break;
      case Kind::kBytes:
        divider.Divide(BytesOf(node));
        break;
      case Kind::kAutomaton:
        divider.Divide(parts[0], parts[1]);
        break;
      case Kind::kConcat:
        open.push_back(parts[0]);
        if (nodes[parts[0]].nullable) open.push_back(parts[1]);
        break;
      case Kind::kRepeat:
      case Kind::kNot:
        open.push_back(parts[0]);
        break;
      default:  // kOr, kAnd
        open.insert(open.end(), parts.begin(), parts.end());
    }
  }
  divider.Write(merged);
  return num_passed / kMergedPerWork;
}

}  // namespace minisgl::grammar
