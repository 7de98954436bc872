// Quantized matrices whose tensors are missing, of a wrong type or of a wrong shape: one clear
// error each, for every tensor of every format. (The right ones:
// tests/model/quantized_values_test.cc.)
#include "weights/stored_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "golden_models.h"
#include "minisgl/weights/checkpoint.h"
#include "test_files.h"

namespace minisgl {
namespace {

class StoredMatrixTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string dir = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/" + GetParam();
    auto config = LoadModelConfig(dir);
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(config).value();
    auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    checkpoint_ = std::move(checkpoint).value();
    for (const std::string& name : checkpoint_->Names()) {
      tensors_[name] = *checkpoint_->GetStored(name);
    }
  }

  // The quantized matrices of layer 1.
  std::vector<weights::TensorSpec> Specs() const {
    std::vector<weights::TensorSpec> specs;
    for (const weights::TensorSpec& spec : weights::LayerTensors(config_, 1)) {
      if (spec.dims.size() < 2) continue;
      const auto found = weights::FindMatrix(config_, *checkpoint_, spec, 0);
      EXPECT_TRUE(found.ok()) << found.status().message();
      if (found.ok() && found->weights.quantized() != nullptr) specs.push_back(spec);
    }
    EXPECT_FALSE(specs.empty());
    return specs;
  }

  std::vector<std::string> NamesOf(const weights::TensorSpec& spec) const {
    return weights::FindMatrix(config_, *checkpoint_, spec, 0)->names;
  }

  // The error of `spec` in `tensors` must name the matrix.
  void ExpectRefused(const weights::TensorSpec& spec, std::map<std::string, TensorView> tensors) {
    const auto checkpoint = Checkpoint::FromViews(std::move(tensors), nullptr, "memory");
    const auto found = weights::FindMatrix(config_, *checkpoint, spec, 0);
    const std::string base = spec.name.substr(0, spec.name.rfind(".weight"));
    ExpectError(found.status(), StatusCode::kBadInput, base);
  }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::map<std::string, TensorView> tensors_;
};

TEST_P(StoredMatrixTest, EveryTensorIsNeeded) {
  for (const weights::TensorSpec& spec : Specs()) {
    for (const std::string& name : NamesOf(spec)) {
      if (name.ends_with("weight_shape")) continue;
      SCOPED_TRACE(name);
      auto tensors = tensors_;
      tensors.erase(name);
      if (name.ends_with(".g_idx") && !config_.quantization.schemes[0].has_order) continue;
      ExpectRefused(spec, std::move(tensors));
    }
  }
}

TEST_P(StoredMatrixTest, EveryShapeAndTypeIsChecked) {
  for (const weights::TensorSpec& spec : Specs()) {
    for (const std::string& name : NamesOf(spec)) {
      const std::vector<int64_t> shape = tensors_[name].shape;
      for (size_t axis = 0; axis <= shape.size(); ++axis) {
        SCOPED_TRACE(fmt::format("{}, axis {}", name, axis));
        auto tensors = tensors_;
        if (axis == shape.size()) {
          tensors[name].shape.push_back(1);
          // One number may have any axes of size 1.
          if (tensors[name].num_elements() == 1 || shape.size() == 1) continue;
        } else {
          tensors[name].shape[axis] += 1;
        }
        ExpectRefused(spec, std::move(tensors));
      }
      SCOPED_TRACE(name);
      auto tensors = tensors_;
      tensors[name].dtype = tensors[name].dtype == DType::kI64 ? DType::kU8 : DType::kI64;
      if (name.ends_with("weight_shape")) continue;  // of either integer type
      ExpectRefused(spec, std::move(tensors));
    }
  }
}

TEST_P(StoredMatrixTest, CodesWithoutAConfigurationAreNamed) {
  const std::vector<weights::TensorSpec> specs = Specs();
  config_.quantization = {};
  for (const weights::TensorSpec& spec : specs) {
    const auto found = weights::FindMatrix(config_, *checkpoint_, spec, 0);
    ExpectError(found.status(), StatusCode::kBadInput, "layers.1.");
  }
}

// A model of experts whose gates are [8, 32].
ModelConfig SmallExperts(const QuantScheme& scheme) {
  auto config = LoadModelConfigFile(std::string(MINISGL_SOURCE_DIR) +
                                    "/tests/golden/models/quant_fp8_block_moe/config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  config->hidden_size = 32;
  config->experts.intermediate_size = 8;
  config->quantization.schemes = {scheme};
  return *std::move(config);
}

const weights::TensorSpec kGateOfTwo = {.role = weights::TensorRole::kExpertGate,
                                        .index = 2,
                                        .name = "experts.2.gate_proj.weight",
                                        .dims = {"J", "D"},
                                        .order = weights::TensorOrder::kPlain};

// The number of an expert is no place in a tensor of its own.
TEST(StoredExpertsTest, ATensorOfOneExpertBeginsWithIt) {
  const ModelConfig config =
      SmallExperts({.layout = QuantLayout::kMxfp4Blocks, .bits = 4, .group_inputs = 32});
  const std::vector<std::byte> codes(8 * 16, std::byte{0x22}), scales(8, std::byte{127});
  const auto checkpoint = Checkpoint::FromViews(
      {{"experts.2.gate_proj_blocks", {codes.data(), DType::kU8, {1, 8, 1, 16}}},
       {"experts.2.gate_proj_scales", {scales.data(), DType::kU8, {1, 8, 1}}}},
      nullptr, "memory");
  const auto found = weights::FindMatrix(config, *checkpoint, kGateOfTwo, 2);
  ASSERT_TRUE(found.ok()) << found.status().message();
  std::vector<float> row(32);
  found->weights.ReadRow(7, row.data());
  EXPECT_EQ(row, std::vector<float>(32, 1.0f));
}

TEST(StoredExpertsTest, ZeroPointsOfOutputsAreAsManyAsOutputs) {
  const ModelConfig config =
      SmallExperts({.layout = QuantLayout::kInt8, .group_outputs = 1, .has_zeros = true});
  const std::vector<std::byte> codes(8 * 32), scales(8 * 4), zeros(8);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1}, {}, {7}, {8, 2}, {8}, {8, 1}}) {
    const auto checkpoint = Checkpoint::FromViews(
        {{"experts.2.gate_proj.weight", {codes.data(), DType::kI8, {8, 32}}},
         {"experts.2.gate_proj.weight_scale", {scales.data(), DType::kF32, {8, 1}}},
         {"experts.2.gate_proj.weight_zero_point", {zeros.data(), DType::kI8, shape}}},
        nullptr, "memory");
    const auto found = weights::FindMatrix(config, *checkpoint, kGateOfTwo, 2);
    EXPECT_EQ(found.ok(), !shape.empty() && shape[0] == 8 && shape.back() != 2)
        << ShapeToString(shape);
  }
}

// As files of Granite have them: the codes [X, N, K] of all experts, and their scales [X, N, 1].
TEST(StoredExpertsTest, AnExpertIsTakenOutOfTheTensorOfAll) {
  ModelConfig config = SmallExperts({.layout = QuantLayout::kFp8});
  config.experts.num_experts = 3;
  const weights::TensorSpec spec = {.role = weights::TensorRole::kExpertGateUp,
                                    .index = 0,
                                    .name = "experts.input_linear.weight",
                                    .dims = {"X", "J", "D"},
                                    .order = weights::TensorOrder::kPlain};
  constexpr std::byte kOne{0x38}, kTwo{0x40};  // e4m3
  std::vector<std::byte> codes(3 * 8 * 32, kOne);
  codes[(2 * 8 + 7) * 32] = kTwo;
  std::vector<float> scales(3 * 8, 1.0f);
  scales[2 * 8 + 7] = 4.0f;
  const auto find = [&](std::vector<int64_t> codes_shape, std::vector<int64_t> scales_shape) {
    const auto* const data = reinterpret_cast<const std::byte*>(scales.data());
    const auto checkpoint = Checkpoint::FromViews(
        {{"experts.input_linear.weight", {codes.data(), DType::kE4M3, std::move(codes_shape)}},
         {"experts.input_linear.weight_scale", {data, DType::kF32, std::move(scales_shape)}}},
        nullptr, "memory");
    return weights::FindMatrix(config, *checkpoint, spec, 2);
  };
  const auto found = find({3, 8, 32}, {3, 8, 1});
  ASSERT_TRUE(found.ok()) << found.status().message();
  std::vector<float> row(32), wanted(32, 4.0f);
  wanted[0] = 8.0f;
  found->weights.ReadRow(7, row.data());
  EXPECT_EQ(row, wanted);
  EXPECT_FALSE(find({3, 8, 32}, {8, 1}).ok());
  EXPECT_FALSE(find({2, 8, 32}, {3, 8, 1}).ok());
  EXPECT_FALSE(find({24, 32}, {24, 1}).ok());
  config.quantization.schemes[0].has_zeros = true;
  ExpectError(find({3, 8, 32}, {3, 8, 1}).status(), StatusCode::kBadInput,
              "experts.input_linear.weight_zero_point");
}

// The numbers of all experts' codes and scales, each different from its neighbours'.
struct StackedFp4 {
  static constexpr int64_t kExperts = 3, kOut = 8, kIn = 32, kGroups = 2;
  static uint8_t Code(int64_t expert, int64_t out, int64_t in) {
    return static_cast<uint8_t>((5 * expert + 3 * out + in) % 16);
  }
  static uint8_t Scale(int64_t expert, int64_t out, int64_t group) {  // e4m3
    return static_cast<uint8_t>(0x30 + (expert + 2 * out + group) % 16);
  }

  explicit StackedFp4(bool inputs_first) {
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      const auto add = [&](int64_t width, std::vector<uint8_t>* to, auto number) {
        for (int64_t i = 0; i < kOut * width; ++i) {
          to->push_back(inputs_first ? number(i % kOut, i / kOut) : number(i / width, i % width));
        }
      };
      add(kIn / 2, &codes, [&](int64_t out, int64_t byte) {
        return static_cast<uint8_t>(Code(expert, out, 2 * byte) | Code(expert, out, 2 * byte + 1)
                                                                      << 4);
      });
      add(kGroups, &scales, [&](int64_t out, int64_t group) { return Scale(expert, out, group); });
    }
  }
  TensorView Codes(std::vector<int64_t> shape) const {
    return {reinterpret_cast<const std::byte*>(codes.data()), DType::kU8, std::move(shape)};
  }
  TensorView Scales(std::vector<int64_t> shape) const {
    return {reinterpret_cast<const std::byte*>(scales.data()), DType::kE4M3, std::move(shape)};
  }

  std::vector<uint8_t> codes, scales;
};

weights::TensorSpec SpecOfStack(weights::TensorOrder order) {
  weights::TensorSpec spec = {.role = weights::TensorRole::kExpertGateUp,
                              .index = 0,
                              .name = "experts.gate_up_proj",
                              .dims = {"X", "J", "D"},
                              .order = order};
  if (order == weights::TensorOrder::kInputsFirst) std::swap(spec.dims[1], spec.dims[2]);
  return spec;
}

void ExpectFp4(const Result<weights::StoredMatrix>& found, int64_t expert, float global) {
  ASSERT_TRUE(found.ok()) << found.status().message();
  for (int64_t out = 0; out < StackedFp4::kOut; ++out) {
    std::vector<float> row(StackedFp4::kIn);
    found->weights.ReadRow(out, row.data());
    for (int64_t in = 0; in < StackedFp4::kIn; ++in) {
      EXPECT_EQ(row[static_cast<size_t>(in)],
                E2M1Numbers()[StackedFp4::Code(expert, out, in)] *
                    (E4M3Numbers()[StackedFp4::Scale(expert, out, in / 16)] * global))
          << out << " " << in;
    }
  }
}

// As modelopt writes stacks of experts: names without dots, in the order of the dense tensors.
TEST(StoredExpertsTest, StacksOfNvfp4HaveTheOrderOfTheirFiles) {
  ModelConfig config = SmallExperts({.layout = QuantLayout::kNvfp4, .bits = 4, .group_inputs = 16});
  config.experts.num_experts = StackedFp4::kExperts;
  const float globals[] = {0.5f, 2.0f, 4.0f};
  const auto* const numbers = reinterpret_cast<const std::byte*>(globals);
  for (const bool inputs_first : {false, true}) {
    const StackedFp4 stack(inputs_first);
    const auto find = [&](std::vector<int64_t> global_shape, int64_t num_out) {
      const auto checkpoint =
          Checkpoint::FromViews({{"experts.gate_up_proj",
                                  stack.Codes(inputs_first ? std::vector<int64_t>{3, 16, num_out}
                                                           : std::vector<int64_t>{3, num_out, 16})},
                                 {"experts.gate_up_proj_weight_scale",
                                  stack.Scales(inputs_first ? std::vector<int64_t>{3, 2, 8}
                                                            : std::vector<int64_t>{3, 8, 2})},
                                 {"experts.gate_up_proj_weight_scale_2",
                                  {numbers, DType::kF32, std::move(global_shape)}}},
                                nullptr, "memory");
      return weights::FindMatrix(config, *checkpoint,
                                 SpecOfStack(inputs_first ? weights::TensorOrder::kInputsFirst
                                                          : weights::TensorOrder::kPlain),
                                 2);
    };
    ExpectFp4(find({}, 8), 2, 0.5f);
    ExpectFp4(find({3}, 8), 2, 4.0f);
    ExpectFp4(find({3, 1, 1}, 8), 2, 4.0f);
    ExpectError(find({2}, 8).status(), StatusCode::kBadInput, "weight_scale_2");
    ExpectError(find({3}, 7).status(), StatusCode::kBadInput, "experts.gate_up_proj");
  }
}

// As compressed-tensors has them: the same names and shapes as of one matrix, with an axis more.
TEST(StoredExpertsTest, StacksOfCompressedTensors) {
  ModelConfig config =
      SmallExperts({.layout = QuantLayout::kNvfp4Packed, .bits = 4, .group_inputs = 16});
  config.experts.num_experts = StackedFp4::kExperts;
  const StackedFp4 stack(/*inputs_first=*/false);
  const float globals[] = {2.0f, 4.0f, 8.0f};
  const TensorView numbers = {reinterpret_cast<const std::byte*>(globals), DType::kF32, {3, 1}};
  const weights::TensorSpec spec = SpecOfStack(weights::TensorOrder::kPlain);
  const auto floats =
      Checkpoint::FromViews({{"experts.gate_up_proj.weight_packed", stack.Codes({3, 8, 16})},
                             {"experts.gate_up_proj.weight_scale", stack.Scales({3, 8, 2})},
                             {"experts.gate_up_proj.weight_global_scale", numbers}},
                            nullptr, "memory");
  ExpectFp4(weights::FindMatrix(config, *floats, spec, 1), 1, 0.25f);
  // Integers: the same bytes as words, and a zero point for each output.
  config.quantization.schemes = {
      {.layout = QuantLayout::kPackedInt, .bits = 4, .group_inputs = 32, .has_zeros = true}};
  const std::vector<float> scales = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                     13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};
  const uint32_t zeros[] = {0x88888888u, 0x76543210u, 0x12345678u};
  const int64_t sizes[] = {3, 8, 32};
  const auto bytes = [](const auto& from) {
    return reinterpret_cast<const std::byte*>(std::data(from));
  };
  std::map<std::string, TensorView> tensors = {
      {"experts.gate_up_proj.weight_packed", {bytes(stack.codes), DType::kI32, {3, 8, 4}}},
      {"experts.gate_up_proj.weight_scale", {bytes(scales), DType::kF32, {3, 8, 1}}},
      {"experts.gate_up_proj.weight_zero_point", {bytes(zeros), DType::kI32, {3, 1, 1}}},
      {"experts.gate_up_proj.weight_shape", {bytes(sizes), DType::kI64, {3}}}};
  const auto integers = Checkpoint::FromViews(tensors, nullptr, "memory");
  const auto found = weights::FindMatrix(config, *integers, spec, 2);
  ASSERT_TRUE(found.ok()) << found.status().message();
  std::vector<float> row(32);
  found->weights.ReadRow(3, row.data());
  for (int64_t in = 0; in < 32; ++in) {
    EXPECT_EQ(row[static_cast<size_t>(in)],
              static_cast<float>(StackedFp4::Code(2, 3, in) - 5) * 20.0f);
  }
  tensors["experts.gate_up_proj.weight_shape"].data += sizeof(int64_t);
  tensors["experts.gate_up_proj.weight_shape"].shape = {2};
  EXPECT_TRUE(
      weights::FindMatrix(config, *Checkpoint::FromViews(tensors, nullptr, "memory"), spec, 0)
          .ok());
  tensors["experts.gate_up_proj.weight_scale"].shape = {3, 8, 2};
  ExpectError(
      weights::FindMatrix(config, *Checkpoint::FromViews(tensors, nullptr, "memory"), spec, 0)
          .status(),
      StatusCode::kBadInput, "weight_scale");
}

// A scale of inputs is read where a checkpoint has a good one. Others change nothing but that the
// inputs are not rounded.
TEST(StoredInputScaleTest, IsOptional) {
  for (const char* const name : {"quant_fp8_tensor", "quant_ct_fp8_tensor", "quant_modelopt_fp8"}) {
    SCOPED_TRACE(name);
    const std::string dir = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/" + name;
    const auto config = LoadModelConfig(dir);
    const auto opened = Checkpoint::Open(dir);
    ASSERT_TRUE(config.ok() && opened.ok());
    std::map<std::string, TensorView> tensors;
    for (const std::string& each : (*opened)->Names()) tensors[each] = *(*opened)->GetStored(each);
    const std::string scale_name = "model.layers.1.mlp.down_proj.input_scale";
    const auto specs = weights::LayerTensors(*config, 1);
    const auto spec = std::find_if(specs.begin(), specs.end(), [](const auto& its) {
      return its.name == "model.layers.1.mlp.down_proj.weight";
    });
    ASSERT_NE(spec, specs.end());
    const auto inputs_of = [&](const std::map<std::string, TensorView>& stored) {
      const auto checkpoint = Checkpoint::FromViews(stored, nullptr, "memory");
      const auto found = weights::FindMatrix(*config, *checkpoint, *spec, 0);
      EXPECT_TRUE(found.ok()) << found.status().message();
      const QuantizedWeights& its = *found->weights.quantized();
      return std::pair(its.e4m3_inputs, its.input_scale);
    };
    const float stored = tensors[scale_name].At(0);
    EXPECT_EQ(inputs_of(tensors), std::pair(InputRounding::kTensor, stored));
    auto without = tensors, longer = tensors, integer = tensors;
    without.erase(scale_name);
    longer[scale_name].shape = {2};
    integer[scale_name].dtype = DType::kI32;
    for (const auto& other : {without, longer, integer}) {
      EXPECT_EQ(inputs_of(other), std::pair(InputRounding::kNone, 1.0f));
    }
    for (const float bad : {0.0f, -1.0f, std::nanf(""), 1e-40f, HUGE_VALF}) {
      auto wrong = tensors;
      wrong[scale_name] = {reinterpret_cast<const std::byte*>(&bad), DType::kF32, {}};
      EXPECT_EQ(inputs_of(wrong), std::pair(InputRounding::kNone, 1.0f)) << bad;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoredMatrixTest, testing::ValuesIn(kGoldenQuantized),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
