// The whole CUDA engine without a GPU: its host code, and its kernels on the thread-block emulator.
// Compared with the CPU's engine over the oracle's operations with the same 16-bit activations.
//
// Sums are in different orders, so log-probabilities agree within the precision of 16-bit
// activations. Under --deterministic the engine agrees with itself bit for bit however work is cut.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>

#include "engine/emulated_cuda.h"
#include "slow.h"

namespace minisgl {
namespace {

// Compares token by token. Stops at the first token whose two most likely candidates are too close.
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
  MarkSlow("a model on the emulator");
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
  MarkSlow("a model on the emulator");
  const DriverOptions options{.max_running_requests = 4, .graph_max_rows = 4};
  const auto api = std::make_shared<cuda::emulator::EmulatedCudaApi>();
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

// Kernels are loaded when they first run: after a warm start no request waits for that.
TEST_F(EmulatedCudaTest, AWarmEngineLoadsNoKernelForARequest) {
  MarkSlow("a model on the emulator");
  class KernelCounter : public cuda::emulator::EmulatedCudaApi {
   public:
    cuda::CudaError LaunchKernel(const void* kernel, const cuda::CudaLaunch& launch,
                                 void** arguments) override {
      kernels.insert(kernel);
      return EmulatedCudaApi::LaunchKernel(kernel, launch, arguments);
    }
    std::set<const void*> kernels;
  };
  for (const bool warms_up : {true, false}) {
    for (const bool deterministic : {false, true}) {
      const auto api = std::make_shared<KernelCounter>();
      EngineDriver cuda(*model_,
                        {.max_running_requests = 2,
                         .max_prefill_tokens = 32,
                         .graph_max_rows = 2,
                         .warms_up = warms_up},
                        EmulatedCuda({.deterministic = deterministic}, api));
      const size_t at_start = api->kernels.size();
      for (const int32_t length : {3, 30}) {
        TestRow* const row = cuda.AddRow(RandomPrompt(length, 7));
        row->sampling = {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1};
        EXPECT_EQ(cuda.Generate(row, kAll, 3).size(), 3u);
      }
      EXPECT_EQ(api->kernels.size() == at_start, warms_up) << deterministic;
    }
  }
}

TEST_F(EmulatedCudaTest, WithoutGraphsTheEngineStartsAndGivesTheSame) {
  MarkSlow("a model on the emulator");
  const DriverOptions options{.max_running_requests = 2, .graph_max_rows = 2};
  const auto prompt = RandomPrompt(9, 2);
  const auto graphs = OnCuda(options);
  const auto wanted = graphs->Generate(graphs->AddRow(prompt), kAll, 3);
  const auto api = std::make_shared<cuda::emulator::EmulatedCudaApi>();
  {
    EngineDriver cuda(*model_, options, EmulatedCuda({}, api, {.no_graphs = true}));
    EXPECT_TRUE(SameResults(cuda.Generate(cuda.AddRow(prompt), kAll, 3), wanted));
  }
  EXPECT_EQ(api->num_calls("BeginCapture"), 0);
  EXPECT_EQ(api->num_calls("GraphLaunch"), 0);
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
  // Beside another row, with the answer so far as one prompt.
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

// Prompts in chunks, rows that decode beside them, drafts: all rows' results, and the calls that
// launched the steps.
struct MixedSteps {
  std::vector<RowResult> results;
  int kernels, graphs;
};
MixedSteps RunMixedSteps(EngineDriver* cuda, cuda::emulator::EmulatedCudaApi* api) {
  const int kernels = api->num_calls("LaunchKernel"), graphs = api->num_calls("GraphLaunch");
  TestRow* const a = cuda->AddRow(RandomPrompt(5, 31));
  TestRow* const b = cuda->AddRow(RandomPrompt(12, 32));
  TestRow* const c = cuda->AddRow(RandomPrompt(30, 33));
  const auto step = [&] { MINISGL_CHECK(cuda->Step().ok(), "a step failed"); };
  cuda->ExtendAll(a);
  step();  // 5 tokens
  cuda->ExtendAll(a);
  cuda->Extend(b, 7);
  step();  // 1 + 7
  cuda->ExtendAll(a);
  cuda->ExtendAll(b);
  cuda->Extend(c, 4);
  step();  // 1 + 5 + 4
  cuda->ExtendAll(a);
  cuda->ExtendAll(b);
  cuda->Extend(c, 20);
  step();  // 2 + 20
  cuda->ExtendAll(b);
  cuda->ExtendWithDrafts(a, std::vector<TokenId>{a->results[0].token, 3, 4});
  cuda->ExtendAll(c);
  step();  // 1 + 4 + 6
  cuda->ExtendWithDrafts(b, std::vector<TokenId>{5, 6});
  cuda->ExtendWithDrafts(c, std::vector<TokenId>{7});
  step();  // 3 + 2
  MixedSteps steps = {.results = {},
                      .kernels = api->num_calls("LaunchKernel") - kernels,
                      .graphs = api->num_calls("GraphLaunch") - graphs};
  for (const TestRow* row : {a, b, c}) {
    steps.results.insert(steps.results.end(), row->results.begin(), row->results.end());
  }
  return steps;
}

// With and without --deterministic: padding does not change the kernels' order of sums, as no size
// of these crosses the limit between their own products and the library's.
TEST_F(EmulatedCudaTest, MixedStepsInGraphsAreTheOperationsBitForBit) {
  MarkSlow("a model on the emulator");
  for (const bool deterministic : {false, true}) {
    const CudaOpsConfig config{.deterministic = deterministic};
    const DriverOptions options{.page_size = 4, .max_running_requests = 4};
    DriverOptions with_graphs = options;
    with_graphs.graph_max_tokens = 24;
    const auto api = std::make_shared<cuda::emulator::EmulatedCudaApi>();
    EngineDriver eager(*model_, options, EmulatedCuda(config, api));
    const MixedSteps wanted = RunMixedSteps(&eager, api.get());
    EngineDriver graphs(*model_, with_graphs, EmulatedCuda(config, api));
    const MixedSteps actual = RunMixedSteps(&graphs, api.get());
    EXPECT_TRUE(SameResults(actual.results, wanted.results)) << deterministic;
    EXPECT_EQ(wanted.graphs, 0);
    EXPECT_EQ(actual.graphs, 6);
    // Of a step: its writes, and what samples.
    EXPECT_LE(actual.kernels, 6 * 8);
    EXPECT_GT(wanted.kernels, 6 * 16);
  }
}

// A step's input reaches the device while the step before it runs, as early and as late as can be,
// and its results the host: neither disturbs the other step.
TEST_F(EmulatedCudaTest, CopiesBesideAStepChangeNothing) {
  MarkSlow("a model on the emulator");
  const auto run = [&](const cuda::emulator::EmulatedCudaConfig& config, bool ahead,
                       int32_t num_logprobs) {
    const auto api = std::make_shared<cuda::emulator::EmulatedCudaApi>(config);
    EngineDriver cuda(
        *model_,
        {.page_size = 4, .max_running_requests = 4, .graph_max_rows = 2, .graph_max_tokens = 16},
        EmulatedCuda({}, api));
    std::vector<TestRow*> rows;
    for (int i = 0; i < 2; ++i) {
      rows.push_back(cuda.AddRow(RandomPrompt(6 + 5 * i, 60 + i)));
      rows.back()->sampling.num_logprobs = num_logprobs;
    }
    for (int step = 0; step < 5; ++step) {
      for (int i = 0; i < 2; ++i) {
        if (step >= i) cuda.ExtendAll(rows[static_cast<size_t>(i)]);
      }
      cuda.Launch();
      if (step > 0 || !ahead) MINISGL_CHECK(cuda.Collect().ok(), "a step failed");
    }
    if (ahead) MINISGL_CHECK(cuda.Collect().ok(), "a step failed");
    std::vector<RowResult> results = rows[0]->results;
    results.insert(results.end(), rows[1]->results.begin(), rows[1]->results.end());
    return results;
  };
  for (const int32_t num_logprobs : {-1, 3}) {
    const auto wanted = run({}, false, num_logprobs);
    EXPECT_EQ(wanted.size(), 5u + 4u);
    EXPECT_TRUE(SameResults(run({.lazy = true}, true, num_logprobs), wanted)) << "late";
    EXPECT_TRUE(SameResults(run({.lazy_compute = true}, true, num_logprobs), wanted)) << "early";
  }
}

TEST_F(EmulatedCudaTest, NothingOfTheDeviceIsLeftBehind) {
  const auto api = std::make_shared<cuda::emulator::EmulatedCudaApi>();
  {
    EngineDriver cuda(*model_, {.max_running_requests = 4, .graph_max_rows = 2},
                      EmulatedCuda({}, api));
    cuda.Generate(cuda.AddRow(RandomPrompt(5, 6)), kAll, 2);
  }
  EXPECT_TRUE(api->live() == cuda::emulator::EmulatedCudaApi::Live());
}

}  // namespace
}  // namespace minisgl
