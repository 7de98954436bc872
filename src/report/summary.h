// What a run or a chat did, in figures: for a person on standard error, for programs as JSON.
//
// The names in the JSON are documented in minisgl-options(7) and stay as they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "batch/failures.h"
#include "load/model_loader.h"
#include "load/options.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/runtime/runtime.h"
#include "term/output.h"

namespace minisgl::report {

struct RunSummary {
  int64_t rows_done = 0;    // of a chat: answers
  int64_t rows_failed = 0;  // cancelled ones too
  // Of a run, why rows failed; of a chat not known.
  std::optional<batch::Failures> failures;
  double seconds = 0;  // of a chat: that answers took
  RuntimeStats stats;
  Json about;        // AboutRun; null: nothing is said of it
  Json time_series;  // RunHistory::ToJson; null: none was kept
};

// What ran: version, model, device, weights, and the options that decide about speed.
Json AboutRun(const load::LoadedModel& model, const load::EngineOptions& options);

// Several lines, without a line break at the end; of a run that asked nothing one.
std::string FormatSummary(const RunSummary& summary);
// Every figure, but the time series.
Json SummaryJson(const RunSummary& summary);
// The text of a summary file, the series a line a column.
std::string SummaryText(const RunSummary& summary);
// Every figure of scheduler and runtime, one a line: what --stats prints.
std::string FormatStats(const RuntimeStats& stats);

// Into `output`, which holds nothing else.
Status WriteSummaryFile(const RunSummary& summary, term::Output* output);

}  // namespace minisgl::report
