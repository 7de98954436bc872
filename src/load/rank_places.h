// Where the ranks of --tensor-parallel run on a machine with several NUMA nodes: each on the
// processors of its own nodes, with its weights, keys and values in their memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/base/numa_nodes.h"

namespace minisgl::load {

struct RankPlaces {
  std::vector<std::vector<int>> nodes;  // numbers of each rank's nodes; empty: all ranks on all
  std::vector<std::vector<int>> cpus;   // logical CPUs of each rank, likewise
  std::string why_not;  // why ranks are not placed, although there are several nodes; else ""
};

// Places ranks on nodes in their order: as many ranks on each node, or as many nodes for each rank.
// They are not placed if neither can be, or if a node has fewer logical CPUs than its ranks have
// threads: some ranks would be slower, and all wait for the slowest.
RankPlaces PlaceRanks(const std::vector<NumaNode>& nodes, int32_t num_ranks, int num_threads);

// The same on the nodes of this machine.
RankPlaces PlaceRanksHere(int32_t num_ranks, int num_threads);

// "ranks 0-1 on NUMA node 0, ranks 2-3 on NUMA node 1", or why they are not placed; "" if there is
// only one node.
std::string PlacesText(const RankPlaces& places);

}  // namespace minisgl::load
