// The CUDA engine on emulated kernels: steps that replay graphs, copies beside a step, and kernels
// that are loaded before the first request. Each compares whole runs with one another.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "engine/emulated_cuda.h"
#include "long_form.h"
#include "slow.h"

namespace minisgl {
namespace {

using EmulatedGraphsTest = EmulatedCudaTest;

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
TEST_F(EmulatedGraphsTest, MixedStepsInGraphsAreTheOperationsBitForBit) {
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
    // Each step has kernels for its writes and for sampling.
    EXPECT_LE(actual.kernels, 6 * 8);
    EXPECT_GT(wanted.kernels, 6 * 16);
  }
}

// A step's input reaches the device while the step before it runs, as early and as late as can be,
// and its results the host: neither disturbs the other step.
TEST_F(EmulatedGraphsTest, CopiesBesideAStepChangeNothing) {
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
  const std::vector<int32_t> in_short_form = {3}, in_long_form = {-1, 3};
  for (const int32_t num_logprobs : ShortOrLong(in_short_form, in_long_form)) {
    const auto wanted = run({}, false, num_logprobs);
    EXPECT_EQ(wanted.size(), 5u + 4u);
    EXPECT_TRUE(SameResults(run({.lazy = true}, true, num_logprobs), wanted)) << "late";
    EXPECT_TRUE(SameResults(run({.lazy_compute = true}, true, num_logprobs), wanted)) << "early";
  }
}

// Kernels are loaded when they first run: after a warm start no request waits for that.
TEST_F(EmulatedGraphsTest, AWarmEngineLoadsNoKernelForARequest) {
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

}  // namespace
}  // namespace minisgl
