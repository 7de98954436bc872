#include "batch/run_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "minisgl/base/log.h"

namespace minisgl::batch {
namespace {

bool HoldsNoNumber(const std::vector<float>& vector) {
  return std::any_of(vector.begin(), vector.end(),
                     [](float value) { return !std::isfinite(value); });
}

using std::chrono::milliseconds;

// Upper bound on each wait, so that stops and the progress line are handled in time.
constexpr milliseconds kTick(50);
// Interval of polling a pipe while requests are running.
constexpr milliseconds kPipeTick(10);
// Rows taken in before events are handled, so that a long input does not delay answers.
constexpr int kRowsPerTurn = 64;

// Time to fill the window before anything runs: the first rows decide what is cached, but the user
// must not wait long.
constexpr milliseconds kFillTime(200);

// Rows from this size on, and those with pictures, have their prompts built on another thread;
// others take only a few milliseconds.
constexpr size_t kLargeRowBytes = size_t{32} << 10;

// The tag of a request encodes the row and the number of the answer.
constexpr uint64_t kAnswersPerRow = 4096;
static_assert(kAnswersMax < kAnswersPerRow && kTextsMax < kAnswersPerRow);
constexpr const char* kNotAnswered = "cancelled";

// Returns the error that ends the run if an answer failed by no fault of its row, else OK.
Status FaultOf(const Event& event) {
  const std::string& code = event.error_code;
  if (code == "out_of_memory") return Status(StatusCode::kOutOfMemory, event.error_message);
  if (code == "device_unavailable") return Status(StatusCode::kUnavailable, event.error_message);
  if (code != "device_fault" && code != "internal") return Status();
  return Status(StatusCode::kInternal, event.error_message);
}

// Error code of a row for an error code of a request.
std::string RowErrorCode(const std::string& code) {
  if (code == "out_of_memory") return "internal";
  return code == "device_unavailable" ? "device_fault" : code;
}

}  // namespace

uint64_t RunLoop::MakeTag(int64_t index, size_t answer) {
  return static_cast<uint64_t>(index) * kAnswersPerRow + answer;
}

RowError RunLoop::Aborted() { return {"aborted", "the input asked to abort this row", ""}; }

RowError RunLoop::Cancelled() {
  return {kNotAnswered, "the run was stopped before this row was answered", ""};
}

RowError RunLoop::NotSubmitted() {
  return {kNotAnswered, "the run was stopped before this row was asked", ""};
}

RunLoop::RunLoop(Runtime* runtime, const PromptBuilder* prompts, RowSource* source,
                 AnswerWriter* writer, term::Progress* progress, const RunLoopOptions& options)
    : runtime_(*runtime),
      prompts_(*prompts),
      source_(*source),
      writer_(*writer),
      progress_(progress),
      options_(options),
      window_(2 * options.window_answers_max),
      preparer_(prompts),
      sessions_(options.open_sessions_max) {
  StartTools();
}

// The queue must outlive its requests: after a failed write some are still running.
RunLoop::~RunLoop() {
  tools_.reset();
  for (const auto& [index, pending] : pending_) {
    AbortRow(pending);
    if (pending.said != nullptr) LeaveRuntimeSession(pending.said.get());
  }
  while (open_answers_ > 0) {
    const std::optional<Event> event = queue_.Pop(kTick);
    if (event && event->kind == Event::Kind::kDone) --open_answers_;
  }
}

Status RunLoop::Run() {
  while (true) {
    CheckStop();
    if (stop_.at_once) return StopAtOnce();
    MINISGL_RETURN_IF_ERROR(TakeToolResults());
    MINISGL_RETURN_IF_ERROR(Stops() ? CancelPreparing() : Admit());
    if (pending_.empty() && (Stops() || AllSubmitted())) break;
    MINISGL_RETURN_IF_ERROR(TakeEvents());
    MINISGL_RETURN_IF_ERROR(writer_.Pause());
    ShowProgress();
  }
  return End();
}

// Ends all rows that were taken in, even after a fault.
Status RunLoop::End() {
  tools_.reset();
  if (Stops()) MINISGL_RETURN_IF_ERROR(CancelPreparing());
  if (Stops()) MINISGL_RETURN_IF_ERROR(CancelRetries());
  if (Stops()) MINISGL_RETURN_IF_ERROR(CancelWindow());
  if (Stops()) MINISGL_RETURN_IF_ERROR(CancelWaiting());
  MINISGL_RETURN_IF_ERROR(writer_.WriteHeld());
  if (Stops()) CountUnread();
  ShowProgress();
  return fault_ ? *fault_ : source_status_;
}

bool RunLoop::IsWithinBounds() const {
  if (tools_ != nullptr && tools_->num_rows() >= options_.calling_rows_max) return false;
  return open_answers_ < options_.answers_ahead_max &&
         static_cast<int64_t>(writer_.held_rows()) < options_.held_rows_max &&
         open_bytes_ + writer_.held_bytes() < options_.bytes_ahead_max;
}

bool RunLoop::WindowHasRoom() const {
  if (window_.empty() && preparer_.empty() && sessions_.num_waiting() == 0 && timed_out_.empty()) {
    return true;
  }
  const size_t bytes = open_bytes_ + window_.bytes() + preparer_.bytes() + sessions_.bytes() +
                       retry_bytes_ + writer_.held_bytes();
  return sessions_.num_waiting() + std::ssize(timed_out_) < options_.waiting_rows_max &&
         window_.num_answers() + preparer_.num_answers() < options_.window_answers_max &&
         bytes < options_.bytes_ahead_max;
}

Status RunLoop::Admit() {
  const Clock::time_point until = Clock::now() + kFillTime;
  MINISGL_RETURN_IF_ERROR(FillWindow());
  MINISGL_RETURN_IF_ERROR(TakePrepared(milliseconds(0)));
  // At first, wait for large rows as well, so that the choice includes them.
  while (!submitted_any_ && !preparer_.empty() && Clock::now() < until &&
         options_.stop().reason == 0) {
    MINISGL_RETURN_IF_ERROR(TakePrepared(kPipeTick));
  }
  SubmitRetries();
  for (int rows = 0; rows < kRowsPerTurn && !window_.empty() && HasRoom(); ++rows) {
    // If a bound is reached, finished rows are held until the oldest row is written.
    Submit(IsWithinBounds() ? window_.TakeNext() : window_.TakeFirst());
  }
  return Status();
}

Status RunLoop::FillWindow() {
  const Clock::time_point until = Clock::now() + kFillTime;
  for (int rows = 0; !source_ended_ && WindowHasRoom() && options_.stop().reason == 0; ++rows) {
    if (TooManyFailed() || (pending_.empty() ? Clock::now() >= until : rows >= kRowsPerTurn)) break;
    ParsedRow parsed;
    const bool idle = pending_.empty() && window_.empty() && preparer_.empty();
    const int wait_ms = idle ? static_cast<int>(kTick.count()) : 0;
    switch (source_.Next(wait_ms, &parsed)) {
      case RowSource::Outcome::kNotYet:
        source_dry_ = true;
        return Status();
      case RowSource::Outcome::kEnd:
        source_ended_ = true;
        return Status();
      case RowSource::Outcome::kFailed:
        // The rows before the failure are complete, so they are answered first.
        source_status_ = source_.status();
        source_ended_ = true;
        return Status();
      case RowSource::Outcome::kControl:
        source_dry_ = false;
        MINISGL_RETURN_IF_ERROR(TakeControl(source_.control()));
        continue;
      case RowSource::Outcome::kRow:
        source_dry_ = false;
        break;
    }
    MINISGL_RETURN_IF_ERROR(TakeInRow(std::move(parsed), source_.row_bytes()));
  }
  return Status();
}

Status RunLoop::TakeInRow(ParsedRow parsed, size_t bytes) {
  if (!parsed.earlier) writer_.Expect(parsed.row.index);
  if (parsed.row.session.empty()) return PrepareRow(std::move(parsed), bytes, nullptr);
  sessions_.Add(std::move(parsed), bytes, &prompts_.text());
  return AdvanceSessions();
}

Status RunLoop::PrepareRow(ParsedRow parsed, size_t bytes, std::shared_ptr<SaidSoFar> said) {
  if (parsed.error) return WriteFailure(parsed.row, *parsed.error);
  ReadyRow ready;
  ready.row = std::move(parsed.row);
  ready.bytes = bytes;
  ready.said = std::move(said);
  if (tools_ != nullptr) {
    if (const auto error = prompts_.OfferTools(&ready.row)) return WriteFailure(ready.row, *error);
  }
  if (ready.row.may_go_on() && ready.said == nullptr) {
    ready.said = std::make_shared<SaidSoFar>(&prompts_.text());
  }
  ready.goes_on = ready.said != nullptr && !ready.said->empty();
  if (bytes >= kLargeRowBytes || !ready.row.images.empty()) {
    preparer_.Add(std::move(ready));
    return Status();
  }
  const auto error = prompts_.Build(&ready.row, &ready.prompts, nullptr, ready.said.get());
  DropPrompt(&ready.row);
  return AddToWindow(std::move(ready), error);
}

Status RunLoop::AddToWindow(ReadyRow ready, const std::optional<RowError>& error) {
  if (error) return WriteFailure(ready.row, *error);
  if (!aborted_ids_.empty() && std::erase(aborted_ids_, ready.row.id) > 0) {
    return WriteFailure(ready.row, Aborted());
  }
  ready.bytes -= std::min(ready.bytes, ready.row.shared_bytes);
  // Its prefix was computed a moment ago.
  if (ready.goes_on && HasRoom()) {
    Submit(std::move(ready));
  } else {
    window_.Add(std::move(ready));
  }
  return Status();
}

// Takes the large rows that are ready and for which there is room; if none is ready, waits for one
// up to `wait`.
Status RunLoop::TakePrepared(milliseconds wait) {
  while (window_.empty() || open_bytes_ + window_.bytes() < options_.bytes_ahead_max) {
    auto prepared = preparer_.Take(wait);
    if (!prepared) break;
    MINISGL_RETURN_IF_ERROR(AddToWindow(std::move(prepared->ready), prepared->error));
    wait = milliseconds(0);
  }
  return AdvanceSessions();
}

void RunLoop::Submit(ReadyRow ready) {
  submitted_any_ = true;
  Pending pending;
  pending.row = std::move(ready.row);
  writer_.Begin(pending.row);
  pending.answers.resize(ready.prompts.size());
  pending.bytes = ready.bytes;
  pending.said = std::move(ready.said);
  Enter(std::move(pending), std::move(ready.prompts));
}

// Submits the prompts of a row, the first time or again.
void RunLoop::Enter(Pending pending, std::vector<Prompt> prompts) {
  const int64_t index = pending.row.index;
  pending.open_answers = static_cast<int32_t>(prompts.size());
  ++pending.tries;
  if (pending.said != nullptr) {
    JoinRuntimeSession(pending.row, pending.said.get(), &prompts.front());
  }
  pending.again = MayRetry(pending) ? prompts : std::vector<Prompt>();
  open_bytes_ += pending.bytes;
  std::vector<uint64_t> tags;
  for (size_t answer = 0; answer < prompts.size(); ++answer) tags.push_back(MakeTag(index, answer));
  Pending& entry = pending_.emplace(index, std::move(pending)).first->second;
  entry.requests = runtime_.SubmitAll(std::move(prompts), &queue_, tags);
  // Only now do these requests exist: if memory runs out above, there are none to wait for.
  open_answers_ += entry.open_answers;
}

Status RunLoop::TakeEvents() {
  const bool submits = !Stops() && !window_.empty() && HasRoom();
  const bool reads = !Stops() && !source_ended_ && WindowHasRoom();
  milliseconds wait = (reads && source_dry_) || !preparer_.empty() ? kPipeTick : kTick;
  if (submits || (reads && !source_dry_)) wait = milliseconds(0);
  if (pending_.empty()) return preparer_.empty() ? Status() : TakePrepared(wait);
  for (std::optional<Event> event = queue_.Pop(wait); event; event = queue_.Pop(milliseconds(0))) {
    MINISGL_RETURN_IF_ERROR(TakeEvent(std::move(*event)));
  }
  return AdvanceSessions();
}

Status RunLoop::TakeEvent(Event event) {
  // Do this first: if memory runs out below, this answer must not be waited for again.
  const bool is_done = event.kind == Event::Kind::kDone;
  if (is_done) --open_answers_;
  const auto index = static_cast<int64_t>(event.tag / kAnswersPerRow);
  const auto answer_index = static_cast<int32_t>(event.tag % kAnswersPerRow);
  const auto entry = pending_.find(index);
  MINISGL_CHECK(entry != pending_.end(), "an event of row {}, which is done", index);
  Pending& pending = entry->second;
  RowAnswer& answer = pending.row.all_turns ? pending.answers.back()
                                            : pending.answers[static_cast<size_t>(answer_index)];
  answer.text += event.text;
  for (const TextPart& part : event.parts) AddPart(part.kind, part.size, &answer.parts);
  answer.token_ids.insert(answer.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
  answer.logprobs.insert(answer.logprobs.end(), std::make_move_iterator(event.logprobs.begin()),
                         std::make_move_iterator(event.logprobs.end()));
  answer.prompt_logprobs = std::move(event.prompt_logprobs);
  answer.vector = std::move(event.vector);
  tokens_ += static_cast<int64_t>(event.token_ids.size());
  if (pending.row.format == RowFormat::kScore) tokens_ += std::ssize(answer.prompt_logprobs);
  if (is_done && IsEmbedFormat(pending.row.format)) tokens_ += event.usage.prompt_tokens;
  if (!event.text.empty())
    MINISGL_RETURN_IF_ERROR(
        writer_.WriteText(pending.row, static_cast<int32_t>(&answer - pending.answers.data()),
                          event.text, event.parts));
  if (!is_done) return Status();
  const bool has_ended =
      event.finish_reason != FinishReason::kAborted && event.finish_reason != FinishReason::kError;
  if (has_ended) {
    const auto number = static_cast<int32_t>(&answer - pending.answers.data());
    MINISGL_RETURN_IF_ERROR(writer_.EndText(pending.row, number));
    TakeCalls(pending.row, number + pending.row.num_called, &answer);
  }
  FinishAnswer(event, &answer, &pending);
  return --pending.open_answers == 0 ? FinishRow(index) : Status();
}

void RunLoop::FinishAnswer(const Event& event, RowAnswer* done, Pending* pending) {
  RowAnswer& answer = *done;
  answer.usage = event.usage;
  answer.times = event.times;
  answer.finish_reason = FinishReasonName(event.finish_reason);
  answer.cut_in_grammar = event.cut_in_grammar;
  // Warnings of the options' grammar were logged when it was read.
  if (done == pending->answers.data() && !pending->row.grammar_field.empty()) {
    std::vector<std::string>& warnings = pending->row.warnings;
    warnings.insert(warnings.end(), event.grammar_warnings.begin(), event.grammar_warnings.end());
  }
  if (event.max_tokens_lowered && !std::exchange(pending->lowered, true)) {
    pending->row.warnings.push_back(fmt::format(
        "max_tokens was lowered to {}: the context holds {} tokens and the prompt has {}",
        prompts_.capacity() - event.usage.prompt_tokens, prompts_.capacity(),
        event.usage.prompt_tokens));
  }
  reasoning_tokens_ += event.usage.reasoning_tokens;
  answer.ended_in_thought = event.ended_in_thought &&
                            event.finish_reason != FinishReason::kAborted &&
                            event.finish_reason != FinishReason::kError;
  if (answer.ended_in_thought) ++answers_in_thought_;
  if (event.finish_reason == FinishReason::kLength && !event.max_tokens_lowered &&
      prompts_.LimitsByModel(pending->row)) {
    ++answers_cut_by_model_;
  }
  if (event.finish_reason == FinishReason::kError) {
    if (!pending->error) {
      pending->error = event.error_code == "invalid_grammar"
                           ? InvalidGrammar(pending->row, event.error_message)
                           : RowError{RowErrorCode(event.error_code), event.error_message, ""};
    }
    const Status fault = FaultOf(event);
    if (!fault_ && !fault.ok()) fault_ = fault;
  } else if (event.finish_reason == FinishReason::kAborted) {
    if (!pending->error) pending->error = pending->aborted ? Aborted() : Cancelled();
  } else if (event.finish_reason == FinishReason::kTimeout) {
    pending->timed_out = true;
  } else if (!pending->error && HoldsNoNumber(answer.vector)) {
    pending->error = RowError{"nan_logits", "the vector holds NaN or infinity", ""};
  }
}

Status RunLoop::FinishRow(int64_t index) {
  if (SetAsideToRetry(index) || RunCalls(index)) return Status();
  if (SubmitNextTurn(index, &pending_.at(index))) return Status();
  auto node = pending_.extract(index);
  Pending& pending = node.mapped();
  open_bytes_ -= pending.bytes;
  for (const RowAnswer& answer : pending.answers) {
    finished_tokens_ += static_cast<int64_t>(answer.token_ids.size());
    for (const ToolRound& round : answer.rounds) finished_tokens_ += std::ssize(round.token_ids);
    if (pending.row.format == RowFormat::kScore) {
      finished_tokens_ += std::ssize(answer.prompt_logprobs);
    }
    if (IsEmbedFormat(pending.row.format)) finished_tokens_ += answer.usage.prompt_tokens;
  }
  // If any of several answers began, it is kept; the others are empty.
  const auto first = pending.row.all_turns ? pending.answers.end() - 1 : pending.answers.begin();
  const bool began = std::any_of(first, pending.answers.end(),
                                 [](const RowAnswer& a) { return !a.token_ids.empty(); });
  if (pending.timed_out && !began && !pending.error) {
    const char* const what = pending.row.format == RowFormat::kScore ? "the text was not scored"
                             : pending.row.format >= RowFormat::kClassify ? "the row has no score"
                             : IsEmbedFormat(pending.row.format)          ? "the row has no vector"
                                                                          : "no answer began";
    const std::string tries =
        pending.tries > 1 ? fmt::format(" (tried {} times)", pending.tries) : "";
    pending.error =
        RowError{"timeout", fmt::format("{} within {} s{}", what, *pending.row.timeout_s, tries),
                 "timeout_s"};
  } else if (pending.timed_out && pending.tries > 1) {
    pending.row.warnings.push_back(fmt::format("the answer was cut after {} s in each of {} tries",
                                               *pending.row.timeout_s, pending.tries));
  }
  if (pending.error && !pending.answers.back().rounds.empty()) {
    pending.row.tool_messages = ToolMessagesJson(pending.row, pending.answers.back()).Dump();
  }
  if (pending.error && pending.row.turn > 0) {
    pending.answers.resize(static_cast<size_t>(pending.row.turn));
    pending.row.turns = writer_.FormatTurns(pending.row, pending.answers);
  }
  if (pending.row.session.empty() && pending.said != nullptr) {
    LeaveRuntimeSession(pending.said.get());
  }
  if (pending.error) return WriteFailure(pending.row, *pending.error);
  if (auto warning = CutInGrammarWarning(pending.answers)) {
    pending.row.warnings.push_back(std::move(*warning));
  }
  for (const RowAnswer& answer : pending.answers) ++finish_reasons_[FinishReasonOf(answer)];
  pending.row.incomplete = IncompleteMessage(pending.row, pending.answers);
  MINISGL_RETURN_IF_ERROR(writer_.WriteAnswers(pending.row, pending.answers));
  if (pending.row.incomplete) {
    failures_.Add(pending.row.line, {kIncompleteAnswer, *pending.row.incomplete, ""});
  } else {
    ++rows_done_;
  }
  if (pending.row.session.empty()) return Status();
  RowAnswer& answer = pending.answers.back();
  pending.said->AddAnswer(std::move(answer.text), answer.parts, std::move(answer.token_ids),
                          answer.finish_reason == "stop");
  EndInSession(pending.row, /*failed=*/false);
  return Status();
}

Status RunLoop::WriteFailure(const Row& row, const RowError& error) {
  const bool is_written = error.code != kNotAnswered || options_.writes_cancelled || row.turns;
  if (is_written) MINISGL_RETURN_IF_ERROR(writer_.WriteError(row, error));
  failures_.Add(row.line, error);
  if (!row.session.empty()) EndInSession(row, /*failed=*/true);
  return Status();
}

void RunLoop::AbortRow(const Pending& pending) {
  for (const RequestId request : pending.requests) runtime_.Abort(request);
}

// True if failures_max is reached while rows remain that a stop would skip.
bool RunLoop::TooManyFailed() const {
  if (!options_.failures_max || failures_.failed() < *options_.failures_max) return false;
  if (options_.rows_total) return rows_done_ + failures_.total() < *options_.rows_total;
  return !(AllSubmitted() && pending_.empty());
}

void RunLoop::LogStop() const {
  const bool has_grace = options_.grace.count() > 0 && !pending_.empty();
  const std::string grace =
      fmt::format("running requests have {} s to finish",
                  std::chrono::duration_cast<std::chrono::seconds>(options_.grace).count());
  if (stop_.reason == 0) {
    Log(LogLevel::kWarning,
        fmt::format("{} failed (--max-failures {}); stopping{}", failures_.failed(),
                    *options_.failures_max, has_grace ? ": " + grace : ""));
  } else if (has_grace) {
    Log(LogLevel::kInfo, fmt::format("stopping: {}; {} cancels them", grace, options_.stop_again));
  }
}

// A stop ends admission; submitted rows may finish within the grace period.
void RunLoop::CheckStop() {
  stop_ = options_.stop();
  if (!stopping_) {
    if (stop_.reason == 0 && !TooManyFailed()) return;
    stopping_ = true;
    stop_at_ = Clock::now() + options_.grace;
    LogStop();
  }
  if (aborted_all_ || Clock::now() < stop_at_) return;
  aborted_all_ = true;
  for (const auto& [index, pending] : pending_) AbortRow(pending);
}

milliseconds RunLoop::grace_left() const {
  if (!stopping_) return options_.grace;
  const auto left = std::chrono::duration_cast<milliseconds>(stop_at_ - Clock::now());
  return std::max(left, milliseconds(0));
}

// Writes finished rows that were waiting for an earlier one. Cancels the others without waiting for
// their last events.
Status RunLoop::StopAtOnce() {
  while (std::optional<Event> event = queue_.Pop(milliseconds(0))) {
    MINISGL_RETURN_IF_ERROR(TakeEvent(std::move(*event)));
  }
  for (const auto& [index, pending] : pending_) AbortRow(pending);
  for (const auto& [index, pending] : pending_) {
    MINISGL_RETURN_IF_ERROR(
        WriteFailure(pending.row, pending.error ? *pending.error : Cancelled()));
  }
  return End();
}

// These rows were not submitted, so the grace period does not apply to them.
Status RunLoop::CancelPreparing() {
  for (const Row& row : preparer_.Cancel())
    MINISGL_RETURN_IF_ERROR(WriteFailure(row, NotSubmitted()));
  return Status();
}

Status RunLoop::CancelWindow() {
  while (!window_.empty()) {
    MINISGL_RETURN_IF_ERROR(WriteFailure(window_.TakeFirst().row, NotSubmitted()));
  }
  return Status();
}

// Rows of a file that were not read: their number is known, and they are left to --resume.
void RunLoop::CountUnread() {
  if (options_.rows_total) {
    failures_.AddCancelled(*options_.rows_total - rows_done_ - failures_.total());
  }
}

term::Progress::Numbers RunLoop::Numbers() const {
  term::Progress::Numbers numbers;
  numbers.done = rows_done_;
  numbers.failed = failures_.total();
  numbers.cancelled = failures_.cancelled();
  numbers.held_failed = static_cast<int64_t>(writer_.held_errors());
  numbers.held_done = static_cast<int64_t>(writer_.held_rows()) - numbers.held_failed;
  numbers.before = options_.rows_before;
  numbers.total = options_.rows_total;
  numbers.has_answers = options_.has_answers;
  numbers.tokens = tokens_;
  numbers.finished_tokens = finished_tokens_;
  if (stopping_) {
    const std::chrono::duration<double> left = stop_at_ - Clock::now();
    numbers.grace_left_s = std::max(left.count(), 0.0);
  }
  return numbers;
}

void RunLoop::ShowProgress() const {
  const bool is_due = progress_ != nullptr && progress_->IsDue();
  if (!is_due && !options_.on_numbers) return;
  term::Progress::Numbers numbers = Numbers();
  if (is_due) {
    numbers.stats = runtime_.Stats().scheduler;
    progress_->Update(numbers);
  }
  if (options_.on_numbers) options_.on_numbers(numbers);
}

}  // namespace minisgl::batch
