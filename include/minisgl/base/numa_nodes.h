// The NUMA nodes of the machine: groups of processors, each with memory that they reach faster than
// the memory of the other nodes.
#pragma once

#include <vector>

#include "minisgl/base/status.h"

namespace minisgl {

// A node on which this process may run.
struct NumaNode {
  int number = 0;          // as the system counts
  std::vector<int> cpus;   // its logical CPUs within the affinity mask, ascending; at least one
  bool has_memory = true;  // that this process may use
};

// Returns the nodes on which this process may run, by number; empty if the system lists none.
// kInternal, with the file, if the system's lists cannot be read or contradict each other.
Result<std::vector<NumaNode>> NumaNodes();

// Restricts the calling thread to these logical CPUs. Memory that it writes first is then of their
// nodes, unless the process was started with another policy. False if the system refuses.
bool KeepThreadOn(const std::vector<int>& cpus);

}  // namespace minisgl
