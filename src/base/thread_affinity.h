// Which CPUs a thread may run on.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <vector>

namespace minisgl::base {

// CPU numbers that this thread may run on, ascending; empty if the system does not report them.
std::vector<int> AffinityCpus();

// A set of CPUs for Apply(). Only the constructor allocates memory.
class CpuSet {
 public:
  explicit CpuSet(const std::vector<int>& cpus);
  // Restricts the thread to these CPUs. False if the system refuses.
  bool Apply(pthread_t thread) const noexcept;

 private:
  std::vector<cpu_set_t> bits_;
};

}  // namespace minisgl::base
