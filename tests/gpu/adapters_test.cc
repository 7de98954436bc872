// Adapters on the device: answers against the CPU's engine over the oracle, and the same bits in
// graphs and without, with fewer slots than adapters, and for a row alone.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapted_device_scene.h"
#include "gpu/gpu_fixture.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

class GpuAdaptersTest : public GpuTest {
 protected:
  static ScheduledRun RunOnGpu(const DeviceAdapted& of, const std::vector<AdaptedCase>& cases,
                               const DeviceAdapterSetting& setting, bool deterministic = true,
                               DType dtype = DType::kBF16) {
    std::vector<std::unique_ptr<DeviceOps>> ranks;
    ranks.push_back(Make({.activation_dtype = dtype, .deterministic = deterministic}));
    return RunAdapted(of, cases, setting, std::move(ranks));
  }
};

TEST_F(GpuAdaptersTest, AnswersAgreeWithTheOracle) {
  MarkSlow("models on the emulator");
  for (const char* name : {"qwen2", "qwen3", "phi3", "qwen3_moe", "deepseek_v2"}) {
    SCOPED_TRACE(name);
    const DeviceAdapted of(name);
    const auto& cases = of.adapted.cases;
    const ScheduledRun wanted = RunOnOracle(of, cases);
    for (const bool deterministic : {true, false}) {
      const ScheduledRun run =
          RunOnGpu(of, cases, {.graph_max_rows = 4}, deterministic, DType::kF16);
      for (const auto& [id, answer] : run.answers) {
        for (size_t i = 0; i < answer.size(); ++i) {
          const RowResult& right = wanted.answers.at(id)[i];
          ASSERT_NEAR(answer[i].top_logprobs[0].logprob, right.top_logprobs[0].logprob, 0.03)
              << "request " << id << ", token " << i;
          const auto& ranks = right.top_logprobs;
          if (ranks[0].logprob - ranks[1].logprob < 0.06) break;
          ASSERT_EQ(answer[i].token, right.token) << "request " << id << ", token " << i;
        }
      }
    }
  }
}

TEST_F(GpuAdaptersTest, ARowHasTheSameBitsUnderAllSettings) {
  MarkSlow("a model on the emulator");
  const DeviceAdapted of("qwen3");
  const auto& cases = of.adapted.cases;
  const ScheduledRun all = RunOnGpu(of, cases, {});
  ExpectSame(all, RunOnGpu(of, cases, {.chunk = 5, .graph_max_rows = 4, .graph_max_tokens = 16}));
  ExpectSame(all, RunOnGpu(of, cases, {.depth = 2, .graph_max_rows = 4, .max_adapters = 1}));
  for (size_t one = 0; one < 3; ++one) {
    const ScheduledRun alone = RunOnGpu(of, {cases[one]}, {.graph_max_rows = 4});
    EXPECT_TRUE(SameResults(all.answers.at(one + 1), alone.answers.at(1))) << "request " << one + 1;
  }
}

}  // namespace
}  // namespace minisgl::cuda
