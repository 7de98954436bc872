// A layer's experts are packed from each expert once, in order, whether the file has a tensor for
// each or one for all.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/forwarding_ops.h"
#include "minisgl/weights/checkpoint.h"
#include "model/model_weights.h"

namespace minisgl {
namespace {

// Notes the elements of each matrix that experts are packed from.
class NotingOps : public ForwardingOps {
 public:
  using Elements = std::vector<float>;

  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format) override {
    std::vector<std::vector<Elements>> packed;
    for (const std::vector<WeightTensor>& parts : experts) {
      std::vector<Elements> read;
      for (const WeightTensor& part : parts) read.push_back(ElementsOf(part));
      packed.push_back(read);
    }
    packed_.push_back(packed);
    return ForwardingOps::PackExperts(experts, format);
  }
  // The elements by call, expert and part.
  const std::vector<std::vector<std::vector<Elements>>>& packed() const { return packed_; }

  static Elements ElementsOf(const WeightTensor& matrix) {
    const auto width = static_cast<size_t>(matrix.num_in());
    Elements elements(static_cast<size_t>(matrix.num_out()) * width);
    for (int64_t out = 0; out < matrix.num_out(); ++out) {
      matrix.ReadRow(out, elements.data() + static_cast<size_t>(out) * width);
    }
    return elements;
  }
  static Elements ElementsOf(const TensorView& view) {
    Elements elements;
    for (int64_t i = 0; i < view.num_elements(); ++i) elements.push_back(view.At(i));
    return elements;
  }

 private:
  std::vector<std::vector<std::vector<Elements>>> packed_;
};

// Elements `index`, of `count`, of a tensor of the file.
NotingOps::Elements Part(const Checkpoint& checkpoint, const std::string& name, size_t index = 0,
                         size_t count = 1) {
  const Result<TensorView> view = checkpoint.Get(name);
  EXPECT_TRUE(view.ok()) << name;
  const NotingOps::Elements all = NotingOps::ElementsOf(*view);
  const size_t size = all.size() / count;
  return {all.begin() + static_cast<std::ptrdiff_t>(index * size),
          all.begin() + static_cast<std::ptrdiff_t>((index + 1) * size)};
}

class ExpertsPackingTest : public testing::Test {
 protected:
  void Load(const std::string& model) {
    const std::string dir = MINISGL_SOURCE_DIR "/tests/golden/models/" + model;
    const Result<ModelConfig> config = LoadModelConfig(dir);
    ASSERT_TRUE(config.ok()) << config.status().message();
    auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    checkpoint_ = std::move(*checkpoint);
    const auto weights = model::LoadModelWeights(*config, *checkpoint_, DType::kF32, &ops_);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    num_experts_ = static_cast<size_t>(config->experts.num_experts);
    ASSERT_GT(num_experts_, 1u);
    // Gate and up together, and down.
    ASSERT_EQ(ops_.packed().size(), 2 * static_cast<size_t>(config->num_layers));
  }

  NotingOps ops_;
  std::unique_ptr<Checkpoint> checkpoint_;
  size_t num_experts_ = 0;
};

TEST_F(ExpertsPackingTest, ThoseOfATensorEachArePackedOnceInOrder) {
  ASSERT_NO_FATAL_FAILURE(Load("mixtral"));
  for (size_t call = 0; call < ops_.packed().size(); ++call) {
    const auto& experts = ops_.packed()[call];
    ASSERT_EQ(experts.size(), num_experts_);
    for (size_t i = 0; i < num_experts_; ++i) {
      const std::string prefix = "model.layers." + std::to_string(call / 2) +
                                 ".block_sparse_moe.experts." + std::to_string(i) + ".";
      if (call % 2 == 0) {
        ASSERT_EQ(experts[i].size(), 2u);
        EXPECT_EQ(experts[i][0], Part(*checkpoint_, prefix + "w1.weight"));
        EXPECT_EQ(experts[i][1], Part(*checkpoint_, prefix + "w3.weight"));
      } else {
        ASSERT_EQ(experts[i].size(), 1u);
        EXPECT_EQ(experts[i][0], Part(*checkpoint_, prefix + "w2.weight"));
      }
    }
  }
}

TEST_F(ExpertsPackingTest, ThoseOfOneTensorArePackedOnceInOrder) {
  ASSERT_NO_FATAL_FAILURE(Load("granitemoe"));
  for (size_t call = 0; call < ops_.packed().size(); ++call) {
    const auto& experts = ops_.packed()[call];
    ASSERT_EQ(experts.size(), num_experts_);
    const std::string name = "model.layers." + std::to_string(call / 2) + ".block_sparse_moe." +
                             (call % 2 == 0 ? "input_linear" : "output_linear") + ".weight";
    for (size_t i = 0; i < num_experts_; ++i) {
      ASSERT_EQ(experts[i].size(), 1u);
      EXPECT_EQ(experts[i][0], Part(*checkpoint_, name, i, num_experts_));
    }
  }
}

}  // namespace
}  // namespace minisgl
