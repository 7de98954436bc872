// Figures of a run or a chat: as text on standard error, and as JSON.
//
// The names in the JSON are documented in minisgl-options(7) and must not change.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "batch/failures.h"
#include "batch/score_totals.h"
#include "load/model_loader.h"
#include "load/options.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/runtime/runtime.h"
#include "term/output.h"

namespace minisgl::report {

struct RunSummary {
  int64_t rows_done = 0;    // for a chat: answers
  int64_t rows_failed = 0;  // including those that a stop left without an answer
  // Error counts of a run; unset for a chat.
  std::optional<batch::Failures> failures;
  std::optional<batch::ScoreTotals> scores;  // of the whole output of `minisgl score`
  bool of_texts = false;                     // that became vectors, labels or scores: no answers
  // Tokens of the answers' reasoning, and answers that ended before theirs was closed.
  int64_t reasoning_tokens = 0, answers_in_thought = 0;
  // Answers of a run by finish reason; empty: omitted.
  std::map<std::string, int64_t> finish_reasons;
  double seconds = 0;  // for a chat: time spent on answers
  RuntimeStats stats;
  Json about;        // from AboutRun; null: omitted
  Json time_series;  // from RunHistory::ToJson; null: omitted
};

// Describes what ran: version, model, device, weights, and the options that affect speed.
Json AboutRun(const load::LoadedModel& model, const load::EngineOptions& options);

// How many drafts were right, of the first ones, the second ones and so on, and the tokens that a
// step gave. REQUIRES stats.drafted_tokens > 0.
std::string AcceptanceText(const SchedulerStats& stats);

// Returns several lines without a final line break; a single line if no request was submitted.
std::string FormatSummary(const RunSummary& summary);
// Returns all figures except the time series.
Json SummaryJson(const RunSummary& summary);
// Returns the text of a summary file: SummaryJson and the time series, one line for each column.
std::string SummaryText(const RunSummary& summary);
// Returns all figures of scheduler and runtime, one on a line, for --stats.
std::string FormatStats(const RuntimeStats& stats);

// Writes SummaryText to `output`, which must hold nothing else.
Status WriteSummaryFile(const RunSummary& summary, term::Output* output);

}  // namespace minisgl::report
