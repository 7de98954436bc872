// Products whose inputs are rounded to e4m3 (the word w8a8), at sizes of models, against the rule
// in plain loops and sums in double. Skipped where the library has none.
#include <fmt/core.h>

#include <cstdlib>

#include "debug_switches.h"
#include "gpu/gpu_fixture.h"
#include "scaled_scene.h"

namespace minisgl::cuda {
namespace {

class GpuScaledProductsTest : public GpuTest {
 protected:
  void SetUp() override {
    const char* const words = std::getenv(kDebugVariable);
    before_ = words == nullptr ? "" : words;
    setenv(kDebugVariable, before_.empty() ? "w8a8" : ("w8a8," + before_).c_str(), 1);
    GpuTest::SetUp();
  }
  void TearDown() override {
    GpuTest::TearDown();
    setenv(kDebugVariable, before_.c_str(), 1);
  }

  void Check(InputRounding rounding, int64_t num_out, int64_t num_in, DType dtype) {
    SCOPED_TRACE(fmt::format("rounding {}, {} x {}, {}", static_cast<int>(rounding), num_out,
                             num_in, DTypeName(dtype)));
    constexpr float kFixed = 0.02f;
    const std::vector<int64_t> token_counts =
        IsSlow() ? std::vector<int64_t>{17, 19} : std::vector<int64_t>{17, 19, 64, 129, 512};
    const auto made = MakeGpu({.activation_dtype = dtype});
    ASSERT_TRUE(made.ok()) << made.status().message();
    const std::unique_ptr<DeviceOps>& ops = *made;
    const Status reserved = ops->Reserve({.max_rows = 1,
                                          .max_tokens = static_cast<int32_t>(token_counts.back()),
                                          .max_seq_len = 64,
                                          .num_heads = 1,
                                          .num_kv_heads = 1,
                                          .head_dim = 64});
    if (reserved.code() == StatusCode::kUsage) GTEST_SKIP() << reserved.message();
    ASSERT_TRUE(reserved.ok()) << reserved.message();
    const StoredE4M3 stored(rounding, num_out, num_in, kFixed, 1);
    const WeightTensor tensor = stored.Tensor();
    const auto packed = ops->PackMatrix({&tensor, 1}, WeightFormat(dtype, Quantization::kStored));
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    for (const int64_t num_tokens : token_counts) {
      const std::vector<float> x = RoundedTo(dtype, RandomFloats(num_tokens * num_in, 2));
      const GpuArray in(ops.get(), dtype, x);
      GpuArray out(ops.get(), static_cast<size_t>(num_tokens * num_out) * 4);
      ops->Linear({.x = in.ptr(dtype),
                   .weight = &*packed,
                   .bias = nullptr,
                   .out = out.ptr(DType::kF32),
                   .num_tokens = num_tokens});
      const std::vector<unsigned char> bytes = out.Bytes();
      ASSERT_TRUE(ops->status().ok()) << ops->status().message();
      const auto found =
          LoadElements(bytes.data(), DType::kF32, static_cast<int64_t>(bytes.size() / 4));
      // Some outputs of some tokens: the oracle is slow.
      for (int64_t t = 0; t < num_tokens; t += num_tokens / 7) {
        const auto row = RoundedInputsOf(
            rounding, kFixed,
            std::span(x).subspan(static_cast<size_t>(t * num_in), static_cast<size_t>(num_in)));
        for (int64_t o = t % 5; o < num_out; o += 1 + num_out / 50) {
          std::vector<float> weights(static_cast<size_t>(num_in));
          tensor.ReadRow(o, weights.data());
          double sum = 0, sizes = 0;
          for (size_t i = 0; i < row.size(); ++i) {
            sum += row[i] * weights[i];
            sizes += std::abs(row[i] * weights[i]);
          }
          // Tensor cores add products of e4m3 with 13 bits behind the point of the largest.
          ASSERT_NEAR(found[t * num_out + o], sum, sizes * 0x1p-12) << t << " " << o;
        }
      }
    }
  }

 private:
  std::string before_;
};

TEST_F(GpuScaledProductsTest, FollowTheRule) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const InputRounding rounding :
         {InputRounding::kToken, InputRounding::kTensor, InputRounding::kGroups}) {
      if (IsSlow()) {
        Check(rounding, 144, 320, dtype);
        continue;
      }
      Check(rounding, 4096, 4096, dtype);
      Check(rounding, 6144, 4096, dtype);
      Check(rounding, 1024, 3072, dtype);
      Check(rounding, 4096, 12288, dtype);
      Check(rounding, 160, 200, dtype);
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
