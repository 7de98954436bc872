// The CUDA engine on emulated kernels gives the same results under schedules that read keys in
// other ways: rows grouped by a common prefix, and window pages that are reused.
#include <gtest/gtest.h>

#include <utility>

#include "engine/emulated_cuda.h"
#include "engine/scheduled_run.h"
#include "minisgl/base/window_math.h"
#include "minisgl/engine/device_engine.h"
#include "slow.h"

namespace minisgl {
namespace {

using EmulatedSchedulesTest = EmulatedCudaTest;

// Rows with a common prefix decode together and its keys are read once (cascade attention). Each
// gives the answer that it gives alone.
TEST_F(EmulatedSchedulesTest, RowsOfOneStemDecodeAsEachAlone) {
  MarkSlow("a long stem on the emulator");
  const auto stem = RandomPrompt(kSplitKeysMin, 8);
  const auto answers = [&](bool together) {
    const auto cuda = OnCuda({.max_running_requests = 4, .graph_max_rows = 4});
    std::vector<TestRow*> rows;
    for (int i = 0; i < 3; ++i) {
      auto prompt = stem;
      for (const TokenId id : RandomPrompt(3 + i, 80 + i)) prompt.push_back(id);
      rows.push_back(i == 0 ? cuda->AddRow(prompt)
                            : cuda->AddRowSharing(*rows[0], kSplitKeysMin / 16, prompt));
      cuda->ExtendAll(rows.back());
      MINISGL_CHECK(cuda->Step().ok(), "a step failed");
    }
    for (int step = 0; step < 2; ++step) {
      for (TestRow* row : rows) {
        cuda->ExtendAll(row);
        if (!together) MINISGL_CHECK(cuda->Step().ok(), "a step failed");
      }
      if (together) MINISGL_CHECK(cuda->Step().ok(), "a step failed");
    }
    std::vector<RowResult> all;
    for (TestRow* row : rows) all.insert(all.end(), row->results.begin(), row->results.end());
    return all;
  };
  EXPECT_TRUE(SameResults(answers(true), answers(false)));
}

// Layers with a sliding window keep keys and values in a few window pages, which are freed when the
// window has moved past them; with graphs and without. Deterministic, so results are bit for bit
// the same.
TEST_F(EmulatedSchedulesTest, AFewWindowPagesChangeNothing) {
  MarkSlow("long answers on the emulator");
  ModelConfig config = model_->config;
  config.layers[0].sliding_window = 21;
  const auto run = [&](int32_t num_window_pages, int32_t graph_max_rows, int32_t graph_max_tokens) {
    auto device = EmulatedCuda({.deterministic = true});
    const ModelEngineOptions options = {.max_running_requests = 3,
                                        .max_prefill_tokens = 32,
                                        .page_size = 4,
                                        .num_pages = 100,
                                        .memory_ratio = 0.9,
                                        .graph_max_rows = graph_max_rows,
                                        .graph_max_tokens = graph_max_tokens};
    auto plan = PlanMemory(config, options, 0, device.get());
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    plan->limits.num_window_pages = num_window_pages;
    plan->limits.sliding_window = num_window_pages > 0 ? 21 : 0;
    auto engine =
        MakeDeviceEngine(config, *model_->checkpoint, *plan, std::move(device),
                         {.graph_max_rows = graph_max_rows, .graph_max_tokens = graph_max_tokens});
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 4; ++id) {
      requests.emplace_back();
      requests.back().id = id;
      requests.back().prompt = RandomPrompt(40 + static_cast<int32_t>(id) * 11, id % 2);
      requests.back().max_tokens = 12;
      requests.back().sampling.num_logprobs = 20;
    }
    return RunScheduled(engine->get(), {.max_prefill_tokens = 32}, requests, 1);
  };
  const ScheduledRun whole = run(0, 0, 0);
  for (const int32_t graph_max_rows : {0, 4}) {
    const ScheduledRun few = run(WindowMath{4, 21}.PagesOf(2) + 2, graph_max_rows,
                                 /*graph_max_tokens=*/8 * graph_max_rows);
    ExpectSame(whole, few);
    EXPECT_GT(few.stats.reclaimed_window_pages, 10);
  }
}

// Tokens of a prompt are scored by the kernels that report an answer's log-probabilities: the same
// bits, however the prompt is cut and however few rows of logits there is memory for.
TEST_F(EmulatedSchedulesTest, ScoresAreThoseThatAnAnswerReported) {
  MarkSlow("prompts on the emulator");
  const auto run = [&](int32_t max_prefill_tokens, int32_t max_running_requests,
                       int32_t graph_max_tokens, const Request& request) {
    auto device = EmulatedCuda({.deterministic = true});
    const ModelEngineOptions options = {.max_running_requests = max_running_requests,
                                        .max_prefill_tokens = max_prefill_tokens,
                                        .page_size = 4,
                                        .num_pages = 40,
                                        .memory_ratio = 0.9,
                                        .graph_max_tokens = graph_max_tokens};
    auto plan = PlanMemory(model_->config, options, 0, device.get());
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto engine = MakeDeviceEngine(model_->config, *model_->checkpoint, *plan, std::move(device),
                                   {.graph_max_tokens = graph_max_tokens});
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return RunScheduled(engine->get(), {.max_prefill_tokens = max_prefill_tokens}, {request}, 1);
  };
  Request request;
  request.id = 1;
  request.prompt = RandomPrompt(29, 9);
  request.max_tokens = 4;
  request.sampling.num_logprobs = request.sampling.num_prompt_logprobs = 5;
  const ScheduledRun first = run(64, 8, 0, request);
  ASSERT_EQ(first.scored.at(1).size(), 28u);
  for (const RowResult& answer : first.answers.at(1)) request.prompt.push_back(answer.token);
  request.max_tokens = 0;
  auto wanted = first.scored.at(1);
  wanted.insert(wanted.end(), first.answers.at(1).begin(), first.answers.at(1).end());
  EXPECT_TRUE(SameResults(run(64, 8, 0, request).scored.at(1), wanted));
  EXPECT_TRUE(SameResults(run(7, 2, 0, request).scored.at(1), wanted));
  EXPECT_TRUE(SameResults(run(16, 2, 16, request).scored.at(1), wanted));
  // Without the likeliest tokens, for which there is no memory then.
  request.sampling.num_prompt_logprobs = 0;
  auto bare = wanted;
  for (RowResult& result : bare) result.top_logprobs.clear();
  EXPECT_TRUE(SameResults(run(7, 2, 0, request).scored.at(1), bare));
  request.sampling.num_prompt_logprobs = 5;

  // The CPU's engine over the oracle, with the same 16-bit activations.
  auto ops = MakeNaiveOps(DType::kBF16);
  const ModelEngineOptions options = {
      .max_running_requests = 2, .page_size = 4, .num_pages = 40, .weight_dtype = DType::kBF16};
  auto plan = PlanMemory(model_->config, options, uint64_t{1} << 32);
  ASSERT_TRUE(plan.ok());
  auto engine = MakeModelEngine(model_->config, *model_->checkpoint, *plan, std::move(ops));
  ASSERT_TRUE(engine.ok());
  const auto on_cpu = RunScheduled(engine->get(), {}, {request}, 1).scored.at(1);
  ASSERT_EQ(on_cpu.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(wanted[i].token, on_cpu[i].token);
    EXPECT_NEAR(wanted[i].logprob, on_cpu[i].logprob, 0.06) << i;
  }
}

}  // namespace
}  // namespace minisgl
