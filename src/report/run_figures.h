// Reads a summary file: the figures of an earlier run, which report draws and plan estimates from.
//
// The file is untrusted: every field is checked, and the first invalid one is named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "term/run_history.h"

namespace minisgl::report {

struct RunFigures {
  std::string version, model, device, weights;  // "" if not given
  int64_t rows_done = 0, rows_failed = 0;
  int64_t rows_cancelled = 0;  // included in rows_failed; 0 if not given
  double seconds = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, completion_tokens = 0;
  int64_t preemptions = 0;
  std::optional<int64_t> pages_total, page_size, max_running_requests;
  std::optional<int64_t> steps, step_rows;
  // Set for a run that scored texts.
  std::optional<int64_t> scored_tokens;
  std::optional<double> perplexity;
  std::optional<term::TimeSeries> series;  // a chat's summary has none
};

// Reads and parses `path` ("-" is standard input).
Result<Json> ReadJsonFile(const std::string& path);

// kBadInput if `json` is not a summary; `where` names the file in messages.
Result<RunFigures> ParseRunFigures(const Json& json, const std::string& where);

// Returns the member `key` of `object` as a count from 0 to 2^53 (the integers that JSON carries
// exactly).
Result<int64_t> CountField(const Json& object, const char* key, const std::string& where);
// Returns the member as a number from 0 to 1e15.
Result<double> NumberField(const Json& object, const char* key, const std::string& where);

}  // namespace minisgl::report
