// Embedding, norms, activations, soft-capping, gathering and bias against the oracle, over ragged
// widths (rows of whole vectors and with a remainder), element types, options and thread orders.
#include "kernel_check.h"

namespace minisgl::cuda {
namespace {

// Around the edges of a vector (8), a warp (256), a block (1,024), and a thread's chunks of a norm
// (8,192 and 16,384).
const int64_t kWidths[] = {1, 7, 8, 96, 250, 256, 896, 1000, 1001, 1024, 1032};

TensorView View(const std::vector<float>& values, int64_t rows, int64_t columns) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {rows, columns}};
}

std::string Name(DType dtype, int64_t rows, int64_t width) {
  return std::string(DTypeName(dtype)) + " " + std::to_string(rows) + "x" + std::to_string(width);
}

TEST(EmbeddingKernelTest, MatchesOracle) {
  KernelDevice device;
  const auto oracle = MakeNaiveOps();
  const std::vector<int32_t> ids = {3, 0, 4, 3, 1};
  const DeviceArray<int32_t> device_ids(ids);
  for (DType dtype : kAllTypes) {
    for (int64_t width : kWidths) {
      const DeviceInput table(dtype, RandomFloats(5 * width, 1));
      const auto matrix = oracle->PackEmbedding(View(table.values(), 5, width), dtype);
      ASSERT_TRUE(matrix.ok());
      for (int64_t num_tokens : {1, 5}) {
        std::vector<float> expected(num_tokens * width);
        DeviceOutput out(DType::kF32, num_tokens * width);
        EmbeddingParams params = {.ids = ids.data(),
                                  .table = &*matrix,
                                  .scale = 1.7f,
                                  .out = expected.data(),
                                  .num_tokens = num_tokens};
        oracle->Embedding(params);
        params.ids = device_ids.data();
        params.out = out.f32();
        ASSERT_EQ(LaunchEmbedding(device.context, params, table.data(), dtype), kCudaSuccess);
        const std::string name = Name(dtype, num_tokens, width);
        ExpectWithin(
            out.values(), expected, [](size_t) { return 0.0; }, name);
        EXPECT_TRUE(out.GuardsIntact()) << name;
      }
    }
  }
}

struct NormCase {
  DType dtype = DType::kBF16;
  int64_t num_tokens = 1;
  int64_t width = 8;
  bool has_x = true;
  bool has_residual = true;
  bool in_place = false;  // out == x
  bool has_weight = true, has_bias = false, has_out = true;
  NormKind kind = NormKind::kRms;
  float x_scale = 1;
  int64_t group_width = 0;
  int64_t gap = 0;  // elements between the rows of x
  float mean = 0;   // of x and of the residual
  float residual_factor = 1;
};

struct NormResult {
  std::vector<float> out, residual;
};

std::string Name(const NormCase& c) {
  return Name(c.dtype, c.num_tokens, c.width) + (c.has_x ? " x" : "") +
         (c.has_residual ? " residual" : "") + (c.in_place ? " in place" : "") +
         (c.has_weight ? " weight" : "") + (c.has_bias ? " bias" : "") +
         (c.kind == NormKind::kLayer ? " layer" : "") + " scale " + std::to_string(c.x_scale) +
         " groups of " + std::to_string(c.group_width) + " gap " + std::to_string(c.gap);
}

// The rows of a case are those from `first_token` on of one long input. The gaps between rows hold
// NaN and must not change.
class NormTest : public ::testing::Test {
 protected:
  static constexpr float kEps = 1e-5f;

  std::vector<float> Rows(const NormCase& c, int64_t first_token, uint64_t seed) const {
    std::vector<float> all = RandomFloats((first_token + c.num_tokens) * c.width, seed);
    for (float& value : all) value += c.mean;
    return {all.begin() + first_token * c.width, all.end()};
  }
  std::vector<float> Spread(const NormCase& c, const std::vector<float>& rows) const {
    const int64_t stride = c.width + c.gap;
    std::vector<float> spread((c.num_tokens - 1) * stride + c.width, kNan);
    for (int64_t t = 0; t < c.num_tokens; ++t) {
      std::copy_n(rows.begin() + t * c.width, c.width, spread.begin() + t * stride);
    }
    return spread;
  }

  NormParams Params(const NormCase& c) const {
    return {.x = nullptr,
            .residual = nullptr,
            .weight = nullptr,
            .out = nullptr,
            .num_tokens = c.num_tokens,
            .width = c.width,
            .eps = kEps,
            .kind = c.kind,
            .x_scale = c.x_scale,
            .group_width = c.group_width,
            .stride = c.gap == 0 ? 0 : c.width + c.gap,
            .residual_factor = c.residual_factor};
  }

  NormResult Run(const NormCase& c, int64_t first_token = 0) {
    const DeviceInput weight(DType::kF32, RandomFloats(c.width, 2));
    const DeviceInput bias(DType::kF32, RandomFloats(c.width, 5));
    const DeviceInput x(c.dtype, Spread(c, Rows(c, first_token, 3)));
    DeviceOutput out(c.dtype, x.values().size());
    if (c.in_place) out.Set(x.values());
    DeviceOutput residual(DType::kF32, Rows(c, first_token, 4));
    NormParams params = Params(c);
    if (c.has_x) params.x = c.in_place ? ConstActivationPtr(out.ptr()) : x.ptr();
    if (c.has_residual) params.residual = residual.f32();
    if (c.has_weight) params.weight = weight.f32();
    if (c.has_bias) params.bias = bias.f32();
    if (c.has_out) params.out = out.ptr();
    EXPECT_EQ(LaunchNorm(device_.context, params), kCudaSuccess);
    EXPECT_TRUE(out.GuardsIntact()) << Name(c);
    EXPECT_TRUE(residual.GuardsIntact()) << Name(c);
    return {out.values(), residual.values()};
  }

  NormResult Expected(const NormCase& c) {
    const DeviceInput x(c.dtype, Spread(c, Rows(c, 0, 3)));
    const std::vector<float> weight = RandomFloats(c.width, 2), bias = RandomFloats(c.width, 5);
    NormResult result = {std::vector<float>(x.values().size(), kNan), Rows(c, 0, 4)};
    NormParams params = Params(c);
    if (c.has_x) params.x = x.values().data();
    if (c.has_residual) params.residual = result.residual.data();
    if (c.has_weight) params.weight = weight.data();
    if (c.has_bias) params.bias = bias.data();
    if (c.has_out) params.out = result.out.data();
    oracle_->Norm(params);
    return result;
  }

  void Check(const NormCase& c) {
    const NormResult result = Run(c), expected = Expected(c);
    const std::vector<float> bias = RandomFloats(c.width, 5);
    // The f32 part: a sum of squares, a root, a product of three; before a bias that may cancel it,
    // and behind the rounding of a mean and of the difference from it.
    const auto bound = [&](size_t i) {
      const double value = std::abs(expected.out[i]);
      const double size = value + (c.has_bias ? std::abs(bias[i % (c.width + c.gap)]) : 0);
      const double center = c.kind == NormKind::kLayer ? 4 * (1 + std::abs(c.mean)) : 0;
      const double f32_error = (size * 32 + center * 8) * 0x1.0p-24;
      return f32_error + RoundingError(c.dtype, value * 1.001 + f32_error);
    };
    ExpectWithin(result.out, expected.out, bound, Name(c));
    // A product and a sum rounded once, and again after a factor.
    const double twice = c.residual_factor == 1 ? 0 : 0x1.0p-23;
    ExpectWithin(
        result.residual, expected.residual,
        [&](size_t i) { return twice * std::abs(expected.residual[i]); }, Name(c));
  }

  KernelDevice device_;
  std::unique_ptr<Ops> oracle_ = MakeNaiveOps();
};

TEST_F(NormTest, MatchesOracle) {
  for (DType dtype : kAllTypes) {
    for (int64_t width : kWidths) {
      Check({.dtype = dtype, .num_tokens = 2, .width = width});
      Check({.dtype = dtype, .width = width, .has_residual = false});
      Check({.dtype = dtype, .width = width, .has_x = false});
      Check({.dtype = dtype, .num_tokens = 2, .width = width, .in_place = true});
      Check({.dtype = dtype, .width = width, .has_residual = false, .in_place = true});
    }
  }
}

TEST_F(NormTest, MatchesOracleOverWideRows) {
  for (int64_t width : {8192, 8200, 16383, 16384}) Check({.width = width});
}

TEST_F(NormTest, BiasAndScaleMatchOracle) {
  for (DType dtype : kAllTypes) {
    for (int64_t width : {7, 256, 1001}) {
      Check({.dtype = dtype, .num_tokens = 2, .width = width, .has_bias = true, .x_scale = 0.22f});
      Check({.dtype = dtype, .width = width, .has_residual = false, .has_bias = true});
      // Only a sum with a residual is scaled.
      Check({.dtype = dtype, .width = width, .has_residual = false, .x_scale = 0.22f});
    }
  }
}

TEST_F(NormTest, FactorsOfTheResidualMatchOracle) {
  for (DType dtype : kAllTypes) {
    for (int64_t width : {7, 256, 1001}) {
      Check({.dtype = dtype, .num_tokens = 2, .width = width, .residual_factor = 0.3f});
      Check({.dtype = dtype, .width = width, .has_x = false, .residual_factor = -1.7f});
    }
  }
}

TEST_F(NormTest, LayerNormMatchesOracle) {
  for (DType dtype : kAllTypes) {
    for (int64_t width : kWidths) {
      Check({.dtype = dtype, .num_tokens = 2, .width = width, .kind = NormKind::kLayer});
      // A mean that is large against the deviation.
      Check({.dtype = dtype,
             .width = width,
             .has_residual = false,
             .has_bias = true,
             .kind = NormKind::kLayer,
             .mean = 30});
    }
  }
  Check({.width = 16383, .has_bias = true, .kind = NormKind::kLayer, .mean = 5});
}

TEST_F(NormTest, GroupsAndStridesMatchOracle) {
  for (DType dtype : kHalfTypes) {
    for (const auto& [group, groups, gap] :
         {std::tuple{64, 4, 128}, {80, 3, 0}, {12, 5, 0}, {96, 2, 5}, {1000, 1, 24}, {1, 7, 3}}) {
      for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
        Check({.dtype = dtype,
               .num_tokens = 3,
               .width = int64_t{group} * groups,
               .has_residual = false,
               .in_place = true,
               .kind = kind,
               .group_width = group,
               .gap = gap});
      }
      Check({.dtype = dtype,
             .num_tokens = 2,
             .width = int64_t{group} * groups,
             .has_bias = true,
             .group_width = group});
    }
  }
}

TEST_F(NormTest, WithoutWeightsValuesAreConverted) {
  for (DType dtype : kAllTypes) {
    for (int64_t width : {7, 256, 1001}) {
      Check({.dtype = dtype, .num_tokens = 2, .width = width, .has_weight = false});
      Check({.dtype = dtype, .width = width, .has_x = false, .has_weight = false});
      Check({.dtype = dtype, .width = width, .has_weight = false, .x_scale = -3});
    }
  }
}

TEST_F(NormTest, WithoutOutputOnlyTheResidualIsWritten) {
  for (DType dtype : kAllTypes) {
    for (int64_t width : {7, 256, 1001}) {
      const NormCase c = {.dtype = dtype, .num_tokens = 2, .width = width, .has_out = false};
      Check(c);
      EXPECT_NE(Run(c).residual, Rows(c, 0, 4));
    }
  }
}

TEST_F(NormTest, RowDoesNotDependOnItsBatchMates) {
  for (int64_t width : {96, 1000, 1001}) {
    const NormResult all = Run({.num_tokens = 5, .width = width});
    for (int64_t token = 0; token < 5; ++token) {
      const NormResult one = Run({.width = width}, token);
      ExpectSameBytes(one.out.data(), all.out.data() + token * width, width * sizeof(float),
                      "token " + std::to_string(token));
    }
  }
}

TEST_F(NormTest, EveryThreadOrderGivesTheSame) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    const NormCase c = {.num_tokens = 3, .width = 1000, .kind = kind};
    const NormResult first = Run(c);
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      const NormResult result = Run(c);
      const std::string name = "order " + std::to_string(order);
      ExpectSameBytes(result.out.data(), first.out.data(), first.out.size() * sizeof(float), name);
      ExpectSameBytes(result.residual.data(), first.residual.data(),
                      first.residual.size() * sizeof(float), name);
    });
  }
}

// A third of the mean square of a part of longer tokens, and the norm that is given the whole.
TEST_F(NormTest, MeanSquaresOfPartsMatchOracle) {
  for (DType dtype : kHalfTypes) {
    for (const auto& [width, gap] : {std::pair{1, 0}, {7, 3}, {256, 8}, {1001, 1}, {8200, 0}}) {
      const NormCase c = {.dtype = dtype, .num_tokens = 3, .width = width, .gap = gap};
      const std::string name = Name(c);
      const DeviceInput x(dtype, Spread(c, Rows(c, 0, 3)));
      MeanSquaresParams params = {.x = x.ptr(),
                                  .out = nullptr,
                                  .num_tokens = c.num_tokens,
                                  .width = width,
                                  .stride = gap == 0 ? 0 : width + gap,
                                  .share = 1.0f / 3};
      std::vector<float> expected(3), norms(x.values().size(), kNan);
      DeviceOutput means(DType::kF32, 3), out(dtype, x.values().size());
      params.out = means.f32();
      ASSERT_EQ(LaunchMeanSquares(device_.context, params), kCudaSuccess);
      params.x = x.values().data();
      params.out = expected.data();
      oracle_->MeanSquares(params);
      ExpectWithin(
          means.values(), expected, [&](size_t i) { return expected[i] * 32 * 0x1.0p-24; }, name);
      EXPECT_TRUE(means.GuardsIntact()) << name;

      const DeviceInput weight(DType::kF32, RandomFloats(width, 2));
      NormParams norm = Params(c);
      norm.x = x.ptr();
      norm.weight = weight.f32();
      norm.out = out.ptr();
      norm.mean_squares = means.f32();
      ASSERT_EQ(LaunchNorm(device_.context, norm), kCudaSuccess);
      norm.x = x.values().data();
      norm.weight = weight.values().data();
      norm.out = norms.data();
      norm.mean_squares = expected.data();
      oracle_->Norm(norm);
      const auto bound = [&](size_t i) {
        const double value = std::abs(norms[i]), f32_error = value * 32 * 0x1.0p-24;
        return f32_error + RoundingError(dtype, value * 1.001 + f32_error);
      };
      ExpectWithin(out.values(), norms, bound, name);
      EXPECT_TRUE(out.GuardsIntact()) << name;
    }
  }
}

constexpr Activation kActivations[] = {Activation::kSilu,     Activation::kGelu,
                                       Activation::kGeluTanh, Activation::kRelu2,
                                       Activation::kSigmoid,  Activation::kClampedSwiglu};

class ActivateTest : public ::testing::Test {
 protected:
  void Check(DType dtype, Activation activation, bool gated, int64_t num_tokens, int64_t width) {
    const std::string name = Name(dtype, num_tokens, width) + " activation " +
                             std::to_string(static_cast<int>(activation)) + (gated ? " gated" : "");
    std::vector<float> values = RandomFloats(num_tokens * (gated ? 2 : 1) * width, 5, 3.0);
    values[0] = -100;  // an exponential that overflows
    if (width > 1) values[1] = 100;
    const DeviceInput gate_up(dtype, values);
    DeviceOutput out(dtype, num_tokens * width);
    ActivateParams params = {.gate_up = gate_up.ptr(),
                             .out = out.ptr(),
                             .num_tokens = num_tokens,
                             .width = width,
                             .activation = activation,
                             .gated = gated,
                             .limit = 2.5f};
    ASSERT_EQ(LaunchActivate(device_.context, params), kCudaSuccess);
    std::vector<float> expected(num_tokens * width);
    params.gate_up = gate_up.values().data();
    params.out = expected.data();
    oracle_->Activate(params);
    // The error of the exponential's argument, at most about 17 where the result is not tiny, is
    // that of the exponential; the error function's, at most about 5, is multiplied by twice that.
    const auto bound = [&](size_t i) {
      const double value = std::abs(expected[i]);
      return 17 * 8 * 0x1.0p-24 * value + 1e-7 + RoundingError(dtype, value * 1.001);
    };
    ExpectWithin(out.values(), expected, bound, name);
    EXPECT_TRUE(out.GuardsIntact()) << name;
  }

  KernelDevice device_;
  std::unique_ptr<Ops> oracle_ = MakeNaiveOps();
};

TEST_F(ActivateTest, MatchesOracle) {
  for (DType dtype : kHalfTypes) {
    for (Activation activation : kActivations) {
      for (int64_t width : kWidths) {
        for (bool gated : {false, true}) Check(dtype, activation, gated, 3, width);
      }
    }
  }
}

// `up` may be what is overwritten, or wider rows.
TEST_F(ActivateTest, ASeparateFactorMatchesOracle) {
  for (DType dtype : kHalfTypes) {
    for (const int64_t width : {7, 64, 1032}) {
      for (const int64_t gap : {0, 3, 8}) {
        const DeviceInput gate(dtype, RandomFloats(2 * width, 5, 3.0));
        const DeviceInput up(dtype, RandomFloats(2 * (width + gap), 6));
        DeviceOutput out(dtype, 2 * width);
        if (gap == 0) out.Set(up.values());
        std::vector<float> expected(2 * width);
        ActivateParams params = {.gate_up = gate.values().data(),
                                 .out = expected.data(),
                                 .num_tokens = 2,
                                 .width = width,
                                 .activation = gap == 3 ? Activation::kSigmoid : Activation::kSilu,
                                 .gated = false,
                                 .up = up.values().data(),
                                 .up_stride = width + gap,
                                 .gate_scale = gap == 8 ? 0.7f : 1};
        oracle_->Activate(params);
        params.gate_up = gate.ptr();
        params.up = gap == 0 ? ConstActivationPtr(out.ptr()) : up.ptr();
        params.out = out.ptr();
        ASSERT_EQ(LaunchActivate(device_.context, params), kCudaSuccess);
        ExpectWithin(
            out.values(), expected,
            [&](size_t i) {
              return std::abs(expected[i]) * 17 * 8 * 0x1.0p-24 + 1e-7 +
                     RoundingError(dtype, expected[i] * 1.001);
            },
            Name(dtype, 2, width) + " gap " + std::to_string(gap));
        EXPECT_TRUE(out.GuardsIntact());
      }
    }
  }
}

// Around the bend at `min` and near 0, where expm1(x) - x cancels; without a linear part, nothing
// hides the digits that it would lose.
TEST_F(ActivateTest, XieluMatchesOracle) {
  std::vector<float> values = {0, -0.0f, kNan, -200, 150, 1.5f, -1e-6f};
  for (float value = -9; value <= 4; value += 0.0537f) values.push_back(value);
  for (float value = 1e-6f; value < 1; value *= 1.9f) values.insert(values.end(), {value, -value});
  if (values.size() % 2 != 0) values.push_back(-0.5f);
  for (DType dtype : kHalfTypes) {
    for (const XieluParams& xielu :
         {XieluParams{0.8f, 1.3f, 0.5f, -0.25f}, {0.8f, 1.3f, 0, -1e-6f}, {2, 0.7f, 0.5f, -2}}) {
      // Rows of whole chunks, and with a remainder; a factor before the activation.
      for (const int64_t num_tokens : {1, 2}) {
        const float scale = num_tokens == 1 ? 1 : 0.75f;
        const int64_t width = std::ssize(values) / num_tokens;
        const DeviceInput x(dtype, values);
        DeviceOutput out(dtype, values.size());
        ActivateParams params = {.gate_up = x.ptr(),
                                 .out = out.ptr(),
                                 .num_tokens = num_tokens,
                                 .width = width,
                                 .activation = Activation::kXielu,
                                 .gated = false,
                                 .gate_scale = scale,
                                 .xielu = xielu};
        ASSERT_EQ(LaunchActivate(device_.context, params), kCudaSuccess);
        std::vector<float> expected(values.size());
        params.gate_up = x.values().data();
        params.out = expected.data();
        oracle_->Activate(params);
        // Where the two parts of a negative x cancel, each has its rounding.
        const auto bound = [&](size_t i) {
          const double value = std::abs(expected[i]), part = std::abs(xielu.linear * x.values()[i]);
          return 8 * 0x1.0p-24 * (value + part) + RoundingError(dtype, value * 1.001);
        };
        ExpectWithin(out.values(), expected, bound, Name(dtype, num_tokens, width));
        EXPECT_TRUE(out.GuardsIntact());
      }
    }
  }
}

TEST_F(ActivateTest, NaNStaysNaN) {
  const DeviceInput gate_up(DType::kBF16, {kNan, 1, 1, kNan});
  for (Activation activation : kActivations) {
    DeviceOutput out(DType::kBF16, std::vector<float>{1, 1});
    ASSERT_EQ(LaunchActivate(device_.context, {.gate_up = gate_up.ptr(),
                                               .out = out.ptr(),
                                               .num_tokens = 1,
                                               .width = 2,
                                               .activation = activation,
                                               .limit = 7}),
              kCudaSuccess);
    for (const float value : out.values()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_F(ActivateTest, EveryThreadOrderMatches) {
  emulator::ForEachOrder(emulator::kNumOrders,
                         [&](int) { Check(DType::kBF16, Activation::kSilu, true, 2, 1032); });
}

TEST(SoftcapKernelTest, MatchesOracle) {
  KernelDevice device;
  for (const int64_t count : {1, 7, 8, 1000, 1024, 1029}) {
    emulator::ForEachOrder(count == 1029 ? emulator::kNumOrders : 1, [&](int) {
      std::vector<float> expected = RandomFloats(count, 9, 40.0);
      expected[0] = 1e30f;
      DeviceOutput values(DType::kF32, expected);
      ASSERT_EQ(LaunchSoftcap(device.context, {values.f32(), count, 30.0f}), kCudaSuccess);
      MakeNaiveOps()->Softcap({expected.data(), count, 30.0f});
      ExpectWithin(
          values.values(), expected,
          [&](size_t i) { return 8 * 0x1.0p-24 * std::abs(expected[i]); }, std::to_string(count));
      EXPECT_TRUE(values.GuardsIntact()) << count;
    });
  }
}

TEST(GatherRowsKernelTest, CopiesEveryBit) {
  KernelDevice device;
  const std::vector<int32_t> rows = {4, 0, 4, 2};
  const DeviceArray<int32_t> device_rows(rows);
  for (DType dtype : kAllTypes) {
    for (int64_t width : kWidths) {
      std::vector<float> values = RandomFloats(5 * width, 6);
      values[0] = std::numeric_limits<float>::infinity();
      const DeviceInput x(dtype, values);
      emulator::ForEachOrder(width == 1001 ? emulator::kNumOrders : 1, [&](int) {
        DeviceOutput out(dtype, 4 * width);
        ASSERT_EQ(LaunchGatherRows(device.context, {.x = x.ptr(),
                                                    .rows = device_rows.data(),
                                                    .out = out.ptr(),
                                                    .num_rows = 4,
                                                    .width = width}),
                  kCudaSuccess);
        const size_t row_bytes = width * DTypeBytes(dtype);
        for (size_t i = 0; i < rows.size(); ++i) {
          ExpectSameBytes(static_cast<const char*>(out.data()) + i * row_bytes,
                          static_cast<const char*>(x.data()) + rows[i] * row_bytes, row_bytes,
                          Name(dtype, i, width));
        }
        EXPECT_TRUE(out.GuardsIntact()) << Name(dtype, 4, width);
      });
    }
  }
}

TEST(AddBiasKernelTest, AddsToEveryRow) {
  KernelDevice device;
  for (DType dtype : kAllTypes) {
    for (int64_t width : kWidths) {
      const DeviceInput bias(DType::kF32, RandomFloats(width, 7));
      emulator::ForEachOrder(width == 1032 ? emulator::kNumOrders : 1, [&](int) {
        DeviceOutput out(dtype, RandomFloats(3 * width, 8));
        DeviceOutput expected(dtype, out.values());
        for (int64_t i = 0; i < 3 * width; ++i) {
          StoreElement(expected.data(), dtype, i,
                       LoadElement(out.data(), dtype, i) + bias.values()[i % width]);
        }
        ASSERT_EQ(LaunchAddBias(device.context, out.ptr(), bias.f32(), 3, width), kCudaSuccess);
        ExpectSameBytes(out.data(), expected.data(), out.num_bytes(), Name(dtype, 3, width));
        EXPECT_TRUE(out.GuardsIntact()) << Name(dtype, 3, width);
      });
    }
  }
}

TEST(ElementwiseKernelTest, EmptyInputsLaunchNothing) {
  KernelDevice device;
  EXPECT_EQ(LaunchNorm(device.context, {.x = nullptr,
                                        .residual = nullptr,
                                        .weight = nullptr,
                                        .out = ActivationPtr(nullptr, DType::kBF16),
                                        .num_tokens = 0,
                                        .width = 64,
                                        .eps = 0}),
            kCudaSuccess);
  EXPECT_EQ(device.api.num_calls("LaunchKernel"), 0);
}

}  // namespace
}  // namespace minisgl::cuda
