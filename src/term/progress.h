// How far a run is, on standard error: one line rewritten on a terminal, a plain line every ten
// seconds elsewhere; and the history of it that the summary file keeps, shown or not.
//
// The line fits the terminal as wide as it is when it is drawn: what does not fit is left out from
// the right. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "minisgl/sched/scheduler.h"
#include "term/run_history.h"

namespace minisgl::term {

// What a line says.
struct ProgressView {
  int64_t done = 0;  // failed and cancelled ones too
  int64_t failed = 0, cancelled = 0;
  std::optional<int64_t> total;        // unset for a pipe
  std::optional<double> left_s;        // unset while nobody can tell
  std::optional<double> grace_left_s;  // while the run stops; then left_s is not said
  double in_per_s = 0, out_per_s = 0;
  int64_t running = 0, waiting = 0;
  std::optional<double> hit_percent;  // unset before the first prompt
  int64_t pages_used = 0, pages_total = 0;
};

// A line of at most `columns` columns.
std::string FormatProgressLine(const ProgressView& view, int columns, bool colour);
// One for a log file, without an end.
std::string FormatProgressPlain(const ProgressView& view);
// "1,234,567"
std::string FormatCount(int64_t value);
// "1,234" a second, below 10 "1.2": the one way that rates of tokens are said.
std::string FormatRate(double per_second);
// "8 s", "2m05s", "3h20m", "4d02h"
std::string FormatDuration(double seconds);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  struct Numbers {
    int64_t done = 0;
    int64_t failed = 0;            // cancelled ones too
    int64_t cancelled = 0;         // of those
    std::optional<int64_t> total;  // unset for a pipe
    int64_t tokens = 0;            // of answers so far
    int64_t finished_tokens = 0;   // of those, of rows that are done
    // Once the run stops: what is left of the time that asked rows have to finish.
    std::optional<double> grace_left_s;
    SchedulerStats stats;
  };

  // Shows nothing where not `enabled`.
  Progress(bool enabled, bool terminal, Clock::time_point begin = Clock::now());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether Update has any use: gathering its numbers may cost more than looking.
  bool IsDue(Clock::time_point now = Clock::now()) const { return now >= next_sample_; }
  // Notes `numbers`, and shows them if it is time.
  void Update(const Numbers& numbers, Clock::time_point now = Clock::now());
  // Takes the line away.
  void Finish();

  // What was so at the end is noted with it.
  const RunHistory& EndHistory(const SchedulerStats& stats, int64_t rows,
                               Clock::time_point now = Clock::now());

 private:
  struct Mark {
    double time_s = 0;
    int64_t prompt_tokens = 0, completion_tokens = 0;
  };

  double SecondsAt(Clock::time_point now) const {
    return std::chrono::duration<double>(now - begin_).count();
  }
  ProgressView ViewOf(const Numbers& numbers, double now_s) const;
  std::optional<double> SecondsLeft(const Numbers& numbers, double now_s) const;

  const bool enabled_;
  const bool terminal_;
  const Clock::time_point begin_;
  Clock::time_point next_sample_, next_line_;
  std::deque<Mark> recent_;  // of the last seconds, oldest first
  RunHistory history_;
};

// "loading weights [=====     ] 14/28", the bar `columns` wide. REQUIRES 0 <= done <= total.
std::string ProgressBar(std::string_view what, int64_t done, int64_t total, int columns);

// Shows what base/log.h's SayProgress says as a bar on the terminal, once it has gone on for a
// moment.
void InstallProgressBar();

}  // namespace minisgl::term
