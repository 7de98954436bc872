// The whole CUDA engine without a GPU: its host code, and its kernels on the thread-block emulator.
// Compared with the CPU's engine over the oracle's operations with the same 16-bit activations.
//
// Sums are in different orders, so log-probabilities agree within the precision of 16-bit
// activations. Under --deterministic the engine agrees with itself bit for bit however work is cut.
#include <gtest/gtest.h>

#include <utility>

#include "engine/emulated_cuda.h"
#include "slow.h"

namespace minisgl {
namespace {

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

// Steps of few tokens run norms, activations and additions with the products of large matrices
// beside them: kernels of their own give the same bits, and are four more in each layer.
TEST_F(EmulatedCudaTest, FusedPartsChangeNoBit) {
  const DriverOptions options{.max_running_requests = 2};
  const auto run = [&](cuda::DebugSwitches debug, int* launches) {
    const auto api = std::make_shared<cuda::emulator::EmulatedCudaApi>();
    debug.ring = true;
    EngineDriver cuda(*model_, options, EmulatedCuda({}, api, debug));
    auto results = cuda.Generate(cuda.AddRow(RandomPrompt(20, 2)), 9, 2);
    *launches = api->num_calls("LaunchKernel");
    return results;
  };
  int fused = 0, apart = 0, launches = 0;
  const auto wanted = run({}, &fused);
  for (const cuda::DebugSwitches& debug :
       {cuda::DebugSwitches{.no_fused_norm = true}, cuda::DebugSwitches{.no_fused_add = true},
        cuda::DebugSwitches{.no_fused_activation = true}}) {
    EXPECT_TRUE(SameResults(run(debug, &launches), wanted));
    EXPECT_GT(launches, fused);
  }
  EXPECT_TRUE(SameResults(
      run({.no_fused_norm = true, .no_fused_activation = true, .no_fused_add = true}, &apart),
      wanted));
  EXPECT_GE(apart, fused + 2 * 3 * model_->config.num_layers);
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
