// Times of the kernels that the device of each rank ran: sums by name, and single spans for a
// trace. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

class KernelProfile {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Span {
    std::string_view name;  // valid as long as the profile
    Time begin, end;
    int32_t rank = 0;
  };
  struct Row {
    std::string name;
    int64_t count = 0;
    double total_ms = 0;
  };

  explicit KernelProfile(int32_t num_ranks = 1) : sums_(static_cast<size_t>(num_ranks)) {}
  int32_t num_ranks() const { return static_cast<int32_t>(sums_.size()); }

  // REQUIRES 0 <= rank < num_ranks().
  void Add(std::string_view name, Time begin, Time end, int32_t rank = 0);
  // Sets the time that a kernel that does nothing takes: every other time includes it.
  void SetEmptyMs(double ms);
  // Makes later calls of Add keep their spans for TakeSpans.
  void KeepSpans();
  // Forgets all times so far.
  void Clear();

  // One row for each name of `rank` that has a time, the largest sum first.
  std::vector<Row> Rows(int32_t rank = 0) const;
  double empty_ms() const;
  // The spans since the last call, in the order of Add.
  std::vector<Span> TakeSpans();

 private:
  struct Sum {
    int64_t count = 0;
    double total_ms = 0;
  };

  mutable std::mutex mutex_;
  // [ranks]. Names are never removed.
  std::vector<std::map<std::string, Sum, std::less<>>> sums_;
  std::vector<Span> spans_;
  bool keeps_spans_ = false;
  double empty_ms_ = 0;
};

// Formats the rows as lines for a terminal: name, count, total, mean and share of each, and the
// sum. Each rank has a table.
std::string FormatKernelProfile(const KernelProfile& profile);

}  // namespace minisgl
