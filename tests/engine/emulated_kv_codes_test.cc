// Keys and values in 8 bits with the CUDA engine on emulated kernels: the same bits under every
// schedule, on several ranks and from blocks, and close to the CPU's.
#include <gtest/gtest.h>

#include "engine/emulated_cuda.h"
#include "engine/kv_copies.h"
#include "slow.h"

namespace minisgl {
namespace {

constexpr int32_t kCodedAnswer = 6;

class EmulatedKvCodesTest : public EmulatedCudaTest {
 protected:
  static DriverOptions Coded(int32_t page_size = 16) {
    return {.page_size = page_size, .max_running_requests = 4, .kv_kind = KvKind::kFp8};
  }
  std::vector<RowResult> Answer(const DriverOptions& options, int32_t chunk,
                                const CudaOpsConfig& config = {}) {
    const auto cuda = OnCuda(options, config);
    return cuda->Generate(cuda->AddRow(prompt_), chunk, kCodedAnswer);
  }
  const std::vector<TokenId> prompt_ = RandomPrompt(kBlock + 21, 3);
};

TEST_F(EmulatedKvCodesTest, EveryScheduleGivesTheSameBits) {
  MarkSlow("a model on the emulator");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const CudaOpsConfig config = {.activation_dtype = dtype};
    const auto wanted = Answer(Coded(), kAll, config);
    for (const int32_t page_size : {1, 4, 64}) {
      EXPECT_TRUE(SameResults(Answer(Coded(page_size), 17, config), wanted)) << page_size;
    }
    DriverOptions graphs = Coded();
    graphs.graph_max_rows = 4;
    graphs.graph_max_tokens = 32;
    EXPECT_TRUE(SameResults(Answer(graphs, 32, config), wanted)) << "graphs";
    EXPECT_FALSE(SameResults(Answer({.max_running_requests = 4}, kAll, config), wanted));
  }
}

// Rows of one stem decode together, one of them with drafts, on pages that the first computed.
TEST_F(EmulatedKvCodesTest, MatesDraftsAndPrefixesChangeNothing) {
  MarkSlow("a model on the emulator");
  const auto wanted = Answer(Coded(), kAll);
  const auto cuda = OnCuda(Coded());
  TestRow* const first = cuda->AddRow(prompt_);
  cuda->ExtendAll(first);
  ASSERT_TRUE(cuda->Step().ok());
  TestRow* const second = cuda->AddRowSharing(*first, 5, prompt_);
  TestRow* const other = cuda->AddRow(RandomPrompt(40, 9));
  while (std::ssize(first->results) < kCodedAnswer || std::ssize(second->results) < kCodedAnswer) {
    if (std::ssize(first->results) < kCodedAnswer) cuda->ExtendAll(first);
    const auto at = second->results.size();
    if (at > 0 && at + 2 < wanted.size()) {
      const std::vector<TokenId> drafts = {wanted[at].token, wanted[at + 1].token ^ 1};
      cuda->ExtendWithDrafts(second, drafts);
    } else if (std::ssize(second->results) < kCodedAnswer) {
      cuda->ExtendAll(second);
    }
    cuda->ExtendAll(other);
    ASSERT_TRUE(cuda->Step().ok());
  }
  first->results.resize(kCodedAnswer);
  second->results.resize(kCodedAnswer);
  EXPECT_TRUE(SameResults(first->results, wanted));
  EXPECT_TRUE(SameResults(second->results, wanted));
}

TEST_F(EmulatedKvCodesTest, BlocksHaveTheirScales) {
  MarkSlow("a model on the emulator");
  const auto wanted = Answer(Coded(), kAll);
  const auto from = OnCuda(Coded(4)), to = OnCuda(Coded());
  EXPECT_TRUE(
      SameResults(AnswerFromBlocks(from.get(), 4, to.get(), 16, prompt_, kCodedAnswer), wanted));
}

TEST_F(EmulatedKvCodesTest, RanksAgreeWithThemselves) {
  MarkSlow("a model on the emulator");
  const auto run = [&](int32_t page_size, int32_t chunk) {
    EngineDriver cuda(*model_, Coded(page_size), EmulatedRanks(2, {}));
    return cuda.Generate(cuda.AddRow(prompt_), chunk, kCodedAnswer);
  };
  EXPECT_TRUE(SameResults(run(4, 17), run(16, kAll)));
}

// The CPU rounds the same numbers, but for roundings of activations to 16 bits.
TEST_F(EmulatedKvCodesTest, LogProbabilitiesAreNearTheCpus) {
  MarkSlow("a model on the emulator");
  const auto on_device = Answer(Coded(), kAll);
  DriverOptions options = Coded();
  const auto cpu = OnCpu(options, DType::kBF16);
  const auto on_cpu = cpu->Generate(cpu->AddRow(prompt_), kAll, kCodedAnswer);
  for (size_t i = 0; i < on_cpu.size(); ++i) {
    if (on_device[i].token != on_cpu[i].token) break;
    EXPECT_NEAR(on_device[i].logprob, on_cpu[i].logprob, 0.06) << i;
  }
  ASSERT_EQ(on_device[0].token, on_cpu[0].token);
}

}  // namespace
}  // namespace minisgl
