// Ranks on the nodes of made-up machines.
#include "load/rank_places.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace minisgl::load {
namespace {

// Nodes of `cpus_each` logical CPUs.
std::vector<NumaNode> Nodes(const std::vector<int>& numbers, int cpus_each) {
  std::vector<NumaNode> nodes;
  int next = 0;
  for (const int number : numbers) {
    std::vector<int> cpus(static_cast<size_t>(cpus_each));
    std::iota(cpus.begin(), cpus.end(), next);
    next += cpus_each;
    nodes.push_back({.number = number, .cpus = std::move(cpus)});
  }
  return nodes;
}

TEST(RankPlacesTest, OneNodeOrOneRankChangesNothing) {
  for (const RankPlaces& places : {PlaceRanks(Nodes({0}, 8), 2, 8), PlaceRanks({}, 2, 8),
                                   PlaceRanks(Nodes({0, 1}, 8), 1, 16)}) {
    EXPECT_TRUE(places.cpus.empty());
    EXPECT_EQ(PlacesText(places), "");
  }
}

TEST(RankPlacesTest, RanksHaveTheProcessorsOfTheirNodes) {
  const RankPlaces two = PlaceRanks(Nodes({0, 1}, 2), 2, 4);
  EXPECT_EQ(two.cpus, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(PlacesText(two), "rank 0 on NUMA node 0, rank 1 on NUMA node 1");
  const RankPlaces four = PlaceRanks(Nodes({0, 7}, 2), 4, 4);
  EXPECT_EQ(four.cpus, (std::vector<std::vector<int>>{{0, 1}, {0, 1}, {2, 3}, {2, 3}}));
  EXPECT_EQ(PlacesText(four), "ranks 0-1 on NUMA node 0, ranks 2-3 on NUMA node 7");
  const RankPlaces few = PlaceRanks(Nodes({0, 1, 2, 4}, 2), 2, 8);
  EXPECT_EQ(few.cpus, (std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(PlacesText(few), "rank 0 on NUMA nodes 0-1, rank 1 on NUMA nodes 2,4");
}

TEST(RankPlacesTest, ProcessorsOfSeveralNodesAreAscending) {
  std::vector<NumaNode> nodes = Nodes({0, 1, 2, 3}, 1);
  nodes[0].cpus = {0, 4};
  nodes[1].cpus = {1, 5};
  EXPECT_EQ(PlaceRanks(nodes, 2, 2).cpus[0], (std::vector<int>{0, 1, 4, 5}));
}

TEST(RankPlacesTest, RanksThatWouldNotBeAlikeAreNotPlaced) {
  const auto why_not = [](const std::vector<NumaNode>& nodes, int32_t num_ranks, int threads) {
    const RankPlaces places = PlaceRanks(nodes, num_ranks, threads);
    EXPECT_TRUE(places.cpus.empty() && places.nodes.empty());
    EXPECT_EQ(PlacesText(places), "ranks run on all NUMA nodes: " + places.why_not);
    return places.why_not;
  };
  EXPECT_EQ(why_not(Nodes({0, 1}, 8), 3, 8), "3 ranks do not divide among 2 nodes");
  EXPECT_EQ(why_not(Nodes({0, 1, 2}, 8), 2, 8), "2 ranks do not divide among 3 nodes");
  std::vector<NumaNode> nodes = Nodes({0, 1}, 8);
  nodes[1].cpus.resize(2);  // by a cgroup
  EXPECT_EQ(why_not(nodes, 2, 10), "node 1 has 2 processors for 5 threads");
  EXPECT_EQ(why_not(nodes, 4, 10), "node 1 has 2 processors for 4 threads");
  EXPECT_EQ(PlaceRanks(nodes, 2, 4).why_not, "");
  nodes[0].has_memory = false;
  EXPECT_EQ(why_not(nodes, 2, 2), "node 0 has no memory for them");
}

}  // namespace
}  // namespace minisgl::load
