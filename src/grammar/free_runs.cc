// Repetitions of classes of characters, by the tokens that they take whole.
#include <algorithm>
#include <bit>

#include "grammar/string_characters.h"
#include "grammar/token_trie.h"

namespace minisgl::grammar {

namespace {

constexpr size_t kAlternativesMax = 64;

}  // namespace

// The groups of string characters outside of ASCII that `operand` takes as TakesOneEach says.
uint32_t StringLengthFinder::NonAsciiGroupsOf(Id operand) {
  uint32_t groups = kNonAscii | kLeadE2;
  for (uint32_t byte_class = 0; byte_class < table_->num_classes; ++byte_class) {
    const uint8_t byte = table_->byte_of_class[byte_class];
    if (byte < 0x80) continue;
    const Id rest = table_->Derive(character_, byte_class);
    if (rest == kNothingId) continue;
    const Id operand_rest = table_->Derive(operand, byte_class);
    if (operand_rest != kNothingId && !table_->nodes[operand_rest].nullable &&
        TakesEachOf({{rest, operand_rest}})) {
      continue;
    }
    const bool has_e2 = table_->class_of[0xE2] == byte_class;
    groups &= ~(has_e2 ? kLeadE2 : kNonAscii);
    if (has_e2 && table_->class_of[0xE1] == byte_class) groups = 0;
  }
  return groups;
}

// Groups of which each byte, and each whole character, is a text of `operand`.
uint32_t StringLengthFinder::GroupsOf(Id operand) {
  if (const uint32_t* known = groups_.Find(operand)) return *known;
  ByteSet singles;
  if (table_->Is(operand, NodeKind::kBytes)) {
    singles = table_->BytesOf(table_->nodes[operand]);
  } else if (table_->Is(operand, NodeKind::kOr)) {
    for (const Id part : table_->Operands(table_->nodes[operand])) {
      if (table_->Is(part, NodeKind::kBytes)) singles = table_->BytesOf(table_->nodes[part]);
    }
  }
  uint32_t groups = 0, not_whole = kNoGroup;
  for (uint8_t byte = 0; byte < 0x80; ++byte) {
    (singles.Contains(byte) ? groups : not_whole) |= AsciiGroup(byte);
  }
  groups &= ~not_whole;
  if (groups != 0) groups |= NonAsciiGroupsOf(operand);
  groups_.Insert(operand, groups);
  return groups;
}

// r{min,max} t; or (r{a,b} & s{c,d} & ...) t if there is a number of repetitions that all have: a
// text that is shorter goes on with any character that all take.
FreeRun StringLengthFinder::FreeRunOfTerm(Id term) {
  const Id head =
      table_->Is(term, NodeKind::kConcat) ? table_->Operands(table_->nodes[term])[0] : term;
  const bool is_and = table_->Is(head, NodeKind::kAnd);
  const std::vector<Id> parts = is_and
                                    ? std::vector<Id>(table_->Operands(table_->nodes[head]).begin(),
                                                      table_->Operands(table_->nodes[head]).end())
                                    : std::vector<Id>{head};
  FreeRun run{~0U, ExpressionTable::kUnbounded};
  uint32_t min = 0;
  for (const Id part : parts) {
    ExpressionTable::RepeatHead repeat{};
    if (!table_->SplitRepeat(part, &repeat) || repeat.tail != kEmptyId) return {};
    run.groups &= GroupsOf(repeat.operand);
    run.length = std::min(run.length, repeat.max);
    min = std::max(min, repeat.min);
    if (run.groups == 0) return {};
  }
  if (is_and && min > run.length) return {};
  return run;
}

FreeRun StringLengthFinder::FindFreeRun(Id expression) {
  if (!table_->Is(expression, NodeKind::kOr)) return FreeRunOfTerm(expression);
  const std::span<const uint32_t> operands = table_->Operands(table_->nodes[expression]);
  if (operands.size() > kAlternativesMax) return {};
  const std::vector<Id> terms(operands.begin(), operands.end());
  const auto size_of = [](const FreeRun& run) {
    return std::popcount(run.groups) * std::min<uint32_t>(run.length, kStringLengthMax);
  };
  FreeRun best;
  for (const Id term : terms) {
    // Where there are complements, an alternative may match nothing.
    if (table_->nodes[term].has_boolean) continue;
    const FreeRun run = FreeRunOfTerm(term);
    if (size_of(run) > size_of(best)) best = run;
  }
  return best;
}

}  // namespace minisgl::grammar
