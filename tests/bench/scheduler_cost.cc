// Host cost of one step: Next + Collect + TakeEvents of the scheduler, without an engine.
//
// build/tests/bench_scheduler_cost
//
// Prints microseconds per step (the median of the measured steps) for several numbers of decoding
// rows, then again with a long queue and a large tree, which must not change them.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "minisgl/sched/scheduler.h"

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  int32_t rows;
  int64_t queued;
  int64_t tree_nodes;
};

Request MakeRequest(RequestId id, int64_t length, int64_t max_tokens) {
  Request request;
  request.id = id;
  for (int64_t i = 0; i < length; ++i) {
    request.prompt.push_back(
        static_cast<TokenId>((id * 7919 + static_cast<uint64_t>(i) * 31) % 30000));
  }
  request.max_tokens = max_tokens;
  return request;
}

// Collects the plan with generated tokens.
void CollectPlan(Scheduler* scheduler, const BatchPlan& plan) {
  StepResult result;
  result.rows.resize(static_cast<size_t>(plan.num_rows()));
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (plan.wants_token[static_cast<size_t>(row)] == 0) continue;
    result.rows[static_cast<size_t>(row)].outcome = RowResult::Outcome::kToken;
    result.rows[static_cast<size_t>(row)].token = static_cast<TokenId>(plan.step % 30000);
  }
  scheduler->Collect(result);
}

double MedianStep(const Case& what) {
  EngineLimits limits;
  limits.vocab_size = 32000;
  limits.page_size = 16;
  limits.num_pages = 400000;
  limits.max_running_requests = what.rows;
  limits.max_seq_len = 4096;
  limits.max_step_tokens = 8192 + what.rows;
  SchedulerOptions options;
  options.max_prefill_tokens = 8192;
  options.step = StepPolicy::kMixed;
  options.admission = AdmissionPolicy::kOptimistic;
  options.queue = QueuePolicy::kPriority;
  options.check_invariants = false;
  Scheduler scheduler(limits, options);
  RequestId next_id = 1;
  // Builds a tree of that many nodes: finished requests, each with a different prefix.
  for (int64_t node = 0; node < what.tree_nodes; ++node) {
    scheduler.Submit(MakeRequest(next_id++, 17, 1));
    if (node % what.rows != what.rows - 1 && node + 1 < what.tree_nodes) continue;
    while (!scheduler.Idle()) CollectPlan(&scheduler, *scheduler.Next());
    scheduler.TakeEvents();
  }
  for (int32_t row = 0; row < what.rows; ++row) scheduler.Submit(MakeRequest(next_id++, 100, 3000));
  for (int64_t i = 0; i < what.queued; ++i) scheduler.Submit(MakeRequest(next_id++, 100, 3000));
  std::vector<double> microseconds;
  for (int step = 0; step < 700; ++step) {
    const auto begin = Clock::now();
    const auto plan = scheduler.Next();
    CollectPlan(&scheduler, *plan);
    const auto events = scheduler.TakeEvents();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (step >= 200) microseconds.push_back(took.count());
  }
  std::nth_element(microseconds.begin(), microseconds.begin() + 250, microseconds.end());
  return microseconds[250];
}

}  // namespace
}  // namespace minisgl

int main() {
  using minisgl::Case;
  for (const Case& what :
       {Case{1, 0, 0}, Case{16, 0, 0}, Case{64, 0, 0}, Case{256, 0, 0}, Case{256, 1000000, 0},
        Case{256, 0, 100000}, Case{1, 1000000, 0}, Case{1, 0, 100000}}) {
    std::fputs(fmt::format("{:4} rows, {:7} queued, tree of {:6} nodes: {:7.2f} us a step\n",
                           what.rows, what.queued, what.tree_nodes, minisgl::MedianStep(what))
                   .c_str(),
               stdout);
  }
}
