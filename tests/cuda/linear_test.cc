// The choice of the kernel for a matrix product, and that both kernels have the same result.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cuda_ops_fixture.h"
#include "kernels/kernels.h"

namespace minisgl::cuda {
namespace {

constexpr int64_t kOut = 24, kIn = 40;

std::vector<uint16_t> RandomBf16(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = FloatToBf16(normal(random));
  return values;
}

class CudaLinearTest : public CudaOpsFixture {
 protected:
  void Open(const CudaOpsConfig& config = {}) {
    ops_ = MakeReserved(config);
    weight_ = RandomBf16(kOut * kIn, 1);
    const TensorView view = {.data = reinterpret_cast<const std::byte*>(weight_.data()),
                             .dtype = DType::kBF16,
                             .shape = {kOut, kIn}};
    auto packed = ops_->PackMatrix({&view, 1}, DType::kBF16);
    ASSERT_TRUE(packed.ok());
    matrix_ = *packed;
    bias_.resize(kOut);
    for (int64_t i = 0; i < kOut; ++i) bias_[i] = static_cast<float>(i);
    device_bias_ = Put(ops_.get(), bias_);
  }

  // out[t, o] in f32, by the operation.
  std::vector<float> Product(const std::vector<uint16_t>& x, int64_t num_tokens, bool with_bias) {
    const auto device_x = Put(ops_.get(), x);
    const auto out = ops_->Allocate(static_cast<size_t>(num_tokens * kOut) * 4);
    EXPECT_TRUE(out.ok());
    ops_->Linear({.x = {device_x.get(), DType::kBF16},
                  .weight = &matrix_,
                  .bias = with_bias ? static_cast<const float*>(device_bias_.get()) : nullptr,
                  .out = {out->get(), DType::kF32},
                  .num_tokens = num_tokens});
    return Get<float>(ops_.get(), out->get(), static_cast<size_t>(num_tokens * kOut));
  }

  void ExpectRight(int64_t num_tokens, bool with_bias) {
    const std::vector<uint16_t> x = RandomBf16(static_cast<size_t>(num_tokens * kIn), 2);
    const std::vector<float> found = Product(x, num_tokens, with_bias);
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t o = 0; o < kOut; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < kIn; ++i) {
          sum += static_cast<double>(Bf16ToFloat(x[t * kIn + i])) *
                 static_cast<double>(Bf16ToFloat(weight_[o * kIn + i]));
        }
        if (with_bias) sum += bias_[o];
        // 40 products of about 1 in f32: far below this.
        ASSERT_NEAR(found[t * kOut + o], sum, 1e-4) << "token " << t << " output " << o;
      }
    }
  }

  std::unique_ptr<DeviceOps> ops_;
  std::vector<uint16_t> weight_;
  Matrix matrix_;
  std::vector<float> bias_;
  std::shared_ptr<void> device_bias_;
};

TEST_F(CudaLinearTest, FewTokensTakeTheKernelForFewTokens) {
  Open();
  for (const int64_t num_tokens : {int64_t{1}, int64_t{9}, kGemvTokensMax}) {
    ExpectRight(num_tokens, /*with_bias=*/false);
    ExpectRight(num_tokens, /*with_bias=*/true);
  }
  EXPECT_EQ(matmul_->num_products(), 0);
}

TEST_F(CudaLinearTest, MoreTokensTakeTheLibrary) {
  Open();
  ExpectRight(kLibraryTokens, /*with_bias=*/false);
  ExpectRight(kLibraryTokens, /*with_bias=*/true);
  EXPECT_EQ(matmul_->num_products(), 2);
  EXPECT_FALSE(matmul_setup_.deterministic);
}

TEST_F(CudaLinearTest, WhereItMustBeDeterministicAllTakeTheLibrary) {
  Open({.deterministic = true});
  EXPECT_TRUE(matmul_setup_.deterministic);
  ExpectRight(1, /*with_bias=*/true);
  ExpectRight(kLibraryTokens, /*with_bias=*/true);
  EXPECT_EQ(matmul_->num_products(), 2);
}

TEST_F(CudaLinearTest, NoTokensQueueNothing) {
  Open({.deterministic = true});
  const int launches = api_->num_calls("LaunchKernel");
  ops_->Linear({.x = {nullptr, DType::kBF16},
                .weight = &matrix_,
                .bias = static_cast<const float*>(device_bias_.get()),
                .out = {nullptr, DType::kF32},
                .num_tokens = 0});
  EXPECT_EQ(matmul_->num_products(), 0);
  EXPECT_EQ(api_->num_calls("LaunchKernel"), launches);
}

TEST_F(CudaLinearTest, AnErrorOfTheLibraryIsKeptAndNamesTheDevice) {
  Open();
  matmul_->FailAt(1, Status(StatusCode::kInternal, "no such product"));
  const auto x = ops_->Allocate(kLibraryTokens * kIn * 2),
             out = ops_->Allocate(kLibraryTokens * kOut * 4);
  ASSERT_TRUE(x.ok() && out.ok());
  const LinearParams params = {.x = {x->get(), DType::kBF16},
                               .weight = &matrix_,
                               .bias = static_cast<const float*>(device_bias_.get()),
                               .out = {out->get(), DType::kF32},
                               .num_tokens = kLibraryTokens};
  const int launches = api_->num_calls("LaunchKernel");
  ops_->Linear(params);
  EXPECT_EQ(ops_->status().code(), StatusCode::kInternal);
  EXPECT_NE(ops_->status().message().find("no such product"), std::string::npos);
  EXPECT_NE(ops_->status().message().find("Emulated GPU"), std::string::npos);
  ops_->Linear(params);
  EXPECT_EQ(matmul_->num_products(), 1);  // the failed one
  EXPECT_EQ(api_->num_calls("LaunchKernel"), launches);
}

// cuBLAS reports that a product failed; CUDA reports the cause.
TEST_F(CudaLinearTest, ALostDeviceIsTheCauseOfAProductThatFails) {
  Open();
  matmul_->FailAt(1, Status(StatusCode::kInternal, "CUBLAS_STATUS_EXECUTION_FAILED"));
  const auto x = ops_->Allocate(kLibraryTokens * kIn * 2),
             out = ops_->Allocate(kLibraryTokens * kOut * 4);
  ASSERT_TRUE(x.ok() && out.ok());
  api_->FailAt("StreamSynchronize", 1, kCudaEccUncorrectable);
  ops_->Linear({.x = {x->get(), DType::kBF16},
                .weight = &matrix_,
                .bias = static_cast<const float*>(device_bias_.get()),
                .out = {out->get(), DType::kF32},
                .num_tokens = kLibraryTokens});
  EXPECT_EQ(ExitCode(ops_->status().code()), 69) << ops_->status().message();
  EXPECT_NE(ops_->status().message().find("Emulated GPU"), std::string::npos);
}

TEST_F(CudaLinearTest, AGraphReadsItsInputsAtEachReplay) {
  Open();
  const std::vector<uint16_t> x(kIn, FloatToBf16(1));
  const auto device_x = ops_->Allocate(kIn * 2), out = ops_->Allocate(kOut * 4);
  ASSERT_TRUE(device_x.ok() && out.ok());
  ASSERT_TRUE(ops_->BeginCapture().ok());
  ops_->Linear({.x = {device_x->get(), DType::kBF16},
                .weight = &matrix_,
                .bias = nullptr,
                .out = {out->get(), DType::kF32},
                .num_tokens = 1});
  const auto graph = ops_->EndCapture();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(api_->live().graphs, 0);
  EXPECT_EQ(Get<float>(ops_.get(), out->get(), kOut), std::vector<float>(kOut, 0));
  ASSERT_TRUE(ops_->Upload(device_x->get(), x.data(), kIn * 2).ok());
  ops_->Replay(graph->get());
  const std::vector<float> replayed = Get<float>(ops_.get(), out->get(), kOut);
  EXPECT_NE(replayed, std::vector<float>(kOut, 0));
  EXPECT_EQ(replayed, Product(x, 1, /*with_bias=*/false));
}

// Graphs are captured after one run of the same step, so the engine never does this.
TEST_F(CudaLinearTest, AProductIsCapturedOnlyIfItRanBefore) {
  Open();
  const auto x = ops_->Allocate(kLibraryTokens * kIn * 2),
             out = ops_->Allocate(kLibraryTokens * kOut * 4);
  ASSERT_TRUE(x.ok() && out.ok());
  const LinearParams params = {.x = {x->get(), DType::kBF16},
                               .weight = &matrix_,
                               .bias = nullptr,
                               .out = {out->get(), DType::kF32},
                               .num_tokens = kLibraryTokens};
  ASSERT_TRUE(ops_->BeginCapture().ok());
  ops_->Linear(params);
  EXPECT_FALSE(ops_->EndCapture().ok());
  EXPECT_TRUE(ops_->status().ok()) << ops_->status().message();
  ops_->Linear(params);
  ASSERT_TRUE(ops_->BeginCapture().ok());
  ops_->Linear(params);
  EXPECT_TRUE(ops_->EndCapture().ok());
}

}  // namespace
}  // namespace minisgl::cuda
