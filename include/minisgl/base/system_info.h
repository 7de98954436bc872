// Memory and cores that the process may use, within cgroup limits (v1 and v2), process limits and
// CPU affinity.
#pragma once

#include <cstdint>
#include <vector>

namespace minisgl {

// Bytes that can still be allocated without swapping: the least of MemAvailable and what cgroups
// and process limits (address space, data) leave.
uint64_t AvailableMemoryBytes();

// One logical CPU of each physical core within the affinity mask.
std::vector<int> UsableCpus();

// Physical cores within the affinity mask and the cgroup CPU quota (rounded up); at least 1.
int UsableCores();

}  // namespace minisgl
