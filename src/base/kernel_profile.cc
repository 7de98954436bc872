#include "minisgl/base/kernel_profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace minisgl {

void KernelProfile::Add(std::string_view name, Time begin, Time end, int32_t rank) {
  const std::lock_guard lock(mutex_);
  auto& sums = sums_[static_cast<size_t>(rank)];
  auto place = sums.find(name);
  if (place == sums.end()) place = sums.emplace(name, Sum()).first;
  ++place->second.count;
  place->second.total_ms += std::chrono::duration<double, std::milli>(end - begin).count();
  if (keeps_spans_) spans_.push_back({place->first, begin, end, rank});
}

void KernelProfile::SetEmptyMs(double ms) {
  const std::lock_guard lock(mutex_);
  empty_ms_ = ms;
}

void KernelProfile::KeepSpans() {
  const std::lock_guard lock(mutex_);
  keeps_spans_ = true;
}

void KernelProfile::Clear() {
  const std::lock_guard lock(mutex_);
  for (auto& of_rank : sums_) {
    for (auto& [name, sum] : of_rank) sum = Sum();
  }
  spans_.clear();
}

std::vector<KernelProfile::Row> KernelProfile::Rows(int32_t rank) const {
  std::vector<Row> rows;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, sum] : sums_[static_cast<size_t>(rank)]) {
      if (sum.count > 0) rows.push_back({name, sum.count, sum.total_ms});
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.total_ms > b.total_ms; });
  return rows;
}

double KernelProfile::empty_ms() const {
  const std::lock_guard lock(mutex_);
  return empty_ms_;
}

std::vector<KernelProfile::Span> KernelProfile::TakeSpans() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

namespace {

std::string FormatRows(const std::vector<KernelProfile::Row>& rows) {
  double total_ms = 0;
  int64_t count = 0;
  size_t width = 6;
  for (const KernelProfile::Row& row : rows) {
    total_ms += row.total_ms;
    count += row.count;
    width = std::max(width, row.name.size());
  }
  const auto line = [&](const std::string& name, int64_t n, double ms) {
    return fmt::format("{:<{}} {:>9} {:>11.3f} {:>9.2f} {:>6.1f} %\n", name, width, n, ms,
                       n > 0 ? ms * 1000 / static_cast<double>(n) : 0,
                       total_ms > 0 ? ms / total_ms * 100 : 0);
  };
  std::string text = fmt::format("{:<{}} {:>9} {:>11} {:>9} {:>8}\n", "kernel", width, "count",
                                 "total ms", "mean us", "share");
  for (const KernelProfile::Row& row : rows) text += line(row.name, row.count, row.total_ms);
  return text + line("all", count, total_ms);
}

}  // namespace

std::string FormatKernelProfile(const KernelProfile& profile) {
  std::string text;
  for (int32_t rank = 0; rank < profile.num_ranks(); ++rank) {
    if (profile.num_ranks() > 1) text += fmt::format("rank {}\n", rank);
    text += FormatRows(profile.Rows(rank));
  }
  text += fmt::format(
      "Kernels ran one by one, without graphs. One that does nothing measures {:.2f} us.",
      profile.empty_ms() * 1000);
  return text;
}

}  // namespace minisgl
