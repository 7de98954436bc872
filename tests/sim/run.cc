// One simulated run: the production scheduler over a SimEngine, everything checked.
#include <fmt/format.h>

#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "sim/sim_engine.h"
#include "sim/workload.h"

namespace minisgl::sim {
namespace {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void ThrowViolation(const std::string& message) { throw Violation(message); }

// A failed check throws while this lives.
class ChecksThrow {
 public:
  ChecksThrow() { SetCheckHandler(&ThrowViolation); }
  ~ChecksThrow() { SetCheckHandler(nullptr); }
};

struct Told {
  std::vector<TokenId> tokens;
  bool ended = false;
  bool was_aborted = false;  // an abort was sent while it had not ended
  EndReason reason = EndReason::kStopToken;
  std::string error_code;
};

// A scheduler whose books are broken: taking it apart would only fail again. It stays reachable, so
// it is no leak.
void Bury(std::unique_ptr<Scheduler> scheduler) {
  static auto* const graves = new std::vector<Scheduler*>;
  graves->push_back(scheduler.release());
}

class Runner {
 public:
  Runner(const Workload& workload, std::string* trace_text)
      : workload_(workload),
        engine_(workload.limits, workload.end_rate),
        scheduler_(std::make_unique<Scheduler>(workload.limits, workload.options)),
        trace_text_(trace_text) {}

  Outcome Go() {
    try {
      Loop();
      CheckAnswers();
      outcome_.stats = scheduler_->Stats();
    } catch (const Violation& violation) {
      outcome_.violation = violation.what();
      Bury(std::move(scheduler_));
    }
    return outcome_;
  }

 private:
  void Require(bool condition, const std::string& what) {
    if (!condition) throw Violation(what);
  }
  void Trace(const std::string& line) {
    for (char letter : line)
      outcome_.trace = (outcome_.trace ^ static_cast<uint8_t>(letter)) * 0x100000001B3ull;
    if (trace_text_ != nullptr) *trace_text_ += line + "\n";
  }

  void Loop();
  void Arrive();
  void Launch(std::shared_ptr<const BatchPlan> plan);
  void Collect();
  void TakeEvents();
  void CheckAnswers();
  void CheckAnswer(const Request& request, const Told& told);

  const Workload& workload_;
  SimEngine engine_;
  std::unique_ptr<Scheduler> scheduler_;
  std::string* trace_text_;
  Outcome outcome_;
  std::map<RequestId, Told> told_;
  size_t next_arrival_ = 0, next_fault_ = 0;
  std::multimap<int64_t, RequestId> aborts_;
};

void Runner::Arrive() {
  const int64_t now = outcome_.steps;
  for (; next_arrival_ < workload_.arrivals.size() && workload_.arrivals[next_arrival_].step <= now;
       ++next_arrival_) {
    const Arrival& arrival = workload_.arrivals[next_arrival_];
    told_[arrival.request.id];
    for (int64_t after : arrival.aborts) aborts_.emplace(now + after, arrival.request.id);
    scheduler_->Submit(arrival.request);
  }
  while (!aborts_.empty() && aborts_.begin()->first <= now) {
    const RequestId id = aborts_.begin()->second;
    aborts_.erase(aborts_.begin());
    TakeEvents();
    told_[id].was_aborted |= !told_[id].ended;
    scheduler_->Abort(id);
  }
  TakeEvents();
}

void Runner::Launch(std::shared_ptr<const BatchPlan> plan) {
  ++outcome_.plans;
  Trace(fmt::format("step {} rows {} kv {} slots {}", plan->step, fmt::join(plan->table_row, ","),
                    fmt::join(plan->kv_len, ","), fmt::join(plan->slots, ",")));
  if (next_fault_ < workload_.faults.size() &&
      workload_.faults[next_fault_].step <= outcome_.steps) {
    const Fault& fault = workload_.faults[next_fault_++];
    const int row = fault.row % plan->num_rows();
    if (fault.kind == Fault::Kind::kStepFails) engine_.FailNextStep("the step failed");
    if (fault.kind == Fault::Kind::kNonFinite) engine_.NonFiniteInNextStep(row);
    if (fault.kind == Fault::Kind::kForeignToken) engine_.ForeignTokenInNextStep(row);
  }
  engine_.Launch(std::move(plan));
  Require(engine_.violation().empty(), engine_.violation());
}

void Runner::Collect() {
  scheduler_->Collect(engine_.Collect());
  TakeEvents();
}

void Runner::Loop() {
  int64_t last_progress = 0;
  // Nothing may stand still for longer than the queue of the pipeline is long (I12).
  const int64_t patience = 8;
  while (true) {
    Arrive();
    const bool all_came = next_arrival_ == workload_.arrivals.size() && aborts_.empty();
    if (all_came && scheduler_->Idle()) return;
    const auto plan = scheduler_->Next();
    if (plan != nullptr) {
      Launch(plan);
      last_progress = outcome_.steps;
    }
    if (engine_.in_flight() > workload_.depth || (plan == nullptr && engine_.in_flight() > 0)) {
      Collect();
    }
    if (scheduler_->Idle()) last_progress = outcome_.steps;
    Require(outcome_.steps - last_progress <= patience,
            "I12: nothing was launched for too long: " + scheduler_->DebugString());
    Require(++outcome_.steps < 1000000, "I12: the run does not end");
  }
}

void Runner::TakeEvents() {
  for (const SchedEvent& event : scheduler_->TakeEvents()) {
    Told& told = told_[event.id];
    Require(!told.ended, fmt::format("I11: request {} is told something after its end", event.id));
    if (event.kind == SchedEvent::Kind::kToken) {
      told.tokens.push_back(event.token.token);
      Trace(fmt::format("request {} token {}", event.id, event.token.token));
      continue;
    }
    told.ended = true;
    told.reason = event.reason;
    told.error_code = event.error_code;
    Trace(fmt::format("request {} ends {} {}", event.id, static_cast<int>(event.reason),
                      event.error_code));
  }
}

void Runner::CheckAnswer(const Request& request, const Told& told) {
  Require(told.ended, fmt::format("I10: request {} was never answered", request.id));
  const auto right = RightAnswer(request.prompt, request.max_tokens, !request.stop_ids.empty(),
                                 workload_.limits.vocab_size, workload_.end_rate);
  Require(told.tokens.size() <= right.size() &&
              std::equal(told.tokens.begin(), told.tokens.end(), right.begin()),
          fmt::format("I11: request {} was told wrong tokens", request.id));
  const bool is_whole = told.tokens.size() == right.size();
  if (told.reason == EndReason::kAborted) {
    Require(told.was_aborted, fmt::format("request {} was aborted by nobody", request.id));
  } else if (told.reason == EndReason::kFailed) {
    const bool too_long = told.error_code == "length_exceeded";
    const auto length = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
    const bool fits =
        length <= workload_.limits.max_seq_len &&
        CeilDiv<int64_t>(length - 1, workload_.limits.page_size) <= workload_.limits.num_pages;
    Require(too_long != fits, fmt::format("request {} failed as {}", request.id, told.error_code));
    Require(too_long || !workload_.faults.empty(),
            fmt::format("request {} failed without a fault: {}", request.id, told.error_code));
  } else {
    const bool by_length = static_cast<int64_t>(right.size()) == request.max_tokens &&
                           (request.stop_ids.empty() || right.back() != 0);
    Require(is_whole && (told.reason == EndReason::kLength) == by_length,
            fmt::format("I11: request {} ended with {} of {} tokens", request.id,
                        told.tokens.size(), right.size()));
  }
}

void Runner::CheckAnswers() {
  for (const Arrival& arrival : workload_.arrivals)
    CheckAnswer(arrival.request, told_[arrival.request.id]);
  Require(scheduler_->ResetPrefixCache() == 0, "I14: a page stays cached when all are dropped");
  Require(scheduler_->Stats().pages_free == workload_.limits.num_pages, "I14: a page is lost");
}

}  // namespace

Outcome Simulate(const Workload& workload, std::string* trace_text) {
  const ChecksThrow checks_throw;
  return Runner(workload, trace_text).Go();
}

}  // namespace minisgl::sim
