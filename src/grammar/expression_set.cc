// The public constructors: literals, code points, tries.
#include <algorithm>
#include <bit>
#include <optional>

#include "grammar/expression_table.h"
#include "minisgl/base/check.h"
#include "minisgl/grammar/expression.h"

namespace minisgl {

using grammar::ExpressionTable;
using grammar::Id;
using grammar::kEmptyId;
using grammar::kNothingId;

namespace {

// The expression of `length` continuation bytes whose value v (6 bits a byte) is in one of
// `ranges`, which are sorted, disjoint and below 64^length.
Id Continuation(ExpressionTable* set, std::span<const CodePointRange> ranges, int length) {
  if (length == 0) return ranges.empty() ? kNothingId : kEmptyId;
  const uint32_t block = 1U << (6 * (length - 1));
  if (ranges.size() == 1 && ranges[0].first == 0 && ranges[0].last == 64 * block - 1) {
    const Id any = set->MakeBytes(ByteSet::Range(0x80, 0xBF));
    return set->Concat(any,
                       Continuation(set, std::array{CodePointRange{0, block - 1}}, length - 1));
  }
  // Leading bytes with the same rest share an alternative.
  std::vector<std::pair<Id, ByteSet>> alternatives;
  std::vector<CodePointRange> inside;
  size_t first = 0;
  for (uint32_t value = 0; value < 64; ++value) {
    const uint32_t begin = value * block;
    const uint32_t end = begin + block - 1;
    inside.clear();
    while (first < ranges.size() && ranges[first].last < begin) ++first;
    for (size_t i = first; i < ranges.size() && ranges[i].first <= end; ++i) {
      inside.push_back(
          {std::max(ranges[i].first, begin) - begin, std::min(ranges[i].last, end) - begin});
    }
    if (inside.empty()) continue;
    const Id rest = Continuation(set, inside, length - 1);
    auto found = std::find_if(alternatives.begin(), alternatives.end(),
                              [&](const auto& alternative) { return alternative.first == rest; });
    if (found == alternatives.end()) found = alternatives.insert(found, {rest, ByteSet{}});
    found->second.Add(static_cast<uint8_t>(0x80 + value));
  }
  std::vector<Id> terms;
  for (const auto& [rest, bytes] : alternatives) {
    terms.push_back(set->Concat(set->MakeBytes(bytes), rest));
  }
  return set->Or(&terms);
}

// The ranges of `set` between `first` and `last`, counted from `base`.
std::vector<CodePointRange> Cut(const CodePointSet& set, uint32_t first, uint32_t last,
                                uint32_t base) {
  std::vector<CodePointRange> result;
  for (const CodePointRange& range : set.ranges()) {
    if (range.last < first || range.first > last) continue;
    result.push_back({std::max(range.first, first) - base, std::min(range.last, last) - base});
  }
  return result;
}

// A trie under construction: the path to the latest text, and what hangs off it.
class TrieBuilder {
 public:
  explicit TrieBuilder(ExpressionTable* set) : set_(set) { path_.emplace_back(); }

  // REQUIRES texts in ascending order, each once.
  void Add(std::string_view text) {
    const size_t common = static_cast<size_t>(
        std::mismatch(text.begin(), text.end(), last_.begin(), last_.end()).first - text.begin());
    CloseTo(common);
    for (size_t i = common; i < text.size(); ++i) path_.emplace_back();
    path_.back().ends_here = true;
    last_ = text;
  }

  Id Finish() {
    CloseTo(0);
    return ExpressionOf(&path_[0]);
  }

 private:
  struct Level {
    bool ends_here = false;
    std::vector<std::pair<Id, uint8_t>> children;  // rest, byte
  };

  void CloseTo(size_t depth) {
    while (path_.size() > depth + 1) {
      const Id rest = ExpressionOf(&path_.back());
      path_.pop_back();
      path_.back().children.push_back({rest, static_cast<uint8_t>(last_[path_.size() - 1])});
    }
  }

  Id ExpressionOf(Level* level) {
    std::sort(level->children.begin(), level->children.end());
    std::vector<Id> terms;
    for (size_t i = 0; i < level->children.size();) {
      const Id rest = level->children[i].first;
      ByteSet bytes;
      for (; i < level->children.size() && level->children[i].first == rest; ++i) {
        bytes.Add(level->children[i].second);
      }
      terms.push_back(set_->Concat(set_->MakeBytes(bytes), rest));
    }
    if (level->ends_here) terms.push_back(kEmptyId);
    return set_->Or(&terms);
  }

  ExpressionTable* set_;
  std::vector<Level> path_;
  std::string_view last_;
};

Id Trie(ExpressionTable* table, std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  if (texts.empty()) return kNothingId;
  TrieBuilder trie(table);
  for (const std::string& text : texts) {
    if (!table->status.ok()) return kNothingId;
    trie.Add(text);
  }
  return trie.Finish();
}

// The only text of `id`, if it has one and is no automaton.
std::optional<std::string> LiteralOf(const ExpressionTable& table, Id id) {
  std::string text;
  for (;;) {
    const bool chained = table.Is(id, grammar::NodeKind::kConcat);
    const Id head = chained ? table.Operands(table.nodes[id])[0] : id;
    if (!table.Is(head, grammar::NodeKind::kBytes)) return std::nullopt;
    const ByteSet& bytes = table.BytesOf(table.nodes[head]);
    if (bytes.size() != 1) return std::nullopt;
    int byte = 0;
    while (!bytes.Contains(static_cast<uint8_t>(byte))) ++byte;
    text.push_back(static_cast<char>(byte));
    if (!chained) return text;
    id = table.Operands(table.nodes[id])[1];
  }
}

// Above this number of alternatives, those that are literals become a trie.
constexpr size_t kListedAlternativesMax = 64;

void JoinLiterals(ExpressionTable* table, std::vector<Id>* alternatives) {
  std::vector<std::string> texts;
  size_t kept = 0;
  for (const Id id : *alternatives) {
    if (auto text = LiteralOf(*table, id)) {
      texts.push_back(*std::move(text));
    } else {
      (*alternatives)[kept++] = id;
    }
  }
  alternatives->resize(kept);
  if (!texts.empty()) alternatives->push_back(Trie(table, std::move(texts)));
}

std::vector<Id> ToIds(std::span<const ExpressionId> expressions) {
  std::vector<Id> ids;
  ids.reserve(expressions.size());
  for (const ExpressionId id : expressions) ids.push_back(static_cast<Id>(id));
  return ids;
}

}  // namespace

ByteSet ByteSet::Range(uint8_t first, uint8_t last) {
  ByteSet set;
  for (int byte = first; byte <= last; ++byte) set.Add(static_cast<uint8_t>(byte));
  return set;
}

int ByteSet::size() const {
  int count = 0;
  for (const uint64_t word : words) count += std::popcount(word);
  return count;
}

ExpressionSet::ExpressionSet(const ExpressionLimits& limits)
    : impl_(std::make_unique<ExpressionTable>(limits)) {}
ExpressionSet::~ExpressionSet() = default;

void ExpressionSet::CountWork(uint64_t work) { impl_->CountWork(work); }
ExpressionSet::ExpressionSet(ExpressionSet&&) noexcept = default;
ExpressionSet& ExpressionSet::operator=(ExpressionSet&&) noexcept = default;

const Status& ExpressionSet::status() const { return impl_->status; }
size_t ExpressionSet::size() const { return impl_->nodes.size(); }
size_t ExpressionSet::memory_bytes() const { return impl_->memory_bytes(); }

ExpressionId ExpressionSet::Bytes(const ByteSet& bytes) {
  return ExpressionId{impl_->MakeBytes(bytes)};
}

ExpressionId ExpressionSet::Literal(std::string_view text) {
  Id result = kEmptyId;
  for (size_t i = text.size(); i-- > 0;) {
    ByteSet byte;
    byte.Add(static_cast<uint8_t>(text[i]));
    result = impl_->Concat(impl_->MakeBytes(byte), result);
  }
  return ExpressionId{result};
}

ExpressionId ExpressionSet::CodePoints(const CodePointSet& set) {
  std::vector<Id> terms;
  ByteSet ascii;
  for (const CodePointRange& range : Cut(set, 0, 0x7F, 0)) {
    for (uint32_t byte = range.first; byte <= range.last; ++byte) {
      ascii.Add(static_cast<uint8_t>(byte));
    }
  }
  if (set.empty() || set.ranges().back().last <= 0x7F) {
    return ExpressionId{impl_->MakeBytes(ascii)};
  }
  terms.push_back(impl_->MakeBytes(ascii));
  struct Lead {
    uint32_t first, last;  // code points
    uint32_t byte;         // of the code point 0 in this length
    int continuation;
  };
  for (const Lead& lead : {Lead{0x80, 0x7FF, 0xC0, 1}, Lead{0x800, 0xFFFF, 0xE0, 2},
                           Lead{0x10000, kCodePointMax, 0xF0, 3}}) {
    const uint32_t block = 1U << (6 * lead.continuation);
    std::vector<std::pair<Id, ByteSet>> alternatives;
    for (uint32_t value = lead.first / block; value <= lead.last / block; ++value) {
      const uint32_t first = std::max(value * block, lead.first);
      const uint32_t last = std::min(value * block + block - 1, lead.last);
      const Id rest =
          Continuation(impl_.get(), Cut(set, first, last, value * block), lead.continuation);
      if (rest == kNothingId) continue;
      if (alternatives.empty() || alternatives.back().first != rest) {
        alternatives.push_back({rest, ByteSet{}});
      }
      alternatives.back().second.Add(static_cast<uint8_t>(lead.byte + value));
    }
    for (const auto& [rest, bytes] : alternatives) {
      terms.push_back(impl_->Concat(impl_->MakeBytes(bytes), rest));
    }
  }
  return ExpressionId{impl_->Or(&terms)};
}

ExpressionId ExpressionSet::Concat(std::span<const ExpressionId> parts) {
  Id result = kEmptyId;
  for (size_t i = parts.size(); i-- > 0;) result = impl_->Concat(static_cast<Id>(parts[i]), result);
  return ExpressionId{result};
}
ExpressionId ExpressionSet::Concat(std::initializer_list<ExpressionId> parts) {
  return Concat(std::span(parts.begin(), parts.size()));
}

ExpressionId ExpressionSet::Or(std::span<const ExpressionId> alternatives) {
  std::vector<Id> ids = ToIds(alternatives);
  if (ids.size() > kListedAlternativesMax) JoinLiterals(impl_.get(), &ids);
  return ExpressionId{impl_->Or(&ids)};
}
ExpressionId ExpressionSet::Or(std::initializer_list<ExpressionId> alternatives) {
  return Or(std::span(alternatives.begin(), alternatives.size()));
}

ExpressionId ExpressionSet::And(std::span<const ExpressionId> conditions) {
  std::vector<Id> ids = ToIds(conditions);
  return ExpressionId{impl_->And(&ids)};
}
ExpressionId ExpressionSet::And(std::initializer_list<ExpressionId> conditions) {
  return And(std::span(conditions.begin(), conditions.size()));
}

ExpressionId ExpressionSet::Not(ExpressionId operand) {
  return ExpressionId{impl_->Not(static_cast<Id>(operand))};
}

ExpressionId ExpressionSet::Difference(ExpressionId all_of, ExpressionId none_of) {
  return And({all_of, Not(none_of)});
}

ExpressionId ExpressionSet::Repeat(ExpressionId operand, uint32_t min, uint32_t max) {
  MINISGL_CHECK(min <= max, "a repetition of {} to {} times", min, max);
  return ExpressionId{impl_->Repeat(static_cast<Id>(operand), min, max)};
}

ExpressionId ExpressionSet::Strings(std::vector<std::string> texts) {
  return ExpressionId{Trie(impl_.get(), std::move(texts))};
}

ExpressionId ExpressionSet::Automaton(std::shared_ptr<const ByteAutomaton> automaton) {
  return ExpressionId{impl_->Automaton(std::move(automaton))};
}

bool ExpressionSet::IsNullable(ExpressionId expression) const {
  return impl_->nodes[static_cast<Id>(expression)].nullable;
}

ExpressionId ExpressionSet::Derivative(ExpressionId expression, uint8_t byte) {
  return ExpressionId{impl_->Derive(static_cast<Id>(expression), impl_->class_of[byte])};
}

bool ExpressionSet::Matches(ExpressionId expression, std::string_view text) {
  for (const char byte : text) expression = Derivative(expression, static_cast<uint8_t>(byte));
  return IsNullable(expression);
}

}  // namespace minisgl
