// Expressions as bytes that do not depend on their table, to compare expressions of different
// grammars.
#include <algorithm>
#include <cstring>
#include <utility>

#include "grammar/expression_table.h"

namespace minisgl::grammar {
namespace {

void Append(uint32_t value, std::string* text) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  text->append(bytes, sizeof(bytes));
}

class Speller {
 public:
  Speller(const ExpressionTable& table, size_t nodes_max) : table_(table), nodes_max_(nodes_max) {}

  // False if `expression` has more than nodes_max parts.
  bool FindParts(Id expression) {
    std::vector<Id> parts = {expression};
    KeyMap seen;
    seen.Insert(expression, 0);
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const Id operand : ExpressionsOf(parts[i])) {
        if (seen.Find(operand) != nullptr) continue;
        if (parts.size() == nodes_max_) return false;
        seen.Insert(operand, 0);
        parts.push_back(operand);
      }
    }
    std::sort(parts.begin(), parts.end());  // operands first
    for (const Id id : parts) {
      index_of_.Insert(id, static_cast<uint32_t>(hashes_.size()));
      hashes_.push_back(HashOf(id));
    }
    return true;
  }

  // Each part once, operands first, by its number in this order.
  std::string Spell(Id expression) {
    std::string text;
    KeyMap numbers;                                                 // by id
    std::vector<std::pair<Id, bool>> open = {{expression, false}};  // and its operands are spelled
    while (!open.empty()) {
      const auto [id, is_last] = open.back();
      open.pop_back();
      if (numbers.Find(id) != nullptr) continue;
      const std::vector<Id> operands = Ordered(id);
      if (!is_last && !operands.empty()) {
        open.emplace_back(id, true);
        for (const Id operand : operands) open.emplace_back(operand, false);
        continue;
      }
      numbers.Insert(id, static_cast<uint32_t>(numbers.size()));
      SpellPart(id, operands, numbers, &text);
    }
    return text;
  }

 private:
  std::span<const Id> ExpressionsOf(Id id) const {
    const std::span<const uint32_t> parts = table_.Operands(table_.nodes[id]);
    return parts.first(ExpressionTable::NumExpressions(table_.nodes[id].kind, parts.size()));
  }

  uint64_t HashAt(Id id) const { return hashes_[*index_of_.Find(id)]; }

  // Alternatives stand by their hash: their ids differ between tables.
  std::vector<Id> Ordered(Id id) const {
    const std::span<const Id> expressions = ExpressionsOf(id);
    std::vector<Id> operands(expressions.begin(), expressions.end());
    if (table_.Is(id, NodeKind::kOr)) {
      std::stable_sort(operands.begin(), operands.end(),
                       [this](Id a, Id b) { return HashAt(a) < HashAt(b); });
    }
    return operands;
  }

  uint64_t HashOf(Id id) const {
    uint64_t hash = static_cast<uint64_t>(table_.nodes[id].kind) + 1;
    if (table_.Is(id, NodeKind::kBytes)) {
      for (const uint64_t word : table_.BytesOf(table_.nodes[id]).words) hash = MixHash(hash, word);
      return MixHash(hash, 0);
    }
    if (table_.Is(id, NodeKind::kOr)) {
      uint64_t sum = 0;  // of alternatives in any order
      for (const Id operand : ExpressionsOf(id)) sum += MixHash(0, HashAt(operand));
      return MixHash(hash, sum);
    }
    for (const Id operand : ExpressionsOf(id)) hash = MixHash(hash, HashAt(operand));
    for (const uint32_t number : NumbersOf(id)) hash = MixHash(hash, number);
    return MixHash(hash, 0);
  }

  // The bounds of a repetition; empty for other expressions.
  std::span<const uint32_t> NumbersOf(Id id) const {
    if (!table_.Is(id, NodeKind::kRepeat)) return {};
    return table_.Operands(table_.nodes[id]).subspan(1);
  }

  void SpellPart(Id id, std::span<const Id> operands, const KeyMap& numbers,
                 std::string* text) const {
    text->push_back(static_cast<char>(table_.nodes[id].kind));
    if (table_.Is(id, NodeKind::kBytes)) {
      for (const uint64_t word : table_.BytesOf(table_.nodes[id]).words) {
        Append(static_cast<uint32_t>(word), text);
        Append(static_cast<uint32_t>(word >> 32), text);
      }
      return;
    }
    Append(static_cast<uint32_t>(operands.size()), text);
    for (const Id operand : operands) Append(*numbers.Find(operand), text);
    for (const uint32_t number : NumbersOf(id)) Append(number, text);
  }

  const ExpressionTable& table_;
  const size_t nodes_max_;
  KeyMap index_of_;  // by id: its index in hashes_
  std::vector<uint64_t> hashes_;
};

}  // namespace

std::optional<std::string> ExpressionTable::Spell(Id expression, size_t nodes_max) const {
  if (nodes[expression].has_boolean) return std::nullopt;
  Speller speller(*this, nodes_max);
  if (!speller.FindParts(expression)) return std::nullopt;
  return speller.Spell(expression);
}

}  // namespace minisgl::grammar
