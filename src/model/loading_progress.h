// The progress of loading a model, and its log.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "minisgl/base/log.h"

namespace minisgl::model {

// Reports the progress of loading, in layers and the part outside of them. Its destructor reports
// the end, also after a failure.
class LoadingProgress {
 public:
  // Ranks load at the same time: one of them reports.
  LoadingProgress(int32_t num_layers, bool reports)
      : total_(int64_t{num_layers} + 1), reports_(reports) {
    if (reports_) ReportProgress(kWhat, 0, total_);
  }
  ~LoadingProgress() {
    if (reports_) ReportProgress(kWhat, total_, total_);
  }
  LoadingProgress(const LoadingProgress&) = delete;
  LoadingProgress& operator=(const LoadingProgress&) = delete;

  void Advance() {
    ++done_;
    if (!reports_) return;
    if (done_ < total_) ReportProgress(kWhat, done_, total_);
    if (done_ > 1)
      Log(LogLevel::kVerbose, fmt::format("loaded layer {} of {}", done_ - 1, total_ - 1));
  }

 private:
  static constexpr std::string_view kWhat = "loading weights";
  const int64_t total_;
  const bool reports_;
  int64_t done_ = 0;
};

}  // namespace minisgl::model
