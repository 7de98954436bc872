// Main loop of `minisgl run`: keeps a bounded number of rows in the runtime, collects their events,
// and hands each row to the writer exactly once, with its answers or its error.
//
// Runs on one thread, which may be any. It uses nothing process-wide except the default of `stop`.
// Memory depends on the bounds below, not on the length of the input.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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
#include "batch/session_rows.h"
#include "batch/tool_runner.h"
#include "minisgl/base/status.h"
#include "minisgl/runtime/runtime.h"
#include "term/progress.h"
#include "term/signals.h"

namespace minisgl::batch {

// Answers submitted for each running request: enough that no step lacks requests, few enough that
// memory stays bounded.
inline constexpr int64_t kSubmittedPerRunningRequest = 4;

// Tools whose calls in answers are run.
struct RowTools {
  ToolRunner::Run run;                                 // empty: calls are not run
  std::function<bool(const std::string& name)> knows;  // the user named the tool
  int64_t turns_max = 8;                               // answers to one message whose calls are run
  int64_t at_once = 8;                                 // calls that run at the same time
};

struct RunLoopOptions {
  int64_t answers_ahead_max = 1024;  // submitted, not finished
  // Bound on the window of rows read but not submitted, from which rows with a common prefix are
  // chosen. A row waits for at most twice as many others. 1 means input order.
  int64_t window_answers_max = 1024;
  // Sessions of which rows are submitted at once. Each has one row in work, so that fewer than the
  // rows that run would leave room unused.
  int64_t open_sessions_max = 256;
  // Bound on rows that wait for the earlier rows of their sessions. They are not part of the
  // window, so that other rows go on.
  int64_t waiting_rows_max = 16384;
  // Bound on rows that are answered but held until earlier rows are written. Larger than the bounds
  // above, so that the row they wait for is submitted before this bound is reached.
  int64_t held_rows_max = 4096;
  // Bound on the bytes of these rows as read, and of held answers; a single row may exceed it.
  size_t bytes_ahead_max = size_t{64} << 20;
  std::chrono::milliseconds grace{5000};       // for running requests to finish after a stop
  std::string stop_again = "a second signal";  // what ends the grace, in words
  // Rows that were read and that a stop leaves without an answer are written as error rows with the
  // code "cancelled", for a reader that waits for them. Otherwise they are only counted, and so are
  // rows that were not read; a row of which some turns were answered is written in any case.
  bool writes_cancelled = false;
  std::optional<int64_t> rows_total;  // for the progress line
  int64_t rows_before = 0;            // rows of the run that this one resumes; likewise
  // This many failed rows end the run like a stop; unset: no limit.
  std::optional<int64_t> failures_max;
  // A row whose answers took too long is asked so often again, after all others; and fewer than
  // so many of these answers run at once, so that none waits for others.
  int32_t timeout_retries = 0;
  bool has_answers = true;  // false: progress speaks of none
  int64_t retried_answers_max = 256;
  RowTools tools;
  // Bound on rows whose calls run or wait for it. Until there are fewer, no row is begun.
  int64_t calling_rows_max = 1024;
  // Called often, on the thread of Run.
  std::function<term::StopRequest()> stop = term::StopOfProcess;
  // Called with the state of the run on the thread of Run, many times a second and at the end; may
  // be empty.
  std::function<void(const term::Progress::Numbers&)> on_numbers;
};

class RunLoop {
 public:
  // All must outlive the loop; `progress` may be null.
  RunLoop(Runtime* runtime, const PromptBuilder* prompts, RowSource* source, AnswerWriter* writer,
          term::Progress* progress, const RunLoopOptions& options);
  ~RunLoop();

  // Runs until every row is written or a stop is requested (with at_once: without waiting). The
  // time that a stop takes does not depend on the rows that were not read.
  // - kIoError: input or output failed. Rows read before the failure are answered.
  // - kBadInput: the input changed. Rows read before are answered.
  // - kInternal: the device or the program failed. The rows that ran have error rows.
  Status Run();

  int64_t rows_done() const { return rows_done_; }
  // Including cancelled ones, written or not.
  int64_t rows_failed() const { return failures_.total(); }
  const Failures& failures() const { return failures_; }
  // Answers that ended because generation_config.json limits their tokens.
  int64_t answers_cut_by_model() const { return answers_cut_by_model_; }
  // Answers whose reasoning was not closed, so that they have no text; and the tokens of reasoning
  // of all answers.
  int64_t answers_in_thought() const { return answers_in_thought_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  // Answers that were written, by finish reason.
  const std::map<std::string, int64_t>& finish_reasons() const { return finish_reasons_; }
  // Rows that timed out and were to be asked again.
  int64_t rows_retried() const { return rows_retried_; }
  // Reason of the stop that ended the run; 0 if there was none.
  int stop_reason() const { return stop_.reason; }
  // True if a stop or failures_max ended the run before the end of the input.
  bool ended_early() const { return stopping_; }
  // The state of the run for its progress, without the scheduler's.
  term::Progress::Numbers Numbers() const;
  // What is left of the grace period; all of it without a stop.
  std::chrono::milliseconds grace_left() const;

 private:
  using Clock = std::chrono::steady_clock;

  // A submitted row, without what only its prompt needed, unless it may be asked again.
  struct Pending {
    Row row;
    std::vector<RowAnswer> answers;
    std::vector<RequestId> requests;
    std::shared_ptr<SaidSoFar> said;  // null: none
    size_t bytes = 0;
    int32_t open_answers = 0;
    bool timed_out = false;
    int32_t tries = 0;          // of its last turn
    std::vector<Prompt> again;  // its prompts; empty if it is not asked again
    bool lowered = false;       // the warning about it was added
    std::optional<RowError> error;
    bool aborted = false;  // its input asked for it
  };

  static uint64_t MakeTag(int64_t index, size_t answer);
  static RowError NotSubmitted();
  static RowError Aborted();
  static RowError Cancelled();
  bool IsWithinBounds() const;
  bool HasRoom() const { return pending_.empty() || IsWithinBounds(); }
  bool WindowHasRoom() const;
  bool Stops() const { return stopping_ || fault_.has_value(); }
  bool TooManyFailed() const;
  Status Admit();
  Status FillWindow();
  // True if every row has been submitted.
  bool AllSubmitted() const {
    return source_ended_ && window_.empty() && preparer_.empty() && timed_out_.empty() &&
           sessions_.num_waiting() == 0;
  }
  Status TakeInRow(ParsedRow parsed, size_t bytes);
  // In run_controls.cc.
  Status TakeControl(const RunControl& control);
  Status AbortById(const Json& id);
  Status PrepareRow(ParsedRow parsed, size_t bytes, std::shared_ptr<SaidSoFar> said);
  Status AddToWindow(ReadyRow ready, const std::optional<RowError>& error);
  Status TakePrepared(std::chrono::milliseconds wait);
  void Submit(ReadyRow ready);
  void Enter(Pending pending, std::vector<Prompt> prompts);
  bool MayRetry(const Pending& pending) const {
    return pending.row.timeout_s && pending.tries <= options_.timeout_retries;
  }
  // In run_loop_retries.cc.
  bool SetAsideToRetry(int64_t index);
  bool RetriesAreNext() const;
  void SubmitRetries();
  Status FailRetry(int64_t index, const RowError& error);
  Status CancelRetries();
  Status TakeEvents();
  Status TakeEvent(Event event);
  // In run_loop_tools.cc.
  void StartTools();
  bool RunCalls(int64_t index);
  Status TakeToolResults();
  Status AskWithResults(int64_t index, const std::vector<std::string>& texts);
  Status CancelTools();
  Status CancelTools(int64_t index, const RowError& error);
  void FinishAnswer(const Event& event, RowAnswer* done, Pending* pending);
  Status FinishRow(int64_t index);
  // In run_loop_sessions.cc.
  Status AdvanceSessions();
  bool TakeEarlier(const SessionRows::Waiting& waiting);
  void JoinRuntimeSession(const Row& row, SaidSoFar* said, Prompt* prompt);
  void EndInSession(const Row& row, bool failed);
  void LeaveRuntimeSession(SaidSoFar* said);
  bool SubmitNextTurn(int64_t index, Pending* pending);
  bool SubmitTurn(int64_t index, Pending* pending);
  Status CancelWaiting();
  Status WriteFailure(const Row& row, const RowError& error);
  void AbortRow(const Pending& pending);
  void CheckStop();
  void LogStop() const;
  Status StopAtOnce();
  Status End();
  Status CancelPreparing();
  Status CancelWindow();
  void CountUnread();
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
  SessionRows sessions_;
  std::vector<Json> aborted_ids_;                 // of rows in preparer_
  std::unordered_map<int64_t, Pending> pending_;  // by row index
  std::map<int64_t, Pending> timed_out_;          // that are asked again; the same
  size_t retry_bytes_ = 0;
  int64_t rows_retried_ = 0;
  int64_t answers_cut_by_model_ = 0;
  int64_t answers_in_thought_ = 0;
  std::map<std::string, int64_t> finish_reasons_;
  int64_t reasoning_tokens_ = 0;
  int64_t open_answers_ = 0;
  size_t open_bytes_ = 0;
  int64_t tokens_ = 0;
  int64_t finished_tokens_ = 0;  // of finished rows
  int64_t rows_done_ = 0;
  Failures failures_;
  bool submitted_any_ = false;
  bool source_ended_ = false;
  Status source_status_;     // why the input ended
  bool source_dry_ = false;  // a pipe had no data at the last read
  bool aborted_all_ = false;
  term::StopRequest stop_;
  bool stopping_ = false;  // stop requested, or too many rows failed
  Clock::time_point stop_at_;
  std::optional<Status> fault_;
  std::unique_ptr<ToolRunner> tools_;  // null: calls are not run; it wakes queue_
};

}  // namespace minisgl::batch
