// What this machine lets the process use: memory and cores, within cgroup limits (v1 and v2), the
// limits of the process and CPU affinity.
#pragma once

#include <cstdint>
#include <vector>

namespace minisgl {

// Bytes that can still be taken without swapping: MemAvailable, or less where a cgroup or a limit
// of the process (address space, data) leaves less.
uint64_t AvailableMemoryBytes();

// One logical CPU of each physical core within the affinity mask.
std::vector<int> UsableCpus();

// Physical cores within the affinity mask and the cgroup CPU quota (rounded up); at least 1.
int UsableCores();

}  // namespace minisgl
