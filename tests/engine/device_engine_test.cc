// The engine of a device, over a device with the oracle's operations. Its results equal the CPU
// engine's over the same operations bit for bit, however steps are cut, padded, captured or queued
// ahead. Also its behaviour when the device fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/decode_graphs.h"
#include "engine/engine_driver.h"
#include "engine/host_device_ops.h"
#include "engine/layer_graphs.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/engine/device_engine.h"
#include "slow.h"

namespace minisgl {
namespace {

class DeviceEngineTest : public testing::Test {
 protected:
  std::unique_ptr<EngineDriver> OnDevice(const DriverOptions& options,
                                         HostDeviceFaults faults = {}) {
    return std::make_unique<EngineDriver>(*model_, options,
                                          MakeHostDeviceOps(uint64_t{1} << 30, faults, counters_));
  }
  std::unique_ptr<EngineDriver> OnCpu(const DriverOptions& options) {
    return std::make_unique<EngineDriver>(model_->config, *model_->checkpoint, options,
                                          MakeNaiveOps());
  }
  std::vector<RowResult> Alone(const std::vector<TokenId>& prompt, int32_t num_tokens,
                               const DriverOptions& options = {},
                               const SamplingParams& sampling = Greedy()) {
    const auto driver = OnCpu(options);
    TestRow* row = driver->AddRow(prompt);
    row->sampling = sampling;
    return driver->Generate(row, kAll, num_tokens);
  }
  static SamplingParams Greedy() {
    SamplingParams sampling;
    sampling.num_logprobs = 20;
    return sampling;
  }
  // Numbers that a float represents exactly, so that both engines use the same.
  static SamplingParams Warm(uint64_t seed) {
    SamplingParams sampling;
    sampling.temperature = 0.75;
    sampling.top_p = 0.875;
    sampling.top_k = 20;
    sampling.repetition_penalty = 1.25;
    sampling.frequency_penalty = 0.5;
    sampling.seed = seed;
    sampling.num_logprobs = 3;
    sampling.min_tokens = 4;
    sampling.banned_until_min = {1, 2, 3};
    sampling.logit_bias = {{7, 1.5f}, {9, -2.0f}};
    return sampling;
  }

  // The pages of the plan, and those that an engine with decode graphs takes.
  std::pair<int32_t, int32_t> PlannedAndTakenPages(const HostDeviceFaults& faults, bool warms_up) {
    ModelEngineOptions options;
    options.max_running_requests = 8;
    options.max_prefill_tokens = 64;
    options.memory_ratio = 0.5;
    options.graph_max_rows = 8;
    auto device = MakeHostDeviceOps(uint64_t{256} << 20, faults, nullptr);
    const auto plan = PlanMemory(model_->config, options, 0, device.get());
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto engine = MakeDeviceEngine(model_->config, *model_->checkpoint, *plan, std::move(device),
                                   {.graph_max_rows = 8, .warms_up = warms_up});
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return {plan->limits.num_pages, engine.value()->limits().num_pages};
  }

  const std::unique_ptr<TestModel> model_ = MakeTinyModel();
  const std::shared_ptr<HostDeviceCounters> counters_ = std::make_shared<HostDeviceCounters>();
};

TEST_F(DeviceEngineTest, ChunksPagesAndGraphsChangeNothing) {
  const auto prompt = RandomPrompt(45, 1);
  const auto wanted = Alone(prompt, 8);
  for (const int32_t graph_rows : {0, 1, 8}) {
    for (const int32_t page_size : {1, 16}) {
      for (const int32_t chunk : {1, 7, 44, kAll}) {
        const auto driver = OnDevice({.page_size = page_size, .graph_max_rows = graph_rows});
        EXPECT_TRUE(SameResults(driver->Generate(driver->AddRow(prompt), chunk, 8), wanted))
            << "graphs " << graph_rows << " page " << page_size << " chunk " << chunk;
      }
    }
  }
}

TEST_F(DeviceEngineTest, BatchesPaddedToAGraphEqualRowsAlone) {
  const auto driver = OnDevice({.graph_max_rows = 8});
  std::vector<TestRow*> rows;
  for (int i = 0; i < 5; ++i) {
    rows.push_back(driver->AddRow(RandomPrompt(9 + 7 * i, 40 + i)));
    rows.back()->sampling = i % 2 == 0 ? Greedy() : Warm(i);
    driver->ExtendAll(rows.back());
    ASSERT_TRUE(driver->Step().ok());
  }
  const int runs = counters_->runs;
  for (int step = 0; step < 6; ++step) {
    for (TestRow* row : rows) driver->ExtendAll(row);
    ASSERT_TRUE(driver->Step().ok());
  }
  EXPECT_EQ(counters_->runs, runs);
  EXPECT_EQ(counters_->replays, 6);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(SameResults(rows[i]->results, Alone(rows[i]->prompt, 7, {}, rows[i]->sampling)))
        << "row " << i;
  }
}

TEST_F(DeviceEngineTest, StepsOfFewTokensReplayTheLayersAndChangeNothing) {
  const auto prompt = RandomPrompt(45, 1);
  const auto wanted = Alone(prompt, 5);
  for (const int32_t graph_rows : {0, 1}) {
    for (const int32_t chunk : {1, 7, 44, kAll}) {
      const auto driver =
          OnDevice({.page_size = 4, .graph_max_rows = graph_rows, .graph_max_tokens = 48});
      const int runs = counters_->runs, replays = counters_->replays;
      EXPECT_TRUE(SameResults(driver->Generate(driver->AddRow(prompt), chunk, 5), wanted))
          << "decode graphs " << graph_rows << " chunk " << chunk;
      EXPECT_EQ(counters_->runs, runs) << "chunk " << chunk;
      EXPECT_EQ(counters_->replays, replays + CeilDiv(45, chunk) + 4);
    }
  }
}

// Rows that decode, chunks, ends of prompts, drafts, biases that no graph holds: in every mixture,
// with two steps in flight, over all sizes and kinds of graphs.
TEST_F(DeviceEngineTest, MixedStepsInGraphsEqualRowsAlone) {
  const auto driver = OnDevice({.max_running_requests = 6, .graph_max_tokens = 160});
  const int runs = counters_->runs;
  std::vector<TestRow*> rows;
  for (int i = 0; i < 6; ++i) {
    rows.push_back(driver->AddRow(RandomPrompt(4 + 9 * i, 140 + i)));
    rows.back()->sampling = i % 2 == 0 ? Greedy() : Warm(i);
  }
  for (int i = 0; i < 1500; ++i) rows[2]->sampling.logit_bias.emplace_back(i % 97, 0.0f);
  for (int step = 0; step < 24; ++step) {
    for (int i = 0; i < 6; ++i) {
      TestRow* row = rows[static_cast<size_t>(i)];
      const int32_t left = row->known_len - row->computed_len;
      if (step < 2 * i) continue;
      if (left > 1 && step % 3 != 2) {
        driver->Extend(row, std::min(left, 3 + 8 * (step % 4)));
      } else {
        driver->ExtendAll(row);
      }
    }
    driver->Launch();
    if (step > 0) ASSERT_TRUE(driver->Collect().ok());
  }
  ASSERT_TRUE(driver->Collect().ok());
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 6; ++i) {
      const std::vector<TokenId> drafts(static_cast<size_t>((i + step) % 5), 7);
      driver->ExtendWithDrafts(rows[static_cast<size_t>(i)], drafts);
    }
    ASSERT_TRUE(driver->Step().ok());
  }
  EXPECT_EQ(counters_->runs, runs) << "a step ran without a graph";
  for (TestRow* row : rows) {
    EXPECT_TRUE(
        SameResults(row->results, Alone(row->prompt, std::ssize(row->results), {}, row->sampling)));
  }
}

TEST_F(DeviceEngineTest, AStepOfMoreTokensThanTheLargestGraphRunsWithout) {
  const auto driver = OnDevice({.graph_max_tokens = 20});
  const int runs = counters_->runs, replays = counters_->replays;
  TestRow* row = driver->AddRow(RandomPrompt(41, 3));
  driver->Extend(row, 21);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->runs, runs + 1);
  driver->Extend(row, 20);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->runs, runs + 1);
  EXPECT_EQ(counters_->replays, replays + 1);
  EXPECT_TRUE(SameResults(row->results, Alone(row->prompt, 1)));
}

TEST_F(DeviceEngineTest, ABatchLargerThanTheLargestGraphRunsWithout) {
  const auto driver = OnDevice({.graph_max_rows = 2});
  std::vector<TestRow*> rows;
  for (int i = 0; i < 3; ++i) {
    rows.push_back(driver->AddRow(RandomPrompt(8, 50 + i)));
    driver->ExtendAll(rows.back());
  }
  ASSERT_TRUE(driver->Step().ok());
  for (TestRow* row : rows) driver->ExtendAll(row);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->replays, 0);
  for (TestRow* row : rows) EXPECT_TRUE(SameResults(row->results, Alone(row->prompt, 2)));
}

TEST_F(DeviceEngineTest, AStepQueuedAfterAnotherReadsItsSample) {
  for (const int32_t graph_rows : {0, 4}) {
    const auto driver = OnDevice({.graph_max_rows = graph_rows});
    TestRow* a = driver->AddRow(RandomPrompt(20, 3));
    TestRow* b = driver->AddRow(RandomPrompt(11, 4));
    a->sampling.num_logprobs = -1;
    driver->ExtendAll(a);
    driver->ExtendAll(b);
    driver->Launch();
    for (int step = 0; step < 6; ++step) {
      driver->ExtendAll(a);
      if (step % 2 == 0) driver->ExtendAll(b);
      driver->Launch();
      ASSERT_TRUE(driver->Collect().ok());
    }
    ASSERT_TRUE(driver->Collect().ok());
    SamplingParams quiet;
    EXPECT_TRUE(SameResults(a->results, Alone(a->prompt, 7, {}, quiet)));
    EXPECT_TRUE(SameResults(b->results, Alone(b->prompt, 4)));
  }
}

TEST_F(DeviceEngineTest, DraftsAreAcceptedAndRolledBackAsOnTheCpu) {
  const auto prompt = RandomPrompt(23, 5);
  for (const SamplingParams& sampling : {Greedy(), Warm(11)}) {
    const auto answer = Alone(prompt, 20, {}, sampling);
    const auto driver = OnDevice({.graph_max_rows = 4});
    TestRow* row = driver->AddRow(prompt);
    TestRow* other = driver->AddRow(RandomPrompt(6, 6));
    row->sampling = sampling;
    driver->ExtendAll(row);
    driver->ExtendAll(other);
    ASSERT_TRUE(driver->Step().ok());
    for (int step = 0; row->results.size() + 5 < answer.size(); ++step) {
      std::vector<TokenId> drafts;
      const size_t at = row->results.size();
      for (size_t i = 0; i < 4; ++i) drafts.push_back(answer[at + i].token);
      if (step % 3 == 1) drafts[2] = (drafts[2] + 1) % 97;
      if (step % 3 == 2) drafts.clear();
      driver->ExtendWithDrafts(row, drafts);
      driver->ExtendAll(other);
      ASSERT_TRUE(driver->Step().ok());
    }
    const std::vector<RowResult> begin(answer.begin(), answer.begin() + std::ssize(row->results));
    EXPECT_TRUE(SameResults(row->results, begin));
    EXPECT_TRUE(SameResults(other->results,
                            Alone(other->prompt, static_cast<int32_t>(other->results.size()))));
  }
}

TEST_F(DeviceEngineTest, RowsOfOnePrefixAreGroupedForAttention) {
  model_->config.max_seq_len = 512;
  const auto driver = OnDevice({.max_running_requests = 8, .graph_max_rows = 4});
  const auto stem = RandomPrompt(kSplitKeysMin, 8);
  std::vector<TestRow*> rows;
  for (int i = 0; i < 3; ++i) {
    auto prompt = stem;
    for (const TokenId id : RandomPrompt(5, 90 + i)) prompt.push_back(id);
    rows.push_back(i == 0 ? driver->AddRow(prompt)
                          : driver->AddRowSharing(*rows[0], kSplitKeysMin / 16, prompt));
    if (i == 0) {
      driver->Extend(rows[0], 200);
      ASSERT_TRUE(driver->Step().ok());
    }
    driver->ExtendAll(rows.back());
    ASSERT_TRUE(driver->Step().ok());
  }
  EXPECT_EQ(counters_->groups, 0) << "rows that extend are in none";
  for (TestRow* row : rows) driver->ExtendAll(row);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->groups, 1);
  EXPECT_EQ(counters_->replays, 1) << "graphs read groups from memory";
  driver->ExtendAll(rows[1]);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->groups, 0) << "one row has no other to share with";
}

// Layers without a window read the keys of a prefix once, whatever the other layers have.
TEST_F(DeviceEngineTest, RowsAreGroupedIfSomeLayerHasNoWindow) {
  model_->config.max_seq_len = 512;
  const auto stem = RandomPrompt(kSplitKeysMin + 3, 8);
  const size_t num_layers = model_->config.layers.size();
  for (const size_t num_windows : {size_t{1}, num_layers}) {
    for (size_t i = 0; i < num_windows; ++i) model_->config.layers[i].sliding_window = 600;
    const auto driver = OnDevice({.max_running_requests = 8});
    TestRow* const first = driver->AddRow(stem);
    driver->ExtendAll(first);
    ASSERT_TRUE(driver->Step().ok());
    TestRow* const second = driver->AddRowSharing(*first, kSplitKeysMin / 16, stem);
    driver->ExtendAll(second);
    ASSERT_TRUE(driver->Step().ok());
    for (TestRow* row : {first, second}) driver->ExtendAll(row);
    ASSERT_TRUE(driver->Step().ok());
    EXPECT_EQ(counters_->groups, num_windows < num_layers ? 1 : 0);
  }
}

TEST_F(DeviceEngineTest, MoreBiasThanTheGraphsHoldIsAppliedAllTheSame) {
  SamplingParams sampling;
  for (int i = 0; i < 1500; ++i) sampling.logit_bias.emplace_back(i % 97, 0.0f);
  sampling.logit_bias.emplace_back(5, 100.0f);
  const auto prompt = RandomPrompt(12, 7);
  const auto driver = OnDevice({.graph_max_rows = 4});
  TestRow* row = driver->AddRow(prompt);
  row->sampling = sampling;
  const auto results = driver->Generate(row, kAll, 3);
  ASSERT_EQ(results.size(), 3u);
  for (const RowResult& result : results) EXPECT_EQ(result.token, 5);
  EXPECT_EQ(counters_->replays, 0);
}

// Prompts of 9,000 tokens, with pages of one token that are all in the cache: each row has 18,000
// words of writes and one token to compute. (The pages were never written: their keys are zeros for
// both engines.)
class ManyWritesTest : public DeviceEngineTest {
 protected:
  static constexpr int32_t kLength = 9000;
  ManyWritesTest() { model_->config.max_seq_len = kLength + 8; }

  static DriverOptions Options() {
    return {.page_size = 1,
            .num_pages = 30000,
            .max_running_requests = 8,
            .max_seq_len = kLength + 8,
            .graph_max_rows = 8};
  }
  static TestRow* AddCachedRow(EngineDriver* driver, uint64_t seed) {
    TestRow cached;
    for (int32_t i = 0; i < kLength - 1; ++i) cached.pages.push_back(20000 + i);
    TestRow* row = driver->AddRowSharing(cached, kLength - 1, RandomPrompt(kLength, seed));
    driver->ExtendAll(row);
    return row;
  }
  // `count` such rows in one step, then as many more as fit in another.
  static std::vector<RowResult> Run(EngineDriver* driver, int count) {
    std::vector<TestRow*> rows;
    for (int i = 0; i < 8; ++i) {
      rows.push_back(AddCachedRow(driver, 60 + static_cast<uint64_t>(i)));
      if (i == count - 1 || i == 7) MINISGL_CHECK(driver->Step().ok(), "a step failed");
    }
    std::vector<RowResult> all;
    for (TestRow* row : rows) all.insert(all.end(), row->results.begin(), row->results.end());
    return all;
  }
};

TEST_F(ManyWritesTest, AStepThatIsLargerThanTheRoomForWritesIsUploadedWhole) {
  MarkSlow("a step of very many writes");
  // The tail of 3 rows fits beside the front (256 KiB), the tail of 4 does not. 5 after 3 and 4
  // after 4 grow or reuse the overflow.
  for (const int count : {3, 4, 7}) {
    const auto cpu = OnCpu(Options());
    const auto device = OnDevice(Options());
    EXPECT_TRUE(SameResults(Run(device.get(), count), Run(cpu.get(), count))) << count;
  }
}

TEST_F(ManyWritesTest, AStepWithoutMemoryKeepsTheResultOfTheOneBefore) {
  OnDevice(Options());
  HostDeviceFaults faults;
  faults.fail_allocate = counters_->allocations + 1;  // the first allocation after the start
  counters_->allocations = 0;
  const auto driver = OnDevice(Options(), faults);
  TestRow* before = driver->AddRow(RandomPrompt(9, 3));
  driver->ExtendAll(before);
  driver->Launch();
  for (uint64_t i = 0; i < 5; ++i) AddCachedRow(driver.get(), 70 + i);
  driver->Launch();
  EXPECT_TRUE(driver->Collect().ok());
  EXPECT_TRUE(SameResults(before->results, Alone(before->prompt, 1, Options())));
  EXPECT_EQ(driver->Collect().code(), StatusCode::kOutOfMemory);
  driver->ExtendAll(before);
  EXPECT_EQ(driver->Step().code(), StatusCode::kOutOfMemory) << "what follows has nothing to read";
}

TEST_F(DeviceEngineTest, AFaultEndsItsStepAndEveryLaterOne) {
  HostDeviceFaults faults;
  faults.fail_wait = 2;
  const auto driver = OnDevice({.graph_max_rows = 4}, faults);
  TestRow* row = driver->AddRow(RandomPrompt(10, 8));
  driver->ExtendAll(row);
  ASSERT_TRUE(driver->Step().ok());
  const int replays = counters_->replays;
  for (int step = 0; step < 3; ++step) {
    driver->ExtendAll(row);
    const Status status = driver->Step();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("the host device broke"), std::string::npos);
  }
  EXPECT_LE(counters_->replays, replays + 1) << "nothing runs after a fault";
}

// Its memory is reserved for the limits.
TEST_F(DeviceEngineTest, APlanBeyondTheLimitsIsRefusedInEveryBuild) {
  const auto driver = OnDevice({});
  driver->ExtendAll(driver->AddRow(RandomPrompt(10, 8)));
  auto plan = std::make_shared<BatchPlan>(*driver->TakePlan());
  plan->kv_len[0] = static_cast<int32_t>(driver->engine()->limits().max_seq_len) + 1;
  SetCheckHandler([](const std::string& what) { throw std::runtime_error(what); });
  try {
    driver->engine()->Launch(plan);
    ADD_FAILURE() << "launched";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("row 0: kv_len"), std::string::npos) << error.what();
  }
  SetCheckHandler(nullptr);
}

TEST_F(DeviceEngineTest, ACaptureThatFailsLeavesTheSmallerGraphs) {
  HostDeviceFaults faults;
  faults.fail_capture = 5;  // two measure what graphs take; then 1, 2, 4 rows
  const auto driver = OnDevice({.graph_max_rows = 8}, faults);
  std::vector<TestRow*> rows;
  for (int i = 0; i < 3; ++i) {
    rows.push_back(driver->AddRow(RandomPrompt(8, 70 + i)));
    driver->ExtendAll(rows.back());
  }
  ASSERT_TRUE(driver->Step().ok());
  driver->ExtendAll(rows[0]);
  driver->ExtendAll(rows[1]);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->replays, 1);
  for (TestRow* row : rows) driver->ExtendAll(row);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->replays, 1) << "three rows have no graph";
  EXPECT_TRUE(SameResults(rows[0]->results, Alone(rows[0]->prompt, 3)));
  EXPECT_TRUE(SameResults(rows[2]->results, Alone(rows[2]->prompt, 2)));
}

TEST_F(DeviceEngineTest, ALayerGraphThatFailsLeavesTheSmallerOnes) {
  HostDeviceFaults faults;
  faults.fail_capture = 5;  // two measure what graphs take; then both kinds of 8 tokens
  const auto driver = OnDevice({.graph_max_tokens = 24}, faults);
  const int runs = counters_->runs;
  TestRow* row = driver->AddRow(RandomPrompt(17, 3));
  driver->Extend(row, 8);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->replays, 1);
  driver->Extend(row, 9);
  ASSERT_TRUE(driver->Step().ok());
  EXPECT_EQ(counters_->replays, 1) << "nine tokens have no graph";
  EXPECT_EQ(counters_->runs, runs + 1);
  EXPECT_TRUE(SameResults(row->results, Alone(row->prompt, 1)));
}

TEST_F(DeviceEngineTest, GraphsLargerThanReservedTakePages) {
  const auto [planned, taken] = PlannedAndTakenPages({.graph_bytes = uint64_t{1} << 20}, false);
  EXPECT_EQ(planned, taken);
  const auto [planned_same, taken_less] =
      PlannedAndTakenPages({.graph_bytes = uint64_t{8} << 20}, false);
  EXPECT_EQ(planned_same, planned);
  EXPECT_LT(taken_less, planned);
}

TEST_F(DeviceEngineTest, AnotherProcessThatGrowsIsNotCountedAsGraphs) {
  const auto [planned, taken] = PlannedAndTakenPages({.other_bytes = uint64_t{8} << 20}, false);
  EXPECT_EQ(planned, taken);
}

TEST_F(DeviceEngineTest, StepsOfPaddingAtTheStartChangeNothing) {
  const auto prompt = RandomPrompt(45, 1);
  const auto wanted = Alone(prompt, 8);
  const DriverOptions cold{
      .max_running_requests = 4, .max_prefill_tokens = 64, .graph_max_rows = 4};
  DriverOptions warm = cold;
  warm.warms_up = true;
  OnDevice(cold);
  const int runs = std::exchange(counters_->runs, 0);
  const auto driver = OnDevice(warm);
  EXPECT_EQ(counters_->runs, runs + 3) << "one of decode rows, one of 2 tokens, one of 68";
  EXPECT_TRUE(SameResults(driver->Generate(driver->AddRow(prompt), 7, 8), wanted));
  warm.graph_max_rows = 0;
  const auto without = OnDevice(warm);
  EXPECT_TRUE(SameResults(without->Generate(without->AddRow(prompt), kAll, 8), wanted));
}

TEST_F(DeviceEngineTest, WhatTheFirstStepLoadsIsNotCountedAsGraphs) {
  const HostDeviceFaults faults = {.load_bytes = uint64_t{8} << 20};
  for (const bool warms_up : {true, false}) {
    const auto [planned, taken] = PlannedAndTakenPages(faults, warms_up);
    EXPECT_EQ(planned, taken) << "warms up: " << warms_up;
  }
}

TEST_F(DeviceEngineTest, MemoryThatRunsOutAtAnyAllocationIsAnErrorAndLeaksNothing) {
  ModelEngineOptions options;
  options.max_running_requests = 4;
  options.max_prefill_tokens = 64;
  options.memory_ratio = 0.9;
  options.num_pages = 64;
  int failed = 0;
  for (int n = 1;; ++n) {
    HostDeviceFaults faults;
    faults.fail_allocate = n;
    auto counters = std::make_shared<HostDeviceCounters>();
    auto device = MakeHostDeviceOps(uint64_t{1} << 30, faults, counters);
    const auto plan = PlanMemory(model_->config, options, 0, device.get());
    ASSERT_TRUE(plan.ok());
    auto engine = MakeDeviceEngine(model_->config, *model_->checkpoint, *plan, std::move(device),
                                   {.graph_max_rows = 4});
    if (counters->allocations < n) {
      EXPECT_TRUE(engine.ok());
      break;
    }
    // A capture without memory only leaves graphs out. Every other allocation is needed.
    if (!engine.ok()) {
      EXPECT_EQ(engine.status().code(), StatusCode::kOutOfMemory) << n;
      EXPECT_NE(engine.status().message().find("max_running_requests 2"), std::string::npos)
          << engine.status().message();
      EXPECT_EQ(counters->live_bytes, 0) << n;
      ++failed;
    }
  }
  EXPECT_GT(failed, 10);
}

TEST(GraphBatchSizesTest, OneTwoFourThenMultiplesOfEight) {
  EXPECT_EQ(engine::GraphBatchSizes(0), std::vector<int32_t>());
  EXPECT_EQ(engine::GraphBatchSizes(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(engine::GraphBatchSizes(3), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(engine::GraphBatchSizes(32), (std::vector<int32_t>{1, 2, 4, 8, 16, 24, 32}));
  EXPECT_EQ(engine::GraphBatchSizes(256).size(), 3u + 32u);
}

TEST(LayerGraphsTest, SizesAndKinds) {
  EXPECT_EQ(engine::LayerGraphSizes(0), std::vector<int32_t>());
  EXPECT_EQ(engine::LayerGraphSizes(5), (std::vector<int32_t>{5}));
  EXPECT_EQ(engine::LayerGraphSizes(512),
            (std::vector<int32_t>{8,   16,  24,  32,  40,  48,  56,  64,  80,  96,
                                  112, 128, 160, 192, 224, 256, 320, 384, 448, 512}));
  const auto shapes = engine::LayerGraphShapes(512, 101);
  EXPECT_EQ(shapes.size(), 40u);
  for (const engine::StepShape& shape : shapes) {
    EXPECT_EQ(shape.num_rows, std::min(shape.num_tokens, 101));
    EXPECT_EQ(std::count(shapes.begin(), shapes.end(), shape), 1);
  }
  EXPECT_EQ(engine::LayerGraphTokensMax(512, {.max_seq_len = 100, .max_step_tokens = 300}), 100);
}

}  // namespace
}  // namespace minisgl
