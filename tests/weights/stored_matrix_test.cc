// Quantized matrices whose tensors are missing, of a wrong type or of a wrong shape: one clear
// error each, for every tensor of every format. (The right ones:
// tests/model/quantized_values_test.cc.)
#include "weights/stored_matrix.h"

#include <gtest/gtest.h>

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
  ExpectError(find({3, 8, 32}, {3, 8, 1}).status(), StatusCode::kBadInput, "zero points");
}

INSTANTIATE_TEST_SUITE_P(All, StoredMatrixTest, testing::ValuesIn(kGoldenQuantized),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
