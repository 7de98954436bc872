// The whole CUDA engine without a GPU: its host code, and its kernels on the thread-block emulator,
// held against the CPU's engine over the oracle's operations with activations of the same 16 bits.
//
// Sums are taken in other orders, so log-probabilities agree within what 16-bit activations give;
// under --deterministic the engine agrees with itself bit for bit however work is cut.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "cuda_ops.h"
#include "emulator/emulated_cuda_api.h"
#include "emulator/emulated_matmul.h"
#include "engine/engine_driver.h"
#include "engine/scheduled_run.h"
#include "minisgl/base/window_math.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl {
namespace {

// One whose head_dim the kernels have: 3 query heads on each of 2 KV heads of 64.
std::unique_ptr<TestModel> MakeModel() {
  auto model = std::make_unique<TestModel>();
  model->config = TinyConfig();
  model->config.hidden_size = 64;
  model->config.num_heads = 6;
  model->config.num_kv_heads = 2;
  model->config.head_dim = 64;
  model->config.max_seq_len = 512;
  model->checkpoint = WriteCheckpoint(model->dir, TinyTensors(model->config));
  return model;
}

std::unique_ptr<DeviceOps> EmulatedCuda(const CudaOpsConfig& config,
                                        std::shared_ptr<emulator::EmulatedCudaApi> api = nullptr) {
  if (api == nullptr) api = std::make_shared<emulator::EmulatedCudaApi>();
  auto ops = MakeCudaOpsOver(
      api,
      [api](CudaApi*, void*, size_t, bool) -> Result<std::unique_ptr<MatmulLibrary>> {
        return std::unique_ptr<MatmulLibrary>(new emulator::EmulatedMatmul(api.get()));
      },
      config);
  MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
  return std::move(ops).value();
}

class EmulatedCudaTest : public testing::Test {
 protected:
  std::unique_ptr<EngineDriver> OnCuda(const DriverOptions& options,
                                       const CudaOpsConfig& config = {}) {
    return std::make_unique<EngineDriver>(*model_, options, EmulatedCuda(config));
  }
  std::unique_ptr<EngineDriver> OnCpu(DriverOptions options, DType dtype) {
    options.weight_dtype = dtype;
    return std::make_unique<EngineDriver>(model_->config, *model_->checkpoint, options,
                                          MakeNaiveOps(dtype));
  }
  const std::unique_ptr<TestModel> model_ = MakeModel();
};

// Token for token, unless the two likeliest are too near each other to tell; then both stop.
void ExpectAgree(const std::vector<RowResult>& actual, const std::vector<RowResult>& wanted,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), wanted.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].outcome, wanted[i].outcome) << what << " token " << i;
    const auto& ranks = wanted[i].top_logprobs;
    ASSERT_EQ(actual[i].top_logprobs.size(), ranks.size()) << what;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_NEAR(actual[i].top_logprobs[rank].logprob, ranks[rank].logprob, tolerance)
          << what << " token " << i << " rank " << rank;
    }
    if (ranks[0].logprob - ranks[1].logprob < 2 * tolerance) return;
    ASSERT_EQ(actual[i].token, wanted[i].token) << what << " token " << i;
  }
}

TEST_F(EmulatedCudaTest, AgreesWithTheCpuInBothTypes) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const DriverOptions options{.page_size = 4, .max_running_requests = 4};
    const auto prompt = RandomPrompt(37, 1);
    const auto cpu = OnCpu(options, dtype);
    const auto wanted = cpu->Generate(cpu->AddRow(prompt), kAll, 4);
    const auto cuda = OnCuda(options, {.activation_dtype = dtype});
    const auto actual = cuda->Generate(cuda->AddRow(prompt), 16, 4);
    ExpectAgree(actual, wanted, dtype == DType::kBF16 ? 0.06 : 0.01, DTypeName(dtype));
  }
}

TEST_F(EmulatedCudaTest, BatchesInGraphsAgreeWithTheCpu) {
  const DriverOptions options{.max_running_requests = 4, .graph_max_rows = 4};
  const auto api = std::make_shared<emulator::EmulatedCudaApi>();
  {
    EngineDriver cuda(*model_, options, EmulatedCuda({}, api));
    std::vector<TestRow*> rows;
    for (int i = 0; i < 3; ++i) {
      rows.push_back(cuda.AddRow(RandomPrompt(5 + 20 * i, 20 + i)));
      cuda.ExtendAll(rows.back());
    }
    ASSERT_TRUE(cuda.Step().ok());
    for (int step = 0; step < 3; ++step) {
      for (TestRow* row : rows) cuda.ExtendAll(row);
      const Status status = cuda.Step();
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (TestRow* row : rows) {
      const auto cpu = OnCpu({.max_running_requests = 4}, DType::kBF16);
      ExpectAgree(row->results, cpu->Generate(cpu->AddRow(row->prompt), kAll, 4), 0.06,
                  fmt::format("prompt of {}", row->prompt.size()));
    }
  }
}

TEST_F(EmulatedCudaTest, DeterministicIsBitForBitWhateverTheCutting) {
  const CudaOpsConfig deterministic{.deterministic = true};
  const auto prompt = RandomPrompt(21, 3);
  const auto whole = OnCuda({.max_running_requests = 4}, deterministic);
  const auto wanted = whole->Generate(whole->AddRow(prompt), kAll, 5);
  ASSERT_EQ(wanted.size(), 5u);
  for (const int32_t chunk : {1, 8}) {
    const auto cuda =
        OnCuda({.page_size = 1, .max_running_requests = 4, .graph_max_rows = 2}, deterministic);
    EXPECT_TRUE(SameResults(cuda->Generate(cuda->AddRow(prompt), chunk, 5), wanted))
        << "chunks of " << chunk;
  }
  // Beside another row, and what was said as one prompt.
  const auto beside = OnCuda({.max_running_requests = 4}, deterministic);
  TestRow* row = beside->AddRow(prompt);
  TestRow* other = beside->AddRow(RandomPrompt(50, 4));
  for (int step = 0; step < 5; ++step) {
    beside->ExtendAll(row);
    beside->ExtendAll(other);
    ASSERT_TRUE(beside->Step().ok());
  }
  EXPECT_TRUE(SameResults(row->results, wanted));
  auto said = prompt;
  for (int i = 0; i < 3; ++i) said.push_back(wanted[i].token);
  const auto again = OnCuda({.max_running_requests = 4}, deterministic);
  EXPECT_TRUE(SameResults(again->Generate(again->AddRow(said), kAll, 1), {wanted[3]}));
}

TEST_F(EmulatedCudaTest, DraftsAreVerifiedByTheSameKernels) {
  const CudaOpsConfig deterministic{.deterministic = true};
  const auto prompt = RandomPrompt(18, 5);
  const auto plain = OnCuda({.max_running_requests = 4}, deterministic);
  const auto answer = plain->Generate(plain->AddRow(prompt), kAll, 9);
  const auto cuda = OnCuda({.max_running_requests = 4}, deterministic);
  TestRow* row = cuda->AddRow(prompt);
  cuda->ExtendAll(row);
  ASSERT_TRUE(cuda->Step().ok());
  for (int step = 0; step < 2; ++step) {
    const size_t at = row->results.size();
    std::vector<TokenId> drafts;
    for (size_t i = 0; i < 3; ++i) drafts.push_back(answer[at + i].token);
    if (step == 1) drafts[1] = (drafts[1] + 1) % 97;
    cuda->ExtendWithDrafts(row, drafts);
    ASSERT_TRUE(cuda->Step().ok());
  }
  EXPECT_GE(row->results.size(), 6u);
  EXPECT_TRUE(
      SameResults(row->results, {answer.begin(), answer.begin() + std::ssize(row->results)}));
}

// Rows with a common stem decode together, their stem's keys read once (cascade attention), and
// each says what it says when it decodes by itself.
TEST_F(EmulatedCudaTest, RowsOfOneStemDecodeAsEachAlone) {
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

TEST_F(EmulatedCudaTest, NothingOfTheDeviceIsLeftBehind) {
  const auto api = std::make_shared<emulator::EmulatedCudaApi>();
  {
    EngineDriver cuda(*model_, {.max_running_requests = 4, .graph_max_rows = 2},
                      EmulatedCuda({}, api));
    cuda.Generate(cuda.AddRow(RandomPrompt(5, 6)), kAll, 2);
  }
  EXPECT_TRUE(api->live() == emulator::EmulatedCudaApi::Live());
}

// Layers with a sliding window keep their keys and values in a few window pages, given away behind
// the window; with graphs and without. Deterministic, so that all is the same bit for bit.
TEST_F(EmulatedCudaTest, AFewWindowPagesChangeNothing) {
  ModelConfig config = model_->config;
  config.layers[0].sliding_window = 21;
  const auto run = [&](int32_t num_window_pages, int32_t graph_max_rows) {
    auto device = EmulatedCuda({.deterministic = true});
    const ModelEngineOptions options = {.max_running_requests = 3,
                                        .max_prefill_tokens = 32,
                                        .page_size = 4,
                                        .num_pages = 100,
                                        .memory_ratio = 0.9,
                                        .graph_max_rows = graph_max_rows};
    auto plan = PlanMemory(config, options, 0, device.get());
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    plan->limits.num_window_pages = num_window_pages;
    plan->limits.sliding_window = num_window_pages > 0 ? 21 : 0;
    auto engine = MakeDeviceEngine(config, *model_->checkpoint, *plan, std::move(device),
                                   {.graph_max_rows = graph_max_rows});
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
  const ScheduledRun whole = run(0, 0);
  for (const int32_t graph_max_rows : {0, 4}) {
    const ScheduledRun few = run(WindowMath{4, 21}.PagesOf(2) + 2, graph_max_rows);
    ExpectSame(whole, few);
    EXPECT_GT(few.stats.reclaimed_window_pages, 10);
  }
}

}  // namespace
}  // namespace minisgl
