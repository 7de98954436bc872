// See numa_nodes.h. The lists are in /sys/devices/system/node. /proc/self/status has the nodes
// whose memory the process may use, which a cgroup can restrict.
#include "minisgl/base/numa_nodes.h"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/system_info_roots.h"
#include "base/thread_affinity.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

using base::ReadText;

// More nodes and CPUs than any system has.
constexpr int kNumbersMax = 1 << 20;

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
}

// The numbers of a list like "0-3,8", ascending; nullopt for other text.
std::optional<std::vector<int>> ParseList(std::string_view text) {
  std::vector<int> numbers;
  text = Trimmed(text);
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    const size_t dash = range.find('-');
    const auto first = ParseNumber<int>(range.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : ParseNumber<int>(range.substr(dash + 1));
    const int least = numbers.empty() ? 0 : numbers.back() + 1;
    if (!first || !last || *first < least || *last < *first || *last >= kNumbersMax) {
      return std::nullopt;
    }
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
    if (range.size() == text.size()) break;
    text.remove_prefix(range.size() + 1);
    if (text.empty()) return std::nullopt;  // ends with a comma
  }
  return numbers;
}

Result<std::vector<int>> ReadList(const std::string& path) {
  const auto text = ReadText(path);
  if (!text) return MakeStatus(StatusCode::kInternal, "{} cannot be read", Visible(path));
  auto numbers = ParseList(*text);
  if (numbers) return *std::move(numbers);
  return MakeStatus(StatusCode::kInternal, "{} is no list of numbers (found {})", Visible(path),
                    Visible(std::string(Trimmed(*text)), 60));
}

bool Contains(const std::vector<int>& numbers, int number) {
  return std::binary_search(numbers.begin(), numbers.end(), number);
}

// The nodes whose memory the process may use; nullopt: the system does not say.
std::optional<std::vector<int>> AllowedNodes(const std::string& root) {
  constexpr std::string_view kKey = "\nMems_allowed_list:";
  const std::string status = ReadText(root + "/proc/self/status").value_or("");
  const size_t found = status.find(kKey);
  if (found == std::string::npos) return std::nullopt;
  const size_t begin = found + kKey.size();
  return ParseList(std::string_view(status).substr(begin, status.find('\n', begin) - begin));
}

}  // namespace

Result<std::vector<NumaNode>> base::NumaNodesUnder(const std::string& root,
                                                   const std::vector<int>& cpus) {
  const std::string folder = root + "/sys/devices/system/node/";
  std::vector<NumaNode> nodes;
  if (!ReadText(folder + "online")) return nodes;  // a system without nodes
  MINISGL_ASSIGN_OR_RETURN(const std::vector<int> online, ReadList(folder + "online"));
  std::optional<std::vector<int>> with_memory;
  if (ReadText(folder + "has_memory")) {
    MINISGL_ASSIGN_OR_RETURN(with_memory, ReadList(folder + "has_memory"));
  }
  const auto allowed = AllowedNodes(root);
  std::vector<int> found;
  for (const int number : online) {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<int> all,
                             ReadList(folder + "node" + std::to_string(number) + "/cpulist"));
    NumaNode node = {.number = number};
    node.has_memory = (!with_memory || Contains(*with_memory, number)) &&
                      (!allowed || Contains(*allowed, number));
    std::copy_if(all.begin(), all.end(), std::back_inserter(node.cpus),
                 [&](int cpu) { return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end(); });
    found.insert(found.end(), node.cpus.begin(), node.cpus.end());
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  std::sort(found.begin(), found.end());
  if (std::adjacent_find(found.begin(), found.end()) != found.end()) {
    return MakeStatus(StatusCode::kInternal, "{}: a CPU is on two nodes", Visible(folder));
  }
  for (const int cpu : cpus) {
    if (Contains(found, cpu)) continue;
    return MakeStatus(StatusCode::kInternal, "{}: CPU {} is on no node", Visible(folder), cpu);
  }
  return nodes;
}

Result<std::vector<NumaNode>> NumaNodes() { return base::NumaNodesUnder("", base::AffinityCpus()); }

bool KeepThreadOn(const std::vector<int>& cpus) { return base::CpuSet(cpus).Apply(pthread_self()); }

}  // namespace minisgl
