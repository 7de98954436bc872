// Products of 17 to 511 tokens with weights that are codes, by tiles (the word code-tiles), against
// those of the expanded weights, at sizes of models.
#include <fmt/core.h>

#include <cstdlib>

#include "debug_switches.h"
#include "gpu/gpu_fixture.h"

namespace minisgl::cuda {
namespace {

class GpuCodeTilesTest : public GpuTest {
 protected:
  void SetUp() override {
    const char* const words = std::getenv(kDebugVariable);
    before_ = words == nullptr ? "" : words;
    GpuTest::SetUp();
  }
  void TearDown() override {
    GpuTest::TearDown();
    setenv(kDebugVariable, before_.c_str(), 1);
  }

  // The products of `num_tokens` tokens with random weights of `kind`, in f32.
  std::vector<float> Multiply(const char* word, Quantization kind, int64_t num_out, int64_t num_in,
                              int64_t num_tokens, DType dtype) {
    setenv(kDebugVariable, (std::string(word) + (before_.empty() ? "" : ",") + before_).c_str(), 1);
    const auto ops = MakeReserved({.max_rows = 1,
                                   .max_tokens = static_cast<int32_t>(num_tokens),
                                   .max_seq_len = 64,
                                   .num_heads = 1,
                                   .num_kv_heads = 1,
                                   .head_dim = 64},
                                  {.activation_dtype = dtype});
    const std::vector<float> weight = RandomFloats(num_out * num_in, 2, 2.0 / std::sqrt(num_in));
    const TensorView view = View(weight, num_out, num_in);
    const auto packed = ops->PackMatrix({&view, 1}, WeightFormat(dtype, kind));
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    const GpuArray x(ops.get(), dtype, RandomFloats(num_tokens * num_in, 4));
    GpuArray out(ops.get(), static_cast<size_t>(num_tokens * num_out) * 4);
    ops->Linear({.x = x.ptr(dtype),
                 .weight = &*packed,
                 .bias = nullptr,
                 .out = out.ptr(DType::kF32),
                 .num_tokens = num_tokens});
    const std::vector<unsigned char> bytes = out.Bytes();
    return LoadElements(bytes.data(), DType::kF32, num_tokens * num_out);
  }

  void Check(Quantization kind, int64_t num_out, int64_t num_in, int64_t num_tokens, DType dtype) {
    SCOPED_TRACE(fmt::format("kind {}, {} x {}, {} tokens, {}", static_cast<int>(kind), num_out,
                             num_in, num_tokens, DTypeName(dtype)));
    const auto tiles = Multiply("code-tiles", kind, num_out, num_in, num_tokens, dtype);
    const auto expanded = Multiply("keep-codes", kind, num_out, num_in, num_tokens, dtype);
    ASSERT_EQ(tiles.size(), expanded.size());
    // The same products in f32, in another order: sums of about 2.
    for (size_t i = 0; i < tiles.size(); ++i) ASSERT_NEAR(tiles[i], expanded[i], 1e-4) << i;
  }

 private:
  std::string before_;
};

TEST_F(GpuCodeTilesTest, AgreeWithExpandedWeights) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const Quantization kind : {Quantization::kInt4, Quantization::kInt8}) {
      Check(kind, 70, 136, 17, dtype);
      if (IsSlow()) continue;
      Check(kind, 1024, 3072, 64, dtype);
      Check(kind, 4096, 4096, 200, dtype);
      Check(kind, 1000, 2880, 511, dtype);
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
