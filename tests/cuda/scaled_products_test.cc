// Products whose inputs are rounded to e4m3 (the word w8a8), through the operations: against the
// rule in plain loops and sums in double, for every way in which a checkpoint rounds them, ragged
// sizes, stacked parts, pieces, and what stands around a product; and which products are exact.
#include "scaled_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coded_matrix.h"
#include "cuda_ops_fixture.h"
#include "kernels/kernel_data.h"
#include "scaled_scene.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

constexpr DType kScaledTypes[] = {DType::kBF16, DType::kF16};

class ScaledProductTest : public CudaOpsFixture {
 protected:
  void Open(DType dtype, bool small_pieces = false, bool deterministic = false) {
    dtype_ = dtype;
    debug_.w8a8 = true;
    debug_.small_pieces = small_pieces;
    ops_ = MakeReserved({.activation_dtype = dtype, .deterministic = deterministic});
  }
  Matrix Pack(std::span<const WeightTensor> parts) {
    auto matrix = ops_->PackMatrix(parts, WeightFormat(dtype_, Quantization::kStored));
    MINISGL_CHECK(matrix.ok(), "{}", matrix.status().message());
    return *std::move(matrix);
  }
  std::vector<float> RandomX(int64_t count, uint64_t seed) {
    return RoundedTo(dtype_, RandomFloats(count, seed));
  }
  std::shared_ptr<void> PutX(const std::vector<float>& values) {
    std::vector<uint16_t> x(values.size());
    StoreElements(x.data(), dtype_, values);
    return Put(ops_.get(), x);
  }

  // Runs a product and expects the rule's outputs; `scaled`: of the library's products with scales.
  void ExpectRule(std::span<const WeightTensor> parts, int64_t num_tokens, DType out_dtype,
                  float fixed, int scaled) {
    const Matrix matrix = Pack(parts);
    const std::vector<float> x = RandomX(num_tokens * matrix.num_in, 3);
    const std::vector<float> bias = RandomFloats(matrix.num_out, 4);
    const auto in = PutX(x), device_bias = Put(ops_.get(), bias);
    // Tokens stand apart, with NaN between them.
    const int64_t stride = matrix.num_out + 16;
    const auto count = static_cast<size_t>(num_tokens * stride);
    const auto out = Put(ops_.get(), std::vector<uint32_t>(count, 0xFFFFFFFF));
    const int before = matmul_->num_scaled_products();
    ops_->Linear({.x = {in.get(), dtype_},
                  .weight = &matrix,
                  .bias = static_cast<const float*>(device_bias.get()),
                  .out = {out.get(), out_dtype},
                  .num_tokens = num_tokens,
                  .out_stride = stride});
    const auto bytes = Get<float>(ops_.get(), out.get(), count);
    EXPECT_EQ(matmul_->num_scaled_products() - before, scaled);
    const std::vector<float> found = LoadElements(bytes.data(), out_dtype, std::ssize(bytes));
    const double unit = out_dtype == DType::kF32    ? 0x1p-23
                        : out_dtype == DType::kBF16 ? 0x1p-8
                                                    : 0x1p-11;
    for (int64_t t = 0; t < num_tokens; ++t) {
      const auto row = RoundedInputsOf(parts[0].quantized()->e4m3_inputs, fixed,
                                       std::span(x).subspan(static_cast<size_t>(t * matrix.num_in),
                                                            static_cast<size_t>(matrix.num_in)));
      int64_t o = 0;
      for (const WeightTensor& part : parts) {
        for (int64_t out_row = 0; out_row < part.num_out(); ++out_row, ++o) {
          std::vector<float> weights(static_cast<size_t>(matrix.num_in));
          part.ReadRow(out_row, weights.data());
          double sum = 0, sizes = std::abs(bias[o]);
          for (size_t i = 0; i < row.size(); ++i) {
            sum += row[i] * weights[i];
            sizes += std::abs(row[i] * weights[i]);
          }
          // Rounded to the output's type before and after the bias, and weights once to f32.
          const double bound = 2 * unit * (std::abs(sum) + std::abs(bias[o])) + 0x1p-22 * sizes;
          ASSERT_NEAR(found[t * stride + o], sum + bias[o], bound) << "token " << t << " out " << o;
        }
      }
      for (int64_t gap = o; gap < stride && t + 1 < num_tokens; ++gap) {
        const float value = found[t * stride + gap];
        ASSERT_TRUE(std::isnan(value)) << t << " " << gap;
      }
    }
  }

  DType dtype_ = DType::kBF16;
  std::unique_ptr<DeviceOps> ops_;
};

TEST_F(ScaledProductTest, FollowsTheRule) {
  for (const DType dtype : kScaledTypes) {
    Open(dtype);
    for (const InputRounding rounding :
         {InputRounding::kToken, InputRounding::kTensor, InputRounding::kGroups}) {
      for (const int64_t num_in : {40, 64, 128, 200, 513}) {
        const StoredE4M3 first(rounding, 32, num_in, 0.02f, 1);
        const WeightTensor part = first.Tensor();
        for (const DType out_dtype : {dtype, DType::kF32}) {
          SCOPED_TRACE(fmt::format("{} rounding {} inputs {} to {}", DTypeName(dtype),
                                   static_cast<int>(rounding), num_in, DTypeName(out_dtype)));
          ExpectRule({&part, 1}, 20, out_dtype, 0.02f, 1);
        }
      }
    }
    ops_ = nullptr;
  }
}

// The library takes multiples of 4 tokens with blocks: others have a product for the last ones.
TEST_F(ScaledProductTest, LastTokensOfBlocks) {
  Open(DType::kBF16);
  const StoredE4M3 stored(InputRounding::kGroups, 144, 300, 1, 1);
  const WeightTensor part = stored.Tensor();
  for (const int64_t num_tokens : {17, 18, 19, 20, 21, 64}) {
    SCOPED_TRACE(num_tokens);
    ExpectRule({&part, 1}, num_tokens, DType::kBF16, 1, num_tokens % 4 == 0 ? 1 : 2);
  }
}

// A fixed scale is the largest of the parts', and each row has the scale of its part.
TEST_F(ScaledProductTest, StackedParts) {
  Open(DType::kBF16);
  const StoredE4M3 a(InputRounding::kTensor, 16, 96, 0.01f, 1),
      b(InputRounding::kTensor, 8, 96, 0.03f, 2);
  const WeightTensor parts[] = {a.Tensor(), b.Tensor()};
  ExpectRule(parts, 20, DType::kBF16, 0.03f, 1);
  // Blocks of a part that ends within one are no blocks of the stack.
  const StoredE4M3 c(InputRounding::kGroups, 128, 130, 1, 3),
      d(InputRounding::kGroups, 24, 130, 1, 4), e(InputRounding::kGroups, 16, 130, 1, 5);
  const WeightTensor blocks[] = {c.Tensor(), d.Tensor(), e.Tensor()};
  ExpectRule(blocks, 20, DType::kBF16, 1, 2);
  ExpectRule(blocks, 23, DType::kBF16, 1, 4);
  EXPECT_EQ(ScaledFormOf(blocks, CodesOf(Pack(blocks)).runs)->matrix.rows.size(), 2u);
}

TEST_F(ScaledProductTest, Pieces) {
  for (const InputRounding rounding : {InputRounding::kToken, InputRounding::kGroups}) {
    Open(DType::kBF16, /*small_pieces=*/true);
    const StoredE4M3 stored(rounding, 48, 200, 1, 1);
    const WeightTensor part = stored.Tensor();
    // 32 tokens at a time, and the last three.
    ExpectRule({&part, 1}, 64 + 3, DType::kBF16, 1, 3);
    ops_ = nullptr;
  }
}

// Large matrices have their codes in the order of one warp after another: inputs follow it, and
// blocks are put together.
TEST_F(ScaledProductTest, OrdersOfLines) {
  MarkSlow("a matrix of 4,096 outputs");
  for (const InputRounding rounding : {InputRounding::kToken, InputRounding::kGroups}) {
    debug_.ring = true;
    Open(DType::kBF16);
    const StoredE4M3 stored(rounding, 4096, 512, 1, 1);
    const WeightTensor part = stored.Tensor();
    EXPECT_GT(CodesOf(Pack({&part, 1})).runs[0].rows.order.warps, 1);
    ExpectRule({&part, 1}, 17, DType::kBF16, 1, rounding == InputRounding::kGroups ? 2 : 1);
    ops_ = nullptr;
  }
}

// What is not as the library needs it, or as no checkpoint rounds it, is expanded.
TEST_F(ScaledProductTest, OtherProductsAreExact) {
  const auto count_scaled = [this](std::span<const WeightTensor> parts, int64_t num_tokens) {
    const Matrix matrix = Pack(parts);
    const auto x = PutX(RandomX(num_tokens * matrix.num_in, 3));
    const auto out = ops_->Allocate(static_cast<size_t>(num_tokens * matrix.num_out) * 4);
    const int before = matmul_->num_scaled_products();
    ops_->Linear({.x = {x.get(), dtype_},
                  .weight = &matrix,
                  .bias = nullptr,
                  .out = {out->get(), dtype_},
                  .num_tokens = num_tokens});
    EXPECT_TRUE(ops_->Synchronize().ok()) << ops_->status().message();
    return matmul_->num_scaled_products() - before;
  };
  const auto one = [&](const WeightTensor& part, int64_t num_tokens) {
    return count_scaled({&part, 1}, num_tokens);
  };
  Open(DType::kBF16);
  const StoredE4M3 good(InputRounding::kToken, 16, 40, 1, 1);
  EXPECT_EQ(one(good.Tensor(), 17), 1);
  EXPECT_EQ(one(good.Tensor(), kGemvTokensMax), 0);
  EXPECT_EQ(one(StoredE4M3(InputRounding::kNone, 16, 40, 1, 1).Tensor(), 17), 0);
  EXPECT_EQ(one(StoredE4M3(InputRounding::kToken, 12, 40, 1, 1).Tensor(), 17), 0);  // 24 bytes
  StoredE4M3 mixed(InputRounding::kGroups, 16, 256, 1, 1);
  EXPECT_EQ(one(mixed.Tensor(), 17), 2);
  mixed.weights()->e4m3_inputs = InputRounding::kToken;  // with scales of groups of inputs
  EXPECT_EQ(one(mixed.Tensor(), 17), 0);
  const WeightTensor parts[] = {good.Tensor(), mixed.Tensor().TakeInputs(0, 40)};
  EXPECT_EQ(count_scaled(parts, 17), 1);  // of one group
  StoredE4M3 dynamic(InputRounding::kToken, 16, 40, 1, 1),
      fixed(InputRounding::kTensor, 16, 40, 1, 1);
  const WeightTensor differ[] = {dynamic.Tensor(), fixed.Tensor()};
  EXPECT_EQ(count_scaled(differ, 17), 0);
  // A cut for a rank that does not begin with a block.
  const StoredE4M3 blocks(InputRounding::kGroups, 256, 128, 1, 1);
  EXPECT_EQ(one(blocks.Tensor().TakeOutputs(128, 96), 20), 1);
  EXPECT_EQ(one(blocks.Tensor().TakeOutputs(96, 96), 20), 0);
  ops_ = nullptr;
  Open(DType::kBF16, /*small_pieces=*/false, /*deterministic=*/true);
  EXPECT_FALSE(ops_->RoundsE4M3Inputs());
  EXPECT_EQ(one(good.Tensor(), 17), 0);
}

TEST_F(ScaledProductTest, OlderGpusAndLibrariesAreRefused) {
  debug_.w8a8 = true;
  auto ops = MakeCudaOpsOver(
      api_,
      [this](const MatmulSetup& setup) -> Result<std::unique_ptr<MatmulLibrary>> {
        EXPECT_EQ(setup.compute_major, 9);
        auto made = std::make_unique<EmulatedMatmul>(api_.get());
        made->LackScaledMatmul();
        return std::unique_ptr<MatmulLibrary>(std::move(made));
      },
      {}, debug_);
  ASSERT_TRUE(ops.ok());
  const Status status = (*ops)->Reserve(SmallLimits());
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_NE(status.message().find("w8a8 needs a GPU of compute capability 9.0"), std::string::npos)
      << status.message();
}

// --- what stands around a product ----------------------------------------------------------------

// A norm, a product, an activation, a product that adds to the stream, as a layer has them.
class ScaledLayerTest : public ScaledProductTest {
 protected:
  static constexpr int64_t kWidth = 72, kInner = 136;

  struct Answer {
    std::vector<float> stream;
    std::vector<uint16_t> gated;
    int launches = 0;
  };

  Answer RunLayer(InputRounding rounding, int64_t num_tokens, bool apart) {
    const StoredE4M3 gate(rounding, kInner, kWidth, 0.02f, 1),
        up(rounding, kInner, kWidth, 0.02f, 2), down(rounding, kWidth, kInner, 0.02f, 3);
    const WeightTensor gate_up_parts[] = {gate.Tensor(), up.Tensor()}, down_part = down.Tensor();
    const Matrix gate_up = Pack(gate_up_parts), out = Pack({&down_part, 1});
    const auto stream = Put(ops_.get(), RandomFloats(num_tokens * kWidth, 5));
    const auto weight = Put(ops_.get(), RandomFloats(kWidth, 6));
    const auto array = [&](int64_t width) {
      return Put(ops_.get(), std::vector<uint16_t>(static_cast<size_t>(num_tokens * width)));
    };
    const auto x = array(kWidth), both = array(2 * kInner), gated = array(kInner),
               sum = array(kWidth);
    const NormParams norm = {.x = nullptr,
                             .residual = static_cast<float*>(stream.get()),
                             .weight = static_cast<const float*>(weight.get()),
                             .out = {x.get(), dtype_},
                             .num_tokens = num_tokens,
                             .width = kWidth,
                             .eps = 1e-5f};
    const ActivateParams activation = {.gate_up = {both.get(), dtype_},
                                       .out = {gated.get(), dtype_},
                                       .num_tokens = num_tokens,
                                       .width = kInner,
                                       .activation = Activation::kSilu};
    const LinearParams first = {.x = {x.get(), dtype_},
                                .weight = &gate_up,
                                .bias = nullptr,
                                .out = {both.get(), dtype_},
                                .num_tokens = num_tokens};
    const LinearParams second = {.x = {gated.get(), dtype_},
                                 .weight = &out,
                                 .bias = nullptr,
                                 .out = {sum.get(), dtype_},
                                 .num_tokens = num_tokens};
    EXPECT_TRUE(ops_->Synchronize().ok());
    const int before = api_->num_calls("LaunchKernel");
    if (apart) {
      ops_->Norm(norm);
      ops_->Linear(first);
      ops_->Activate(activation);
    } else {
      ops_->FusedLinear({.norm = &norm, .linear = first, .activation = &activation});
    }
    ops_->FusedLinear({.linear = second, .residual = static_cast<float*>(stream.get())});
    Answer answer;
    answer.launches = api_->num_calls("LaunchKernel") - before;
    answer.stream = Get<float>(ops_.get(), stream.get(), static_cast<size_t>(num_tokens * kWidth));
    answer.gated = Get<uint16_t>(ops_.get(), gated.get(), static_cast<size_t>(num_tokens * kInner));
    return answer;
  }
};

TEST_F(ScaledLayerTest, NormsAndActivationsRoundWithTheBitsOfSeparateKernels) {
  for (const DType dtype : kScaledTypes) {
    for (const InputRounding rounding :
         {InputRounding::kToken, InputRounding::kTensor, InputRounding::kGroups}) {
      for (const bool small_pieces : {false, true}) {
        SCOPED_TRACE(fmt::format("{} rounding {}{}", DTypeName(dtype), static_cast<int>(rounding),
                                 small_pieces ? " pieces" : ""));
        Open(dtype, small_pieces);
        const Answer apart = RunLayer(rounding, 40, /*apart=*/true);
        const Answer fused = RunLayer(rounding, 40, /*apart=*/false);
        EXPECT_EQ(fused.stream, apart.stream);
        EXPECT_EQ(fused.gated, apart.gated);
        // Norm, two roundings, activation, addition; the norm and the activation round.
        EXPECT_EQ(apart.launches, small_pieces ? 7 : 5);
        EXPECT_EQ(fused.launches, small_pieces ? 7 : 3);
        ops_ = nullptr;
      }
    }
  }
}

// An activation that waits for a product runs before whatever else comes.
TEST_F(ScaledLayerTest, AnActivationThatWaitsRunsBeforeOtherWork) {
  Open(DType::kBF16);
  const StoredE4M3 gate_up(InputRounding::kToken, 2 * kInner, kWidth, 1, 1);
  const WeightTensor part = gate_up.Tensor();
  const Matrix matrix = Pack({&part, 1});
  constexpr int64_t kTokens = 20;
  const auto x = PutX(RandomX(kTokens * kWidth, 2));
  const auto both = Put(ops_.get(), std::vector<uint16_t>(kTokens * 2 * kInner));
  const auto run = [&](void* out) {
    const ActivateParams activation = {.gate_up = {both.get(), dtype_},
                                       .out = {out, dtype_},
                                       .num_tokens = kTokens,
                                       .width = kInner,
                                       .activation = Activation::kSilu};
    ops_->FusedLinear({.linear = {.x = {x.get(), dtype_},
                                  .weight = &matrix,
                                  .bias = nullptr,
                                  .out = {both.get(), dtype_},
                                  .num_tokens = kTokens},
                       .activation = &activation});
  };
  const auto first = Put(ops_.get(), std::vector<uint16_t>(kTokens * kInner));
  const auto second = Put(ops_.get(), std::vector<uint16_t>(kTokens * kInner));
  run(first.get());
  run(second.get());  // its product does not read what the first one's activation wrote
  const auto a = Get<uint16_t>(ops_.get(), first.get(), kTokens * kInner);
  EXPECT_NE(a, std::vector<uint16_t>(kTokens * kInner));
  EXPECT_EQ(Get<uint16_t>(ops_.get(), second.get(), kTokens * kInner), a);
  // A product of few tokens comes behind it, too.
  const auto third = Put(ops_.get(), std::vector<uint16_t>(kTokens * kInner));
  run(third.get());
  const StoredE4M3 few(InputRounding::kToken, 16, kInner, 1, 3);
  const WeightTensor few_part = few.Tensor();
  const Matrix small = Pack({&few_part, 1});
  const auto product = [&](const void* from) {
    const auto out = Put(ops_.get(), std::vector<float>(16));
    ops_->Linear({.x = {from, dtype_},
                  .weight = &small,
                  .bias = nullptr,
                  .out = {out.get(), DType::kF32},
                  .num_tokens = 1});
    return Get<float>(ops_.get(), out.get(), 16);
  };
  EXPECT_EQ(product(third.get()), product(first.get()));
}

TEST_F(ScaledLayerTest, AGraphHasTheSameBits) {
  Open(DType::kBF16);
  const StoredE4M3 stored(InputRounding::kGroups, 16, 200, 1, 1);
  const WeightTensor part = stored.Tensor();
  const Matrix matrix = Pack({&part, 1});
  constexpr int64_t kTokens = 24;
  const auto x = PutX(RandomX(kTokens * 200, 2));
  const auto out = Put(ops_.get(), std::vector<float>(kTokens * 16));
  const LinearParams params = {.x = {x.get(), dtype_},
                               .weight = &matrix,
                               .bias = nullptr,
                               .out = {out.get(), DType::kF32},
                               .num_tokens = kTokens};
  ops_->Linear(params);
  const auto eager = Get<float>(ops_.get(), out.get(), kTokens * 16);
  ASSERT_TRUE(ops_->BeginCapture().ok());
  ops_->Linear(params);
  const auto graph = ops_->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_TRUE(
      ops_->Upload(out.get(), std::vector<float>(kTokens * 16).data(), kTokens * 16 * sizeof(float))
          .ok());
  ops_->Replay(graph->get());
  EXPECT_EQ(Get<float>(ops_.get(), out.get(), kTokens * 16), eager);
}

TEST_F(ScaledProductTest, AnErrorOfTheLibraryIsKept) {
  Open(DType::kBF16);
  const StoredE4M3 stored(InputRounding::kGroups, 16, 40, 1, 1);
  const WeightTensor part = stored.Tensor();
  const Matrix matrix = Pack({&part, 1});
  const auto x = PutX(RandomX(19 * 40, 2));
  const auto out = Put(ops_.get(), std::vector<float>(19 * 16));
  matmul_->FailAt(2, Status(StatusCode::kInternal, "no such product"));  // of the last tokens
  ops_->Linear({.x = {x.get(), dtype_},
                .weight = &matrix,
                .bias = nullptr,
                .out = {out.get(), DType::kF32},
                .num_tokens = 19});
  EXPECT_NE(ops_->status().message().find("no such product"), std::string::npos);
}

}  // namespace
}  // namespace minisgl::cuda
