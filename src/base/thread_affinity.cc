// See thread_affinity.h.
#include "base/thread_affinity.h"

#include <algorithm>
#include <cstddef>

namespace minisgl::base {

std::vector<int> AffinityCpus() {
  // A machine with more CPUs than the set holds makes the call fail; then a larger set is tried.
  for (size_t num_cpus = 1024; num_cpus <= (size_t{1} << 20); num_cpus *= 4) {
    std::vector<cpu_set_t> sets(num_cpus / CPU_SETSIZE);
    const size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) != 0) continue;
    std::vector<int> cpus;
    for (size_t cpu = 0; cpu < num_cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, sets.data())) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
  }
  return {};
}

CpuSet::CpuSet(const std::vector<int>& cpus) {
  const int last = cpus.empty() ? 0 : *std::max_element(cpus.begin(), cpus.end());
  bits_.resize(static_cast<size_t>(last) / CPU_SETSIZE + 1);  // all zero
  const size_t bytes = bits_.size() * sizeof(cpu_set_t);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, bits_.data());
}

bool CpuSet::Apply(pthread_t thread) const noexcept {
  return pthread_setaffinity_np(thread, bits_.size() * sizeof(cpu_set_t), bits_.data()) == 0;
}

}  // namespace minisgl::base
