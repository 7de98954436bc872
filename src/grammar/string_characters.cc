#include "grammar/string_characters.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "grammar/expression_search.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {

namespace {

// Derivatives taken for one expression; then the length found so far stands.
constexpr size_t kStringWorkMax = 4000;
// kAnyLength as StringLengthFinder keeps it, in 16 bits.
constexpr uint32_t kAnyStored = 0xFFFF;
constexpr size_t kPartsMax = 64;
constexpr int kFindDepthMax = 16;  // of repetitions behind each other

}  // namespace

Id StringCharacter(ExpressionTable* table) {
  // As ExpressionSet::CodePoints, for one set alone.
  const auto bytes = [&](uint8_t first, uint8_t last) {
    return table->MakeBytes(ByteSet::Range(first, last));
  };
  ByteSet ascii = ByteSet::Range(0x20, 0x7E);
  for (const char excluded : {'"', '\\'}) {
    const auto byte = static_cast<uint8_t>(excluded);
    ascii.words[byte >> 6] &= ~(uint64_t{1} << (byte & 63));
  }
  const Id rest = bytes(0x80, 0xBF);
  const Id two = table->Concat(rest, rest);
  const Id three = table->Concat(rest, two);
  std::vector<Id> terms = {table->MakeBytes(ascii),
                           table->Concat(bytes(0xC2, 0xDF), rest),
                           table->Concat(bytes(0xE0, 0xE0), table->Concat(bytes(0xA0, 0xBF), rest)),
                           table->Concat(bytes(0xE1, 0xEC), two),
                           table->Concat(bytes(0xED, 0xED), table->Concat(bytes(0x80, 0x9F), rest)),
                           table->Concat(bytes(0xEE, 0xEF), two),
                           table->Concat(bytes(0xF0, 0xF0), table->Concat(bytes(0x90, 0xBF), two)),
                           table->Concat(bytes(0xF1, 0xF3), three),
                           table->Concat(bytes(0xF4, 0xF4), table->Concat(bytes(0x80, 0x8F), two))};
  return table->Or(&terms);
}

size_t SkipStringCharacters(std::string_view* text) {
  size_t count = 0;
  while (!text->empty()) {
    const size_t length = Utf8CharLength(*text);
    const auto byte = static_cast<uint8_t>((*text)[0]);
    if (length == 0 || byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) break;
    text->remove_prefix(length);
    ++count;
  }
  return count;
}

StringLengths StringLengthFinder::Find(Id expression) {
  const auto load = [](uint32_t stored) { return stored == kAnyStored ? kAnyLength : stored; };
  const auto store = [](uint32_t length) { return std::min(length, kAnyStored); };
  if (const uint32_t* found = known_.Find(expression)) {
    return {load(*found >> 16), load(*found & 0xFFFF)};
  }
  StringLengths lengths;
  if (!SearchRepeat(expression, &lengths) && !SearchParts(expression, &lengths)) {
    lengths = Search(expression);
  }
  if (stopped_) return {};
  known_.Insert(expression, store(lengths.all) << 16 | store(lengths.some));
  return lengths;
}

// True if `operand` takes one string character at a time: each is a whole text of it, and no
// beginning of one is.
bool StringLengthFinder::TakesOneEach(Id operand) {
  if (const uint32_t* known = one_each_.Find(operand)) return *known != 0;
  const bool one_each = TakesEachOf({{character_, operand}});
  one_each_.Insert(operand, one_each ? 1 : 0);
  return one_each;
}

// Pairs of a part of StringCharacter() and an expression, which must take it as TakesOneEach says.
bool StringLengthFinder::TakesEachOf(std::vector<std::pair<Id, Id>> open) {
  while (!open.empty()) {
    const auto [character, rest_of] = open.back();
    open.pop_back();
    MergedClasses merged;
    table_->MergeClasses(std::array{character, rest_of}, &merged);
    for (uint32_t byte_class = 0; byte_class < table_->num_classes; ++byte_class) {
      if (merged.of[byte_class] != byte_class) continue;
      const Id rest = table_->Derive(character, byte_class);
      if (rest == kNothingId) continue;
      const Id operand_rest = table_->Derive(rest_of, byte_class);
      const bool ends = operand_rest == kEmptyId;
      if (operand_rest == kNothingId || ends != (rest == kEmptyId) ||
          ends != table_->nodes[operand_rest].nullable || open.size() >= kStringWorkMax) {
        return false;
      }
      if (!ends) open.emplace_back(rest, operand_rest);
    }
  }
  return true;
}

// r{min,max} t, the usual form of a string, without a search, if r takes one string character at a
// time: any number may follow if there is no end, or up to `max` if t begins with none.
bool StringLengthFinder::SearchRepeat(Id expression, StringLengths* lengths) {
  ExpressionTable::RepeatHead head{};
  if (!table_->SplitRepeat(expression, &head)) return false;
  const bool endless = head.max == ExpressionTable::kUnbounded;
  const bool short_enough = head.max <= 0x7FFF && head.tail != kEmptyId &&
                            !table_->nodes[head.tail].nullable && depth_ < kFindDepthMax;
  if ((!endless && !short_enough) || !TakesOneEach(head.operand)) return false;
  *lengths = {head.max, head.max};  // kUnbounded is kAnyLength
  if (endless) return true;
  ++depth_;
  const bool tail_begins_otherwise = Find(head.tail).some == 0;
  --depth_;
  return tail_begins_otherwise;
}

std::optional<StringRun> StringLengthFinder::FindRun(Id expression) {
  ExpressionTable::RepeatHead head{};
  if (!table_->SplitRepeat(expression, &head)) return std::nullopt;
  const ExpressionNode& tail = table_->nodes[head.tail];
  if (tail.nullable || tail.has_boolean || !TakesOneEach(head.operand)) return std::nullopt;
  if (Find(head.tail).some != 0) return std::nullopt;
  static_assert(kAnyLength == ExpressionTable::kUnbounded);
  return StringRun{head.min, head.max};
}

// Forms of which a part alone allows every string: (A & ~B) t, if A does so without an end and B
// has finitely many texts (the names of other members but some), and A | B.
bool StringLengthFinder::SearchParts(Id expression, StringLengths* lengths) {
  if (depth_ >= kFindDepthMax) return false;
  if (table_->Is(expression, NodeKind::kConcat)) {
    expression = table_->Operands(table_->nodes[expression])[0];
  }
  const NodeKind kind = table_->nodes[expression].kind;
  if (kind != NodeKind::kOr && kind != NodeKind::kAnd) return false;
  const std::span<const uint32_t> operands = table_->Operands(table_->nodes[expression]);
  if (operands.size() > kPartsMax) return false;
  const std::vector<Id> parts(operands.begin(), operands.end());
  size_t num_endless = 0;
  for (const Id part : parts) {
    if (table_->Is(part, NodeKind::kNot)) {
      const Id excluded = table_->Operands(table_->nodes[part])[0];
      if (kind == NodeKind::kAnd && !table_->nodes[excluded].finite) return false;
      continue;
    }
    ++depth_;
    StringLengths of_part;
    // For an And, only the form of a repetition: it is the same, and endless, after each character.
    const bool endless = kind == NodeKind::kAnd
                             ? SearchRepeat(part, &of_part) && of_part.all == kAnyLength
                             : Find(part).all == kAnyLength;
    --depth_;
    if (kind == NodeKind::kAnd && !endless) return false;
    num_endless += endless ? 1 : 0;
  }
  if (kind == NodeKind::kAnd ? num_endless != 1 : num_endless == 0) return false;
  *lengths = {kAnyLength, kAnyLength};
  return true;
}

StringLengths StringLengthFinder::Search(Id expression) {
  StringLengths lengths;
  bool all = true;
  bool passes_end = false;
  bool loops = false;
  size_t work = 0;
  KeyMap seen;  // by expression: the number of characters before it, at least
  seen.Insert(expression, 0);
  std::vector<Id> level = {expression};
  struct Place {
    Id character, expression;
  };
  for (uint32_t length = 0; length < kStringLengthMax; ++length) {
    std::vector<Id> next_level;
    std::vector<Place> open;
    for (const Id id : level) open.push_back({character_, id});
    while (!open.empty()) {
      const Place place = open.back();
      open.pop_back();
      MergedClasses merged;
      table_->MergeClasses(std::array{place.character, place.expression}, &merged);
      for (uint32_t byte_class = 0; byte_class < table_->num_classes; ++byte_class) {
        if (merged.of[byte_class] != byte_class) continue;
        const Id character_rest = table_->Derive(place.character, byte_class);
        if (character_rest == kNothingId) continue;
        if (++work > kStringWorkMax) return lengths;
        const Id rest = table_->Derive(place.expression, byte_class);
        const Liveness liveness = FindLiveness(table_, rest, emptiness_work_max_);
        stopped_ = stopped_ || liveness == Liveness::kStopped;
        if (stopped_) return {};
        if (liveness != Liveness::kLive) {
          all = false;
          continue;
        }
        passes_end = passes_end || table_->nodes[rest].nullable;
        if (character_rest != kEmptyId) {
          open.push_back({character_rest, rest});
        } else if (const uint32_t* before = seen.Find(rest)) {
          loops = loops || *before <= length;
        } else {
          seen.Insert(rest, length + 1);
          next_level.push_back(rest);
        }
      }
      if (!all && passes_end) return lengths;
    }
    if (all) lengths.all = length + 1;
    // Walks end where few strings go on.
    if (length == 0 && !all && !next_level.empty()) return lengths;
    if (next_level.empty()) {
      if (all) {
        lengths.all = kAnyLength;
      } else if (!loops && !passes_end) {
        lengths.some = length;
      }
      return lengths;
    }
    level = std::move(next_level);
  }
  return lengths;
}

}  // namespace minisgl::grammar
