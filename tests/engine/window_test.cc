// Layers with a sliding window keep keys and values in window pages, which are freed when the
// window has moved past them. Every answer equals, bit for bit, the answer with a pool that holds
// all layers and has room for everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "engine/engine_driver.h"
#include "engine/host_device_ops.h"
#include "engine/scheduled_run.h"
#include "minisgl/base/window_math.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl {
namespace {

constexpr int32_t kPageSize = 4;

struct Settings {
  std::vector<int32_t> windows;  // of each layer
  int32_t num_window_pages = 0;  // 0: all layers share pages
  int32_t num_pages = 400;
  int32_t max_prefill_tokens = 64;
  int depth = 1;
  bool is_optimistic = false;
  bool on_device = false;  // memory and operations of the host, the engine of a device
  int32_t graph_max_rows = 0;
};

class WindowEngineTest : public testing::Test {
 protected:
  WindowEngineTest() : checkpoint_(WriteCheckpoint(dir_, TinyTensors(TinyConfig()))) {}

  ScheduledRun Run(const Settings& settings, const std::vector<Request>& requests) {
    ModelConfig config = TinyConfig();
    int32_t longest = 0;
    for (size_t i = 0; i < settings.windows.size(); ++i) {
      config.layers[i].sliding_window = settings.windows[i];
      longest = std::max(longest, settings.windows[i]);
    }
    auto engine = MakeEngine(config, longest, settings);
    EXPECT_TRUE(engine.ok());
    SchedulerOptions options;
    options.max_prefill_tokens = settings.max_prefill_tokens;
    if (settings.is_optimistic) options.admission = AdmissionPolicy::kOptimistic;
    return RunScheduled(engine->get(), options, requests, settings.depth);
  }

  Result<std::unique_ptr<Engine>> MakeEngine(const ModelConfig& config, int32_t window,
                                             const Settings& settings) {
    auto device = settings.on_device ? MakeHostDeviceOps() : nullptr;
    const ModelEngineOptions options = {.max_running_requests = 4,
                                        .max_prefill_tokens = settings.max_prefill_tokens,
                                        .page_size = kPageSize,
                                        .num_pages = settings.num_pages,
                                        .memory_ratio = 0.5,
                                        .graph_max_rows = settings.graph_max_rows};
    MINISGL_ASSIGN_OR_RETURN(MemoryPlan plan,
                             PlanMemory(config, options, uint64_t{1} << 30, device.get()));
    plan.limits.num_window_pages = settings.num_window_pages;
    plan.limits.sliding_window = settings.num_window_pages > 0 ? window : 0;
    if (!settings.on_device) {
      return MakeModelEngine(config, *checkpoint_, plan,
                             MakeCpuOps({1, TestedCpuTarget()}).value());
    }
    return MakeDeviceEngine(config, *checkpoint_, plan, std::move(device),
                            {.graph_max_rows = settings.graph_max_rows});
  }

 private:
  TinyModelDir dir_;

 protected:
  const std::unique_ptr<Checkpoint> checkpoint_;
};

Request MakeRequest(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.num_logprobs = 20;
  return request;
}

int32_t Entitled(int32_t window) { return WindowMath{kPageSize, window}.PagesOf(2); }

TEST_F(WindowEngineTest, ALongAnswerFromAFewWindowPagesIsTheSame) {
  const std::vector<Request> requests = {MakeRequest(1, RandomPrompt(70, 1), 150)};
  for (const int32_t window : {1, 4, 5, 13, 40}) {
    const ScheduledRun whole = Run({.windows = {window, 0}}, requests);
    ASSERT_EQ(whole.answers.at(1).size(), 150u);
    for (const int depth : {0, 1}) {
      const ScheduledRun few = Run(
          {.windows = {window, 0}, .num_window_pages = Entitled(window), .depth = depth}, requests);
      ExpectSame(whole, few);
      EXPECT_GT(few.stats.reclaimed_window_pages, 20);
    }
  }
}

// The window changes answers. Otherwise the tests above would compare nothing.
TEST_F(WindowEngineTest, AnotherWindowIsAnotherAnswer) {
  const std::vector<Request> requests = {MakeRequest(1, RandomPrompt(70, 1), 20)};
  const ScheduledRun narrow = Run({.windows = {5, 0}}, requests);
  const ScheduledRun wide = Run({.windows = {13, 0}}, requests);
  EXPECT_FALSE(SameResults(narrow.answers.at(1), wide.answers.at(1)));
}

TEST_F(WindowEngineTest, LayersOfDifferentWindowsAndOfNoneShareAPlan) {
  const std::vector<Request> requests = {MakeRequest(1, RandomPrompt(50, 3), 60)};
  for (const auto& windows : {std::vector<int32_t>{0, 9}, {6, 11}, {11, 6}}) {
    const ScheduledRun whole = Run({.windows = windows}, requests);
    const int32_t pages = Entitled(std::max(windows[0], windows[1]));
    const ScheduledRun few = Run({.windows = windows, .num_window_pages = pages}, requests);
    ExpectSame(whole, few);
  }
}

// Shared prefixes, a small pool, chunks and preemption.
TEST_F(WindowEngineTest, RequestsThatShareAndArePreemptedAnswerTheSame) {
  std::vector<Request> requests;
  const std::vector<TokenId> stem = RandomPrompt(60, 9);
  for (RequestId id = 1; id <= 8; ++id) {
    std::vector<TokenId> prompt(stem.begin(), stem.begin() + 20 + static_cast<int64_t>(id) * 5);
    prompt.push_back(static_cast<TokenId>(id));
    requests.push_back(MakeRequest(id, prompt, 20 + static_cast<int64_t>(id) * 3));
  }
  const ScheduledRun whole = Run({.windows = {9, 0}}, requests);
  for (const bool is_optimistic : {false, true}) {
    for (const int32_t chunk : {3, 16}) {
      const ScheduledRun few = Run({.windows = {9, 0},
                                    .num_window_pages = Entitled(9) + 2,
                                    .num_pages = 70,
                                    .max_prefill_tokens = chunk,
                                    .is_optimistic = is_optimistic},
                                   requests);
      ExpectSame(whole, few);
    }
  }
}

// The same prompts again reuse the prefixes that the cache still holds.
TEST_F(WindowEngineTest, WhatIsFoundInTheCacheChangesNothing) {
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 9; ++id) {
    requests.push_back(MakeRequest(id, RandomPrompt(45, id % 3), 12));
  }
  const ScheduledRun whole = Run({.windows = {7, 0}}, requests);
  for (const int32_t pages : {Entitled(7), 2 * Entitled(7), 100}) {
    const ScheduledRun few = Run({.windows = {7, 0}, .num_window_pages = pages}, requests);
    ExpectSame(whole, few);
  }
}

// On a device, with graphs and without, chunks and drafts of the pipeline in flight.
TEST_F(WindowEngineTest, ADeviceAnswersTheSame) {
  std::vector<Request> requests;
  const std::vector<TokenId> stem = RandomPrompt(60, 9);
  for (RequestId id = 1; id <= 6; ++id) {
    std::vector<TokenId> prompt(stem.begin(), stem.begin() + 20 + static_cast<int64_t>(id) * 5);
    prompt.push_back(static_cast<TokenId>(id));
    requests.push_back(MakeRequest(id, prompt, 15 + static_cast<int64_t>(id) * 3));
  }
  const ScheduledRun whole = Run({.windows = {9, 0}, .on_device = true}, requests);
  for (const int32_t graph_max_rows : {0, 4}) {
    for (const bool is_optimistic : {false, true}) {
      const ScheduledRun few = Run({.windows = {9, 0},
                                    .num_window_pages = Entitled(9) + 2,
                                    .num_pages = 70,
                                    .max_prefill_tokens = 16,
                                    .is_optimistic = is_optimistic,
                                    .on_device = true,
                                    .graph_max_rows = graph_max_rows},
                                   requests);
      ExpectSame(whole, few);
      EXPECT_GT(few.stats.reclaimed_window_pages, 10);
    }
  }
}

// Pages of both kinds are given up for graphs, and one request still fits.
TEST_F(WindowEngineTest, GraphsLargerThanReservedTakePagesOfBothKinds) {
  ModelConfig config = TinyConfig();
  config.layers[0].sliding_window = 9;
  const auto limits_with = [&](uint64_t graph_bytes) {
    auto device = MakeHostDeviceOps(uint64_t{256} << 20, {.graph_bytes = graph_bytes});
    const auto plan = PlanMemory(config,
                                 {.max_running_requests = 8,
                                  .max_prefill_tokens = 64,
                                  .memory_ratio = 0.5,
                                  .graph_max_rows = 8},
                                 0, device.get());
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto engine =
        MakeDeviceEngine(config, *checkpoint_, *plan, std::move(device), {.graph_max_rows = 8});
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return std::pair(plan->limits, engine.value()->limits());
  };
  const auto [planned, taken] = limits_with(uint64_t{1} << 20);
  EXPECT_GT(planned.num_window_pages, 0);
  EXPECT_LT(planned.num_window_pages, planned.num_pages);
  EXPECT_EQ(planned.num_pages, taken.num_pages);
  EXPECT_EQ(planned.num_window_pages, taken.num_window_pages);
  const auto [planned_same, fewer] = limits_with(uint64_t{8} << 20);
  EXPECT_LT(fewer.num_pages, planned.num_pages);
  EXPECT_LT(fewer.num_window_pages, planned.num_window_pages);
  EXPECT_GT(fewer.num_window_pages, Entitled(9));
  EXPECT_EQ(fewer.sliding_window, 9);
}

}  // namespace
}  // namespace minisgl
