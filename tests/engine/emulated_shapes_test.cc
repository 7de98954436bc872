// The CUDA engine on the emulator with models whose attention the kernels for wide heads compute:
// latent attention, and layers of different shapes. Compared with the CPU's engine over the
// oracle's operations, as in emulated_cuda_test.cc.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/emulated_cuda.h"
#include "golden_models.h"
#include "slow.h"

namespace minisgl {
namespace {

class EmulatedShapesTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder =
        std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/" + GetParam();
    auto config = LoadModelConfig(folder);
    ASSERT_TRUE(config.ok()) << config.status().message();
    model_.config = std::move(config).value();
    auto checkpoint = Checkpoint::Open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    model_.checkpoint = std::move(checkpoint).value();
  }
  std::unique_ptr<EngineDriver> OnCuda(const DriverOptions& options,
                                       const CudaOpsConfig& config = {}) const {
    return std::make_unique<EngineDriver>(model_, options, EmulatedCuda(config));
  }
  std::vector<TokenId> Prompt(int32_t length, uint64_t seed) const {
    return RandomPrompt(length, seed, static_cast<int32_t>(model_.config.vocab_size));
  }

  TestModel model_;
};

TEST_P(EmulatedShapesTest, AgreesWithTheCpu) {
  MarkSlow("a model on the emulator");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    DriverOptions options{.page_size = 4, .max_running_requests = 4, .graph_max_rows = 2};
    const auto prompt = Prompt(21, 1);
    const auto cuda = OnCuda(options, {.activation_dtype = dtype});
    const auto actual = cuda->Generate(cuda->AddRow(prompt), 16, 3);
    options.weight_dtype = dtype;
    options.graph_max_rows = 0;
    EngineDriver cpu(model_.config, *model_.checkpoint, options, MakeNaiveOps(dtype));
    ExpectAgree(actual, cpu.Generate(cpu.AddRow(prompt), kAll, 3),
                dtype == DType::kBF16 ? 0.06 : 0.01, DTypeName(dtype));
  }
}

TEST_P(EmulatedShapesTest, DeterministicIsBitForBitWhateverTheCutting) {
  MarkSlow("a model on the emulator");
  const CudaOpsConfig deterministic{.deterministic = true};
  const auto prompt = Prompt(19, 3);
  const auto whole = OnCuda({.max_running_requests = 4}, deterministic);
  const auto wanted = whole->Generate(whole->AddRow(prompt), kAll, 3);
  const auto cut =
      OnCuda({.page_size = 1, .max_running_requests = 4, .graph_max_rows = 2}, deterministic);
  EXPECT_TRUE(SameResults(cut->Generate(cut->AddRow(prompt), 5, 3), wanted));
  const auto beside = OnCuda({.max_running_requests = 4}, deterministic);
  TestRow* const row = beside->AddRow(prompt);
  TestRow* const other = beside->AddRow(Prompt(30, 4));
  for (int step = 0; step < 3; ++step) {
    beside->ExtendAll(row);
    beside->ExtendAll(other);
    ASSERT_TRUE(beside->Step().ok());
  }
  EXPECT_TRUE(SameResults(row->results, wanted));
}

// Heads of the kernels of fixed sizes and wide ones, with and without windows, in one model; layers
// that read the keys and values of earlier ones.
std::unique_ptr<TestModel> MakeMixedModel() {
  auto model = std::make_unique<TestModel>();
  ModelConfig& config = model->config;
  config = TinyConfig();
  config.head_dim = 64;
  config.ropes = {{.dim = 8}, {.theta = 500, .dim = 12}};
  config.layers = {
      {},
      {.rope = 1, .num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .value_dim = 32},
      {.num_heads = 6, .kv_layer = 0},
      {.sliding_window = 9, .rope = -1, .num_kv_heads = 4, .value_dim = 24},
      {.sliding_window = 9, .num_kv_heads = 4, .value_dim = 24, .kv_layer = 3},
      {.rope = 1, .num_kv_heads = 1, .head_dim = 16, .value_dim = 32, .kv_layer = 1},
  };
  config.num_layers = static_cast<int32_t>(config.layers.size());
  model->checkpoint = WriteCheckpoint(model->dir, TinyTensors(config));
  return model;
}

TEST(EmulatedMixedTest, LayersOfDifferentHeadsAgreeWithTheCpu) {
  MarkSlow("a model on the emulator");
  const auto model = MakeMixedModel();
  const auto prompt = RandomPrompt(21, 1);
  EngineDriver cuda(*model, {.page_size = 4, .max_running_requests = 4, .graph_max_rows = 2},
                    EmulatedCuda({.activation_dtype = DType::kF16}));
  const auto actual = cuda.Generate(cuda.AddRow(prompt), 16, 4);
  EngineDriver cpu(model->config, *model->checkpoint,
                   {.page_size = 4, .max_running_requests = 4, .weight_dtype = DType::kF16},
                   MakeNaiveOps(DType::kF16));
  ExpectAgree(actual, cpu.Generate(cpu.AddRow(prompt), kAll, 4), 0.01, "mixed");
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedShapesTest,
                         testing::Values("deepseek_v2", "deepseek_v2_lite", "deepseek_v3",
                                         "deepseek_v3_halves", "glm4_moe_lite", "gemma4_text",
                                         "gemma4_moe", "gemma4_unified_text"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
