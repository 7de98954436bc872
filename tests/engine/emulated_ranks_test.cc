// The CUDA engine on several ranks, each an emulated device: tokens are those of one device, with
// the same bits for every schedule, and a fault of one device ends the step of all.
#include <gtest/gtest.h>

#include "engine/emulated_cuda.h"
#include "engine/kv_copies.h"
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
  // The model of tests/golden on ranks against one device, in f16.
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
                          EmulatedRanks(2, {}, {}, &apis));
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

void EmulatedRanksTest::CompareModel(const char* name, int32_t num_ranks) {
  SCOPED_TRACE(name);
  const auto model = cuda::MakeGpuArchitecture(name);
  if (model == nullptr) GTEST_SKIP() << "no tests/golden/models beside the sources";
  const auto prompt = RandomPrompt(9, 5, static_cast<int32_t>(model->config.vocab_size));
  const CudaOpsConfig f16{.activation_dtype = DType::kF16};
  EngineDriver alone(*model, TwoRows(), EmulatedCuda(f16));
  const auto wanted = Answer(&alone, prompt, kAll, 2);
  const auto ranks = OnRanks(*model, num_ranks, TwoRows(), f16);
  ExpectAgree(Answer(ranks.get(), prompt, kAll, 2), wanted, 0.03, name);
}

TEST_F(EmulatedRanksTest, AMixtureAgreesWithOneDevice) { CompareModel("qwen2_moe", 2); }
TEST_F(EmulatedRanksTest, LatentAttentionAgreesWithOneDevice) { CompareModel("deepseek_v3", 2); }
TEST_F(EmulatedRanksTest, StatesAgreeWithOneDevice) { CompareModel("qwen3_next", 2); }
TEST_F(EmulatedRanksTest, FourRanksAgreeWithOneDevice) { CompareModel("gemma2", 4); }

}  // namespace
}  // namespace minisgl
