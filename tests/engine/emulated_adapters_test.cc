// Adapters in the CUDA engine on emulated kernels: models with random adapters against the CPU's
// engine over the oracle with the same 16-bit activations, and the same bits for a row whatever its
// neighbours, graphs, slots and ranks are.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapted_device_scene.h"
#include "engine/emulated_cuda.h"
#include "slow.h"

namespace minisgl {
namespace {

struct EmulatedSetting {
  DeviceAdapterSetting run = {};
  int32_t num_ranks = 1;
  bool deterministic = true;
  DType dtype = DType::kBF16;
};

ScheduledRun RunEmulated(const DeviceAdapted& of, const std::vector<AdaptedCase>& cases,
                         const EmulatedSetting& setting) {
  const CudaOpsConfig config = {.activation_dtype = setting.dtype,
                                .deterministic = setting.deterministic};
  std::vector<std::unique_ptr<DeviceOps>> ranks;
  if (setting.num_ranks == 1) {
    ranks.push_back(EmulatedCuda(config));
  } else {
    ranks = EmulatedRanks(setting.num_ranks, config);
  }
  return RunAdapted(of, cases, setting.run, std::move(ranks));
}

class EmulatedAdaptersTest : public testing::TestWithParam<const char*> {};

TEST_P(EmulatedAdaptersTest, AgreesWithTheOracle) {
  MarkSlow("models on the emulator");
  const DeviceAdapted of(GetParam());
  const auto& cases = of.adapted.cases;
  const ScheduledRun all = RunEmulated(of, cases, {.dtype = DType::kF16});
  const ScheduledRun wanted = RunOnOracle(of, cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    ExpectAgree(all.answers.at(i + 1), wanted.answers.at(i + 1), 0.03,
                "request " + std::to_string(i + 1));
  }
  // An adapter changes the answer.
  auto same = cases;
  same[1].prompt = same[0].prompt;
  same[2].prompt = same[0].prompt;
  const ScheduledRun changed = RunEmulated(of, same, {.run = {.graph_max_rows = 4}});
  EXPECT_NE(changed.answers.at(1)[0].logprob, changed.answers.at(3)[0].logprob);
  EXPECT_NE(changed.answers.at(2)[0].logprob, changed.answers.at(3)[0].logprob);
}

TEST_P(EmulatedAdaptersTest, ARowHasTheSameBitsUnderAllSettings) {
  MarkSlow("models on the emulator");
  const DeviceAdapted of(GetParam());
  const auto& cases = of.adapted.cases;
  const ScheduledRun all = RunEmulated(of, cases, {});
  ExpectSame(all, RunEmulated(of, cases,
                              {.run = {.chunk = 5, .graph_max_rows = 4, .graph_max_tokens = 16}}));
  ExpectSame(all, RunEmulated(of, cases, {.run = {.graph_max_rows = 4, .max_adapters = 1}}));
  for (const size_t one : {size_t{0}, size_t{1}, size_t{2}}) {
    const ScheduledRun alone = RunEmulated(of, {cases[one]}, {});
    EXPECT_TRUE(SameResults(all.answers.at(one + 1), alone.answers.at(1))) << "request " << one + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Some, EmulatedAdaptersTest,
                         testing::Values("qwen3", "phi3", "qwen3_moe", "deepseek_v2"),
                         [](const auto& info) { return std::string(info.param); });

// A row without an adapter keeps its bits beside rows that have one, also where products are fused
// with what stands around them otherwise.
TEST(EmulatedAdapterRowsTest, ANeighboursAdapterChangesNothing) {
  MarkSlow("a model on the emulator");
  const DeviceAdapted of("qwen3");
  auto plain = of.adapted.cases;
  for (AdaptedCase& one : plain) one.slot = kNoAdapter;
  auto mixed = plain;
  mixed[0].slot = 0;
  mixed[3].slot = 1;
  for (const bool deterministic : {true, false}) {
    const EmulatedSetting setting = {.run = {.graph_max_rows = 4}, .deterministic = deterministic};
    const ScheduledRun alone = RunEmulated(of, plain, setting);
    const ScheduledRun beside = RunEmulated(of, mixed, setting);
    for (const RequestId id : {RequestId{2}, RequestId{3}}) {
      EXPECT_TRUE(SameResults(alone.answers.at(id), beside.answers.at(id))) << "request " << id;
    }
    EXPECT_FALSE(SameResults(alone.answers.at(1), beside.answers.at(1)));
  }
}

// In the kernels' own products of few rows and their fused parts, too.
TEST(EmulatedAdapterRanksTest, TwoRanksAnswerAsOne) {
  MarkSlow("models on the emulator");
  const DeviceAdapted of("qwen3");
  const auto& cases = of.adapted.cases;
  const ScheduledRun one =
      RunEmulated(of, cases, {.run = {.graph_max_rows = 4}, .deterministic = false});
  const ScheduledRun two = RunEmulated(
      of, cases, {.run = {.graph_max_rows = 4}, .num_ranks = 2, .deterministic = false});
  for (size_t i = 0; i < cases.size(); ++i) {
    ExpectAgree(two.answers.at(i + 1), one.answers.at(i + 1), 0.08,
                "request " + std::to_string(i + 1));
  }
  const ScheduledRun few = RunEmulated(
      of, cases,
      {.run = {.graph_max_rows = 4, .max_adapters = 1}, .num_ranks = 2, .deterministic = false});
  for (size_t i = 0; i < cases.size(); ++i) {
    ExpectAgree(few.answers.at(i + 1), one.answers.at(i + 1), 0.08,
                "request " + std::to_string(i + 1));
  }
}

}  // namespace
}  // namespace minisgl
