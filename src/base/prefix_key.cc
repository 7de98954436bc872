#include "minisgl/base/prefix_key.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "minisgl/base/sha256.h"

namespace minisgl {

bool AreMarksOf(std::span<const KeyMark> marks, int64_t num_tokens) {
  int64_t last = 0;
  return std::all_of(marks.begin(), marks.end(), [&](const KeyMark& mark) {
    const bool is_in_order = mark.place >= last && mark.place < num_tokens;
    last = mark.place;
    return is_in_order;
  });
}

std::span<const KeyMark> PrefixKey::CutMarks(int64_t from, int64_t to) const {
  const auto is_before = [](const KeyMark& mark, int64_t place) { return mark.place < place; };
  const auto begin = std::lower_bound(marks_.begin(), marks_.end(), from, is_before);
  return {begin, std::lower_bound(begin, marks_.end(), to, is_before)};
}

size_t CommonLength(const PrefixKey& a, const PrefixKey& b) {
  const size_t length = std::min(a.size(), b.size());
  const auto tokens = a.tokens().first(length);
  const auto [mine, its] = std::mismatch(tokens.begin(), tokens.end(), b.tokens().begin());
  const auto common = static_cast<size_t>(mine - tokens.begin());
  if (a.marks().empty() && b.marks().empty()) return common;
  const auto [left, right] =
      std::mismatch(a.marks().begin(), a.marks().end(), b.marks().begin(), b.marks().end());
  int64_t place = a.begin() + static_cast<int64_t>(common);
  if (left != a.marks().end()) place = std::min(place, left->place);
  if (right != b.marks().end()) place = std::min(place, right->place);
  return static_cast<size_t>(place - a.begin());
}

void AddMarks(const PrefixKey& key, Sha256* hash) {
  static_assert(std::endian::native == std::endian::little, "marks hash as little-endian numbers");
  for (const KeyMark& mark : key.marks()) {
    const std::array<uint64_t, 3> words = {static_cast<uint64_t>(mark.place - key.begin()),
                                           mark.hash[0], mark.hash[1]};
    hash->Add({reinterpret_cast<const char*>(words.data()), sizeof(words)});
  }
}

}  // namespace minisgl
