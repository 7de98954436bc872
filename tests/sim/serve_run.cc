// One simulated run through the runtime's loop: requests come as prompts and leave as events, the
// time is the number of the step, and memory may run out at any allocation.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/serve_loop.h"
#include "sim/failing_new.h"
#include "sim/oracle.h"
#include "sim/sim_engine.h"
#include "sim/workload.h"

namespace minisgl::sim {
namespace {

// Compiles the grammars of a workload, each after its time.
class SimGrammarSource final : public runtime::GrammarSource {
 public:
  SimGrammarSource(const Workload& workload, const int64_t* now) : workload_(workload), now_(now) {}

  void Ask(RequestId id, const Prompt&) override {
    const auto arrival = std::find_if(workload_.arrivals.begin(), workload_.arrivals.end(),
                                      [id](const Arrival& one) { return one.request.id == id; });
    due_.emplace(*now_ + (is_healed_ ? 0 : arrival->gate_opens), &*arrival);
  }
  // Every other outcome comes all the same.
  void Forget(RequestId id) override {
    if (id % 2 == 0) return;
    std::erase_if(due_, [id](const auto& one) { return one.second->request.id == id; });
  }
  std::vector<runtime::GrammarOutcome> TakeFinished() override {
    std::vector<runtime::GrammarOutcome> outcomes;
    while (!due_.empty() && (is_healed_ || due_.begin()->first <= *now_)) {
      const Arrival& arrival = *due_.begin()->second;
      runtime::GrammarOutcome& outcome = outcomes.emplace_back();
      outcome.id = arrival.request.id;
      if (arrival.gate_fails) {
        outcome.status = BadInput("it does not compile");
      } else {
        outcome.constraint = MakeConstraint(arrival, &masks_);
      }
      due_.erase(due_.begin());
    }
    return outcomes;
  }
  std::vector<RequestId> TakeReadyMasks() override { return masks_.TakeReady(); }
  void Tick() { masks_.Tick(); }
  const std::string& violation() const { return masks_.violation(); }
  void Heal() {
    is_healed_ = true;
    masks_.Heal();
  }

 private:
  SimMaskMaker masks_;
  const Workload& workload_;
  const int64_t* now_;
  std::multimap<int64_t, const Arrival*> due_;
  bool is_healed_ = false;
};

class ServeRunner {
 public:
  ServeRunner(const Workload& workload, std::string* trace_text)
      : workload_(workload),
        engine_(workload.limits, workload.end_rate),
        source_(workload.source, workload.store, workload.seed, &engine_),
        adapters_(workload.adapters, workload.seed),
        grammars_(workload, &outcome_.steps),
        trace_text_(trace_text) {
    RuntimeOptions options;
    options.scheduler = workload.options;
    options.scheduler.kv_source = source_.get();
    options.scheduler.adapter_source = adapters_.get();
    engine_.KnowDrafter(workload.drafter);
    if (workload.options.max_drafts > 0 && !workload.limits.makes_drafts) {
      options.scheduler.drafter = std::make_shared<SimDrafter>(
          workload.drafter, workload.limits.vocab_size, workload.end_rate,
          [&workload](RequestId id) { return workload.MarksOf(id); });
    }
    engine_.LimitEmbeddings(options.scheduler.encoder_cache);
    for (const Arrival& arrival : workload.arrivals) {
      const Request& request = arrival.request;
      if (!request.marks.empty()) engine_.KnowMarks(request.sampling.seed, request.marks);
      if (request.extras != nullptr) engine_.KnowExtras(request.sampling.seed, request.extras);
    }
    loop_ = std::make_unique<runtime::ServeLoop>(
        &engine_, nullptr, options, [this] { return now_; }, runtime::ServeLoop::StatsSink(),
        &grammars_);
    loop_->set_depth(workload.depth);
  }

  Outcome Go() {
    try {
      Loop();
      CheckEnd();
      outcome_.stats = loop_->scheduler().Stats();
      CheckStats(workload_, outcome_.stats);
    } catch (const Violation& violation) {
      outcome_.violation = violation.what();
      // Its invariants may be broken: its destructor could only fail again. It stays reachable.
      static auto* const graves = new std::vector<runtime::ServeLoop*>;
      graves->push_back(loop_.release());
    }
    return outcome_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Loop();
  void OpenSessions();
  void Arrive();
  void Submit(const Arrival& arrival);
  void Heal();
  bool Turn();
  // Runs `work`. If it runs out of memory, fails all requests.
  template <typename Work>
  void Guarded(int64_t allocations, Work work);
  void SetFault();
  void TakeEvents();
  void TakeDone(const Event& event, Told* told);
  void CheckEnd();
  // As the runtime lowers it: to the room left.
  Request Lowered(const Request& request) const;
  void Trace(const std::string& line);

  const Workload& workload_;
  SimEngine engine_;
  SimSources source_;
  SimAdapters adapters_;
  SimGrammarSource grammars_;
  EventQueue queue_;
  std::unique_ptr<runtime::ServeLoop> loop_;
  std::string* trace_text_;
  Clock::time_point now_;
  Outcome outcome_;
  std::map<RequestId, Told> told_;
  std::map<SessionId, std::vector<RequestId>> turns_;  // of open sessions
  std::multimap<int64_t, RequestId> aborts_;
  size_t next_arrival_ = 0, next_fault_ = 0;
  int64_t fails_at_ = 0;  // the allocation of the next turn that fails; 0: none
  bool all_failed_ = false;
  int64_t steps_left_ = -1;   // after the faults end
  int64_t saving_steps_ = 0;  // after all requests ended
};

void ServeRunner::Trace(const std::string& line) {
  for (char letter : line) {
    outcome_.trace = (outcome_.trace ^ static_cast<uint8_t>(letter)) * 0x100000001B3ull;
  }
  if (trace_text_ != nullptr) *trace_text_ += line + "\n";
}

template <typename Work>
void ServeRunner::Guarded(int64_t allocations, Work work) {
  bool failed = false;
  try {
    const FailingNew failing(allocations);
    work();
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  if (!failed) return;
  all_failed_ = true;
  for (int64_t again = allocations % 5;; again = 0) {  // failing all may run out of memory too
    try {
      const FailingNew failing(again);
      loop_->FailAll("out_of_memory", "memory ran out");
      break;
    } catch (const std::bad_alloc&) {
    }
  }
  Trace("all fails");
}

void ServeRunner::OpenSessions() {
  for (const SessionPlan& session : workload_.sessions) {
    loop_->OpenSession(session.id);
    turns_[session.id];
  }
}

void ServeRunner::Submit(const Arrival& arrival) {
  const Request& request = arrival.request;
  Told& told = told_[request.id];
  told.was_timed_out = arrival.times_out >= 0;
  for (int64_t after : arrival.aborts) aborts_.emplace(outcome_.steps + after, request.id);
  runtime::Submission submission;
  submission.id = request.id;
  submission.queue = &queue_;
  submission.time = now_;
  Prompt& prompt = submission.prompt;
  prompt.ids = request.prompt;
  prompt.marks = request.marks;
  prompt.extras = request.extras;
  prompt.max_tokens = request.max_tokens;
  prompt.sampling = request.sampling;
  prompt.stop_token_ids = request.stop_ids;
  prompt.priority = request.priority;
  prompt.wants_progress = request.wants_progress;
  if (arrival.grammar) prompt.grammar = std::make_shared<const GrammarText>();
  told.gate_failed = arrival.gate_fails;
  if (turns_.contains(request.session)) {
    prompt.session = request.session;
    turns_[request.session].push_back(request.id);
    ++outcome_.turns;
  }
  if (arrival.times_out >= 0) prompt.timeout = std::chrono::milliseconds(arrival.times_out);
  loop_->Submit(std::move(submission));
}

void ServeRunner::Arrive() {
  const int64_t now = outcome_.steps;
  for (; next_arrival_ < workload_.arrivals.size() && workload_.arrivals[next_arrival_].step <= now;
       ++next_arrival_) {
    Submit(workload_.arrivals[next_arrival_]);
  }
  for (const SessionPlan& session : workload_.sessions) {
    if (session.closes != now || !turns_.contains(session.id)) continue;
    TakeEvents();
    for (RequestId id : turns_[session.id]) told_[id].was_aborted |= !told_[id].ended;
    turns_.erase(session.id);
    loop_->CloseSession(session.id);
  }
  while (!aborts_.empty() && aborts_.begin()->first <= now) {
    TakeEvents();
    Told& told = told_[aborts_.begin()->second];
    told.was_aborted |= !told.ended;
    loop_->Abort(aborts_.begin()->second);
    aborts_.erase(aborts_.begin());
  }
}

void ServeRunner::Heal() {
  next_fault_ = workload_.faults.size();
  source_.Heal();
  adapters_.Heal();
  grammars_.Heal();
  aborts_.clear();
  steps_left_ = StepsToIdle(workload_, told_);
}

void ServeRunner::SetFault() {
  if (next_fault_ >= workload_.faults.size() ||
      workload_.faults[next_fault_].step > outcome_.steps) {
    return;
  }
  const Fault& fault = workload_.faults[next_fault_++];
  switch (fault.kind) {
    case Fault::Kind::kStepFails:
      engine_.FailNextStep("the step failed");
      break;
    case Fault::Kind::kNonFinite:
      engine_.NonFiniteInNextStep(fault.row);
      break;
    case Fault::Kind::kForeignToken:
      engine_.ForeignTokenInNextStep(fault.row);
      break;
    case Fault::Kind::kNoMemory:
      fails_at_ = 1 + fault.row;
      break;
  }
}

bool ServeRunner::Turn() {
  SetFault();
  bool found_something = false;
  Guarded(std::exchange(fails_at_, 0), [&] { found_something = loop_->Turn(); });
  return found_something;
}

void ServeRunner::Loop() {
  Guarded(0, [this] { OpenSessions(); });
  while (true) {
    now_ += std::chrono::milliseconds(1);
    source_.Tick();
    adapters_.Tick();
    grammars_.Tick();
    Arrive();
    const bool all_came = next_arrival_ == workload_.arrivals.size();
    if (all_came && steps_left_ < 0 && (aborts_.empty() || outcome_.steps % 64 == 63)) Heal();
    outcome_.plans += Turn() ? 1 : 0;
    TakeEvents();
    Require(engine_.violation().empty(), engine_.violation());
    Require(source_.violation().empty(), source_.violation());
    Require(adapters_.violation().empty(), adapters_.violation());
    Require(grammars_.violation().empty(), grammars_.violation());
    if (all_came && aborts_.empty() && loop_->Idle()) {
      if (!loop_->Saving()) return;
      if (workload_.store.drops_at_end) loop_->DropSaves();
      Require(++saving_steps_ < 20000, "I12: saves do not end");
    }
    Require(steps_left_ < 0 || loop_->Idle() || --steps_left_ > 0,
            "I12: the run does not end once it is healed");
    ++outcome_.steps;
  }
}

void ServeRunner::TakeDone(const Event& event, Told* told) {
  told->ended = true;
  told->all_failed = all_failed_;
  told->error_code = event.error_code;
  told->vector = event.vector;
  told->cut_in_constraint = event.cut_in_grammar;
  for (const TokenLogprobs& one : event.prompt_logprobs) {
    told->scored.emplace_back(one.id, one.logprob);
  }
  switch (event.finish_reason) {
    case FinishReason::kStop:
      told->reason = EndReason::kStopToken;
      break;
    case FinishReason::kLength:
      told->reason = EndReason::kLength;
      break;
    case FinishReason::kAborted:
      told->reason = EndReason::kAborted;
      break;
    case FinishReason::kTimeout:
      told->reason = EndReason::kTimedOut;
      break;
    case FinishReason::kError:
      told->reason = EndReason::kFailed;
      break;
  }
  const Usage& usage = event.usage;
  Require(usage.completion_tokens == static_cast<int64_t>(told->tokens.size()) &&
              usage.cached_tokens < std::max<int64_t>(usage.prompt_tokens, 1),
          fmt::format("I11: request {} is told {} tokens and counts {}, {} of {} cached",
                      event.request, told->tokens.size(), usage.completion_tokens,
                      usage.cached_tokens, usage.prompt_tokens));
}

void ServeRunner::TakeEvents() {
  while (std::optional<Event> event = queue_.Pop(std::chrono::milliseconds(0))) {
    Told& told = told_[event->request];
    Require(!told.ended,
            fmt::format("I11: request {} is told something after its end", event->request));
    told.tokens.insert(told.tokens.end(), event->token_ids.begin(), event->token_ids.end());
    if (event->kind == Event::Kind::kDone) TakeDone(*event, &told);
    Trace(fmt::format("request {} tokens {} {}", event->request, fmt::join(event->token_ids, ","),
                      told.ended ? FinishReasonName(event->finish_reason) : ""));
  }
}

Request ServeRunner::Lowered(const Request& request) const {
  const EngineLimits& limits = workload_.limits;
  const int64_t capacity =
      std::min<int64_t>(limits.max_seq_len, int64_t{limits.num_pages} * limits.page_size + 1);
  Request lowered = request;
  const int64_t room = capacity - static_cast<int64_t>(request.prompt.size());
  if (room > 0) lowered.max_tokens = std::min(lowered.max_tokens, room);
  return lowered;
}

void ServeRunner::CheckEnd() {
  for (const Arrival& arrival : workload_.arrivals) {
    Arrival lowered = arrival;
    lowered.request = Lowered(arrival.request);
    CheckAnswer(workload_, lowered, told_[arrival.request.id]);
  }
  if (all_failed_) return;
  loop_->AbortAll();
  Require(source_.num_loading() == 0, "I14: a load goes on when all is idle");
  Scheduler& scheduler = loop_->scheduler();
  Require(scheduler.ResetPrefixCache() == 0, "I14: a page stays cached when all are dropped");
  Require(scheduler.Stats().pages_free == workload_.limits.num_pages, "I14: a page is lost");
  Require(scheduler.Stats().window_pages_free == workload_.limits.num_window_pages,
          "I14: a window page is lost");
  Require(scheduler.Stats().state_slots_free == workload_.limits.num_state_slots,
          "I14: a state slot is lost");
}

}  // namespace

Outcome SimulateServeLoop(const Workload& workload, std::string* trace_text) {
  const ChecksThrow checks_throw;
  return ServeRunner(workload, trace_text).Go();
}

}  // namespace minisgl::sim
