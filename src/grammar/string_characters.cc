#include "grammar/string_characters.h"

#include <algorithm>
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

size_t CountStringCharacters(std::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    const size_t length = Utf8CharLength(text);
    if (length == 0) return 0;
    const auto byte = static_cast<uint8_t>(text[0]);
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) return 0;
    text.remove_prefix(length);
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
  if (!SearchRepeat(expression, &lengths)) lengths = Search(expression);
  known_.Insert(expression, store(lengths.all) << 16 | store(lengths.some));
  return lengths;
}

// r{min,max} t, the usual form of a string, without a search: if r takes one string character at a
// time and t begins with none, then up to `max` of them may follow.
bool StringLengthFinder::SearchRepeat(Id expression, StringLengths* lengths) {
  ExpressionTable::RepeatHead head{};
  if (!table_->SplitRepeat(expression, &head) || table_->nodes[head.tail].nullable) return false;
  if (head.max > 0x7FFF && head.max != ExpressionTable::kUnbounded) return false;
  if (head.tail == kEmptyId) return false;
  const uint32_t* known = one_each_.Find(head.operand);
  if (known == nullptr) {
    // After each character the operand is complete and nothing else.
    bool one_each = true;
    std::vector<std::pair<Id, Id>> open = {{character_, head.operand}};
    while (one_each && !open.empty()) {
      const auto [character, operand] = open.back();
      open.pop_back();
      for (uint32_t byte_class = 0; byte_class < table_->num_classes; ++byte_class) {
        const Id rest = table_->Derive(character, byte_class);
        if (rest == kNothingId) continue;
        const Id operand_rest = table_->Derive(operand, byte_class);
        const bool ends = operand_rest == kEmptyId;
        one_each = one_each && operand_rest != kNothingId && ends == (rest == kEmptyId) &&
                   ends == table_->nodes[operand_rest].nullable;
        if (!ends) open.emplace_back(rest, operand_rest);
      }
      one_each = one_each && open.size() < kStringWorkMax;
    }
    one_each_.Insert(head.operand, one_each ? 1 : 0);
    known = one_each_.Find(head.operand);
  }
  if (*known == 0 || depth_ >= kFindDepthMax) return false;
  ++depth_;
  const bool tail_begins_otherwise = Find(head.tail).some == 0;
  --depth_;
  if (!tail_begins_otherwise) return false;
  *lengths = {head.max, head.max};
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
      for (uint32_t byte_class = 0; byte_class < table_->num_classes; ++byte_class) {
        const Id character_rest = table_->Derive(place.character, byte_class);
        if (character_rest == kNothingId) continue;
        if (++work > kStringWorkMax) return lengths;
        const Id rest = table_->Derive(place.expression, byte_class);
        if (FindLiveness(table_, rest, emptiness_work_max_) != Liveness::kLive) {
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
