#include "batch/row_window.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::batch {

RowWindow::Key RowWindow::KeyOf(const Place& place) {
  return {place->ready.row.priority, place->ready.prompts.front().ids, place->number};
}

bool RowWindow::Less::operator()(const Key& a, const Key& b) const {
  if (a.priority != b.priority) return a.priority < b.priority;
  const auto order = std::lexicographical_compare_three_way(a.ids.begin(), a.ids.end(),
                                                            b.ids.begin(), b.ids.end());
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
  auto next = by_prefix_.lower_bound(Key{priority, last_ids_, last_number_});
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
