// Embedding, norms, rotation and KV writing, activation, soft-capping and gathering on the device
// against the oracle.
#include <fmt/core.h>

#include <numeric>

#include "gpu/gpu_fixture.h"

namespace minisgl::cuda {
namespace {

using GpuElementwiseTest = GpuTest;

// Rows of whole vectors, with a remainder, and of models' widths.
std::vector<int64_t> Widths() {
  if (IsSlow()) return {7, 256, 1001};
  return {1, 7, 8, 250, 896, 1000, 1001, 1024, 3072, 4096, 5120, 8192, 16384};
}

std::vector<int64_t> TokenCounts() {
  if (IsSlow()) return {1, 5};
  return {1, 5, 300};
}

std::string Name(DType dtype, int64_t rows, int64_t width) {
  return fmt::format("{} {}x{}", DTypeName(dtype), rows, width);
}

std::vector<int32_t> Ids(int64_t count, int32_t limit) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * 7 + 3) % limit));
  return ids;
}

TEST_F(GpuElementwiseTest, EmbeddingIsTheTablesRow) {
  constexpr int32_t kRows = 11;
  for (const DType dtype : kHalfTypes) {
    const auto ops = Make({.activation_dtype = dtype});
    for (const int64_t width : Widths()) {
      const std::vector<float> table = RandomFloats(kRows * width, 1);
      const std::vector<float> rounded = RoundedTo(dtype, table);
      const auto packed = ops->PackEmbedding(View(table, kRows, width), dtype);
      ASSERT_TRUE(packed.ok()) << packed.status().message();
      for (const int64_t num_tokens : TokenCounts()) {
        const std::string name = Name(dtype, num_tokens, width);
        const std::vector<int32_t> ids = Ids(num_tokens, kRows);
        const GpuArray device_ids(ops.get(), ids);
        GpuArray out(ops.get(), static_cast<size_t>(num_tokens * width) * sizeof(float));
        const auto bytes = RunTwice(&out, name, [&] {
          ops->Embedding({.ids = device_ids.i32(),
                          .table = &*packed,
                          .scale = 1.7f,
                          .out = out.f32(),
                          .num_tokens = num_tokens});
        });
        const std::vector<float> actual = FloatsOf(DType::kF32, bytes);
        for (int64_t i = 0; i < num_tokens * width; ++i) {
          ASSERT_EQ(actual[i], rounded[ids[i / width] * width + i % width] * 1.7f) << name;
        }
      }
    }
  }
}

// With a residual and `x` in place, as in the engine.
TEST_F(GpuElementwiseTest, NormMatchesTheOracle) {
  const auto oracle = MakeNaiveOps();
  for (const DType dtype : kHalfTypes) {
    const auto ops = Make({.activation_dtype = dtype});
    for (const int64_t width : Widths()) {
      for (const int64_t num_tokens : TokenCounts()) {
        const std::string name = Name(dtype, num_tokens, width);
        const std::vector<float> x = RoundedTo(dtype, RandomFloats(num_tokens * width, 2));
        const std::vector<float> residual = RandomFloats(num_tokens * width, 3);
        const std::vector<float> weight = RandomFloats(width, 4);
        std::vector<float> expected(x.size()), sums = residual;
        NormParams params = {.x = x.data(),
                             .residual = sums.data(),
                             .weight = weight.data(),
                             .out = expected.data(),
                             .num_tokens = num_tokens,
                             .width = width,
                             .eps = 1e-5f};
        oracle->Norm(params);
        const GpuArray device_weight(ops.get(), weight);
        GpuArray out(ops.get(), x.size() * DTypeBytes(dtype));
        GpuArray device_residual(ops.get(), residual);
        params.x = out.ptr(dtype);
        params.residual = device_residual.f32();
        params.weight = device_weight.f32();
        params.out = out.ptr(dtype);
        const auto bytes = RunTwice(&out, name, [&] {
          out.Set(dtype, x);
          device_residual.Set(residual);
          ops->Norm(params);
        });
        // The f32 part: a sum of squares, a root, a product of three.
        ExpectWithin(
            FloatsOf(dtype, bytes), expected,
            [&](size_t i) {
              const double value = std::abs(expected[i]);
              return value * 32 * 0x1.0p-24 + RoundingError(dtype, value * 1.001);
            },
            name);
        EXPECT_EQ(device_residual.Read<float>(), sums) << name;
      }
    }
  }
}

struct NormOptions {
  NormKind kind = NormKind::kRms;
  int64_t group_width = 256, groups = 1;
  int64_t gap = 0;  // elements between the rows of x
  bool has_residual = true, has_weight = true, has_bias = false, has_out = true;
  float x_scale = 1;
};

class GpuNormTest : public GpuTest {
 protected:
  static void Check(DType dtype, const NormOptions& c) {
    constexpr int64_t kTokens = 5;
    const int64_t width = c.group_width * c.groups, stride = width + c.gap;
    const std::string name =
        fmt::format("{} {} groups of {} gap {}{}{}{}{}{} scale {}", DTypeName(dtype), c.groups,
                    c.group_width, c.gap, c.kind == NormKind::kLayer ? " layer" : "",
                    c.has_residual ? " residual" : "", c.has_weight ? " weight" : "",
                    c.has_bias ? " bias" : "", c.has_out ? " out" : "", c.x_scale);
    const std::vector<float> x = RoundedTo(dtype, RandomFloats(kTokens * stride, 2));
    const std::vector<float> residual = RandomFloats(kTokens * width, 3);
    const std::vector<float> weight = RandomFloats(width, 4), bias = RandomFloats(width, 5);
    // In place: the gaps between rows must not change.
    std::vector<float> expected = x, sums = residual;
    NormParams params = {.x = expected.data(),
                         .residual = c.has_residual ? sums.data() : nullptr,
                         .weight = c.has_weight ? weight.data() : nullptr,
                         .out = nullptr,
                         .num_tokens = kTokens,
                         .width = width,
                         .eps = 1e-5f,
                         .kind = c.kind,
                         .bias = c.has_bias ? bias.data() : nullptr,
                         .x_scale = c.x_scale,
                         .group_width = c.group_width,
                         .stride = stride};
    if (c.has_out) params.out = expected.data();
    MakeNaiveOps()->Norm(params);

    const auto ops = Make({.activation_dtype = dtype});
    const GpuArray device_weight(ops.get(), weight), device_bias(ops.get(), bias);
    GpuArray out(ops.get(), x.size() * DTypeBytes(dtype));
    GpuArray device_residual(ops.get(), residual);
    params.x = out.ptr(dtype);
    if (c.has_residual) params.residual = device_residual.f32();
    if (c.has_weight) params.weight = device_weight.f32();
    if (c.has_bias) params.bias = device_bias.f32();
    if (c.has_out) params.out = out.ptr(dtype);
    const auto bytes = RunTwice(&out, name, [&] {
      out.Set(dtype, x);
      device_residual.Set(residual);
      ops->Norm(params);
    });
    // A bias may cancel the sum that it is added to; a mean is rounded, and so is the difference
    // from it.
    ExpectWithin(
        FloatsOf(dtype, bytes), expected,
        [&](size_t i) {
          const double value = std::abs(expected[i]);
          const double f32_error = (value + 4) * 64 * 0x1.0p-24;
          return f32_error + RoundingError(dtype, value + f32_error);
        },
        name);
    EXPECT_EQ(device_residual.Read<float>(), sums) << name;
  }
};

TEST_F(GpuNormTest, EveryOptionMatchesTheOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (const int64_t width : {64, 1001, 4096}) {
        Check(dtype, {.kind = kind, .group_width = width, .has_bias = true, .x_scale = 0.22f});
      }
      for (const int64_t group : {12, 80, 128}) {
        Check(dtype, {.kind = kind,
                      .group_width = group,
                      .groups = 5,
                      .gap = 2 * group,
                      .has_residual = false});
      }
      Check(dtype, {.kind = kind, .group_width = 2048, .gap = 1024, .has_residual = false});
    }
    for (const int64_t width : {7, 896}) {
      Check(dtype, {.group_width = width, .has_weight = false, .x_scale = 12});
      Check(dtype, {.group_width = width, .has_out = false});
    }
  }
}

struct RopeCase {
  DType dtype = DType::kBF16;
  int64_t num_tokens = 5;
  int32_t num_heads = 4, num_kv_heads = 2;
  int32_t head_dim = 128, rotary_dim = 128;
  int32_t page_size = 16;
  bool has_norms = false;
  bool norm_last = false, query_scale = false;
};

// A step's inputs on the host, and the layout of its outputs.
struct RopeInput {
  static constexpr int64_t kMaxPosition = 5000;

  explicit RopeInput(const RopeCase& c)
      : q_width(int64_t{c.num_heads} * c.head_dim),
        width(q_width + int64_t{2 * c.num_kv_heads} * c.head_dim),
        block(int64_t{c.page_size} * c.head_dim),
        num_pages(c.num_tokens / c.page_size + 3),
        positions(Ids(c.num_tokens, static_cast<int32_t>(kMaxPosition))),
        slots(static_cast<size_t>(num_pages * c.page_size)),
        qkv(RoundedTo(c.dtype, RandomFloats(c.num_tokens * width, 1))),
        q_norm(RandomFloats(c.head_dim, 3)),
        k_norm(RandomFloats(c.head_dim, 4)) {
    std::iota(slots.begin(), slots.end(), 0);
    std::mt19937_64 random(2);
    std::shuffle(slots.begin(), slots.end(), random);
    slots.resize(static_cast<size_t>(c.num_tokens));
    const int64_t half = c.rotary_dim / 2;
    for (int64_t position = 0; position < kMaxPosition; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / half);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
      query_scale.push_back(1 + static_cast<float>(position % 7) / 4);
    }
  }
  size_t kv_elements(const RopeCase& c) const {
    return static_cast<size_t>(num_pages * 2 * c.num_kv_heads * block);
  }
  // The parameters with host arrays, except qkv and kv.
  RopeKvWriteParams Params(const RopeCase& c) const {
    return {.qkv = nullptr,
            .positions = positions.data(),
            .slots = slots.data(),
            .cos = cos.empty() ? nullptr : cos.data(),
            .sin = sin.empty() ? nullptr : sin.data(),
            .kv = {.base = nullptr,
                   .page_stride = 2 * c.num_kv_heads * block,
                   .slot_stride = c.head_dim,
                   .head_stride = block,
                   .v_offset = c.num_kv_heads * block,
                   .page_size = c.page_size},
            .num_tokens = c.num_tokens,
            .num_heads = c.num_heads,
            .num_kv_heads = c.num_kv_heads,
            .head_dim = c.head_dim,
            .rotary_dim = c.rotary_dim,
            .q_norm = c.has_norms ? q_norm.data() : nullptr,
            .k_norm = c.has_norms ? k_norm.data() : nullptr,
            .norm_eps = 1e-6f,
            .norm_last = c.norm_last,
            .query_scale = c.query_scale ? query_scale.data() : nullptr};
  }

  int64_t q_width, width, block, num_pages;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  std::vector<float> qkv, q_norm, k_norm, cos, sin, query_scale;
};

class GpuRopeTest : public GpuTest {
 protected:
  static void Check(const RopeCase& c) {
    const std::string name =
        fmt::format("{} T{} H{}/{} E{} rot {} P{} norms {}{}{}", DTypeName(c.dtype), c.num_tokens,
                    c.num_heads, c.num_kv_heads, c.head_dim, c.rotary_dim, c.page_size, c.has_norms,
                    c.norm_last ? " last" : "", c.query_scale ? " query scale" : "");
    const RopeInput input(c);
    std::vector<float> expected = input.qkv;
    std::vector<float> expected_kv(input.kv_elements(c), std::numeric_limits<float>::quiet_NaN());
    RopeKvWriteParams params = input.Params(c);
    params.qkv = expected.data();
    params.kv.base = expected_kv.data();
    MakeNaiveOps()->RopeKvWrite(params);

    const auto ops = Make({.activation_dtype = c.dtype});
    GpuArray qkv(ops.get(), c.dtype, input.qkv);
    GpuArray kv(ops.get(), expected_kv.size() * DTypeBytes(c.dtype));
    const GpuArray positions(ops.get(), input.positions), slots(ops.get(), input.slots);
    const GpuArray cos(ops.get(), input.cos), sin(ops.get(), input.sin);
    const GpuArray q_norm(ops.get(), input.q_norm), k_norm(ops.get(), input.k_norm);
    params.qkv = qkv.ptr(c.dtype);
    params.kv.base = kv.ptr(c.dtype);
    params.positions = positions.i32();
    params.slots = slots.as<int64_t>();
    if (params.cos != nullptr) params.cos = cos.f32();
    if (params.sin != nullptr) params.sin = sin.f32();
    const GpuArray query_scale(ops.get(), input.query_scale);
    if (c.query_scale) params.query_scale = query_scale.f32();
    if (c.has_norms) params.q_norm = q_norm.f32();
    if (c.has_norms) params.k_norm = k_norm.f32();
    const auto kv_bytes = RunTwice(&kv, name, [&] {
      qkv.Set(c.dtype, input.qkv);
      ops->RopeKvWrite(params);
    });
    // Elements are a few units large at most (queries are scaled by less than 4), so the f32 part
    // of the error is a few of its roundings of numbers up to 64.
    const auto bound_of = [&](const std::vector<float>& values) {
      return [&](size_t i) {
        const double f32_error = 64 * 8 * 0x1.0p-24;
        return f32_error + RoundingError(c.dtype, std::abs(values[i]) + f32_error);
      };
    };
    ExpectWithin(FloatsOf(c.dtype, kv_bytes), expected_kv, bound_of(expected_kv), name + " kv");
    // k and v in qkv are unspecified afterwards.
    const std::vector<float> actual = FloatsOf(c.dtype, qkv.Bytes());
    for (int64_t t = 0; t < c.num_tokens; ++t) {
      std::copy_n(actual.begin() + t * input.width + input.q_width, input.width - input.q_width,
                  expected.begin() + t * input.width + input.q_width);
    }
    ExpectWithin(actual, expected, bound_of(expected), name + " q");
  }
};

TEST_F(GpuRopeTest, MatchesTheOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
      for (const bool has_norms : {false, true}) {
        Check({.dtype = dtype,
               .head_dim = head_dim,
               .rotary_dim = head_dim == 80 ? 32 : head_dim,
               .has_norms = has_norms});
      }
    }
  }
}

TEST_F(GpuRopeTest, EveryOptionMatchesTheOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const auto& [head_dim, rotary_dim] : {std::pair{128, 0}, {128, 96}, {64, 16}, {96, 72}}) {
      for (const bool has_norms : {false, true}) {
        Check({.dtype = dtype,
               .head_dim = head_dim,
               .rotary_dim = rotary_dim,
               .has_norms = has_norms,
               .norm_last = has_norms,
               .query_scale = head_dim == 128});
      }
    }
  }
}

TEST_F(GpuRopeTest, EveryPageSizeAndManyTokensMatchTheOracle) {
  for (const int32_t page_size : {1, 4, 64}) Check({.page_size = page_size, .has_norms = true});
  if (IsSlow()) return;
  Check({.num_tokens = 700, .num_heads = 16, .num_kv_heads = 8, .has_norms = true});
  Check({.num_tokens = 300, .num_heads = 32, .num_kv_heads = 8});
}

TEST_F(GpuElementwiseTest, ActivationMatchesTheOracle) {
  const auto oracle = MakeNaiveOps();
  for (const DType dtype : kHalfTypes) {
    const auto ops = Make({.activation_dtype = dtype});
    for (const Activation activation :
         {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu2,
          Activation::kClampedSwiglu, Activation::kXielu}) {
      for (const int64_t width : Widths()) {
        for (const bool gated : {false, true}) {
          if (gated && activation == Activation::kXielu) continue;
          // The oracle takes a second for 4 million elements.
          const int64_t num_tokens =
              std::min(TokenCounts().back(), std::max<int64_t>(1, 400'000 / width));
          const std::string name =
              fmt::format("{} activation {} gated {}", Name(dtype, num_tokens, width),
                          static_cast<int>(activation), gated);
          const int64_t in_width = gated ? 2 * width : width;
          const auto gate_up = RoundedTo(dtype, RandomFloats(num_tokens * in_width, 5, 3.0));
          std::vector<float> expected(static_cast<size_t>(num_tokens * width));
          ActivateParams params = {.gate_up = gate_up.data(),
                                   .out = expected.data(),
                                   .num_tokens = num_tokens,
                                   .width = width,
                                   .activation = activation,
                                   .gated = gated,
                                   .limit = 2.5f,
                                   .xielu = {0.8f, 1.3f, 0.5f, -0.25f}};
          oracle->Activate(params);
          const GpuArray in(ops.get(), dtype, gate_up);
          GpuArray out(ops.get(), expected.size() * DTypeBytes(dtype));
          params.gate_up = in.ptr(dtype);
          params.out = out.ptr(dtype);
          const auto bytes = RunTwice(&out, name, [&] { ops->Activate(params); });
          // The exponential has the error of its argument, which is at most about 17 where the
          // result is not tiny; and so has the error function.
          ExpectWithin(
              FloatsOf(dtype, bytes), expected,
              [&](size_t i) {
                const double value = std::abs(expected[i]);
                return 17 * 8 * 0x1.0p-24 * value + 1e-7 + RoundingError(dtype, value * 1.001);
              },
              name);
        }
      }
    }
  }
}

TEST_F(GpuElementwiseTest, SoftcapMatchesTheOracle) {
  const auto ops = Make();
  for (const int64_t count : {1, 1001, 32000}) {
    const std::vector<float> values = RandomFloats(count, 6, 40.0);
    std::vector<float> expected = values;
    MakeNaiveOps()->Softcap({expected.data(), count, 30.0f});
    GpuArray out(ops.get(), values);
    const auto bytes = RunTwice(&out, fmt::format("{}", count), [&] {
      out.Set(values);
      ops->Softcap({out.f32(), count, 30.0f});
    });
    ExpectWithin(
        FloatsOf(DType::kF32, bytes), expected,
        [&](size_t i) { return 8 * 0x1.0p-24 * std::abs(expected[i]); }, fmt::format("{}", count));
  }
}

TEST_F(GpuElementwiseTest, GatherRowsCopiesEveryBit) {
  constexpr int32_t kRows = 9;
  for (const DType dtype : kHalfTypes) {
    const auto ops = Make({.activation_dtype = dtype});
    for (const int64_t width : Widths()) {
      for (const int64_t num_rows : TokenCounts()) {
        const std::vector<int32_t> rows = Ids(num_rows, kRows);
        const GpuArray x(ops.get(), dtype, RandomFloats(kRows * width, 6));
        const GpuArray device_rows(ops.get(), rows);
        const auto row_bytes = static_cast<int64_t>(width * DTypeBytes(dtype));
        GpuArray out(ops.get(), static_cast<size_t>(num_rows * row_bytes));
        const auto bytes = RunTwice(&out, Name(dtype, num_rows, width), [&] {
          ops->GatherRows({x.ptr(dtype), device_rows.i32(), out.ptr(dtype), num_rows, width});
        });
        const auto source = x.Bytes();
        for (int64_t i = 0; i < num_rows; ++i) {
          ASSERT_EQ(0, std::memcmp(bytes.data() + i * row_bytes,
                                   source.data() + rows[static_cast<size_t>(i)] * row_bytes,
                                   static_cast<size_t>(row_bytes)))
              << Name(dtype, num_rows, width) << " row " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
