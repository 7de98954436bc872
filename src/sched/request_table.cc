#include "sched/request_table.h"

#include "minisgl/base/check.h"

namespace minisgl::sched {

RequestTable::RequestTable(int32_t num_rows) : is_free_(static_cast<size_t>(num_rows), true) {
  for (int32_t row = num_rows - 1; row >= 0; --row) free_.push_back(row);
}

int32_t RequestTable::Take() {
  MINISGL_CHECK(!free_.empty(), "no free table row");
  const int32_t row = free_.back();
  free_.pop_back();
  is_free_[static_cast<size_t>(row)] = false;
  return row;
}

void RequestTable::Give(int32_t row) {
  MINISGL_CHECK(row >= 0 && row < num_rows() && !is_free_[static_cast<size_t>(row)],
                "table row {} is not taken", row);
  is_free_[static_cast<size_t>(row)] = true;
  free_.push_back(row);
}

void RequestTable::GiveAfter(StepId fence, int32_t row) { deferred_.push_back({fence, row}); }

void RequestTable::Collected(StepId step) {
  while (!deferred_.empty() && deferred_.front().fence <= step) {
    Give(deferred_.front().row);
    deferred_.pop_front();
  }
}

void RequestTable::CheckInvariants(const std::vector<int32_t>& taken) const {
  std::vector<int> places(is_free_.size(), 0);
  for (int32_t row : free_) {
    MINISGL_CHECK(is_free_[static_cast<size_t>(row)], "I2: table row {} is listed but not free",
                  row);
    ++places[static_cast<size_t>(row)];
  }
  for (const Deferred& deferred : deferred_) ++places[static_cast<size_t>(deferred.row)];
  for (int32_t row : taken) ++places[static_cast<size_t>(row)];
  for (size_t row = 0; row < places.size(); ++row) {
    MINISGL_CHECK(places[row] == 1, "I2: table row {} is in {} places", row, places[row]);
  }
}

}  // namespace minisgl::sched
