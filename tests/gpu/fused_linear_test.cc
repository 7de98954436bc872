// Products with what stands before and behind them: the bits of the parts as operations of their
// own, for each kernel that computes products, at the sizes of models.
#include <fmt/core.h>

#include "gpu/gpu_fixture.h"

namespace minisgl::cuda {
namespace {

struct FusedCase {
  int64_t num_out = 8, num_in = 32;
  bool has_norm = false, activates = false, adds = false;
};

class GpuFusedLinearTest : public GpuTest {
 protected:
  static std::vector<int64_t> TokenCounts() {
    if (IsSlow()) return {1, 3, 20};
    return {1, 2, 4, 8, 9, 16, 17, 32, 33, 64, 100, 128, 129};
  }

  void Check(const FusedCase& c, DType dtype) {
    const int64_t most = TokenCounts().back();
    const auto ops = MakeReserved({.max_rows = 1,
                                   .max_tokens = static_cast<int32_t>(most),
                                   .max_seq_len = 64,
                                   .num_heads = 1,
                                   .num_kv_heads = 1,
                                   .head_dim = 64},
                                  {.activation_dtype = dtype});
    const std::vector<float> weight =
        RandomFloats(c.num_out * c.num_in, 2, 2.0 / std::sqrt(c.num_in));
    const TensorView view = View(weight, c.num_out, c.num_in);
    const auto packed = ops->PackMatrix({&view, 1}, dtype);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const GpuArray stream(ops.get(), RandomFloats(most * c.num_in, 3, 3.0));
    const GpuArray x(ops.get(), dtype, RandomFloats(most * c.num_in, 4));
    const GpuArray norm_weight(ops.get(), RandomFloats(c.num_in, 5));
    const int64_t width = c.activates ? c.num_out / 2 : c.num_out;
    for (const int64_t num_tokens : TokenCounts()) {
      const std::vector<float> before = RandomFloats(num_tokens * c.num_out, 6);
      GpuArray normalised(ops.get(), static_cast<size_t>(num_tokens * c.num_in) * 2);
      GpuArray product(ops.get(), static_cast<size_t>(num_tokens * c.num_out) * 2);
      GpuArray activated(ops.get(), static_cast<size_t>(num_tokens * width) * 2);
      GpuArray residual(ops.get(), before);
      const NormParams norm = {.x = nullptr,
                               .residual = stream.f32(),
                               .weight = norm_weight.f32(),
                               .out = normalised.ptr(dtype),
                               .num_tokens = num_tokens,
                               .width = c.num_in,
                               .eps = 1e-6f};
      const LinearParams linear = {.x = c.has_norm ? normalised.ptr(dtype) : x.ptr(dtype),
                                   .weight = &*packed,
                                   .bias = nullptr,
                                   .out = product.ptr(dtype),
                                   .num_tokens = num_tokens};
      const ActivateParams activation = {.gate_up = product.ptr(dtype),
                                         .out = activated.ptr(dtype),
                                         .num_tokens = num_tokens,
                                         .width = width,
                                         .activation = Activation::kSilu};
      if (c.has_norm) ops->Norm(norm);
      ops->Linear(linear);
      if (c.activates) ops->Activate(activation);
      if (c.adds) {
        ops->Norm({.x = product.ptr(dtype),
                   .residual = residual.f32(),
                   .weight = nullptr,
                   .out = nullptr,
                   .num_tokens = num_tokens,
                   .width = c.num_out,
                   .eps = 0});
      }
      GpuArray& result = c.adds ? residual : c.activates ? activated : product;
      const std::vector<unsigned char> wanted = result.Bytes();
      for (int run = 0; run < 2; ++run) {
        result.Poison();
        normalised.Poison();
        if (c.adds) residual.Set(before);
        ops->FusedLinear({.norm = c.has_norm ? &norm : nullptr,
                          .linear = linear,
                          .activation = c.activates ? &activation : nullptr,
                          .residual = c.adds ? residual.f32() : nullptr});
        EXPECT_TRUE(result.Bytes() == wanted) << fmt::format(
            "{} {}x{} T{} norm {} activation {} addition {} run {}", DTypeName(dtype), c.num_out,
            c.num_in, num_tokens, c.has_norm, c.activates, c.adds, run);
      }
    }
  }
};

TEST_F(GpuFusedLinearTest, PartsChangeNoBit) {
  for (const DType dtype : kHalfTypes) {
    Check({.num_out = 96, .num_in = 264, .has_norm = true}, dtype);
    Check({.num_out = 74, .num_in = 72, .activates = true}, dtype);
    Check({.num_out = 45, .num_in = 1600, .adds = true}, dtype);
  }
}

// Qwen3-0.6B, and the sizes of a model of 8 billion parameters.
TEST_F(GpuFusedLinearTest, PartsChangeNoBitAtModelSizes) {
  if (IsSlow()) return Check({.num_out = 512, .num_in = 256, .has_norm = true}, DType::kBF16);
  Check({.num_out = 4096, .num_in = 1024, .has_norm = true}, DType::kBF16);
  Check({.num_out = 1024, .num_in = 2048, .adds = true}, DType::kBF16);
  Check({.num_out = 6144, .num_in = 1024, .has_norm = true, .activates = true}, DType::kBF16);
  Check({.num_out = 1024, .num_in = 3072, .adds = true}, DType::kBF16);
  Check({.num_out = 28672, .num_in = 4096, .has_norm = true, .activates = true}, DType::kBF16);
  Check({.num_out = 4096, .num_in = 14336, .adds = true}, DType::kBF16);
}

// The products of a layer behind attention, one right after another, which may then be one kernel
// (the word chain of MINISGL_CUDA_DEBUG), and each waited for.
class GpuProductsInARowTest : public GpuTest {
 protected:
  struct Case {
    int64_t attention, hidden, intermediate, qkv;  // widths
  };

  void Check(const Case& c, DType dtype) {
    const std::vector<int64_t> counts =
        IsSlow() ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1, 2, 3, 4, 8, 9};
    const int64_t most = counts.back();
    const auto ops = MakeReserved({.max_rows = 1,
                                   .max_tokens = static_cast<int32_t>(most),
                                   .max_seq_len = 64,
                                   .num_heads = 1,
                                   .num_kv_heads = 1,
                                   .head_dim = 64},
                                  {.activation_dtype = dtype});
    const auto pack = [&](int64_t num_out, int64_t num_in, int seed) {
      const std::vector<float> weight =
          RandomFloats(num_out * num_in, static_cast<uint64_t>(seed), 2.0 / std::sqrt(num_in));
      const TensorView view = View(weight, num_out, num_in);
      auto packed = ops->PackMatrix({&view, 1}, dtype);
      MINISGL_CHECK(packed.ok(), "{}", packed.status().message());
      return *std::move(packed);
    };
    const Matrix output = pack(c.hidden, c.attention, 1),
                 gate_up = pack(2 * c.intermediate, c.hidden, 2),
                 down = pack(c.hidden, c.intermediate, 3), qkv = pack(c.qkv, c.hidden, 4);
    const GpuArray norm_weight(ops.get(), RandomFloats(c.hidden, 5));
    for (const int64_t num_tokens : counts) {
      const GpuArray x(ops.get(), dtype, RandomFloats(num_tokens * c.attention, 6));
      const std::vector<float> before = RandomFloats(num_tokens * c.hidden, 7);
      GpuArray stream(ops.get(), before);
      const auto room = [&](int64_t width) {
        return GpuArray(ops.get(), static_cast<size_t>(num_tokens * width) * 2);
      };
      GpuArray normalised = room(c.hidden), both = room(2 * c.intermediate),
               gated = room(c.intermediate), out = room(c.qkv);
      const NormParams norm = {.x = nullptr,
                               .residual = stream.f32(),
                               .weight = norm_weight.f32(),
                               .out = normalised.ptr(dtype),
                               .num_tokens = num_tokens,
                               .width = c.hidden,
                               .eps = 1e-6f};
      const ActivateParams activation = {.gate_up = both.ptr(dtype),
                                         .out = gated.ptr(dtype),
                                         .num_tokens = num_tokens,
                                         .width = c.intermediate,
                                         .activation = Activation::kSilu};
      const auto linear = [&](const GpuArray& from, const Matrix& weight, const GpuArray& to) {
        return LinearParams{.x = from.ptr(dtype),
                            .weight = &weight,
                            .bias = nullptr,
                            .out = to.ptr(dtype),
                            .num_tokens = num_tokens};
      };
      const FusedLinearParams products[] = {
          {.linear = linear(x, output, normalised), .residual = stream.f32()},
          {.norm = &norm, .linear = linear(normalised, gate_up, both), .activation = &activation},
          {.linear = linear(gated, down, normalised), .residual = stream.f32()},
          {.norm = &norm, .linear = linear(normalised, qkv, out)}};
      const auto run = [&](bool waits) {
        stream.Set(before);
        gated.Poison();
        out.Poison();
        for (const FusedLinearParams& product : products) {
          ops->FusedLinear(product);
          if (waits) {
            EXPECT_TRUE(ops->Synchronize().ok());
          }
        }
        std::vector<unsigned char> bytes = stream.Bytes();
        for (const GpuArray* const array : {&gated, &out}) {
          const std::vector<unsigned char> more = array->Bytes();
          bytes.insert(bytes.end(), more.begin(), more.end());
        }
        return bytes;
      };
      const std::vector<unsigned char> wanted = run(true);
      for (int again = 0; again < 3; ++again) {
        EXPECT_TRUE(run(false) == wanted)
            << fmt::format("{} {} {} {} {} T{} run {}", DTypeName(dtype), c.attention, c.hidden,
                           c.intermediate, c.qkv, num_tokens, again);
      }
    }
  }
};

TEST_F(GpuProductsInARowTest, HaveTheBitsOfProductsAlone) {
  for (const DType dtype : kHalfTypes) {
    Check({.attention = 264, .hidden = 104, .intermediate = 40, .qkv = 56}, dtype);
  }
}

// Qwen3-0.6B, Llama-3.2-1B and a model of 8 billion parameters.
TEST_F(GpuProductsInARowTest, HaveTheBitsOfProductsAloneAtModelSizes) {
  if (IsSlow()) {
    return Check({.attention = 64, .hidden = 256, .intermediate = 128, .qkv = 96}, DType::kBF16);
  }
  Check({.attention = 2048, .hidden = 1024, .intermediate = 3072, .qkv = 4096}, DType::kBF16);
  Check({.attention = 2048, .hidden = 2048, .intermediate = 8192, .qkv = 3072}, DType::kBF16);
  Check({.attention = 4096, .hidden = 4096, .intermediate = 12288, .qkv = 6144}, DType::kBF16);
}

}  // namespace
}  // namespace minisgl::cuda
