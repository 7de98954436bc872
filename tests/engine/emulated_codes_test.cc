// Weights that the CUDA engine keeps as codes: every model of every quantized format has the bits
// that it has if its codes are expanded as they are loaded, through chunks, drafts, graphs and
// ranks, and so have weights that are quantized as they are loaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/emulated_cuda.h"
#include "golden_models.h"
#include "kernels/kernels.h"
#include "minisgl/device_array.h"
#include "minisgl/ops_params.h"
#include "slow.h"
#include "weights/architectures.h"
#include "weights/stored_matrix.h"

namespace minisgl {
namespace {

using cuda::DebugSwitches;

std::unique_ptr<TestModel> OpenModel(const std::string& name) {
  auto model = std::make_unique<TestModel>();
  if (name.ends_with(".gguf")) {
    const std::string path = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/gguf/" + name;
    auto config = LoadModelConfig(path);
    auto checkpoint = Checkpoint::Open(path);
    MINISGL_CHECK(config.ok() && checkpoint.ok(), "{}", name);
    model->config = std::move(config).value();
    model->checkpoint = std::move(checkpoint).value();
    return model;
  }
  OpenedGolden golden = OpenGolden(name.c_str());
  MINISGL_CHECK(golden.checkpoint != nullptr, "{}", name);
  model->config = std::move(golden.config);
  model->checkpoint = std::move(golden.checkpoint);
  return model;
}

// What a run varies: nothing of it changes a bit.
struct Schedule {
  DType dtype = DType::kBF16;
  int32_t chunk = kAll;
  int32_t num_ranks = 1;
  bool graphs = false, drafts = false;
  Quantization quantization = Quantization::kNone;
};

std::vector<RowResult> Answers(const TestModel& model, const Schedule& schedule,
                               const DebugSwitches& debug) {
  const CudaOpsConfig config = {.activation_dtype = schedule.dtype};
  std::vector<std::unique_ptr<DeviceOps>> devices;
  if (schedule.num_ranks > 1) {
    devices = EmulatedRanks(schedule.num_ranks, config, debug);
  } else {
    devices.push_back(EmulatedCuda(config, nullptr, debug));
  }
  const int32_t graph_rows = schedule.graphs ? 2 : 0;
  EngineDriver driver(model,
                      {.num_ranks = schedule.num_ranks,
                       .max_running_requests = 2,
                       .max_prefill_tokens = 64,
                       .max_seq_len = 64,
                       .quantization = schedule.quantization,
                       .graph_max_rows = graph_rows,
                       .graph_max_tokens = 8 * graph_rows},
                      std::move(devices));
  TestRow* const row = driver.AddRow(RandomPrompt(21, 7, model.config.vocab_size));
  std::vector<RowResult> results = driver.Generate(row, schedule.chunk, 3);
  if (schedule.drafts) {
    driver.ExtendWithDrafts(row, std::vector<TokenId>{1, 2, 3});
    EXPECT_TRUE(driver.Step().ok());
    results = row->results;
  }
  return results;
}

void ExpectSameBits(const TestModel& model, const Schedule& schedule) {
  const std::vector<RowResult> kept = Answers(model, schedule, {.keep_codes = true});
  EXPECT_TRUE(SameResults(kept, Answers(model, schedule, {.expand_codes = true})));
  EXPECT_TRUE(
      SameResults(kept, Answers(model, schedule, {.keep_codes = true, .small_pieces = true})));
}

// Calls f(matrix, name) for the matrices of the layers that are quantized.
template <typename F>
void ForMatrices(const TestModel& model, const F& f) {
  for (int32_t layer = 0; layer < model.config.num_layers; ++layer) {
    for (const weights::TensorSpec& spec : weights::LayerTensors(model.config, layer)) {
      if (spec.dims.size() != 2) continue;
      const auto stored = weights::FindMatrix(model.config, *model.checkpoint, spec, 0);
      if (stored.ok() && !stored->weights.is_dense()) f(stored->weights, spec.name);
    }
  }
}

// Products with each of the matrices, of models that no CUDA attention runs.
void ExpectSameProducts(const TestModel& model, DType dtype) {
  const auto ops = EmulatedCuda({.activation_dtype = dtype});
  ASSERT_TRUE(ops->Reserve({.max_rows = 4,
                            .max_tokens = 32,
                            .max_seq_len = 64,
                            .num_heads = 1,
                            .num_kv_heads = 1,
                            .head_dim = 64})
                  .ok());
  int num_matrices = 0;
  ForMatrices(model, [&](const WeightTensor& weights, const std::string& name) {
    ++num_matrices;
    for (const int64_t num_tokens : {3, 20}) {
      std::vector<std::byte> found[2];
      for (const Quantization kind : {Quantization::kNone, Quantization::kStored}) {
        const auto matrix = ops->PackMatrix({&weights, 1}, WeightFormat(dtype, kind));
        ASSERT_TRUE(matrix.ok()) << matrix.status().message();
        ASSERT_EQ(matrix->quantization, kind) << name;
        const auto x = static_cast<uint64_t>(num_tokens * matrix->num_in);
        const auto out = static_cast<uint64_t>(num_tokens * matrix->num_out);
        std::vector<uint16_t> values(x);
        for (size_t i = 0; i < values.size(); ++i) {
          const float value = static_cast<float>(i % 37) / 16 - 1;
          values[i] = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
        }
        const auto in = Upload<uint16_t>(ops.get(), values);
        const auto sums = DeviceArray<float>::Make(ops.get(), {out});
        ops->Linear({.x = {in->data(), dtype},
                     .weight = &*matrix,
                     .bias = nullptr,
                     .out = {sums->data(), DType::kF32},
                     .num_tokens = num_tokens});
        const auto host = ops->AllocateHost(out * sizeof(float));
        ops->CopyToHost(host->get(), sums->data(), out * sizeof(float));
        ASSERT_TRUE(ops->Synchronize().ok());
        const auto* const bytes = static_cast<const std::byte*>(host->get());
        found[kind == Quantization::kNone].assign(bytes, bytes + out * sizeof(float));
      }
      EXPECT_EQ(found[0], found[1]) << name;
    }
  });
  EXPECT_GT(num_matrices, 0);
}

bool HasAttention(const ModelConfig& config) {
  for (const LayerShape& shape : LayerShapes(config)) {
    if (!cuda::HasAttention(shape.head_dim, shape.value_dim, shape.values_in_keys)) return false;
  }
  return true;
}

class EmulatedCodesTest : public testing::TestWithParam<const char*> {};

TEST_P(EmulatedCodesTest, HaveTheBitsOfExpandedWeights) {
  const auto model = OpenModel(GetParam());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    if (HasAttention(model->config)) {
      ExpectSameBits(*model, {.dtype = dtype});
    } else {
      ExpectSameProducts(*model, dtype);
    }
  }
}

// Products by tiles: sums in another order, near those of expanded weights, and the same bits in
// each schedule whose steps have more tokens than the products of few rows.
TEST_P(EmulatedCodesTest, TilesAreNearExpandedWeights) {
  const auto model = OpenModel(GetParam());
  if (!HasAttention(model->config)) return;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto expanded = Answers(*model, {.dtype = dtype}, {.expand_codes = true});
    const auto tiles = Answers(*model, {.dtype = dtype}, {.code_tiles = true});
    ExpectAgree(tiles, expanded, dtype == DType::kBF16 ? 0.1 : 0.02, DTypeName(dtype));
    EXPECT_TRUE(SameResults(
        tiles, Answers(*model, {.dtype = dtype, .graphs = true}, {.code_tiles = true})));
  }
}

std::vector<const char*> QuantizedModels() {
  std::vector<const char*> names(std::begin(kGoldenQuantized), std::end(kGoldenQuantized));
  names.insert(names.end(), {"types.gguf", "types_of_grids.gguf", "types_of_experts.gguf"});
  return names;
}

INSTANTIATE_TEST_SUITE_P(Formats, EmulatedCodesTest, testing::ValuesIn(QuantizedModels()),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '.', '_');
                           return text;
                         });

// The plan keeps codes where the expanded weights do not fit, and counts what is kept.
TEST(EmulatedCodesPlanTest, CodesAreKeptWhereExpandedWeightsDoNotFit) {
  const auto model = OpenModel("quant_mxfp4_gpt_oss");
  // So many experts that their codes save more than the memory in which they are expanded.
  model->config.experts.num_experts *= 4096;
  const auto plan_with = [&](uint64_t available, const DebugSwitches& debug) {
    return PlanMemory(
        model->config,
        {.max_running_requests = 1, .max_prefill_tokens = 16, .max_seq_len = 16, .memory_ratio = 1},
        available, EmulatedCuda({}, nullptr, debug).get());
  };
  constexpr uint64_t kMuch = uint64_t{4} << 30;
  const auto expanded = plan_with(kMuch, {}), kept = plan_with(kMuch, {.keep_codes = true});
  ASSERT_TRUE(expanded.ok() && kept.ok());
  EXPECT_EQ(expanded->weight_format, WeightFormat(DType::kBF16));
  EXPECT_FALSE(expanded->codes_to_fit || kept->codes_to_fit);
  EXPECT_EQ(kept->weight_format, WeightFormat(DType::kBF16, Quantization::kStored));
  EXPECT_LT(kept->weight_bytes, expanded->weight_bytes);
  // The smallest memory with a plan.
  const auto least = [&](const DebugSwitches& debug) {
    uint64_t none = 0, some = kMuch;
    while (none + 1 < some) {
      const uint64_t middle = none + (some - none) / 2;
      (plan_with(middle, debug).ok() ? some : none) = middle;
    }
    return some;
  };
  const uint64_t least_expanded = least({.expand_codes = true});
  const uint64_t least_kept = least({.keep_codes = true});
  ASSERT_LT(least_kept, least_expanded);
  const auto roomy = plan_with(least_expanded, {}), tight = plan_with(least_expanded - 1, {});
  ASSERT_TRUE(roomy.ok() && tight.ok());
  EXPECT_EQ(roomy->weight_format, WeightFormat(DType::kBF16));
  EXPECT_FALSE(roomy->codes_to_fit);
  EXPECT_EQ(tight->weight_format, WeightFormat(DType::kBF16, Quantization::kStored));
  EXPECT_TRUE(tight->codes_to_fit);
  EXPECT_TRUE(plan_with(least_kept, {}).ok());
  const auto none = plan_with(least_kept - 1, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kOutOfMemory);
}

// The bytes that loading takes are those that the plan has counted.
TEST(EmulatedCodesPlanTest, ThePlanCountsWhatIsKept) {
  for (const char* const name : QuantizedModels()) {
    const auto model = OpenModel(name);
    const auto ops = EmulatedCuda({});
    const DecoderOptions options = {
        .weight_format = WeightFormat(DType::kBF16, Quantization::kStored),
        .activation_dtype = DType::kBF16,
        .max_step_tokens = 1,
        .max_logit_rows = 1,
        .max_seq_len = 16};
    const uint64_t before = ops->MemoryInfo().free_bytes;
    const auto decoder = Decoder::Load(model->config, *model->checkpoint, options, ops.get());
    ASSERT_TRUE(decoder.ok()) << decoder.status().message();
    const auto taken = static_cast<double>(before - ops->MemoryInfo().free_bytes);
    const DecoderBytes planned = CountDecoderBytes(model->config, options);
    const auto weights = static_cast<double>(*planned.weights);
    // Arrays of codes are aligned, and the largest matrix has room to be expanded.
    const double beside = static_cast<double>(*planned.workspace) + 400'000;
    EXPECT_LE(taken, weights + beside) << name;
    EXPECT_GE(taken, weights * 0.7) << name;
  }
}

// Weights that are quantized as they are loaded run, with a table and a head of at least 8 bits.
TEST(EmulatedCodesPlanTest, WeightsAreQuantizedAsTheyAreLoaded) {
  const auto model = MakeEmulatedModel();
  for (const Quantization kind : {Quantization::kInt8, Quantization::kInt4}) {
    const std::vector<RowResult> results = Answers(*model, {.quantization = kind}, {});
    ASSERT_EQ(results.size(), 3u);
    for (const RowResult& result : results) EXPECT_EQ(result.outcome, RowResult::Outcome::kToken);
    EXPECT_FALSE(SameResults(results, Answers(*model, {}, {})));
  }
}

TEST(EmulatedCodesSchedulesTest, ChunksGraphsAndDraftsChangeNoBit) {
  MarkSlow("several engines on the emulator");
  for (const char* const name : {"quant_mxfp4_gpt_oss", "quant_gptq", "types.gguf"}) {
    SCOPED_TRACE(name);
    const auto model = OpenModel(name);
    ExpectSameBits(*model, {.chunk = 5, .drafts = true});
    ExpectSameBits(*model, {.graphs = true});
  }
}

TEST(EmulatedCodesSchedulesTest, TilesInChunksDraftsAndRanks) {
  MarkSlow("several engines on the emulator");
  const auto model = OpenModel("quant_mxfp4_gpt_oss");
  const DebugSwitches tiles = {.code_tiles = true};
  for (const Schedule& schedule :
       {Schedule{.chunk = 18}, Schedule{.drafts = true}, Schedule{.num_ranks = 2}}) {
    const auto answers = Answers(*model, schedule, tiles);
    ExpectAgree(answers, Answers(*model, schedule, {.expand_codes = true}), 0.1, "a schedule");
    EXPECT_TRUE(SameResults(answers, Answers(*model, schedule, tiles)));
  }
}

// Codes are cut at borders of groups, or expanded.
TEST(EmulatedCodesSchedulesTest, RanksChangeNoBit) {
  MarkSlow("several engines on the emulator");
  for (const char* const name :
       {"quant_mxfp4_gpt_oss", "quant_gptq_int8", "quant_fp8_block_moe", "quant_nvfp4_moe"}) {
    SCOPED_TRACE(name);
    ExpectSameBits(*OpenModel(name), {.num_ranks = 2});
  }
}

}  // namespace
}  // namespace minisgl
