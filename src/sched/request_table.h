// The free rows of the page table and the token pool. A row that a step in flight names becomes
// free only after that step is collected. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl::sched {

class RequestTable {
 public:
  explicit RequestTable(int32_t num_rows);

  int32_t num_rows() const { return static_cast<int32_t>(is_free_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_deferred() const { return static_cast<int32_t>(deferred_.size()); }

  int32_t Take();  // REQUIRES num_free() > 0
  void Give(int32_t row);
  // Frees `row` after step `fence` is collected.
  void GiveAfter(StepId fence, int32_t row);
  // Steps up to `step` have been collected.
  void Collected(StepId step);

  // Checks I2 for rows: each is free, deferred, or in `taken`, exactly once.
  void CheckInvariants(const std::vector<int32_t>& taken) const;

 private:
  struct Deferred {
    StepId fence;
    int32_t row;
  };
  std::vector<int32_t> free_;
  std::vector<bool> is_free_;
  std::deque<Deferred> deferred_;
};

}  // namespace minisgl::sched
