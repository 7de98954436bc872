// The heart of `minisgl run`: keeps a bounded number of rows in the runtime, puts their events
// together, and hands each row to the writer exactly once: its answers, or the error that it ended
// with.
//
// One thread, which may be any: nothing here belongs to the process but what `stop` asks, where
// that is left as it is. Memory depends on the bounds below, not on the length of the input.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "batch/answer_writer.h"
#include "batch/failures.h"
#include "batch/row.h"
#include "batch/row_preparer.h"
#include "batch/row_prompt.h"
#include "batch/row_source.h"
#include "batch/row_window.h"
#include "minisgl/base/status.h"
#include "minisgl/runtime/runtime.h"
#include "term/progress.h"
#include "term/signals.h"

namespace minisgl::batch {

// Rows kept in the runtime: enough that a step never lacks any, few enough that memory is flat.
inline constexpr int64_t kAheadPerRunningRequest = 4;

struct RunLoopOptions {
  int64_t answers_ahead_max = 1024;  // submitted
  // Read and not yet submitted: rows that share a prefix are chosen from so many, and none waits
  // for more than twice as many others. 1: in the order of the input.
  int64_t window_answers_max = 1024;
  // Answered and held for rows before them. More than those others, so that whom they wait for is
  // asked before this is reached.
  int64_t held_rows_max = 4096;
  // Of their rows as read, and of answers held for those before them; one row always may.
  size_t bytes_ahead_max = size_t{64} << 20;
  std::chrono::milliseconds grace{5000};  // to finish what runs after a stop
  std::optional<int64_t> rows_total;      // for the progress line
  // So many rows that fail end the run as a stop does; unset: none do.
  std::optional<int64_t> failures_max;
  // Asked often, from the thread of Run.
  std::function<term::StopRequest()> stop = term::StopOfProcess;
  // Told how far the run is, from the thread of Run, many times a second and at its end; may be
  // empty.
  std::function<void(const term::Progress::Numbers&)> on_numbers;
};

class RunLoop {
 public:
  // All outlive the loop; `progress` may be null.
  RunLoop(Runtime* runtime, const PromptBuilder* prompts, RowSource* source, AnswerWriter* writer,
          term::Progress* progress, const RunLoopOptions& options);
  ~RunLoop();

  // Until every row is written, or a stop was asked for (at once: without waiting). kIoError: input
  // or output failed; what the input gave before is answered. kBadInput: the input changed, and the
  // same. kInternal: the device or the program did; the rows that were asked say
  // so.
  Status Run();

  int64_t rows_done() const { return rows_done_; }
  // Cancelled ones too.
  int64_t rows_failed() const { return failures_.total(); }
  const Failures& failures() const { return failures_; }
  // The reason of the stop that ended the run; 0 where none did.
  int stop_reason() const { return stop_.reason; }
  // Whether a stop or failures_max ended the run before its input did.
  bool ended_early() const { return stopping_; }

 private:
  using Clock = std::chrono::steady_clock;

  // A row that was submitted, without what only the prompt needed.
  struct Pending {
    Row row;
    std::vector<RowAnswer> answers;
    std::vector<RequestId> requests;
    size_t bytes = 0;
    int32_t open_answers = 0;
    bool timed_out = false;
    bool lowered = false;  // a warning says so already
    std::optional<RowError> error;
  };

  bool IsWithinBounds() const;
  bool HasRoom() const { return pending_.empty() || IsWithinBounds(); }
  bool WindowHasRoom() const;
  bool Stops() const { return stopping_ || fault_.has_value(); }
  bool TooManyFailed() const;
  Status Admit();
  Status FillWindow();
  // Whether nothing is left that has not been asked.
  bool IsAllAsked() const { return source_ended_ && window_.empty() && preparer_.empty(); }
  Status TakeInRow(ParsedRow parsed, size_t bytes);
  Status AddToWindow(ReadyRow ready, const std::optional<RowError>& error);
  Status TakePrepared(std::chrono::milliseconds wait);
  void Submit(ReadyRow ready);
  Status TakeEvents();
  Status TakeEvent(Event event);
  void FinishAnswer(const Event& event, int32_t answer_index, Pending* pending);
  Status FinishRow(int64_t index);
  Status WriteFailure(const Row& row, const RowError& error);
  void AbortRow(const Pending& pending);
  void CheckStop();
  void SayStop() const;
  Status LeaveAtOnce();
  Status End();
  Status CancelPreparing();
  Status CancelWindow();
  Status CancelUnread();
  void ShowProgress() const;

  Runtime& runtime_;
  const PromptBuilder& prompts_;
  RowSource& source_;
  AnswerWriter& writer_;
  term::Progress* const progress_;
  const RunLoopOptions options_;

  EventQueue queue_;
  RowWindow window_;
  RowPreparer preparer_;
  std::unordered_map<int64_t, Pending> pending_;  // by row index
  int64_t open_answers_ = 0;
  size_t open_bytes_ = 0;
  int64_t tokens_ = 0;
  int64_t finished_tokens_ = 0;  // of rows that are done
  int64_t rows_done_ = 0;
  Failures failures_;
  bool asked_any_ = false;
  bool source_ended_ = false;
  Status source_status_;     // why it ended
  bool source_dry_ = false;  // a pipe had nothing yet
  bool aborted_all_ = false;
  term::StopRequest stop_;
  bool stopping_ = false;  // asked for, or too many failed
  Clock::time_point stop_at_;
  std::optional<Status> fault_;
};

}  // namespace minisgl::batch
