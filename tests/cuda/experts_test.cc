// Expert matrices on the device, products with them (also recorded, with other choices at each
// replay), and the models that the device's kernels reject.
#include <gtest/gtest.h>

#include <random>

#include "cuda_ops_fixture.h"
#include "kernels/kernels.h"

namespace minisgl::cuda {
namespace {

// [rows, columns] of small whole numbers, so that every product and sum is exact.
struct SmallTensor {
  SmallTensor(int64_t rows, int64_t columns, uint64_t seed)
      : shape{rows, columns}, values(static_cast<size_t>(rows * columns)) {
    std::mt19937_64 random(seed);
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
  }
  TensorView view() const {
    return {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, shape};
  }
  std::vector<int64_t> shape;
  std::vector<float> values;
};

constexpr int64_t kExpertIn = 24;
constexpr int32_t kChosen = 2;

class CudaExpertsTest : public CudaOpsFixture {
 protected:
  // Four experts of [3 + 5, kExpertIn], in two parts each.
  ExpertMatrices Pack(DeviceOps* ops) {
    std::vector<std::vector<WeightTensor>> views;
    for (uint64_t expert = 0; expert < 4; ++expert) {
      parts_.emplace_back(3, kExpertIn, 2 * expert);
      parts_.emplace_back(5, kExpertIn, 2 * expert + 1);
    }
    for (size_t i = 0; i < parts_.size(); i += 2) {
      views.push_back({parts_[i].view(), parts_[i + 1].view()});
      for (size_t part : {i, i + 1}) {
        weights_.insert(weights_.end(), parts_[part].values.begin(), parts_[part].values.end());
      }
    }
    const auto packed = ops->PackExperts(views, DType::kF32);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    return *packed;
  }

  std::vector<uint16_t> Expected(const std::vector<float>& x,
                                 const std::vector<int32_t>& choices) const {
    std::vector<uint16_t> expected;
    for (size_t pair = 0; pair < choices.size(); ++pair) {
      for (int64_t o = 0; o < 8; ++o) {
        float sum = 0;
        for (int64_t i = 0; i < kExpertIn; ++i) {
          sum +=
              x[pair / kChosen * kExpertIn + i] * weights_[(choices[pair] * 8 + o) * kExpertIn + i];
        }
        expected.push_back(FloatToBf16(sum));
      }
    }
    return expected;
  }

  std::vector<SmallTensor> parts_;
  std::vector<float> weights_;
};

TEST_F(CudaExpertsTest, ExpertsAreStoredOneAfterAnother) {
  auto ops = MakeReserved();
  const ExpertMatrices packed = Pack(ops.get());
  EXPECT_EQ(packed.num_experts, 4);
  EXPECT_EQ(packed.num_out, 8);
  EXPECT_EQ(packed.num_in, kExpertIn);
  EXPECT_EQ(packed.dtype, DType::kBF16);
  std::vector<uint16_t> expected;
  for (const float value : weights_) expected.push_back(FloatToBf16(value));
  EXPECT_EQ(Get<uint16_t>(ops.get(), packed.storage.get(), expected.size()), expected);
}

// A graph does not depend on the router's choices: it is replayed with other ones.
TEST_F(CudaExpertsTest, AGraphTakesTheChoicesOfItsReplay) {
  auto ops = MakeReserved();
  const ExpertMatrices packed = Pack(ops.get());
  const SmallTensor x(3, kExpertIn, 9);
  std::vector<uint16_t> bits;
  for (const float value : x.values) bits.push_back(FloatToBf16(value));
  const auto device_x = Put(ops.get(), bits);
  const auto experts = Put(ops.get(), std::vector<int32_t>(6));
  const auto out = ops->Allocate(6 * 8 * sizeof(uint16_t));
  ASSERT_TRUE(out.ok());
  ASSERT_TRUE(ops->BeginCapture().ok());
  ops->ExpertLinear({.x = {device_x.get(), DType::kBF16},
                     .weights = &packed,
                     .bias = nullptr,
                     .experts = static_cast<const int32_t*>(experts.get()),
                     .out = {out->get(), DType::kBF16},
                     .num_tokens = 3,
                     .num_chosen = kChosen,
                     .x_per_choice = false});
  const auto graph = ops->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  for (const std::vector<int32_t>& choices :
       {std::vector<int32_t>{0, 1, 0, 1, 0, 1}, {3, 2, 1, 0, 3, 1}, {2, 0, 2, 3, 1, 2}}) {
    ASSERT_TRUE(ops->Upload(experts.get(), choices.data(), choices.size() * sizeof(int32_t)).ok());
    ops->Replay(graph->get());
    EXPECT_EQ(Get<uint16_t>(ops.get(), out->get(), 48), Expected(x.values, choices));
  }
}

TEST_F(CudaExpertsTest, ModelsThatTheKernelsCannotRunAreRefused) {
  auto ops = MakeUnreserved();
  const ModelShape fits = {.hidden_size = kNormWidthMax,
                           .vocab_size = kSampleVocabMax,
                           .qk_norm_width = kNormWidthMax,
                           .heads = {{.num_heads = 4, .num_kv_heads = 2, .head_dim = 128}},
                           .num_experts = kExpertsMax,
                           .num_expert_groups = kExpertGroupsMax,
                           .state_key_dim = kStateKeysMax,
                           .state_norm_width = kNormWidthMax,
                           .tower_head_dim = kSegmentHeadDimMax,
                           .tower_norm_width = kNormWidthMax};
  EXPECT_TRUE(ops->CheckSupported(fits).ok()) << ops->CheckSupported(fits).message();
  const auto expect_refused = [&](const ModelShape& shape, const std::string& message) {
    const Status status = ops->CheckSupported(shape);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), message);
  };
  ModelShape shape = fits;
  const auto with_heads = [&](int32_t head_dim, int32_t value_dim, bool values_in_keys) {
    ModelShape other = fits;
    other.heads.push_back({4, 1, head_dim, value_dim, values_in_keys});
    return other;
  };
  for (const int32_t head_dim : {8, 64, 72, 512}) {
    EXPECT_TRUE(ops->CheckSupported(with_heads(head_dim, 0, false)).ok()) << head_dim;
  }
  EXPECT_TRUE(ops->CheckSupported(with_heads(192, 128, false)).ok());
  EXPECT_TRUE(ops->CheckSupported(with_heads(576, 512, true)).ok());
  EXPECT_TRUE(ops->CheckSupported(with_heads(24, 18, true)).ok());
  const std::string supported =
      " (supported: multiples of 8 up to 512, or keys up to 576 with values of up to 512 in them)";
  expect_refused(with_heads(100, 0, false),
                 "no CUDA attention for keys of 100 elements, values of 100" + supported);
  expect_refused(with_heads(576, 0, false),
                 "no CUDA attention for keys of 576 elements, values of 576" + supported);
  expect_refused(with_heads(128, 130, false),
                 "no CUDA attention for keys of 128 elements, values of 130" + supported);
  expect_refused(with_heads(584, 512, true),
                 "no CUDA attention for keys of 584 elements with values of 512" + supported);
  expect_refused(with_heads(576, 496, true),
                 "no CUDA attention for keys of 576 elements with values of 496" + supported);
  expect_refused(with_heads(20, 16, true),
                 "no CUDA attention for keys of 20 elements with values of 16" + supported);
  shape = fits;
  ++shape.hidden_size;
  expect_refused(shape, "no CUDA norm for a hidden_size of 16385 (at most 16384)");
  shape = fits;
  ++shape.qk_norm_width;
  expect_refused(shape, "no CUDA norm of all queries as one for a width of 16385 (at most 16384)");
  shape = fits;
  ++shape.tower_head_dim;
  expect_refused(shape, "no CUDA attention of a tower for heads of 129 (at most 128)");
  shape = fits;
  ++shape.tower_norm_width;
  expect_refused(shape, "no CUDA norm of a tower for a width of 16385 (at most 16384)");
  shape = fits;
  ++shape.vocab_size;
  expect_refused(shape, "no CUDA sampling for a vocabulary of 524289 (at most 524288)");
  shape = fits;
  ++shape.num_experts;
  expect_refused(shape, "no CUDA routing to a number of experts of 513 (at most 512)");
  shape = fits;
  ++shape.num_expert_groups;
  expect_refused(shape, "no CUDA routing to a number of expert groups of 33 (at most 32)");
  shape = fits;
  ++shape.state_norm_width;
  expect_refused(shape,
                 "no CUDA norm of a recurrent layer's output for a width of 16385 (at most 16384)");
  shape = fits;
  ++shape.state_key_dim;
  expect_refused(shape, "no CUDA recurrence for states with a number of keys of 257 (at most 256)");
}

}  // namespace
}  // namespace minisgl::cuda
