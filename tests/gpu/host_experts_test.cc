// Experts in the host's memory beside a GPU (--cpu-experts): whole mixtures against the device
// alone, and against themselves however steps are cut, in graphs and without.
//
// The host sums in f32 what the device rounds to 16 bits for each expert, so both agree within a
// tolerance, as the device and the CPU do (engine_test.cc).
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_models.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

constexpr int32_t kEveryLayer = 1 << 20;

class GpuHostExpertsTest : public GpuTest {
 protected:
  static std::unique_ptr<EngineDriver> OnGpu(const TestModel& model, DriverOptions options,
                                             int32_t num_host_layers,
                                             const CudaOpsConfig& config = {}) {
    options.max_running_requests = 4;
    options.max_prefill_tokens = 64;
    options.num_host_layers = num_host_layers;
    auto cpu = MakeCpuOps({.num_threads = 2});
    MINISGL_CHECK(cpu.ok(), "{}", cpu.status().message());
    options.host_ops.push_back(std::move(cpu).value());
    return std::make_unique<EngineDriver>(model, options, Make(config));
  }
  static std::vector<RowResult> Answer(EngineDriver* driver, int32_t vocab_size, int32_t chunk,
                                       int32_t num_tokens) {
    TestRow* const row = driver->AddRow(RandomPrompt(21, 5, vocab_size));
    auto results = driver->Generate(row, chunk, num_tokens);
    driver->FreeRow(row);
    return results;
  }
};

TEST_F(GpuHostExpertsTest, MixturesAgreeWithTheDeviceAlone) {
  MarkSlow("models on the emulator");
  const int32_t num_tokens = IsSlow() ? 3 : 24;
  for (const char* const name : {"mixtral", "qwen2_moe", "gpt_oss", "deepseek_v3"}) {
    const auto model = MakeGpuArchitecture(name);
    if (model == nullptr) GTEST_SKIP() << "the sources are not there";
    const auto vocab_size = static_cast<int32_t>(model->config.vocab_size);
    const auto wanted = Answer(OnGpu(*model, {}, 0).get(), vocab_size, kAll, num_tokens);
    for (const int32_t layers : {1, kEveryLayer}) {
      const auto found = Answer(OnGpu(*model, {}, layers).get(), vocab_size, kAll, num_tokens);
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(found[i].outcome, RowResult::Outcome::kToken);
        const auto& ranks = wanted[i].top_logprobs;
        EXPECT_NEAR(found[i].top_logprobs[0].logprob, ranks[0].logprob, 0.06)
            << name << " " << layers << " token " << i;
        if (ranks[0].logprob - ranks[1].logprob < 0.12) break;  // either may be next
        ASSERT_EQ(found[i].token, wanted[i].token) << name << " " << layers << " token " << i;
      }
    }
  }
}

// With --deterministic every bit: chunks, pages, graphs, and rows beside it.
TEST_F(GpuHostExpertsTest, StepsAreCutInAnyWay) {
  MarkSlow("a model on the emulator");
  const auto model = MakeGpuArchitecture("qwen2_moe");
  if (model == nullptr) GTEST_SKIP() << "the sources are not there";
  const auto vocab_size = static_cast<int32_t>(model->config.vocab_size);
  const int32_t num_tokens = IsSlow() ? 3 : 24;
  const CudaOpsConfig config{.deterministic = true};
  const auto wanted =
      Answer(OnGpu(*model, {}, kEveryLayer, config).get(), vocab_size, kAll, num_tokens);
  for (const bool graphs : {false, true}) {
    const auto driver = OnGpu(*model,
                              {.page_size = 4,
                               .graph_max_rows = graphs ? 4 : 0,
                               .graph_max_tokens = graphs ? 32 : 0,
                               .warms_up = true},
                              kEveryLayer, config);
    EXPECT_TRUE(SameResults(Answer(driver.get(), vocab_size, 7, num_tokens), wanted)) << graphs;
    TestRow* const row = driver->AddRow(RandomPrompt(21, 5, vocab_size));
    TestRow* const others[] = {driver->AddRow(RandomPrompt(9, 6, vocab_size)),
                               driver->AddRow(RandomPrompt(3, 7, vocab_size))};
    while (std::ssize(row->results) < num_tokens) {
      for (TestRow* const each : {row, others[0], others[1]}) {
        driver->Extend(each, std::min(10, each->known_len - each->computed_len));
      }
      ASSERT_TRUE(driver->Step().ok());
    }
    EXPECT_TRUE(SameResults(row->results, wanted)) << graphs << " beside others";
  }
}

}  // namespace
}  // namespace minisgl::cuda
