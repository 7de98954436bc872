// How a run went over time: samples of its counters, a bounded number however long it runs.
//
// A sample holds totals since the beginning, and of what rises and falls the mean since the sample
// before it. Where there are too many every second one is dropped and they are taken half as often;
// what happened between two that are kept stays exact. Times are seconds since the beginning and
// never decrease. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/sched/scheduler.h"

namespace minisgl::term {

// 0 where no time has passed.
double PerSecond(int64_t count, double seconds);

struct RunSample {
  double time_s = 0;
  // Totals.
  int64_t rows = 0;  // done or failed
  int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, completion_tokens = 0;
  int64_t steps = 0, step_rows = 0, preemptions = 0;
  // Means.
  double running = 0, waiting = 0, pages_used = 0;

  // Of what the scheduler says at a moment.
  static RunSample Of(const SchedulerStats& stats, int64_t rows, double time_s);
};

// Pages that requests hold, apart from those that the cache merely keeps.
int64_t PagesInUse(const SchedulerStats& stats);

class RunHistory {
 public:
  // A run of some minutes is drawn smoothly, and a summary file stays below 60 KB.
  static constexpr size_t kSamplesMax = 500;
  // Fine enough for a run of a few seconds.
  static constexpr double kIntervalMin_s = 0.1;

  // Takes what is so now; may be called as often as one likes.
  void Add(const RunSample& now);
  // The last one, which is kept whenever it comes.
  void End(const RunSample& now);

  const std::vector<RunSample>& samples() const { return samples_; }
  double interval_s() const { return interval_s_; }

  // An object of columns of equal length: time_s, and what ColumnNames() says.
  Json ToJson() const;

 private:
  void Gather(const RunSample& now);
  void Keep(const RunSample& now);

  std::vector<RunSample> samples_;
  double interval_s_ = kIntervalMin_s;
  // Integrals over time since the last kept sample, up to when it was last looked.
  double running_ = 0, waiting_ = 0, pages_used_ = 0;
  RunSample looked_;
};

// A history as a summary file has it: rates and shares of the time that ends at `time_s`.
struct TimeSeries {
  std::vector<double> time_s;
  std::vector<double> prompt_tokens_per_s, computed_tokens_per_s, completion_tokens_per_s;
  std::vector<double> batch_size, running, waiting;
  std::vector<double> cache_hit_percent, pages_used, preemptions;
};

// The columns of a TimeSeries by their names in the file, time_s first.
struct TimeSeriesColumn {
  const char* name;
  std::vector<double> TimeSeries::*values;
};
const std::vector<TimeSeriesColumn>& TimeSeriesColumns();

// Reads what ToJson made, or anybody else: kBadInput naming the field. `where` stands before it.
Result<TimeSeries> ParseTimeSeries(const Json& json, const std::string& where);

}  // namespace minisgl::term
