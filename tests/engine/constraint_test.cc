// Rows with a constraint on both kinds of engine: each token is one that its constraint allows, and
// the answers are the same under every schedule, with drafts of forced tokens and without.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "engine/host_device_ops.h"
#include "engine/scheduled_run.h"
#include "golden_models.h"
#include "minisgl/engine/device_engine.h"
#include "sim/sim_constraint.h"

namespace minisgl {
namespace {

struct ConstraintSetting {
  int depth = 1;
  int32_t chunk = 256;
  int32_t num_pages = 500;
  int32_t max_step_drafts = 0;
  bool on_device = false;  // the engine of a device, over the host's operations
  int32_t graph_max = 0;   // rows and tokens
};

std::unique_ptr<Engine> MakeConstraintEngine(const TestModel& model,
                                             const ConstraintSetting& setting) {
  std::unique_ptr<DeviceOps> device;
  if (setting.on_device) device = MakeHostDeviceOps();
  ModelEngineOptions options;
  options.max_running_requests = 5;
  options.max_prefill_tokens = setting.chunk;
  options.page_size = 4;
  options.num_pages = setting.num_pages;
  options.max_step_drafts = setting.max_step_drafts;
  options.graph_max_rows = options.graph_max_tokens = setting.graph_max;
  options.memory_ratio = 0.5;
  auto plan = PlanMemory(model.config, options, uint64_t{1} << 32, device.get());
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  plan->limits.num_window_pages = plan->limits.sliding_window = 0;
  if (device != nullptr) {
    return MakeDeviceEngine(
               model.config, *model.checkpoint, *plan, std::move(device),
               {.graph_max_rows = setting.graph_max, .graph_max_tokens = setting.graph_max})
        .value();
  }
  auto ops = MakeCpuOps({.num_threads = 1, .target = TestedCpuTarget()});
  MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
  return MakeModelEngine(model.config, *model.checkpoint, *plan, std::move(ops).value()).value();
}

constexpr RequestId kConstrainedRequests = 6;

sim::SimGrammar GrammarOf(RequestId id, int64_t vocab_size) {
  return {.seed = id * 1000, .vocab_size = vocab_size, .has_end = true};
}

// Requests 1 to 6 with a constraint, 7 without. Greedy and sampled, with penalties and
// log-probabilities.
std::vector<Request> ConstrainedRequests(int64_t vocab_size) {
  std::vector<Request> requests;
  for (RequestId id = 1; id <= kConstrainedRequests + 1; ++id) {
    Request& request = requests.emplace_back();
    request.id = id;
    request.prompt = RandomPrompt(5 + static_cast<int32_t>(id) * 3, static_cast<int>(id));
    request.max_tokens = 30;
    request.stop_ids = {0};
    request.sampling.temperature = id % 2 == 0 ? 1.5 : 0.0;
    request.sampling.seed = id;
    if (id % 3 == 0) request.sampling.num_logprobs = 3;
    if (id % 4 == 1) request.sampling.repetition_penalty = 1.3;
    if (id > kConstrainedRequests) continue;
    request.constraint = std::make_shared<sim::SimConstraint>(GrammarOf(id, vocab_size));
  }
  return requests;
}

ScheduledRun RunConstrained(const TestModel& model, const ConstraintSetting& setting) {
  const auto engine = MakeConstraintEngine(model, setting);
  SchedulerOptions options;
  options.max_prefill_tokens = setting.chunk;
  options.admission = AdmissionPolicy::kOptimistic;
  return RunScheduled(engine.get(), options, ConstrainedRequests(engine->limits().vocab_size),
                      setting.depth);
}

TEST(ConstraintTest, TokensAreAllowedAndTheSameUnderEverySchedule) {
  const auto model = MakeTinyModel();
  const ScheduledRun base = RunConstrained(*model, {});
  for (RequestId id = 1; id <= kConstrainedRequests; ++id) {
    sim::SimConstraint constraint(GrammarOf(id, model->config.vocab_size));
    ASSERT_TRUE(base.answers.contains(id));
    for (const RowResult& token : base.answers.at(id)) {
      ASSERT_TRUE(constraint.Accept(token.token)) << "request " << id;
    }
    EXPECT_TRUE(constraint.MustEnd() || base.answers.at(id).size() == 30u);
  }
  for (const ConstraintSetting& setting :
       std::vector<ConstraintSetting>{{.depth = 0},
                                      {.chunk = 7, .num_pages = 40},
                                      {.max_step_drafts = 4},
                                      {.depth = 0, .max_step_drafts = 40}}) {
    const ScheduledRun run = RunConstrained(*model, setting);
    ExpectSame(base, run);
    EXPECT_EQ(run.stats.drafted_tokens > 0, setting.max_step_drafts > 0);
  }
}

TEST(ConstraintTest, ADevicesStepsTakeMasksWithGraphsAndWithout) {
  const auto model = MakeTinyModel();
  const ScheduledRun base = RunConstrained(*model, {.on_device = true});
  for (const ConstraintSetting& setting : std::vector<ConstraintSetting>{
           {.depth = 0, .on_device = true},
           {.on_device = true, .graph_max = 8},
           {.chunk = 7, .num_pages = 40, .on_device = true, .graph_max = 8},
           {.max_step_drafts = 16, .on_device = true}}) {
    ExpectSame(base, RunConstrained(*model, setting));
  }
  for (RequestId id = 1; id <= kConstrainedRequests; ++id) {
    sim::SimConstraint constraint(GrammarOf(id, model->config.vocab_size));
    for (const RowResult& token : base.answers.at(id)) {
      ASSERT_TRUE(constraint.Accept(token.token)) << "request " << id;
    }
  }
}

// An engine that ends while a step waits for its masks does not wait for ever.
TEST(ConstraintTest, AnEngineEndsWhileAStepWaitsForMasks) {
  const auto model = MakeTinyModel();
  for (const bool on_device : {false, true}) {
    auto engine = MakeConstraintEngine(*model, {.on_device = on_device});
    Scheduler scheduler(engine->limits(), {.max_prefill_tokens = 256});
    for (Request& request : ConstrainedRequests(engine->limits().vocab_size)) {
      scheduler.Submit(std::move(request));
    }
    engine->Launch(scheduler.Next());
    engine.reset();
  }
}

}  // namespace
}  // namespace minisgl
