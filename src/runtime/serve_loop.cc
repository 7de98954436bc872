#include "runtime/serve_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "minisgl/base/check.h"
#include "runtime/thought_budget.h"
#include "runtime/token_limits.h"

namespace minisgl::runtime {
namespace {

// Maximum age of published histograms while no request ends.
constexpr auto kHistogramsAge = std::chrono::milliseconds(100);
// 30 years. Longer timeouts count as none, so that deadlines stay far within a time point's range.
constexpr double kTimeoutMax = 1e9;

double Seconds(ServeLoop::Time::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// True if the prompt has a token whose log-probability is wanted.
bool ScoresTokens(const Prompt& prompt) {
  const SamplingParams& sampling = prompt.sampling;
  return sampling.num_prompt_logprobs >= 0 &&
         sampling.prompt_logprobs_begin < static_cast<int64_t>(prompt.ids.size());
}

SchedulerOptions WithObservers(SchedulerOptions options, CacheObserver* cache_observer,
                               Engine* engine) {
  if (options.adapter_source == nullptr) options.adapter_source = engine->adapter_source();
  options.record_notes = true;  // waiting times are computed from them
  if (cache_observer != nullptr) options.cache_observer = cache_observer;
  return options;
}

}  // namespace

ServeLoop::ServeLoop(Engine* engine, const Tokenizer* tokenizer, const RuntimeOptions& options,
                     std::function<Time()> now, StatsSink stats_sink, GrammarSource* grammars)
    : engine_(engine),
      limits_(engine->limits()),
      tokenizer_(tokenizer),
      grammars_(grammars),
      now_(std::move(now)),
      stats_sink_(std::move(stats_sink)),
      depth_(options.overlap ? 1 : 0),
      cache_events_(options.cache_event_sink
                        ? std::make_unique<CacheEventWriter>(options.cache_event_sink, now_,
                                                             limits_.page_size, limits_.num_pages)
                        : nullptr),
      scheduler_(limits_, WithObservers(options.scheduler, cache_events_.get(), engine)),
      kernel_profile_(options.kernel_profile) {
  histograms_published_ = last_collected_ = now_();
  if (options.trace_sink) trace_.emplace(options.trace_sink, last_collected_);
}

void ServeLoop::Submit(Submission&& submission) {
  const auto place =
      live_
          .try_emplace(submission.id,
                       Live{Answer(submission.id, submission.tag, submission.prompt, tokenizer_,
                                   submission.queue, MarksOf(submission.prompt)),
                            submission.time})
          .first;
  submission.queue = nullptr;
  if (failure_) {
    place->second.answer.Fail(failure_->code, failure_->message);
    Forget(place);
    return;
  }
  Start(place, std::move(submission));
}

std::shared_ptr<const ThoughtMarks> ServeLoop::MarksOf(const Prompt& prompt) {
  if (prompt.reasoning.none() || tokenizer_ == nullptr) return nullptr;
  ReasoningTags tags = prompt.reasoning;
  tags.starts_inside = tags.is_closed = false;
  if (last_marks_ == nullptr || tags != last_tags_) {
    last_marks_ = std::make_shared<const ThoughtMarks>(tokenizer_, tags);
    last_tags_ = tags;
  }
  return last_marks_;
}

Status ServeLoop::CheckPrompt(const Prompt& prompt) const {
  if (prompt.ids.empty()) return BadInput("the prompt is empty");
  for (TokenId id : prompt.ids) {
    if (id < 0 || id >= limits_.vocab_size) {
      return BadInput("token id {} is outside the model's vocabulary of {}", id,
                      limits_.vocab_size);
    }
  }
  if (!AreMarksOf(prompt.marks, std::ssize(prompt.ids))) {
    return BadInput("a mark of the prompt is outside its {} tokens, or before an earlier one",
                    prompt.ids.size());
  }
  const bool pools = prompt.extras != nullptr && prompt.extras->pooling.has_value();
  if (prompt.extras != nullptr) {
    MINISGL_RETURN_IF_ERROR(CheckExtras(*prompt.extras, std::ssize(prompt.ids), prompt.marks));
  }
  if (pools && (prompt.max_tokens != 0 || prompt.sampling.num_prompt_logprobs >= 0)) {
    return BadInput("a prompt with a vector has neither an answer nor log-probabilities");
  }
  if ((limits_.lacks_head || limits_.attends_both_ways) && !pools) {
    return BadInput(
        "the model gives vectors of texts (minisgl embed) or their labels (minisgl classify), and "
        "no "
        "answers");
  }
  if (prompt.max_tokens == 0 && !pools && prompt.sampling.num_prompt_logprobs < 0) {
    return BadInput("max_tokens is 0");
  }
  if (prompt.sampling.prompt_logprobs_begin < 1) {
    return BadInput(
        "log-probabilities are wanted from position {} on; nothing stands before the "
        "first token",
        prompt.sampling.prompt_logprobs_begin);
  }
  if (prompt.grammar != nullptr && grammars_ == nullptr) {
    return BadInput("a grammar needs a tokenizer");
  }
  if (prompt.session != 0 && !sessions_.contains(prompt.session)) {
    return BadInput("session {} is not open", prompt.session);
  }
  return Status();
}

void ServeLoop::Start(LiveMap::iterator place, Submission submission) {
  Prompt& prompt = submission.prompt;
  std::sort(prompt.stop_token_ids.begin(), prompt.stop_token_ids.end());
  if (prompt.sampling.min_tokens > 0) prompt.sampling.banned_until_min = prompt.stop_token_ids;
  if (prompt.sampling.top_p == 0) {  // the likeliest token alone
    prompt.sampling.temperature = 0;
    prompt.sampling.top_p = 1;
  }
  Answer& answer = place->second.answer;
  if (const Status status = CheckPrompt(prompt); !status.ok()) {
    answer.Fail("invalid_row", status.message());
    Forget(place);
    return;
  }
  const int64_t pool_tokens = int64_t{limits_.num_pages} * limits_.page_size + 1;
  const int64_t capacity = std::min<int64_t>(limits_.max_seq_len, pool_tokens);
  const auto prompt_len = static_cast<int64_t>(prompt.ids.size());
  const int64_t prompt_max = prompt.max_tokens == 0 ? capacity : capacity - 1;
  if (prompt_len > prompt_max) {
    answer.Fail(
        "length_exceeded",
        prompt.max_tokens == 0
            ? fmt::format("the prompt has {} tokens; the context holds {}", prompt_len, prompt_max)
            : fmt::format("the prompt has {} tokens; at most {} leave room for an answer",
                          prompt_len, prompt_max));
    Forget(place);
    return;
  }
  const bool pools = prompt.extras != nullptr && prompt.extras->pooling.has_value();
  if (prompt.max_tokens == 0 && !pools && !ScoresTokens(prompt)) {
    SchedEvent end;
    end.kind = SchedEvent::Kind::kEnd;
    end.reason = EndReason::kLength;
    answer.End(end);
    Forget(place);
    return;
  }
  SetDeadline(place, submission);
  Request request;
  request.id = submission.id;
  if (prompt.grammar != nullptr && prompt.max_tokens != 0) {
    request.is_gated = true;
    place->second.has_grammar = true;
    grammars_->Ask(submission.id, prompt);
  } else {
    request.constraint = ConstraintOf(prompt);
  }
  request.max_tokens = capacity - prompt_len;
  if (prompt.max_tokens > request.max_tokens) answer.set_max_tokens_lowered();
  if (prompt.max_tokens >= 0) request.max_tokens = std::min(request.max_tokens, prompt.max_tokens);
  request.prompt = std::move(prompt.ids);
  request.marks = std::move(prompt.marks);
  request.extras = std::move(prompt.extras);
  request.sampling = std::move(prompt.sampling);
  request.stop_ids = std::move(prompt.stop_token_ids);
  request.priority = prompt.priority;
  request.wants_progress = prompt.wants_progress;
  request.session = prompt.session;
  scheduler_.Submit(std::move(request));
}

std::shared_ptr<TokenConstraint> ServeLoop::ConstraintOf(const Prompt& prompt) {
  std::shared_ptr<ThoughtBudget> thoughts;
  if (prompt.thought_budget >= 0 && prompt.max_tokens != 0) {
    if (auto marks = MarksOf(prompt)) {
      thoughts = std::make_shared<ThoughtBudget>(std::move(marks), prompt.reasoning.starts_inside,
                                                 prompt.thought_budget, prompt.thought_message,
                                                 limits_.vocab_size);
    }
  }
  return WithLimits(TokenLimits::Of(prompt, limits_.vocab_size), thoughts, thoughts.get());
}

void ServeLoop::SetDeadline(LiveMap::iterator place, const Submission& submission) {
  if (!submission.prompt.timeout || !(submission.prompt.timeout->count() < kTimeoutMax)) return;
  const double timeout_s = std::max(submission.prompt.timeout->count(), 0.0);
  const Time deadline = submission.time + std::chrono::duration_cast<Time::duration>(
                                              std::chrono::duration<double>(timeout_s));
  place->second.deadline = deadline;
  deadlines_.emplace(deadline, place->first);
}

void ServeLoop::Abort(RequestId id) {
  if (!failure_) scheduler_.Abort(id);
}

void ServeLoop::OpenSession(SessionId id) {
  if (failure_) return;
  scheduler_.OpenSession(id);
  sessions_.insert(id);
}

void ServeLoop::CloseSession(SessionId id) {
  if (!failure_ && sessions_.erase(id) > 0) scheduler_.CloseSession(id);
}

void ServeLoop::AbortAll() {
  if (failure_) return;
  for (const auto& [id, live] : live_) scheduler_.Abort(id);
  while (!sessions_.empty()) CloseSession(*sessions_.begin());
}

bool ServeLoop::Turn() {
  if (failure_) return false;
  const Time begin = now_();
  ExpireDeadlines(begin);
  const bool grammars_came = TakeGrammars();
  HandleEvents(begin);
  const auto plan = scheduler_.Next();
  const Time planned = now_();
  // A request whose load failed ends while a step is planned.
  bool found_something = HandleEvents(planned) || grammars_came;
  if (plan != nullptr) {
    LaunchStep(plan, begin, planned);
    found_something = true;
  }
  if (in_flight_.size() > depth_ || (plan == nullptr && !in_flight_.empty())) {
    CollectStep();
    found_something = true;  // it may have made room for waiting requests
  }
  MINISGL_CHECK(found_something || scheduler_.Idle() || scheduler_.WaitsOutside(),
                "requests wait and nothing runs: {}", scheduler_.DebugString());
  if (!found_something && scheduler_.Idle()) CheckIdle();
  PublishStats(/*with_histograms=*/!found_something, planned);
  return found_something;
}

void ServeLoop::ExpireDeadlines(Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const RequestId id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    scheduler_.TimeOut(id);
  }
}

bool ServeLoop::TakeGrammars() {
  if (grammars_ == nullptr) return false;
  const std::vector<RequestId> ready = grammars_->TakeReadyMasks();
  for (const RequestId id : ready) scheduler_.MaskReady(id);
  std::vector<GrammarOutcome> outcomes = grammars_->TakeFinished();
  for (GrammarOutcome& outcome : outcomes) {
    if (outcome.status.ok()) {
      const auto live = live_.find(outcome.id);
      if (live != live_.end()) live->second.answer.set_warnings(std::move(outcome.warnings));
      scheduler_.OpenGate(outcome.id, std::move(outcome.constraint));
      continue;
    }
    const StatusCode code = outcome.status.code();
    scheduler_.FailGate(outcome.id,
                        code == StatusCode::kBadInput      ? "invalid_grammar"
                        : code == StatusCode::kOutOfMemory ? "out_of_memory"
                                                           : "internal",
                        outcome.status.message());
  }
  return !outcomes.empty() || !ready.empty();
}

void ServeLoop::LaunchStep(std::shared_ptr<const BatchPlan> plan, Time begin, Time planned) {
  if (trace_) trace_->Host("plan", begin, planned);
  in_flight_.push_back({plan, planned, Seconds(planned - begin)});
  engine_->Launch(std::move(plan));
  SupplyMasks();
}

void ServeLoop::SupplyMasks() {
  if (std::optional<StepMasks> masks = scheduler_.TakeMasks(engine_)) {
    engine_->SupplyMasks(std::move(*masks));
  }
}

void ServeLoop::CollectStep() {
  const Time asked = now_();
  const StepResult result = engine_->Collect();
  const Time collected = now_();
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  scheduler_.Collect(result);
  SupplyMasks();  // the step in flight waits for them
  HandleEvents(collected);
  stats_.host_step_s.Add(step.plan_s + Seconds(now_() - collected));
  if (trace_) {
    int64_t accepted = 0;
    for (const RowResult& row : result.rows) accepted += std::ssize(row.more);
    TraceStep(step, accepted, asked, collected);
  }
  last_collected_ = collected;
}

void ServeLoop::TraceStep(const InFlight& step, int64_t accepted, Time asked, Time collected) {
  const Time now = now_();
  trace_->Host("wait", asked, collected);
  trace_->Host("collect", collected, now);
  trace_->Step(*step.plan, accepted, std::max(step.launched, last_collected_), collected);
  trace_->Counters(scheduler_.Stats(), now);
  TraceKernels();
}

void ServeLoop::TraceKernels() {
  if (kernel_profile_ == nullptr) return;
  for (const KernelProfile::Span& span : kernel_profile_->TakeSpans()) {
    trace_->Kernel(span, kernel_profile_->num_ranks());
  }
}

bool ServeLoop::HandleEvents(Time now) {
  bool any = false;
  while (true) {
    const std::vector<SchedEvent> events = scheduler_.TakeEvents();
    HandleNotes(now);
    if (events.empty()) return any;
    any = true;
    // Tokens, then figures, then ends: a reader that sees the end of a request sees it counted.
    bool any_end = false;
    for (const SchedEvent& event : events) {
      if (event.kind == SchedEvent::Kind::kToken) HandleToken(event, now);
      if (event.kind == SchedEvent::Kind::kScored) HandleScored(event);
      if (event.kind == SchedEvent::Kind::kPrompt) HandleProgress(event);
      if (event.kind == SchedEvent::Kind::kVector) HandleVector(event);
      any_end |= event.kind == SchedEvent::Kind::kEnd;
    }
    if (any_end) PublishStats(/*with_histograms=*/true, now);
    for (const SchedEvent& event : events) {
      if (event.kind == SchedEvent::Kind::kEnd) HandleEnd(event, now);
    }
  }
}

void ServeLoop::HandleProgress(const SchedEvent& event) {
  const auto found = live_.find(event.id);
  if (found != live_.end()) found->second.answer.TellProgress(event.computed_tokens);
}

void ServeLoop::HandleToken(const SchedEvent& event, Time now) {
  const auto found = live_.find(event.id);
  if (found == live_.end()) return;
  Live& live = found->second;
  if (live.answer.stop_found()) return;
  const bool is_first = live.answer.num_tokens() == 0;
  if (live.answer.AcceptToken(event.token)) scheduler_.Stop(event.id);
  const double since_submit_s = Seconds(now - live.submitted);
  if (is_first) {
    live.times.first_token_s = since_submit_s;
    stats_.first_token_s.Add(since_submit_s);
  } else {
    stats_.between_tokens_s.Add(since_submit_s - live.times.last_token_s);
  }
  live.times.last_token_s = since_submit_s;
}

void ServeLoop::HandleScored(const SchedEvent& event) {
  const auto found = live_.find(event.id);
  if (found != live_.end()) found->second.answer.AcceptScored(event.scored);
}

void ServeLoop::HandleVector(const SchedEvent& event) {
  const auto found = live_.find(event.id);
  if (found != live_.end()) found->second.answer.AcceptVector(event.token.vector);
}

void ServeLoop::HandleEnd(const SchedEvent& event, Time now) {
  const auto found = live_.find(event.id);
  MINISGL_CHECK(found != live_.end(), "request {} ended twice", event.id);
  const FinishReason reason = found->second.answer.End(event, found->second.times);
  const int64_t num_tokens = found->second.answer.num_tokens();
  Forget(found);
  if (trace_) trace_->Ended(event.id, reason, num_tokens, now);
}

void ServeLoop::HandleNotes(Time now) {
  if (cache_events_ != nullptr) cache_events_->Flush();
  for (const SchedNote& note : scheduler_.TakeNotes()) {
    if (trace_) trace_->Note(note, now);
    if (note.kind != SchedNote::Kind::kAdmitted) continue;
    const auto found = live_.find(note.id);
    if (found == live_.end() || std::exchange(found->second.was_admitted, true)) continue;
    found->second.times.admitted_s = Seconds(now - found->second.submitted);
    stats_.waiting_s.Add(found->second.times.admitted_s);
  }
}

void ServeLoop::Forget(LiveMap::iterator place) {
  if (place->second.has_grammar) grammars_->Forget(place->first);
  if (place->second.deadline) deadlines_.erase({*place->second.deadline, place->first});
  live_.erase(place);
}

void ServeLoop::FailAll(const std::string& code, const std::string& message) {
  failure_ = Failure{code, message};
  deadlines_.clear();
  while (!live_.empty()) {
    live_.begin()->second.answer.Fail(code, message);
    live_.erase(live_.begin());
  }
}

std::optional<ServeLoop::Time> ServeLoop::NextDeadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

RuntimeStats ServeLoop::Stats() const {
  RuntimeStats stats = stats_;
  stats.scheduler = scheduler_.Stats();
  return stats;
}

void ServeLoop::FinishTrace() {
  if (cache_events_ != nullptr) cache_events_->Flush();
  if (!trace_) return;
  TraceKernels();
  trace_->Finish();
}

void ServeLoop::PublishStats(bool with_histograms, Time now) {
  if (!stats_sink_) return;
  RuntimeStats news;
  if (with_histograms || now - histograms_published_ >= kHistogramsAge) {
    news = std::exchange(stats_, RuntimeStats());
    histograms_published_ = now;
  }
  news.scheduler = scheduler_.Stats();
  stats_sink_(news);
}

void ServeLoop::CheckIdle() const {
  // A page that two sessions share counts for each.
  const SchedulerStats stats = scheduler_.Stats();
  MINISGL_CHECK(stats.pages_free + stats.pages_cached == stats.pages_total &&
                    stats.pages_locked <= stats.session_pages + stats.saving_pages,
                "idle, with pages lost or held: {}", scheduler_.DebugString());
}

}  // namespace minisgl::runtime
