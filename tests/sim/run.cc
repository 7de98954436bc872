// One simulated run of the production scheduler over a SimEngine, with all checks.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sim/oracle.h"
#include "sim/sim_engine.h"
#include "sim/workload.h"

namespace minisgl::sim {
namespace {

// A scheduler with broken invariants: its destructor would only fail again. It stays reachable, so
// that it is no leak.
void Bury(std::unique_ptr<Scheduler> scheduler) {
  static auto* const graves = new std::vector<Scheduler*>;
  graves->push_back(scheduler.release());
}

class Runner {
 public:
  Runner(const Workload& workload, std::string* trace_text)
      : workload_(workload),
        engine_(workload.limits, workload.end_rate),
        source_(workload.source, workload.store, workload.seed, &engine_),
        adapters_(workload.adapters, workload.seed),
        trace_text_(trace_text) {
    SchedulerOptions options = workload.options;
    options.record_notes = true;
    options.kv_source = source_.get();
    options.adapter_source = adapters_.get();
    engine_.KnowDrafter(workload.drafter);
    if (options.max_drafts > 0 && !workload.limits.makes_drafts) {
      options.drafter = std::make_shared<SimDrafter>(
          workload.drafter, workload.limits.vocab_size, workload.end_rate,
          [&workload](RequestId id) { return workload.MarksOf(id); });
    }
    engine_.LimitEmbeddings(options.encoder_cache);
    for (const Arrival& arrival : workload.arrivals) {
      const Request& request = arrival.request;
      if (!request.marks.empty()) engine_.KnowMarks(request.sampling.seed, request.marks);
      if (request.extras != nullptr) engine_.KnowExtras(request.sampling.seed, request.extras);
    }
    scheduler_ = std::make_unique<Scheduler>(workload.limits, options);
  }

  Outcome Go() {
    try {
      Loop();
      CheckAnswers();
      outcome_.stats = scheduler_->Stats();
      CheckStats(workload_, outcome_.stats);
    } catch (const Violation& violation) {
      outcome_.violation = violation.what();
      Bury(std::move(scheduler_));
    }
    return outcome_;
  }

 private:
  void Trace(const std::string& line) {
    for (char letter : line)
      outcome_.trace = (outcome_.trace ^ static_cast<uint8_t>(letter)) * 0x100000001B3ull;
    if (trace_text_ != nullptr) *trace_text_ += line + "\n";
  }

  void Loop();
  void OpenSessions();
  void Arrive();
  void Submit(const Arrival& arrival);
  // An event for a request at a given step.
  struct Happening {
    enum class Kind : uint8_t { kAbort, kTimeOut, kOpenGate, kCloseSession };
    Kind kind;
    uint64_t id;
  };
  void Happen(const Happening& happening);
  void OpenGate(RequestId id);
  void Heal();
  void Launch(std::shared_ptr<const BatchPlan> plan);
  void SupplyMasks();
  void Collect();
  void TakeEvents();
  void CheckToken(const SchedEvent& event);
  void CheckProgress(const SchedEvent& event, const Told& told) const;
  void CheckAnswers();

  const Workload& workload_;
  SimEngine engine_;
  SimSources source_;
  SimAdapters adapters_;
  SimMaskMaker masks_;
  std::unique_ptr<Scheduler> scheduler_;
  std::string* trace_text_;
  Outcome outcome_;
  std::map<RequestId, Told> told_;
  std::map<SessionId, std::vector<RequestId>> turns_;  // in order; of open sessions
  size_t next_arrival_ = 0, next_fault_ = 0;
  std::multimap<int64_t, Happening> happenings_;
  int64_t healed_at_ = -1;
  int64_t steps_left_ = 0;    // after Heal
  int64_t saving_steps_ = 0;  // after all requests ended
};

void Runner::OpenSessions() {
  for (const SessionPlan& session : workload_.sessions) {
    scheduler_->OpenSession(session.id);
    turns_[session.id];
    if (session.closes >= 0) {
      happenings_.emplace(session.closes, Happening{Happening::Kind::kCloseSession, session.id});
    }
  }
}

void Runner::Submit(const Arrival& arrival) {
  using Kind = Happening::Kind;
  const int64_t now = outcome_.steps;
  const Request& request = arrival.request;
  Told& told = told_[request.id];
  for (int64_t after : arrival.aborts) {
    happenings_.emplace(now + after, Happening{Kind::kAbort, request.id});
  }
  if (arrival.times_out >= 0) {
    happenings_.emplace(now + arrival.times_out, Happening{Kind::kTimeOut, request.id});
  }
  if (request.is_gated) {
    told.gate_is_open = false;
    happenings_.emplace(now + arrival.gate_opens, Happening{Kind::kOpenGate, request.id});
  }
  if (request.session != 0) {
    const auto open = turns_.find(request.session);
    if (open != turns_.end()) {
      open->second.push_back(request.id);
      ++outcome_.turns;
    } else {
      told.was_aborted = true;  // its session is closed
    }
  }
  Request submitted = request;
  if (!request.is_gated) submitted.constraint = MakeConstraint(arrival, &masks_);
  scheduler_->Submit(std::move(submitted));
}

void Runner::Happen(const Happening& happening) {
  TakeEvents();
  switch (happening.kind) {
    case Happening::Kind::kAbort:
      told_[happening.id].was_aborted |= !told_[happening.id].ended;
      scheduler_->Abort(happening.id);
      break;
    case Happening::Kind::kTimeOut:
      told_[happening.id].was_timed_out |= !told_[happening.id].ended;
      scheduler_->TimeOut(happening.id);
      break;
    case Happening::Kind::kOpenGate:
      OpenGate(happening.id);
      break;
    case Happening::Kind::kCloseSession:
      for (RequestId id : turns_[happening.id]) told_[id].was_aborted |= !told_[id].ended;
      turns_.erase(happening.id);
      scheduler_->CloseSession(happening.id);
      break;
  }
}

void Runner::OpenGate(RequestId id) {
  const auto arrival = std::find_if(workload_.arrivals.begin(), workload_.arrivals.end(),
                                    [id](const Arrival& one) { return one.request.id == id; });
  Told& told = told_[id];
  if (arrival->gate_fails) {
    told.gate_failed = !told.ended;
    scheduler_->FailGate(id, "invalid_grammar", "it does not compile");
    return;
  }
  told.gate_is_open = true;
  scheduler_->OpenGate(id, MakeConstraint(*arrival, &masks_));
  if (id % 3 == 0) scheduler_->FailGate(id, "invalid_grammar", "its gate is open");
}

void Runner::Arrive() {
  const int64_t now = outcome_.steps;
  for (; next_arrival_ < workload_.arrivals.size() && workload_.arrivals[next_arrival_].step <= now;
       ++next_arrival_) {
    Submit(workload_.arrivals[next_arrival_]);
  }
  while (!happenings_.empty() && happenings_.begin()->first <= now) {
    const Happening happening = happenings_.begin()->second;
    happenings_.erase(happenings_.begin());
    Happen(happening);
  }
  TakeEvents();
}

// Liveness: no faults and no requests come any more, and all gates are open; from here on the
// scheduler has a bounded number of steps to become idle.
void Runner::Heal() {
  healed_at_ = outcome_.steps;
  next_fault_ = workload_.faults.size();
  source_.Heal();
  adapters_.Heal();
  masks_.Heal();
  for (const auto& [step, happening] : std::exchange(happenings_, {})) {
    if (happening.kind == Happening::Kind::kOpenGate) Happen(happening);
  }
  TakeEvents();
  steps_left_ = StepsToIdle(workload_, told_);
}

void Runner::Launch(std::shared_ptr<const BatchPlan> plan) {
  ++outcome_.plans;
  Trace(fmt::format("step {} rows {} kv {} slots {}", plan->step, fmt::join(plan->table_row, ","),
                    fmt::join(plan->kv_len, ","), fmt::join(plan->slots, ",")));
  if (!plan->window_slots.empty()) {
    Trace(fmt::format("window slots {}", fmt::join(plan->window_slots, ",")));
  }
  for (const StateSegment& segment : plan->state_segments) {
    Trace(fmt::format("row {}: {} tokens from state {} to {}", segment.row, segment.num_tokens,
                      segment.read, segment.write));
  }
  if (next_fault_ < workload_.faults.size() &&
      workload_.faults[next_fault_].step <= outcome_.steps) {
    const Fault& fault = workload_.faults[next_fault_++];
    const int row = fault.row % std::max(plan->num_rows(), 1);
    if (fault.kind == Fault::Kind::kStepFails) engine_.FailNextStep("the step failed");
    if (fault.kind == Fault::Kind::kNonFinite) engine_.NonFiniteInNextStep(row);
    if (fault.kind == Fault::Kind::kForeignToken) engine_.ForeignTokenInNextStep(row);
  }
  adapters_.Check(*plan);
  engine_.Launch(std::move(plan));
  SupplyMasks();
}

void Runner::SupplyMasks() {
  if (auto masks = scheduler_->TakeMasks(&engine_)) engine_.SupplyMasks(*std::move(masks));
}

void Runner::Collect() {
  scheduler_->Collect(engine_.Collect());
  SupplyMasks();
  TakeEvents();
}

void Runner::Loop() {
  int64_t last_progress = 0;
  // Progress may pause for at most as many steps as the pipeline is deep (I12).
  const int64_t patience = 8;
  OpenSessions();
  while (true) {
    source_.Tick();
    adapters_.Tick();
    masks_.Tick();
    Arrive();
    for (const RequestId id : masks_.TakeReady()) scheduler_->MaskReady(id);
    const bool all_came = next_arrival_ == workload_.arrivals.size();
    if (all_came && healed_at_ < 0 && (happenings_.empty() || outcome_.steps % 64 == 63)) Heal();
    if (all_came && happenings_.empty() && scheduler_->Idle()) {
      if (!scheduler_->Saving()) return;
      if (workload_.store.drops_at_end) scheduler_->DropSaves();
      Require(++saving_steps_ < 20000, "I12: saves do not end");
    }
    const auto plan = scheduler_->Next();
    if (plan != nullptr) {
      Launch(plan);
      last_progress = outcome_.steps;
    }
    const bool collects =
        engine_.in_flight() > workload_.depth || (plan == nullptr && engine_.in_flight() > 0);
    if (collects) Collect();
    Require(engine_.violation().empty(), engine_.violation());
    Require(source_.violation().empty(), source_.violation());
    Require(adapters_.violation().empty(), adapters_.violation());
    Require(masks_.violation().empty(), masks_.violation());
    // The runtime's loop relies on this: with nothing in flight, there is a step or no need for
    // one.
    Require(plan != nullptr || collects || scheduler_->Idle() || scheduler_->WaitsOutside(),
            "I12: nothing runs and something waits: " + scheduler_->DebugString());
    if (scheduler_->Idle() || scheduler_->WaitsOutside()) last_progress = outcome_.steps;
    Require(outcome_.steps - last_progress <= patience,
            "I12: nothing was launched for too long: " + scheduler_->DebugString());
    Require(healed_at_ < 0 || scheduler_->Idle() || --steps_left_ > 0,
            "I12: the run does not end once it is healed");
    ++outcome_.steps;
  }
}

void Runner::CheckToken(const SchedEvent& event) {
  Require(told_[event.id].gate_is_open,
          fmt::format("request {} is answered before its gate opens", event.id));
  for (const auto& [session, turns] : turns_) {
    const auto place = std::find(turns.begin(), turns.end(), event.id);
    if (place == turns.end()) continue;
    for (auto before = turns.begin(); before != place; ++before) {
      Require(told_[*before].ended,
              fmt::format("turn {} is answered before the end of turn {}", event.id, *before));
    }
  }
}

void Runner::CheckProgress(const SchedEvent& event, const Told& told) const {
  const auto is_its = [&event](const Arrival& arrival) { return arrival.request.id == event.id; };
  const auto& arrivals = workload_.arrivals;
  const auto arrival = std::find_if(arrivals.begin(), arrivals.end(), is_its);
  Require(arrival != arrivals.end() && arrival->request.wants_progress && told.tokens.empty(),
          fmt::format("request {} is told the progress of its prompt", event.id));
  // A request that was preempted begins again.
  Require(event.computed_tokens >= 1 && event.computed_tokens < std::ssize(arrival->request.prompt),
          fmt::format("request {} has computed {} of {} tokens and is not done", event.id,
                      event.computed_tokens, arrival->request.prompt.size()));
}

void Runner::TakeEvents() {
  scheduler_->TakeNotes();
  for (const SchedEvent& event : scheduler_->TakeEvents()) {
    Told& told = told_[event.id];
    Require(!told.ended, fmt::format("I11: request {} is told something after its end", event.id));
    if (event.kind == SchedEvent::Kind::kToken) {
      CheckToken(event);
      told.tokens.push_back(event.token.token);
      Trace(fmt::format("request {} token {}", event.id, event.token.token));
      continue;
    }
    if (event.kind == SchedEvent::Kind::kScored) {
      Require(told.tokens.empty(), fmt::format("request {} is scored after a token", event.id));
      for (const RowResult& one : event.scored) told.scored.emplace_back(one.token, one.logprob);
      Trace(fmt::format("request {} scored {}", event.id, event.scored.size()));
      continue;
    }
    if (event.kind == SchedEvent::Kind::kPrompt) {
      CheckProgress(event, told);
      continue;
    }
    if (event.kind == SchedEvent::Kind::kVector) {
      Require(told.vector.empty(), fmt::format("request {} is told two vectors", event.id));
      told.vector = event.token.vector;
      Trace(fmt::format("request {} vector {}", event.id, fmt::join(told.vector, " ")));
      continue;
    }
    told.ended = true;
    told.reason = event.reason;
    told.error_code = event.error_code;
    told.cut_in_constraint = event.cut_in_constraint;
    Trace(fmt::format("request {} ends {} {}", event.id, static_cast<int>(event.reason),
                      event.error_code));
  }
}

void Runner::CheckAnswers() {
  for (const Arrival& arrival : workload_.arrivals)
    CheckAnswer(workload_, arrival, told_[arrival.request.id]);
  for (const SessionPlan& session : workload_.sessions) scheduler_->CloseSession(session.id);
  Require(source_.num_loading() == 0, "I14: a load goes on when all is idle");
  Require(scheduler_->ResetPrefixCache() == 0, "I14: a page stays cached when all are dropped");
  Require(scheduler_->Stats().pages_free == workload_.limits.num_pages, "I14: a page is lost");
  Require(scheduler_->Stats().window_pages_free == workload_.limits.num_window_pages,
          "I14: a window page is lost");
  Require(scheduler_->Stats().state_slots_free == workload_.limits.num_state_slots,
          "I14: a state slot is lost");
}

}  // namespace

Outcome Simulate(const Workload& workload, std::string* trace_text) {
  if (workload.through_runtime) return SimulateServeLoop(workload, trace_text);
  const ChecksThrow checks_throw;
  return Runner(workload, trace_text).Go();
}

}  // namespace minisgl::sim
