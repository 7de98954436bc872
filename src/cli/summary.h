// What a run did, in figures: for a person on standard error, for programs as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/output.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl {

struct RunSummary {
  int64_t rows_done = 0;
  int64_t rows_failed = 0;
  double seconds = 0;
  RuntimeStats stats;
};

// The value that `percent` of `values` do not exceed (nearest rank); 0 for none.
double Percentile(std::vector<double> values, double percent);

// Several lines, without a line break at the end.
std::string FormatSummary(const RunSummary& summary);
Json SummaryJson(const RunSummary& summary);
// The scheduler's figures, one a line.
std::string FormatSchedulerStats(const SchedulerStats& stats);

// Into `output`, which holds nothing else.
Status WriteSummaryFile(const RunSummary& summary, Output* output);

}  // namespace minisgl
