// Which CPUs a thread may run on.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <vector>

namespace minisgl::base {

// CPU numbers that this thread may run on, ascending; none where the system does not tell.
std::vector<int> AffinityCpus();

// CPUs for a thread, made before they are used: memory is taken here alone.
class CpuSet {
 public:
  explicit CpuSet(const std::vector<int>& cpus);
  // From now on the thread runs on these alone; false where the system refuses.
  bool Apply(pthread_t thread) const noexcept;

 private:
  std::vector<cpu_set_t> bits_;
};

}  // namespace minisgl::base
