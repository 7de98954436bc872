// The functions of system_info.h and numa_nodes.h over any directory tree that looks like a
// machine's, for tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/numa_nodes.h"

namespace minisgl::base {

// `root` stands before /proc and /sys ("" for this machine).
uint64_t AvailableMemoryBytesUnder(const std::string& root);

// `cpus`: the affinity mask, as numbers of logical CPUs.
int UsableCoresUnder(const std::string& root, const std::vector<int>& cpus);
Result<std::vector<NumaNode>> NumaNodesUnder(const std::string& root, const std::vector<int>& cpus);

// A whole file; nullopt if it cannot be opened or read.
std::optional<std::string> ReadText(const std::string& path);

}  // namespace minisgl::base
