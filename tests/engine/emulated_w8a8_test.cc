// FP8 checkpoints with inputs rounded to e4m3 (the word w8a8), in the engine: log-probabilities
// stay near those of exact products, every schedule whose steps have more tokens than own kernels
// take gives the same bits, and other steps keep their bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/emulated_cuda.h"
#include "engine/rounding_ops.h"
#include "golden_models.h"
#include "kernels/kernels.h"
#include "minisgl/ops_params.h"
#include "slow.h"

namespace minisgl {
namespace {

using cuda::DebugSwitches;

// How a model's matrices are stored, and their inputs rounded.
struct Fp8 {
  const char* name;
  InputRounding rounding;
};
constexpr Fp8 kFp8[] = {{"a scale for each token", InputRounding::kToken},
                        {"a fixed scale", InputRounding::kTensor},
                        {"blocks", InputRounding::kGroups}};

// The nearest code of type e4m3.
char NearestCode(float x) {
  int best = 0;
  for (int code = 0; code < 256; ++code) {
    const float now = std::abs(E4M3ToFloat(static_cast<uint8_t>(code)) - x);
    if (now < std::abs(E4M3ToFloat(static_cast<uint8_t>(best)) - x)) best = code;
  }
  return static_cast<char>(best);
}

// Replaces a matrix of f32 by codes and scales.
void Quantize(const Fp8& fp8, const FileTensor& dense, std::vector<FileTensor>* tensors) {
  const int64_t num_out = dense.shape[0], num_in = dense.shape[1];
  const bool has_blocks = fp8.rounding == InputRounding::kGroups;
  const int64_t outputs = has_blocks ? 128 : 1, inputs = has_blocks ? 128 : num_in;
  const int64_t rows = (num_out + outputs - 1) / outputs, groups = (num_in + inputs - 1) / inputs;
  const auto* const weights = reinterpret_cast<const float*>(dense.bytes.data());
  std::vector<float> scales(static_cast<size_t>(rows * groups));
  const auto scale_of = [&](int64_t out, int64_t in) -> float& {
    return scales[static_cast<size_t>(out / outputs * groups + in / inputs)];
  };
  for (int64_t i = 0; i < num_out * num_in; ++i) {
    float& scale = scale_of(i / num_in, i % num_in);
    scale = std::max(scale, std::abs(weights[i]) / 448);
  }
  // Powers of two: weights are the same numbers in every type.
  for (float& scale : scales) scale = std::exp2(std::ceil(std::log2(scale)));
  FileTensor codes = {dense.name, "F8_E4M3", dense.shape, ""};
  for (int64_t i = 0; i < num_out * num_in; ++i) {
    codes.bytes += NearestCode(weights[i] / scale_of(i / num_in, i % num_in));
  }
  const std::string base = dense.name.substr(0, dense.name.rfind("weight"));
  tensors->push_back(codes);
  tensors->push_back(FileTensor::F32(base + "weight_scale", {rows, groups}, scales));
  if (fp8.rounding == InputRounding::kTensor) {
    tensors->push_back(FileTensor::F32(base + "input_scale", {1}, {0.02f}));
  }
}

std::unique_ptr<TestModel> MakeFp8Model(const Fp8& fp8) {
  auto model = MakeEmulatedModel();
  model->config.hidden_size = 192;
  const auto dense = TinyTensors(model->config);
  const bool has_blocks = fp8.rounding == InputRounding::kGroups;
  model->config.quantization.method = "fp8";
  model->config.quantization.schemes = {{.layout = QuantLayout::kFp8,
                                         .group_outputs = has_blocks ? 128 : 1,
                                         .group_inputs = has_blocks ? 128 : 0,
                                         .rounds_activations = true,
                                         .e4m3_inputs = fp8.rounding}};
  std::vector<FileTensor> tensors;
  for (const FileTensor& tensor : dense) {
    if (tensor.name.ends_with("_proj.weight")) {
      Quantize(fp8, tensor, &tensors);
    } else {
      tensors.push_back(tensor);
    }
  }
  model->checkpoint = WriteCheckpoint(model->dir, tensors);
  return model;
}

struct W8A8Schedule {
  DType dtype = DType::kBF16;
  int32_t chunk = kAll;
  int32_t num_ranks = 1;
  bool graphs = false, drafts = false;
  bool deterministic = false;
};

// The results of a prompt of 44 tokens and of the tokens behind it.
std::vector<RowResult> ResultsOf(const TestModel& model, const W8A8Schedule& schedule,
                                 const DebugSwitches& debug) {
  const CudaOpsConfig config = {.activation_dtype = schedule.dtype,
                                .deterministic = schedule.deterministic};
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
                       .max_seq_len = 128,
                       .graph_max_rows = graph_rows,
                       .graph_max_tokens = 32 * graph_rows},
                      std::move(devices));
  TestRow* const row = driver.AddRow(RandomPrompt(44, 7, model.config.vocab_size));
  const std::vector<RowResult> results = driver.Generate(row, schedule.chunk, 3);
  if (!schedule.drafts) return results;
  // So many that their step is rounded.
  driver.ExtendWithDrafts(row, std::vector<TokenId>(20, 3));
  EXPECT_TRUE(driver.Step().ok());
  return row->results;
}

// The largest difference of log-probabilities of candidates that both have, at the first token.
double Distance(const std::vector<RowResult>& a, const std::vector<RowResult>& b) {
  double most = 0;
  for (const auto& [token, logprob] : a[0].top_logprobs) {
    for (const auto& [other, its] : b[0].top_logprobs) {
      if (other == token) most = std::max(most, std::abs(static_cast<double>(logprob) - its));
    }
  }
  return most;
}

TEST(EmulatedW8A8Test, LogProbabilitiesStayNearExactOnes) {
  MarkSlow("engines on the emulator");
  for (const Fp8& fp8 : kFp8) {
    const auto model = MakeFp8Model(fp8);
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(fmt::format("{} {}", fp8.name, DTypeName(dtype)));
      const auto exact = ResultsOf(*model, {.dtype = dtype}, {.keep_codes = true});
      const auto rounded = ResultsOf(*model, {.dtype = dtype}, {.w8a8 = true});
      const double distance = Distance(exact, rounded);
      RecordProperty(fmt::format("{} {}", fp8.name, DTypeName(dtype)), fmt::format("{}", distance));
      EXPECT_GT(distance, 1e-4) << "nothing was rounded";
      EXPECT_LT(distance, 0.3);
    }
  }
}

// How far rounding moves the models of the checkpoints' formats; figures: tests/bench/NOTES.md. The
// fixed scales of these models are random numbers, which no publisher has measured.
TEST(RoundedInputsTest, GoldenModelsStayNear) {
  struct Golden {
    const char* name;
    double most;
  };
  for (const auto& [name, most] :
       {Golden{"quant_ct_fp8_channel", 0.3}, Golden{"quant_ct_fp8_block", 0.3},
        Golden{"quant_ct_fp8_granite", 0.3}, Golden{"quant_fp8_block", 0.3},
        Golden{"quant_fp8_block_latent", 0.3}, Golden{"quant_fp8_block_moe", 0.3},
        Golden{"quant_fp8_ue8m0", 0.3}, Golden{"quant_ct_fp8_tensor", 2},
        Golden{"quant_fp8_tensor", 2}, Golden{"quant_modelopt_fp8", 2}}) {
    SCOPED_TRACE(name);
    const OpenedGolden golden = OpenGolden(name);
    ASSERT_NE(golden.checkpoint, nullptr);
    std::vector<RowResult> results[2];
    for (const bool rounds : {false, true}) {
      auto ops = std::make_unique<RoundingOps>(MakeNaiveOps(), rounds ? 0 : kAll);
      const RoundingOps& rounding = *ops;
      EngineDriver driver(ModelList(golden.config), ModelFiles(*golden.checkpoint),
                          {.max_prefill_tokens = 64, .max_seq_len = 64}, std::move(ops));
      TestRow* const row = driver.AddRow(RandomPrompt(44, 7, golden.config.vocab_size));
      results[rounds] = driver.Generate(row, kAll, 1);
      EXPECT_EQ(rounding.num_rounded() > 0, rounds);
    }
    const double distance = Distance(results[0], results[1]);
    RecordProperty(name, fmt::format("{}", distance));
    EXPECT_GT(distance, 0);
    EXPECT_LT(distance, most);
  }
}

TEST(EmulatedW8A8Test, SchedulesOfManyTokensChangeNoBit) {
  MarkSlow("engines on the emulator");
  for (const Fp8& fp8 : kFp8) {
    SCOPED_TRACE(fp8.name);
    const auto model = MakeFp8Model(fp8);
    const auto whole = ResultsOf(*model, {}, {.w8a8 = true});
    EXPECT_TRUE(SameResults(whole, ResultsOf(*model, {.chunk = 22}, {.w8a8 = true})));
    EXPECT_TRUE(SameResults(whole, ResultsOf(*model, {.graphs = true}, {.w8a8 = true})));
    EXPECT_TRUE(SameResults(whole, ResultsOf(*model, {}, {.small_pieces = true, .w8a8 = true})));
    const auto drafted = ResultsOf(*model, {.drafts = true}, {.w8a8 = true});
    EXPECT_GT(drafted.size(), whole.size());
    EXPECT_TRUE(SameResults(drafted, ResultsOf(*model, {.graphs = true, .drafts = true},
                                               {.w8a8 = true, .sync = true})));
  }
}

// A rank rounds the inputs that it has: a token's scale for a part of them is another one. A cut
// within a block of 128 inputs is expanded.
TEST(EmulatedW8A8Test, RanksStayNear) {
  MarkSlow("engines on the emulator");
  for (const Fp8& fp8 : kFp8) {
    SCOPED_TRACE(fp8.name);
    const auto model = MakeFp8Model(fp8);
    const auto exact = ResultsOf(*model, {}, {.keep_codes = true});
    const auto ranks = ResultsOf(*model, {.num_ranks = 2}, {.w8a8 = true});
    const double distance = Distance(exact, ranks);
    EXPECT_GT(distance, 1e-4);
    EXPECT_LT(distance, 0.3);
  }
}

TEST(EmulatedW8A8Test, ThePlanCountsTheRoundedInputs) {
  const auto with = EmulatedCuda({}, nullptr, {.w8a8 = true});
  const auto without = EmulatedCuda({}, nullptr, {.keep_codes = true});
  const auto exact = EmulatedCuda({.deterministic = true}, nullptr, {.w8a8 = true});
  EXPECT_GE(with->CodeScratchBytes(), without->CodeScratchBytes() + (uint64_t{64} << 20));
  EXPECT_EQ(exact->CodeScratchBytes(), without->CodeScratchBytes());
  EXPECT_TRUE(with->RoundsE4M3Inputs());
  EXPECT_FALSE(exact->RoundsE4M3Inputs() || without->RoundsE4M3Inputs());
  EXPECT_EQ(with->KeepsCodes(), CodesKept::kAlways);
}

// Steps of few tokens and deterministic runs have the bits of exact products.
TEST(EmulatedW8A8Test, OtherStepsKeepTheirBits) {
  MarkSlow("engines on the emulator");
  const DebugSwitches exact = {.keep_codes = true}, word = {.w8a8 = true};
  const auto model = MakeFp8Model(kFp8[0]);
  for (const W8A8Schedule& schedule :
       {W8A8Schedule{.chunk = 11}, W8A8Schedule{.deterministic = true}}) {
    EXPECT_TRUE(SameResults(ResultsOf(*model, schedule, exact), ResultsOf(*model, schedule, word)));
  }
}

}  // namespace
}  // namespace minisgl
