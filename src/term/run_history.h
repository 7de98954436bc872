// History of a run: samples of its counters, a bounded number regardless of its length.
//
// A sample holds totals since the beginning, and for gauges the mean since the previous sample. If
// there are too many samples, every second one is dropped and the interval is doubled; totals and
// means between the remaining ones stay exact. Times are in seconds since the beginning and never
// decrease. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/sched/scheduler.h"

namespace minisgl::term {

// Returns 0 if no time has passed.
double PerSecond(int64_t count, double seconds);

struct RunSample {
  double time_s = 0;
  // Totals since the beginning.
  int64_t rows = 0;  // done or failed
  int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, completion_tokens = 0;
  int64_t steps = 0, step_rows = 0, preemptions = 0;
  // Means since the previous sample.
  double running = 0, waiting = 0, pages_used = 0;

  // Returns a sample of the scheduler's current state.
  static RunSample Of(const SchedulerStats& stats, int64_t rows, double time_s);
};

// Pages held by requests, not counting pages that only the cache keeps.
int64_t PagesInUse(const SchedulerStats& stats);

class RunHistory {
 public:
  // Enough for a smooth curve; keeps a summary file below 60 KB.
  static constexpr size_t kSamplesMax = 500;
  // Fine enough for a run of a few seconds.
  static constexpr double kIntervalMin_s = 0.1;

  // Records the current state; may be called at any rate.
  void Add(const RunSample& now);
  // Records the final state, which is always kept.
  void End(const RunSample& now);

  const std::vector<RunSample>& samples() const { return samples_; }
  double interval_s() const { return interval_s_; }

  // Returns an object of columns of equal length: time_s and the other TimeSeriesColumns().
  Json ToJson() const;

 private:
  void Gather(const RunSample& now);
  void Keep(const RunSample& now);

  std::vector<RunSample> samples_;
  double interval_s_ = kIntervalMin_s;
  // Integrals over time since the last kept sample, up to the last call of Add.
  double running_ = 0, waiting_ = 0, pages_used_ = 0;
  RunSample last_added_;
};

// A history as stored in a summary file: rates and shares over the interval that ends at `time_s`.
struct TimeSeries {
  std::vector<double> time_s;
  std::vector<double> prompt_tokens_per_s, computed_tokens_per_s, completion_tokens_per_s;
  std::vector<double> batch_size, running, waiting;
  std::vector<double> cache_hit_percent, pages_used, preemptions;
};

// The columns of a TimeSeries and their names in the file; time_s is the first.
struct TimeSeriesColumn {
  const char* name;
  std::vector<double> TimeSeries::*values;
};
const std::vector<TimeSeriesColumn>& TimeSeriesColumns();

// Parses the output of ToJson; the file is untrusted. kBadInput naming the field, with `where`
// before it.
Result<TimeSeries> ParseTimeSeries(const Json& json, const std::string& where);

}  // namespace minisgl::term
