#include "grammar/string_characters.h"

#include <algorithm>

#include "grammar/expression_search.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {

namespace {

// Derivatives taken for one expression; then the length found so far stands.
constexpr size_t kStringWorkMax = 4000;

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

uint32_t AllowedStringLength(ExpressionTable* table, Id character, Id expression,
                             size_t emptiness_work_max) {
  size_t work = 0;
  KeyMap seen;
  seen.Insert(expression, 0);
  std::vector<Id> level = {expression};
  struct Place {
    Id character, expression;
  };
  for (uint32_t length = 0; length < kStringLengthMax; ++length) {
    std::vector<Id> next_level;
    std::vector<Place> open;
    for (const Id id : level) open.push_back({character, id});
    while (!open.empty()) {
      const Place place = open.back();
      open.pop_back();
      for (uint32_t byte_class = 0; byte_class < table->num_classes; ++byte_class) {
        const Id character_rest = table->Derive(place.character, byte_class);
        if (character_rest == kNothingId) continue;
        if (++work > kStringWorkMax) return length;
        const Id rest = table->Derive(place.expression, byte_class);
        if (FindLiveness(table, rest, emptiness_work_max) != Liveness::kLive) return length;
        if (character_rest != kEmptyId) {
          open.push_back({character_rest, rest});
        } else if (seen.Find(rest) == nullptr) {
          seen.Insert(rest, 0);
          next_level.push_back(rest);
        }
      }
    }
    if (next_level.empty()) return kAnyLength;
    level = std::move(next_level);
  }
  return kStringLengthMax;
}

}  // namespace minisgl::grammar
