// The values of quantized matrices against the packages that define their formats
// (tests/golden/values): the same numbers, but rounded once to the type that the package computes
// in.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "golden_models.h"
#include "minisgl/weights/checkpoint.h"
#include "weights/stored_matrix.h"

namespace minisgl {
namespace {

class QuantizedValuesTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string root = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/";
    auto config = LoadModelConfig(root + "models/" + GetParam());
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(config).value();
    auto model = Checkpoint::Open(root + "models/" + GetParam());
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(model).value();
    auto values = Checkpoint::Open(root + "values/" + GetParam());
    ASSERT_TRUE(values.ok()) << values.status().message();
    values_ = std::move(values).value();
  }

  // The package's matrix `name`; entry `index` of three axes.
  std::vector<float> Wanted(const std::string& name, int64_t index) const {
    const auto view = values_->Get(name);
    EXPECT_TRUE(view.ok()) << view.status().message();
    if (!view.ok()) return {};
    const int64_t count =
        view->num_elements() / (view->shape.size() == 3 ? view->shape[0] : int64_t{1});
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(view->At(index * count + i));
    return values;
  }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> model_, values_;
};

std::vector<float> AllWeights(const WeightTensor& matrix) {
  const auto width = static_cast<size_t>(matrix.num_in());
  std::vector<float> all(static_cast<size_t>(matrix.num_out()) * width);
  for (int64_t out = 0; out < matrix.num_out(); ++out) {
    matrix.ReadRow(out, all.data() + static_cast<size_t>(out) * width);
  }
  return all;
}

float Rounded(DType dtype, float value) {
  if (dtype == DType::kBF16) return Bf16ToFloat(FloatToBf16(value));
  return dtype == DType::kF16 ? F16ToFloat(FloatToF16(value)) : value;
}

// The number of values that `dtype` does not explain.
size_t NumOthers(const std::vector<float>& found, const std::vector<float>& wanted, DType dtype) {
  size_t others = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    others += found[i] != wanted[i] && Rounded(dtype, found[i]) != wanted[i];
  }
  return others;
}

TEST_P(QuantizedValuesTest, AreThePackagesButForItsRounding) {
  size_t num_matrices = 0;
  for (const weights::TensorSpec& spec : weights::LayerTensors(config_, 1)) {
    const std::string name = spec.name.ends_with(".weight") ? spec.name : spec.name + ".weight";
    if (!values_->Has(name)) continue;
    ++num_matrices;
    const int32_t count = spec.dims.size() == 3 ? config_.experts.num_experts : 1;
    for (int32_t index = 0; index < count; ++index) {
      const auto matrix = weights::FindMatrix(config_, *model_, spec, index);
      ASSERT_TRUE(matrix.ok()) << matrix.status().message();
      ASSERT_NE(matrix->weights.quantized(), nullptr) << name;
      EXPECT_TRUE(matrix->weights.CheckNumbers().ok());
      const std::vector<float> found = AllWeights(matrix->weights);
      const std::vector<float> wanted = Wanted(name, index);
      ASSERT_EQ(found.size(), wanted.size()) << name;
      // Exactly the f32 product, or rounded to one of the narrow types.
      const size_t as_bf16 = NumOthers(found, wanted, DType::kBF16);
      const size_t as_f16 = NumOthers(found, wanted, DType::kF16);
      EXPECT_TRUE(as_bf16 == 0 || as_f16 == 0)
          << name << ": " << as_bf16 << " others as bf16, " << as_f16 << " as f16";
    }
  }
  EXPECT_EQ(num_matrices, values_->Names().size());
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedValuesTest, testing::ValuesIn(kGoldenQuantized),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
