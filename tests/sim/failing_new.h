// Allocation that fails on demand, for each program that links failing_new.cc.
#pragma once

#include <cstdint>

namespace minisgl::sim {

// While this lives, the allocation number `countdown` from now on (1: the next) throws
// std::bad_alloc; 0: none does.
class FailingNew {
 public:
  explicit FailingNew(int64_t countdown);
  ~FailingNew();
};

}  // namespace minisgl::sim
