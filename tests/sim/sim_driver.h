// Drives the production scheduler over a SimEngine, with a pipeline of any depth, and records every
// answer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/sched/scheduler.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<RowResult> scored;
  std::vector<float> vector;
  std::vector<int64_t> progress;  // computed tokens of its prompt
  bool ended = false;
  EndReason reason = EndReason::kStopToken;
  std::string error_code, error_message;
  int64_t cached_tokens = 0;
  int num_ends = 0;
  bool token_after_end = false;
  bool cut_in_constraint = false;
};

class SimDriver {
 public:
  SimDriver(const EngineLimits& limits, SchedulerOptions options, int depth, int64_t end_rate = 20)
      : depth_(depth), engine_(limits, end_rate) {
    options.check_invariants = true;
    engine_.LimitEmbeddings(options.encoder_cache);
    scheduler_ = std::make_unique<Scheduler>(limits, options);
  }

  Scheduler& scheduler() { return *scheduler_; }
  SimEngine& engine() { return engine_; }
  std::map<RequestId, Answer>& answers() { return answers_; }

  // A request with marks or extras has a seed of its own, by which the engine knows it.
  void Submit(Request request) {
    answers_[request.id];
    if (!request.marks.empty()) engine_.KnowMarks(request.sampling.seed, request.marks);
    if (request.extras != nullptr) engine_.KnowExtras(request.sampling.seed, request.extras);
    scheduler_->Submit(std::move(request));
    TakeEvents();
  }

  // Launches a step if one can run, and returns its plan.
  std::shared_ptr<const BatchPlan> Launch() {
    const auto plan = scheduler_->Next();
    TakeEvents();
    if (plan != nullptr) {
      engine_.Launch(plan);
      last_plan_ = plan;
      SupplyMasks();
    }
    return plan;
  }
  // Launches a step if one can run; then collects until at most `depth` steps are in flight.
  // Returns false if nothing could be launched or collected.
  bool Step() {
    const auto plan = Launch();
    if (plan != nullptr && engine_.in_flight() <= depth_) return true;
    if (engine_.in_flight() == 0) return false;
    CollectOne();
    return true;
  }
  // The last plan launched.
  const BatchPlan& last_plan() const { return *last_plan_; }
  void CollectOne() {
    scheduler_->Collect(engine_.Collect());
    SupplyMasks();
    TakeEvents();
  }
  void SupplyMasks() {
    if (auto masks = scheduler_->TakeMasks(&engine_)) engine_.SupplyMasks(*std::move(masks));
  }
  // Runs until idle. Returns false if that takes more than `steps_max` steps.
  bool RunToEnd(int64_t steps_max = 100000) {
    for (int64_t step = 0; step < steps_max; ++step) {
      TakeEvents();
      if (scheduler_->Idle()) return true;
      if (!Step()) return scheduler_->Idle();
    }
    return false;
  }

 private:
  void TakeEvents() {
    for (const SchedEvent& event : scheduler_->TakeEvents()) {
      Answer& answer = answers_[event.id];
      if (event.kind == SchedEvent::Kind::kToken) {
        answer.token_after_end |= answer.ended;
        answer.tokens.push_back(event.token.token);
      } else if (event.kind == SchedEvent::Kind::kScored) {
        answer.token_after_end |= answer.ended || !answer.tokens.empty();
        answer.scored.insert(answer.scored.end(), event.scored.begin(), event.scored.end());
      } else if (event.kind == SchedEvent::Kind::kVector) {
        answer.token_after_end |= answer.ended || !answer.vector.empty();
        answer.vector = event.token.vector;
      } else if (event.kind == SchedEvent::Kind::kPrompt) {
        answer.token_after_end |= answer.ended || !answer.tokens.empty();
        answer.progress.push_back(event.computed_tokens);
      } else {
        answer.ended = true;
        ++answer.num_ends;
        answer.reason = event.reason;
        answer.error_code = event.error_code;
        answer.error_message = event.error_message;
        answer.cut_in_constraint = event.cut_in_constraint;
        answer.cached_tokens = event.cached_tokens;
      }
    }
  }

  int depth_;
  SimEngine engine_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<RequestId, Answer> answers_;
  std::shared_ptr<const BatchPlan> last_plan_;
};

}  // namespace minisgl::sim
