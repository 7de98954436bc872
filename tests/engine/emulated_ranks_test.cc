// The CUDA engine on several ranks, each an emulated device: tokens equal one device's, with the
// same bits for every schedule, and a fault of one device ends the step of all.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "engine/emulated_cuda.h"
#include "engine/kv_copies.h"
#include "golden_models.h"
#include "gpu/gpu_models.h"

namespace minisgl {
namespace {

using cuda::emulator::EmulatedCudaApi;

// Named Emulated, so that they run for one target of the CPU.
class EmulatedRanksTest : public testing::Test {
 protected:
  static std::unique_ptr<EngineDriver> OnRanks(const TestModel& model, int32_t num_ranks,
                                               DriverOptions options, CudaOpsConfig config = {},
                                               const cuda::DebugSwitches& debug = {}) {
    options.num_ranks = num_ranks;
    return std::make_unique<EngineDriver>(model, options, EmulatedRanks(num_ranks, config, debug));
  }
  static std::vector<RowResult> Answer(EngineDriver* driver, const std::vector<TokenId>& prompt,
                                       int32_t chunk, int32_t num_tokens) {
    return driver->Generate(driver->AddRow(prompt), chunk, num_tokens);
  }
  // The model on ranks against one device, in f16.
  static void Compare(const TestModel& model, const char* name, int32_t num_ranks);
  // A model of tests/golden with random weights.
  static void CompareModel(const char* name, int32_t num_ranks);
};

DriverOptions TwoRows() { return {.max_running_requests = 2}; }

// Parts of sums are rounded to 16 bits, as one device's sums are.
TEST_F(EmulatedRanksTest, TokensAreThoseOfOneDevice) {
  const auto model = MakeEmulatedModel();
  const auto prompt = RandomPrompt(19, 3);
  const CudaOpsConfig f16{.activation_dtype = DType::kF16};
  EngineDriver alone(*model, TwoRows(), EmulatedCuda(f16));
  const auto wanted = Answer(&alone, prompt, kAll, 4);
  const auto ranks = OnRanks(*model, 2, {.max_running_requests = 2, .graph_max_rows = 2}, f16);
  ExpectAgree(Answer(ranks.get(), prompt, 7, 4), wanted, 0.01, "two ranks");
}

// Pages, chunks, graphs, other rows, and the way through the memory of the host.
TEST_F(EmulatedRanksTest, EveryScheduleGivesTheSameBits) {
  const auto model = MakeEmulatedModel();
  const auto prompt = RandomPrompt(13, 3);
  const CudaOpsConfig deterministic{.deterministic = true};
  const auto wanted = Answer(OnRanks(*model, 2, TwoRows(), deterministic).get(), prompt, kAll, 3);
  const DriverOptions graphs = {
      .page_size = 4, .max_running_requests = 2, .graph_max_rows = 2, .graph_max_tokens = 8};
  const auto other = OnRanks(*model, 2, graphs, deterministic, {.no_peers = true});
  TestRow* const mate = other->AddRow(RandomPrompt(3, 4));
  other->ExtendAll(mate);
  ASSERT_TRUE(other->Step().ok());
  TestRow* const row = other->AddRow(prompt);
  while (row->results.size() < 3) {
    other->ExtendAll(mate);
    other->Extend(row, std::min(5, row->known_len - row->computed_len));
    ASSERT_TRUE(other->Step().ok());
  }
  EXPECT_TRUE(SameResults(row->results, wanted));
}

// Two steps in flight, and blocks of keys and values that pass through the host.
TEST_F(EmulatedRanksTest, StepsInFlightAndBlocksAreThoseOfAllRanks) {
  const auto model = MakeEmulatedModel();
  const auto prompt = RandomPrompt(kBlock + 2, 3);
  const auto wanted = Answer(OnRanks(*model, 2, TwoRows()).get(), prompt, kAll, 2);
  const auto from = OnRanks(*model, 2, TwoRows()), to = OnRanks(*model, 2, TwoRows());
  EXPECT_TRUE(SameResults(AnswerFromBlocks(from.get(), 16, to.get(), 16, prompt, 2), wanted));
}

// A kernel of one device that cannot be launched, and one that is lost: the other rank's kernels,
// which wait for it, end, and the message names the device.
TEST_F(EmulatedRanksTest, AFaultOfOneDeviceEndsTheStepOfAll) {
  const auto model = MakeEmulatedModel();
  for (const size_t faulty : {size_t{0}, size_t{1}}) {
    for (const char* const call : {"LaunchKernel", "EventSynchronize", "CopyAsync"}) {
      SCOPED_TRACE(testing::Message() << call << " of rank " << faulty);
      std::vector<std::shared_ptr<EmulatedCudaApi>> apis;
      EngineDriver driver(*model, {.num_ranks = 2, .max_running_requests = 2},
                          EmulatedRanks<EmulatedCudaApi>(2, {}, {}, &apis));
      driver.ExtendAll(driver.AddRow({1, 2, 3}));
      ASSERT_TRUE(driver.Step().ok());
      apis[faulty]->FailAt(call, 1, cuda::kCudaLaunchFailure, /*forever=*/true);
      driver.ExtendAll(driver.AddRow({4, 5, 6}));
      const Status status = driver.Step();
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("cuda:" + std::to_string(faulty)), std::string::npos)
          << status.message();
      EXPECT_EQ(status.message().find("another device"), std::string::npos) << status.message();
    }
  }
}

void EmulatedRanksTest::Compare(const TestModel& model, const char* name, int32_t num_ranks) {
  SCOPED_TRACE(name);
  const auto prompt = RandomPrompt(9, 5, static_cast<int32_t>(model.config.vocab_size));
  const CudaOpsConfig f16{.activation_dtype = DType::kF16};
  EngineDriver alone(model, TwoRows(), EmulatedCuda(f16));
  const auto wanted = Answer(&alone, prompt, kAll, 2);
  const auto ranks = OnRanks(model, num_ranks, TwoRows(), f16);
  ExpectAgree(Answer(ranks.get(), prompt, kAll, 2), wanted, 0.03, name);
}

void EmulatedRanksTest::CompareModel(const char* name, int32_t num_ranks) {
  const auto model = cuda::MakeGpuArchitecture(name);
  if (model == nullptr) GTEST_SKIP() << "no tests/golden/models beside the sources";
  Compare(*model, name, num_ranks);
}

TEST_F(EmulatedRanksTest, AMixtureAgreesWithOneDevice) { CompareModel("qwen2_moe", 2); }
TEST_F(EmulatedRanksTest, LatentAttentionAgreesWithOneDevice) { CompareModel("deepseek_v3", 2); }
TEST_F(EmulatedRanksTest, StatesAgreeWithOneDevice) { CompareModel("qwen3_next", 2); }
TEST_F(EmulatedRanksTest, FourRanksAgreeWithOneDevice) { CompareModel("gemma2", 4); }
// Norms over the heads of all ranks: of queries and keys, with a KV head on two ranks each, and of
// the output of a state.
TEST_F(EmulatedRanksTest, NormsOverAllHeadsAgreeWithOneDevice) { CompareModel("olmo2", 2); }
TEST_F(EmulatedRanksTest, NormsOverHeadsOfFourRanksAgree) { CompareModel("olmo2", 4); }
TEST_F(EmulatedRanksTest, NormsOverAllHeadsOfStatesAgree) {
  CompareModel("granitemoehybrid_dense", 2);
}

// Codes that each rank expands of its part alone: groups of codes and blocks of scales are cut.
TEST_F(EmulatedRanksTest, QuantizedModelsAgreeWithOneDevice) {
  for (const char* const name : {"quant_gptq_int8", "quant_mxfp4_gpt_oss", "quant_fp8_block_moe"}) {
    OpenedGolden golden = OpenGolden(name);
    ASSERT_NE(golden.checkpoint, nullptr) << name;
    TestModel model;
    model.config = std::move(golden.config);
    model.checkpoint = std::move(golden.checkpoint);
    Compare(model, name, 2);
  }
}

// Records the work of all ranks' devices. A device is busy from a launch until its stream is waited
// for.
struct DeviceWatch {
  std::atomic<bool> armed = false;
  std::atomic<int> num_busy = 0;
  std::atomic<int> num_taken = 0, num_taken_while_busy = 0;  // pieces of memory
};
DeviceWatch* device_watch = nullptr;

class WatchedCudaApi final : public EmulatedCudaApi {
 public:
  using EmulatedCudaApi::EmulatedCudaApi;

  cuda::CudaError LaunchKernel(const void* kernel, const cuda::CudaLaunch& launch,
                               void** arguments) override {
    Launched(launch.stream);
    kernels.insert(kernel);
    return EmulatedCudaApi::LaunchKernel(kernel, launch, arguments);
  }
  cuda::CudaError GraphLaunch(cuda::CudaGraphExec exec, cuda::CudaStream stream) override {
    Launched(stream);
    return EmulatedCudaApi::GraphLaunch(exec, stream);
  }
  cuda::CudaError StreamSynchronize(cuda::CudaStream stream) override {
    const cuda::CudaError error = EmulatedCudaApi::StreamSynchronize(stream);
    if (stream == launched_on_) {
      launched_on_ = nullptr;
      --device_watch->num_busy;
    }
    return error;
  }
  cuda::CudaError Malloc(void** pointer, size_t num_bytes) override {
    Take();
    return EmulatedCudaApi::Malloc(pointer, num_bytes);
  }
  cuda::CudaError Free(void* pointer) override {
    Take();
    return EmulatedCudaApi::Free(pointer);
  }
  cuda::CudaError MallocHost(void** pointer, size_t num_bytes) override {
    Take();
    return EmulatedCudaApi::MallocHost(pointer, num_bytes);
  }
  cuda::CudaError FreeHost(void* pointer) override {
    Take();
    return EmulatedCudaApi::FreeHost(pointer);
  }

  std::set<const void*> kernels;

 private:
  void Launched(cuda::CudaStream stream) {
    if (launched_on_ == nullptr) ++device_watch->num_busy;
    launched_on_ = stream;
  }
  static void Take() {
    if (!device_watch->armed) return;
    ++device_watch->num_taken;
    if (device_watch->num_busy > 0) ++device_watch->num_taken_while_busy;
  }

  cuda::CudaStream launched_on_ = nullptr;  // kernels run on one
};

// A step with more biases than any before, while another is in flight: a call that takes memory may
// wait for a kernel that waits for another rank.
TEST_F(EmulatedRanksTest, NoMemoryIsTakenWhileARankRuns) {
  const auto model = MakeEmulatedModel();
  const auto prompt = RandomPrompt(5, 3), mates = RandomPrompt(4, 4);
  const CudaOpsConfig deterministic{.deterministic = true};
  DeviceWatch of_test;
  device_watch = &of_test;
  const auto wanted = Answer(OnRanks(*model, 2, TwoRows(), deterministic).get(), prompt, kAll, 1);
  EngineDriver driver(*model, {.num_ranks = 2, .max_running_requests = 2},
                      EmulatedRanks<WatchedCudaApi>(2, deterministic));
  TestRow* const mate = driver.AddRow(mates);
  driver.ExtendAll(mate);
  ASSERT_TRUE(driver.Step().ok());
  device_watch->armed = true;
  driver.ExtendAll(mate);
  driver.Launch();
  TestRow* const row = driver.AddRow(prompt);
  for (int i = 0; i < 40'000; ++i) row->sampling.logit_bias.emplace_back(i % 97, 0.0f);
  driver.ExtendAll(row);
  driver.Launch();
  ASSERT_TRUE(driver.Collect().ok());
  ASSERT_TRUE(driver.Collect().ok());
  device_watch->armed = false;
  EXPECT_TRUE(SameResults(row->results, wanted));
  EXPECT_GT(device_watch->num_taken, 0);
  EXPECT_EQ(device_watch->num_taken_while_busy, 0);
}

// A sum and the norm behind it as one kernel, in graphs and without, have the bits of two kernels,
// and fewer kernels are launched.
TEST_F(EmulatedRanksTest, SumsWithNormsHaveTheBitsOfBoth) {
  const auto model = MakeEmulatedModel();
  const auto prompt = RandomPrompt(9, 7);
  std::vector<RowResult> wanted;
  int num_launches = 0;
  for (const bool fused : {false, true}) {
    for (const int32_t graph_max_rows : {0, 2}) {
      std::vector<std::shared_ptr<EmulatedCudaApi>> apis;
      EngineDriver driver(
          *model, {.num_ranks = 2, .max_running_requests = 2, .graph_max_rows = graph_max_rows},
          EmulatedRanks<EmulatedCudaApi>(2, {}, {.no_fused_norm = !fused}, &apis));
      const auto found = Answer(&driver, prompt, kAll, 2);
      if (wanted.empty()) wanted = found;
      EXPECT_TRUE(SameResults(found, wanted)) << fused << " " << graph_max_rows;
      if (graph_max_rows > 0) continue;
      // Two sums of each of two layers and two steps; the last one has no norm with it.
      const int now = apis[0]->num_calls("LaunchKernel");
      if (fused) EXPECT_EQ(now, num_launches - 2 * (2 * 2 - 1));
      num_launches = now;
    }
  }
}

// Operations of each rank are timed.
TEST_F(EmulatedRanksTest, EachRankIsProfiled) {
  const auto model = MakeEmulatedModel();
  const auto profile = std::make_shared<KernelProfile>(2);
  const auto driver = OnRanks(*model, 2, TwoRows(), {.profile = profile});
  profile->Clear();
  Answer(driver.get(), {1, 2, 3}, kAll, 1);
  const auto count = [&](int32_t rank) {
    int64_t sum = 0;
    for (const KernelProfile::Row& row : profile->Rows(rank)) sum += row.count;
    return sum;
  };
  EXPECT_GT(count(0), 0);
  EXPECT_EQ(count(1), count(0));
}

// Kernels are loaded as each rank runs alone: after a warm start none is loaded while another rank
// may wait, and what ranks exchange later has the numbers that it has after a cold start.
TEST_F(EmulatedRanksTest, AWarmStartLoadsWhatStepsRun) {
  const auto model = MakeEmulatedModel();
  const auto prompt = RandomPrompt(9, 7);
  DeviceWatch of_test;
  device_watch = &of_test;
  std::vector<RowResult> cold;
  for (const bool warms_up : {false, true}) {
    std::vector<std::shared_ptr<WatchedCudaApi>> apis;
    EngineDriver driver(*model,
                        {.num_ranks = 2,
                         .max_running_requests = 2,
                         .max_prefill_tokens = 12,
                         .graph_max_rows = 2,
                         .warms_up = warms_up},
                        EmulatedRanks<WatchedCudaApi>(2, {}, {}, &apis));
    const size_t at_start[] = {apis[0]->kernels.size(), apis[1]->kernels.size()};
    const auto results = Answer(&driver, prompt, kAll, 3);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(apis[rank]->kernels.size() == at_start[rank], warms_up) << rank;
    }
    if (!warms_up) cold = results;
    EXPECT_TRUE(SameResults(results, cold));
  }
}

}  // namespace
}  // namespace minisgl
