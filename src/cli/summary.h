// What a run or a chat did, in figures: for a person on standard error, for programs as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "cli/output.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl {

struct RunSummary {
  int64_t rows_done = 0;  // of a chat: answers
  int64_t rows_failed = 0;
  double seconds = 0;  // of a chat: that answers took
  RuntimeStats stats;
};

// Several lines, without a line break at the end.
std::string FormatSummary(const RunSummary& summary);
Json SummaryJson(const RunSummary& summary);
// Every figure of scheduler and runtime, one a line: what --stats prints.
std::string FormatStats(const RuntimeStats& stats);

// Into `output`, which holds nothing else.
Status WriteSummaryFile(const RunSummary& summary, Output* output);

}  // namespace minisgl
