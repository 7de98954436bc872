#include "bench/bench_report.h"

#include <fmt/core.h>

#include <cmath>
#include <cstddef>
#include <iterator>

namespace minisgl::bench {
namespace {

// Formats `value` with the largest prefix that leaves at least 1 before the decimal point.
std::string WithPrefix(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; value >= 1000 && prefix + 1 < std::size(kPrefixes); ++prefix) value /= 1000;
  return fmt::format("{:.{}f} {}{}", value,
                     value < 10    ? 2
                     : value < 100 ? 1
                                   : 0,
                     kPrefixes[prefix], unit);
}

}  // namespace

Result<std::unique_ptr<BenchReport>> BenchReport::Open(const std::string& json_path, bool force) {
  std::unique_ptr<BenchReport> report(new BenchReport());
  if (!json_path.empty()) {
    MINISGL_ASSIGN_OR_RETURN(report->json_output_, term::Output::Open(json_path, force, -1));
  }
  if (json_path != "-") {
    MINISGL_ASSIGN_OR_RETURN(report->text_, term::Output::Open("", false, -1));
  }
  return report;
}

void BenchReport::Line(std::string_view name, std::string_view text) {
  if (text_ == nullptr || !status_.ok()) return;
  status_ = text_->Write(fmt::format("{:<12}{}\n", name, text));
}

Status BenchReport::Finish() {
  MINISGL_RETURN_IF_ERROR(status_);
  if (json_output_ == nullptr) return Status();
  MINISGL_RETURN_IF_ERROR(json_output_->Begin());
  MINISGL_RETURN_IF_ERROR(json_output_->Write(json_.Dump(2) + "\n"));
  return json_output_->Finish();
}

bool BenchReport::pipe_closed() const {
  return (text_ != nullptr && text_->pipe_closed()) ||
         (json_output_ != nullptr && json_output_->pipe_closed());
}

std::string FormatBytesPerSecond(double rate) { return WithPrefix(rate, "B/s"); }
std::string FormatFlopsPerSecond(double rate) { return WithPrefix(rate, "FLOP/s"); }

std::string FormatSeconds(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.2f} ms", 1e3 * seconds)
                         : fmt::format("{:.1f} us", 1e6 * seconds);
}

std::string FormatPercent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace minisgl::bench
