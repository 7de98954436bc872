// Progress of a run on standard error: on a terminal one line that is rewritten, elsewhere a plain
// line every ten seconds; or an object of JSON every second, for programs. Also keeps the history
// for the summary file, whether shown or not.
//
// The line is fitted to the current width of the terminal: fields that do not fit are dropped from
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

// kAuto: a line for people, as standard error is a terminal or not.
enum class ProgressKind : uint8_t { kAuto, kJson, kNone };

// Contents of a progress line.
struct ProgressView {
  int64_t done = 0;  // written, including failed and cancelled ones
  int64_t failed = 0, cancelled = 0;
  int64_t held = 0;              // ended, and not written before an earlier row is
  int64_t before = 0;            // of an earlier run that this one resumes; not in done and total
  std::optional<int64_t> total;  // unset for a pipe
  std::optional<double> left_s;  // unset while unknown
  std::optional<double> grace_left_s;  // set while the run stops; replaces left_s
  double seconds = 0;                  // since the beginning
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  double in_per_s = 0, out_per_s = 0;
  bool has_answers = true;  // else nothing comes out
  int64_t running = 0, waiting = 0;
  std::optional<double> hit_percent;  // unset before the first prompt
  int64_t pages_used = 0, pages_total = 0;
};

// Returns a line of at most `columns` columns.
std::string FormatProgressLine(const ProgressView& view, int columns, bool colour);
// Returns a line for a log file, without a line break.
std::string FormatProgressPlain(const ProgressView& view);
// Returns an object on one line, without a line break. `ended`: it is the last one of the run.
std::string FormatProgressJson(const ProgressView& view, bool ended);
// "1,234,567"
std::string FormatCount(int64_t value);
// Formats a rate of tokens per second: "1,234", below 10 with a decimal, "1.2". Used for all rates.
std::string FormatRate(double per_second);
// "8 s", "2m05s", "3h20m", "4d02h"
std::string FormatDuration(double seconds);
// "12 B", "1.5 MiB"
std::string FormatBytes(uint64_t bytes);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  struct Numbers {
    int64_t done = 0;
    int64_t failed = 0;     // including cancelled ones
    int64_t cancelled = 0;  // included in failed
    // Rows that ended and wait until an earlier row is written: included in done, and in failed.
    int64_t held_done = 0, held_failed = 0;
    int64_t before = 0;            // rows of the earlier run that this one resumes
    std::optional<int64_t> total;  // unset for a pipe
    bool has_answers = true;       // false: texts become vectors, labels or scores
    int64_t tokens = 0;            // generated so far
    int64_t finished_tokens = 0;   // tokens of finished rows, included in tokens
    // While the run stops: remaining time for running requests to finish.
    std::optional<double> grace_left_s;
    SchedulerStats stats;
  };

  // `terminal`: standard error is one; of kAuto.
  Progress(ProgressKind kind, bool terminal, Clock::time_point begin = Clock::now());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // True if Update would use new numbers; check it first, since gathering them may be expensive.
  bool IsDue(Clock::time_point now = Clock::now()) const { return now >= next_sample_; }
  // Records `numbers`, and shows them if it is time.
  void Update(const Numbers& numbers, Clock::time_point now = Clock::now());
  // Shows the last object, of JSON.
  void End(const Numbers& numbers, Clock::time_point now = Clock::now());
  // Clears the line.
  void Finish();

  // Records the final state and returns the history.
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
  // The rates cover the last seconds, or the whole run.
  ProgressView ViewOf(const Numbers& numbers, double now_s, bool whole_run) const;
  std::optional<double> SecondsLeft(const Numbers& numbers, double now_s) const;

  Clock::duration Interval() const;

  const ProgressKind kind_;
  const bool terminal_;
  const Clock::time_point begin_;
  Clock::time_point next_sample_, next_line_;
  std::deque<Mark> recent_;  // of the last kRateWindow_s, oldest first
  RunHistory history_;
};

// Returns "loading weights [=====     ] 14/28" with a bar `columns` wide. REQUIRES 0 <= done <=
// total.
std::string ProgressBar(std::string_view what, int64_t done, int64_t total, int columns);

// Shows the progress that base/log.h's ReportProgress reports as a bar on the terminal, if it takes
// longer than a moment.
void InstallProgressBar();

}  // namespace minisgl::term
