#include "batch/row_window.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::batch {

namespace {

// Orders prefixes so that those with a longer beginning in common stand nearer: by the first place
// at which they differ, there by the marks before the ids.
std::strong_ordering ComparePrefixes(std::span<const TokenId> a, std::span<const KeyMark> a_marks,
                                     std::span<const TokenId> b, std::span<const KeyMark> b_marks) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const int64_t same = in_a - a.begin();
  const auto [mark_a, mark_b] =
      std::mismatch(a_marks.begin(), a_marks.end(), b_marks.begin(), b_marks.end());
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const int64_t place_a = mark_a == a_marks.end() ? kNone : mark_a->place;
  const int64_t place_b = mark_b == b_marks.end() ? kNone : mark_b->place;
  if (std::min(place_a, place_b) <= same && std::min(place_a, place_b) != kNone) {
    // Where one has a mark and the other has none, the latter comes first.
    if (place_a != place_b) return place_b <=> place_a;
    return mark_a->hash <=> mark_b->hash;
  }
  if (in_a == a.end() || in_b == b.end()) return a.size() <=> b.size();
  return *in_a <=> *in_b;
}

}  // namespace

RowWindow::Key RowWindow::KeyOf(const Place& place) {
  const Prompt& prompt = place->ready.prompts.front();
  return {place->ready.row.priority, prompt.ids, prompt.marks, place->number};
}

bool RowWindow::Less::operator()(const Key& a, const Key& b) const {
  if (a.priority != b.priority) return a.priority < b.priority;
  const std::strong_ordering order = ComparePrefixes(a.ids, a.marks, b.ids, b.marks);
  return order == 0 ? a.number < b.number : order < 0;
}

void RowWindow::Add(ReadyRow row) {
  num_answers_ += static_cast<int64_t>(row.prompts.size());
  bytes_ += row.bytes;
  // Nearly always the end: only the next row of a session, or a large one, comes late.
  auto next = in_order_.end();
  while (next != in_order_.begin() && std::prev(next)->ready.row.index > row.row.index) --next;
  by_prefix_.insert(in_order_.insert(next, {std::move(row), num_added_++, num_taken_}));
}

ReadyRow RowWindow::TakeNext() {
  MINISGL_CHECK(!empty(), "no row to ask");
  if (num_taken_ - in_order_.front().taken_at_coming >= passed_max_) return TakeFirst();
  const int32_t priority = (*by_prefix_.begin())->ready.row.priority;
  // Before any row was taken, start with the first of the input.
  if (last_number_ < 0 && in_order_.front().ready.row.priority == priority) return TakeFirst();
  auto next = by_prefix_.lower_bound(Key{priority, last_ids_, last_marks_, last_number_});
  if (next == by_prefix_.end() || (*next)->ready.row.priority != priority) {
    next = by_prefix_.begin();
  }
  return Take(*next);
}

ReadyRow RowWindow::TakeFirst() {
  MINISGL_CHECK(!empty(), "no row to ask");
  return Take(in_order_.begin());
}

std::optional<ReadyRow> RowWindow::TakeById(const Json& id) {
  for (Place place = in_order_.begin(); place != in_order_.end(); ++place) {
    if (place->ready.row.id == id) return Remove(place);
  }
  return std::nullopt;
}

ReadyRow RowWindow::Take(Place place) {
  last_ids_ = place->ready.prompts.front().ids;
  last_marks_ = place->ready.prompts.front().marks;
  last_number_ = place->number;
  ++num_taken_;
  return Remove(place);
}

ReadyRow RowWindow::Remove(Place place) {
  by_prefix_.erase(place);
  ReadyRow row = std::move(place->ready);
  in_order_.erase(place);
  num_answers_ -= static_cast<int64_t>(row.prompts.size());
  bytes_ -= row.bytes;
  return row;
}

}  // namespace minisgl::batch
