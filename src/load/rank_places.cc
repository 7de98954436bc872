// See rank_places.h.
#include "load/rank_places.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "minisgl/engine/model_engine.h"

namespace minisgl::load {
namespace {

// "0-3,8"
std::string ListText(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

// Why ranks cannot have the nodes `places.nodes`; "" if they can.
std::string WhyNot(const std::vector<NumaNode>& nodes, const RankPlaces& places, int num_threads) {
  for (const NumaNode& node : nodes) {
    if (!node.has_memory) return fmt::format("node {} has no memory for them", node.number);
  }
  const auto num_ranks = static_cast<int32_t>(std::ssize(places.nodes));
  for (int32_t first = 0; first < num_ranks;) {
    const auto at = static_cast<size_t>(first);
    int threads = 0;
    int32_t rank = first;
    for (; rank < num_ranks && places.nodes[static_cast<size_t>(rank)] == places.nodes[at];
         ++rank) {
      threads += ThreadsOfRank(num_threads, {rank, num_ranks});
    }
    if (threads > std::ssize(places.cpus[at])) {
      return fmt::format("node {} has {} processors for {} threads", ListText(places.nodes[at]),
                         places.cpus[at].size(), threads);
    }
    first = rank;
  }
  return "";
}

}  // namespace

RankPlaces PlaceRanks(const std::vector<NumaNode>& nodes, int32_t num_ranks, int num_threads) {
  RankPlaces places;
  const auto num_nodes = static_cast<int32_t>(std::ssize(nodes));
  if (num_ranks == 1 || num_nodes <= 1) return places;
  if (num_ranks % num_nodes != 0 && num_nodes % num_ranks != 0) {
    places.why_not = fmt::format("{} ranks do not divide among {} nodes", num_ranks, num_nodes);
    return places;
  }
  const int32_t nodes_each = std::max(1, num_nodes / num_ranks);
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    const int32_t first = rank * num_nodes / num_ranks;
    std::vector<int> numbers, cpus;
    for (int32_t i = first; i < first + nodes_each; ++i) {
      const NumaNode& node = nodes[static_cast<size_t>(i)];
      numbers.push_back(node.number);
      cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
    }
    std::sort(cpus.begin(), cpus.end());
    places.nodes.push_back(std::move(numbers));
    places.cpus.push_back(std::move(cpus));
  }
  std::string why_not = WhyNot(nodes, places, num_threads);
  if (!why_not.empty()) places = {.nodes = {}, .cpus = {}, .why_not = std::move(why_not)};
  return places;
}

RankPlaces PlaceRanksHere(int32_t num_ranks, int num_threads) {
  if (num_ranks == 1) return {};
  const auto nodes = NumaNodes();
  if (!nodes.ok()) return {.nodes = {}, .cpus = {}, .why_not = nodes.status().message()};
  return PlaceRanks(*nodes, num_ranks, num_threads);
}

std::string PlacesText(const RankPlaces& places) {
  if (!places.why_not.empty()) {
    return fmt::format("ranks run on all NUMA nodes: {}", places.why_not);
  }
  std::string text;
  const size_t num_ranks = places.nodes.size();
  for (size_t first = 0; first < num_ranks;) {
    size_t end = first + 1;
    while (end < num_ranks && places.nodes[end] == places.nodes[first]) ++end;
    const std::string ranks = end - first > 1 ? fmt::format("ranks {}-{}", first, end - 1)
                                              : fmt::format("rank {}", first);
    const std::vector<int>& nodes = places.nodes[first];
    text += fmt::format("{}{} on NUMA node{} {}", text.empty() ? "" : ", ", ranks,
                        nodes.size() > 1 ? "s" : "", ListText(nodes));
    first = end;
  }
  return text;
}

}  // namespace minisgl::load
