// See system_info.h. Files of /proc and /sys that are missing or malformed count as "no limit": a
// wrong guess here costs speed or memory, not correctness.
#include "minisgl/base/system_info.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/system_info_roots.h"
#include "base/thread_affinity.h"

namespace minisgl {
namespace base {

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  try {
    return std::string(std::istreambuf_iterator<char>(file), {});
  } catch (const std::ios_base::failure&) {
    return std::nullopt;  // a file that cannot be read, which the stream's buffer throws
  }
}

}  // namespace base

namespace {

using base::ReadText;

constexpr uint64_t kNoLimit = UINT64_MAX;

// The number at the beginning of `text`, after blanks; nullopt for "max", "-1" and anything else.
std::optional<uint64_t> ParseNumber(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const auto text = ReadText(path);
  return text ? ParseNumber(*text) : std::nullopt;
}

// The number after `key` in a file of lines "key number".
std::optional<uint64_t> ReadField(const std::string& path, const std::string& key) {
  std::istringstream lines(ReadText(path).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return ParseNumber(line.substr(key.size()));
  }
  return std::nullopt;
}

// The directories whose limits apply to this process in the hierarchy of `controller` ("" for
// version 2): its group's and all above. A path that is not mounted here (a container sees its own
// group as the root) adds directories without files, which limit nothing.
std::vector<std::string> GroupDirectories(const std::string& root, const std::string& controller) {
  const std::string mount = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
  std::vector<std::string> directories;
  std::istringstream lines(ReadText(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    // number:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (names.find("," + controller + ",") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    while (path.size() > 1 && path[0] == '/') {
      directories.push_back(mount + path);
      path.resize(path.rfind('/'));
    }
  }
  directories.push_back(mount);
  return directories;
}

// Bytes that one group leaves: its limit minus its usage, not counting droppable file pages.
uint64_t LeftInGroup(const std::string& directory, const char* limit_file, const char* usage_file,
                     const char* reclaimable_key) {
  const auto limit = ReadNumber(directory + limit_file);
  if (!limit) return kNoLimit;
  const uint64_t usage = ReadNumber(directory + usage_file).value_or(0);
  const uint64_t reclaimable = ReadField(directory + "/memory.stat", reclaimable_key).value_or(0);
  const uint64_t used = usage - std::min(usage, reclaimable);
  return *limit - std::min(*limit, used);
}

// Bytes that a limit of the process itself (`ulimit -v`, `ulimit -d`) leaves.
uint64_t LeftInProcess(const std::string& root, const char* limit_key, const char* usage_key) {
  const auto limit = ReadField(root + "/proc/self/limits", limit_key);
  if (!limit) return kNoLimit;
  const uint64_t used_kib = ReadField(root + "/proc/self/status", usage_key).value_or(0);
  return *limit - std::min(*limit, used_kib * 1024);
}

// The CPU quota in CPUs, rounded up.
uint64_t QuotaCores(uint64_t quota_us, uint64_t period_us) {
  if (period_us == 0) return kNoLimit;
  return std::max<uint64_t>(1, quota_us / period_us + (quota_us % period_us != 0 ? 1 : 0));
}

uint64_t CpuQuotaCores(const std::string& root) {
  uint64_t cores = kNoLimit;
  for (const std::string& directory : GroupDirectories(root, "")) {
    std::istringstream line(ReadText(directory + "/cpu.max").value_or(""));
    std::string quota, period;
    line >> quota >> period;
    const auto quota_us = ParseNumber(quota), period_us = ParseNumber(period);
    if (quota_us && period_us) cores = std::min(cores, QuotaCores(*quota_us, *period_us));
  }
  for (const std::string& directory : GroupDirectories(root, "cpu")) {
    const auto quota_us = ReadNumber(directory + "/cpu.cfs_quota_us");
    const auto period_us = ReadNumber(directory + "/cpu.cfs_period_us");
    if (quota_us && period_us) cores = std::min(cores, QuotaCores(*quota_us, *period_us));
  }
  return cores;
}

}  // namespace

uint64_t base::AvailableMemoryBytesUnder(const std::string& root) {
  uint64_t available = kNoLimit;
  if (const auto kib = ReadField(root + "/proc/meminfo", "MemAvailable:")) available = *kib * 1024;
  for (const std::string& directory : GroupDirectories(root, "")) {
    available = std::min(
        available, LeftInGroup(directory, "/memory.max", "/memory.current", "inactive_file "));
  }
  for (const std::string& directory : GroupDirectories(root, "memory")) {
    available = std::min(available, LeftInGroup(directory, "/memory.limit_in_bytes",
                                                "/memory.usage_in_bytes", "total_inactive_file "));
  }
  available = std::min(available, LeftInProcess(root, "Max address space ", "VmSize:"));
  return std::min(available, LeftInProcess(root, "Max data size ", "VmData:"));
}

// The CPUs of `cpus` that are the first of their physical core.
std::vector<int> FirstOfEachCore(const std::string& root, const std::vector<int>& cpus) {
  // Logical CPUs of a core share its arithmetic units. A CPU whose core is unknown counts as a
  // core.
  std::set<std::pair<int64_t, int64_t>> cores;
  std::vector<int> firsts;
  for (int cpu : cpus) {
    const std::string topology =
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const auto package = ReadNumber(topology + "physical_package_id");
    const auto core = ReadNumber(topology + "core_id");
    const bool is_told = package && core;
    const auto place = is_told
                           ? std::pair(static_cast<int64_t>(*package), static_cast<int64_t>(*core))
                           : std::pair(int64_t{-1}, int64_t{cpu});
    if (cores.insert(place).second) firsts.push_back(cpu);
  }
  return firsts;
}

int base::UsableCoresUnder(const std::string& root, const std::vector<int>& cpus) {
  const uint64_t count = std::max<uint64_t>(1, FirstOfEachCore(root, cpus).size());
  return static_cast<int>(std::min(count, CpuQuotaCores(root)));
}

uint64_t AvailableMemoryBytes() { return base::AvailableMemoryBytesUnder(""); }

std::vector<int> UsableCpus() { return FirstOfEachCore("", base::AffinityCpus()); }

int UsableCores() { return base::UsableCoresUnder("", base::AffinityCpus()); }

}  // namespace minisgl
