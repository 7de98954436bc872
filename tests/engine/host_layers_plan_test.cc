// The memory plan of experts in the host's memory: what leaves the device, how many layers memory
// asks for, the setting that an error names, and what is refused.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/host_device_ops.h"
#include "golden_models.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/weights/adapter.h"

namespace minisgl {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

// Six layers of 48 MiB of experts each in f32, and little else.
ModelConfig WideMixture() {
  ModelConfig config = OpenGolden("qwen3_moe").config;
  config.hidden_size = 64;
  config.experts.num_experts = 64;
  config.experts.intermediate_size = 1024;
  config.experts.num_chosen = 2;
  const LayerConfig layer = config.layers.back();
  config.layers.assign(6, layer);
  config.num_layers = 6;
  config.max_seq_len = 4096;
  return config;
}

class HostLayersPlanTest : public testing::Test {
 protected:
  static ModelEngineOptions Options(int32_t num_host_layers) {
    ModelEngineOptions options;
    options.max_running_requests = 4;
    options.max_prefill_tokens = 64;
    options.memory_ratio = 0.9;
    options.weight_dtype = DType::kF32;
    options.num_host_layers = num_host_layers;
    return options;
  }
  Result<MemoryPlan> Plan(int32_t num_host_layers, uint64_t device_bytes,
                          uint64_t host_bytes = uint64_t{1} << 40) const {
    return PlanMemory(models_, Options(num_host_layers), device_bytes, device_.get(), host_bytes);
  }
  MemoryPlan MustPlan(int32_t num_host_layers, uint64_t device_bytes) const {
    const auto plan = Plan(num_host_layers, device_bytes);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? *plan : MemoryPlan();
  }

  ModelList models_ = WideMixture();
  const std::unique_ptr<DeviceOps> device_ = MakeHostDeviceOps();
};

TEST_F(HostLayersPlanTest, WhatLeavesTheDeviceIsOnTheHost) {
  const uint64_t plenty = 4096 * kMebibyte;
  const MemoryPlan all = MustPlan(0, plenty);
  EXPECT_EQ(all.num_host_layers, 0);
  EXPECT_EQ(all.host_weight_bytes, 0u);
  for (const int32_t layers : {1, 5, 6}) {
    const MemoryPlan some = MustPlan(layers, plenty);
    EXPECT_EQ(some.num_host_layers, layers);
    EXPECT_EQ(some.host_format, DType::kF32);
    EXPECT_EQ(some.host_weight_bytes, static_cast<uint64_t>(layers) * 48 * kMebibyte);
    EXPECT_EQ(some.weight_bytes + some.host_weight_bytes, all.weight_bytes);
    EXPECT_GT(some.host_workspace_bytes, 0u);
    EXPECT_GT(some.limits.num_pages, all.limits.num_pages);
  }
  EXPECT_LT(MustPlan(6, plenty).workspace_bytes, all.workspace_bytes) << "no arrays of experts";
  EXPECT_EQ(MustPlan(100, plenty).num_host_layers, 6) << "more than there are";
}

// Each rank has its cuts, and buffers and workspace of its own.
TEST_F(HostLayersPlanTest, RanksDivideWhatIsOnTheHost) {
  const MemoryPlan one = MustPlan(5, 4096 * kMebibyte);
  ModelEngineOptions options = Options(5);
  options.num_ranks = 2;
  const auto two = PlanMemory(models_, options, 4096 * kMebibyte, device_.get());
  ASSERT_TRUE(two.ok()) << two.status().message();
  EXPECT_EQ(two->num_host_layers, 5);
  EXPECT_EQ(two->host_weight_bytes, one.host_weight_bytes);
  EXPECT_GT(two->host_workspace_bytes, one.host_workspace_bytes);
  EXPECT_LT(two->host_workspace_bytes, 2 * one.host_workspace_bytes);
  EXPECT_LT(two->weight_bytes, one.weight_bytes);
}

TEST_F(HostLayersPlanTest, AutoIsAsFewAsMemoryAsksFor) {
  EXPECT_EQ(MustPlan(kAutoHostLayers, 4096 * kMebibyte).num_host_layers, 0);
  int32_t before = 0;
  for (const uint64_t mib : {310, 260, 200, 150, 100}) {
    const MemoryPlan plan = MustPlan(kAutoHostLayers, mib * kMebibyte);
    EXPECT_GT(plan.num_host_layers, before) << mib;
    EXPECT_GE(plan.limits.max_seq_len, 4096) << mib;
    before = plan.num_host_layers;
    const auto fewer = Plan(before - 1, mib * kMebibyte);
    EXPECT_TRUE(!fewer.ok() || fewer->limits.max_seq_len < 4096) << mib;
  }
}

TEST_F(HostLayersPlanTest, AnErrorNamesTheLayersThatWouldFit) {
  const auto failed = Plan(0, 180 * kMebibyte);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kOutOfMemory);
  const int32_t fits = MustPlan(kAutoHostLayers, 180 * kMebibyte).num_host_layers;
  const std::string named = "these fit: cpu_experts " + std::to_string(fits);
  EXPECT_NE(failed.status().message().find(named), std::string::npos) << failed.status().message();
  const auto too_few = Plan(1, 180 * kMebibyte);
  ASSERT_FALSE(too_few.ok());
  EXPECT_NE(too_few.status().message().find(named), std::string::npos)
      << too_few.status().message();
}

TEST_F(HostLayersPlanTest, TooLittleMemoryOfTheMachineIsOneLine) {
  const auto failed = Plan(6, 4096 * kMebibyte, 100 * kMebibyte);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(failed.status().message().find("the experts of 6 layers take 0.3 GiB"),
            std::string::npos)
      << failed.status().message();
  EXPECT_TRUE(Plan(1, 4096 * kMebibyte, 200 * kMebibyte).ok());
}

TEST_F(HostLayersPlanTest, WhatExcludesThemIsSaid) {
  const auto expect = [](const Result<MemoryPlan>& plan, const char* words) {
    ASSERT_FALSE(plan.ok()) << words;
    EXPECT_EQ(plan.status().code(), StatusCode::kUsage);
    EXPECT_NE(plan.status().message().find(words), std::string::npos) << plan.status().message();
  };
  expect(PlanMemory(models_, Options(1), 4096 * kMebibyte), "the CPU has all of it here");
  expect(PlanMemory(OpenGolden("qwen3").config, Options(1), 4096 * kMebibyte, device_.get()),
         "has no experts");
  for (const char* module : {"model.layers.1.mlp.experts.3.up_proj", "model.layers.1.mlp.experts",
                             "blk.1.ffn_up_exps"}) {
    Adapter adapter;
    adapter.dir = "an-adapter";
    adapter.changes.push_back({.module = module});
    models_.SetAdapters({std::make_shared<const Adapter>(adapter)});
    expect(Plan(1, 4096 * kMebibyte), "the adapter an-adapter changes experts");
  }
  Adapter shared;
  shared.changes.push_back({.module = "model.layers.1.mlp.shared_experts.up_proj"});
  models_.SetAdapters({std::make_shared<const Adapter>(shared)});
  EXPECT_TRUE(Plan(1, 4096 * kMebibyte).ok());
}

}  // namespace
}  // namespace minisgl
