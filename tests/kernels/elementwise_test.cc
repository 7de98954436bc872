// Embedding, RMS norm, the gated activation, gathering and bias against the oracle, over ragged
// widths (rows of whole and of broken vectors), element types and thread orders.
#include "kernel_check.h"

namespace minisgl {
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
};

struct NormResult {
  std::vector<float> out, residual;
};

std::string Name(const NormCase& c) {
  return Name(c.dtype, c.num_tokens, c.width) + (c.has_x ? " x" : "") +
         (c.has_residual ? " residual" : "") + (c.in_place ? " in place" : "");
}

// Rows of a case are those of `first_token` on of one long input.
class NormTest : public ::testing::Test {
 protected:
  static constexpr float kEps = 1e-5f;

  std::vector<float> Rows(const NormCase& c, int64_t first_token, uint64_t seed) const {
    const std::vector<float> all = RandomFloats((first_token + c.num_tokens) * c.width, seed);
    return {all.begin() + first_token * c.width, all.end()};
  }

  NormResult Run(const NormCase& c, int64_t first_token = 0) {
    const DeviceInput weight(DType::kF32, RandomFloats(c.width, 2));
    const DeviceInput x(c.dtype, Rows(c, first_token, 3));
    DeviceOutput out(c.dtype, x.values().size());
    if (c.in_place) out.Set(x.values());
    DeviceOutput residual(DType::kF32, Rows(c, first_token, 4));
    ConstActivationPtr x_ptr;
    if (c.has_x) x_ptr = c.in_place ? ConstActivationPtr(out.ptr()) : x.ptr();
    EXPECT_EQ(LaunchRmsNorm(device_.context, {.x = x_ptr,
                                              .residual = c.has_residual ? residual.f32() : nullptr,
                                              .weight = weight.f32(),
                                              .out = out.ptr(),
                                              .num_tokens = c.num_tokens,
                                              .width = c.width,
                                              .eps = kEps}),
              kCudaSuccess);
    EXPECT_TRUE(out.GuardsIntact()) << Name(c);
    EXPECT_TRUE(residual.GuardsIntact()) << Name(c);
    return {out.values(), residual.values()};
  }

  NormResult Expected(const NormCase& c) {
    const DeviceInput x(c.dtype, Rows(c, 0, 3));
    const std::vector<float> weight = RandomFloats(c.width, 2);
    NormResult result = {std::vector<float>(x.values().size()), Rows(c, 0, 4)};
    oracle_->RmsNorm({.x = c.has_x ? x.values().data() : nullptr,
                      .residual = c.has_residual ? result.residual.data() : nullptr,
                      .weight = weight.data(),
                      .out = result.out.data(),
                      .num_tokens = c.num_tokens,
                      .width = c.width,
                      .eps = kEps});
    return result;
  }

  void Check(const NormCase& c) {
    const NormResult result = Run(c), expected = Expected(c);
    // The f32 part: a sum of squares, a root, a product of three.
    const auto bound = [&](size_t i) {
      const double value = std::abs(expected.out[i]);
      return value * 32 * 0x1.0p-24 + RoundingError(c.dtype, value * 1.001);
    };
    ExpectWithin(result.out, expected.out, bound, Name(c));
    ExpectWithin(
        result.residual, expected.residual, [](size_t) { return 0.0; }, Name(c));
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
  const NormCase c = {.num_tokens = 3, .width = 1000};
  const NormResult first = Run(c);
  emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
    const NormResult result = Run(c);
    const std::string name = "order " + std::to_string(order);
    ExpectSameBytes(result.out.data(), first.out.data(), first.out.size() * sizeof(float), name);
    ExpectSameBytes(result.residual.data(), first.residual.data(),
                    first.residual.size() * sizeof(float), name);
  });
}

class GatedActivationTest : public ::testing::Test {
 protected:
  void Check(DType dtype, Activation activation, int64_t num_tokens, int64_t width) {
    const std::string name = Name(dtype, num_tokens, width);
    std::vector<float> values = RandomFloats(num_tokens * 2 * width, 5, 3.0);
    values[0] = -100;  // an exponential that overflows
    if (width > 1) values[1] = 100;
    const DeviceInput gate_up(dtype, values);
    DeviceOutput out(dtype, num_tokens * width);
    ASSERT_EQ(LaunchGatedActivation(device_.context, {.gate_up = gate_up.ptr(),
                                                      .out = out.ptr(),
                                                      .num_tokens = num_tokens,
                                                      .width = width,
                                                      .activation = activation}),
              kCudaSuccess);
    std::vector<float> expected(num_tokens * width);
    oracle_->GatedActivation({.gate_up = gate_up.values().data(),
                              .out = expected.data(),
                              .num_tokens = num_tokens,
                              .width = width,
                              .activation = activation});
    // The error of the exponential's argument, at most about 17 where the result is not tiny, is
    // that of the exponential.
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

TEST_F(GatedActivationTest, MatchesOracle) {
  for (DType dtype : kHalfTypes) {
    for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      for (int64_t width : kWidths) {
        for (int64_t num_tokens : {1, 3}) Check(dtype, activation, num_tokens, width);
      }
    }
  }
}

TEST_F(GatedActivationTest, EveryThreadOrderMatches) {
  emulator::ForEachOrder(emulator::kNumOrders,
                         [&](int) { Check(DType::kBF16, Activation::kSilu, 2, 1032); });
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

TEST(ElementwiseKernelTest, NothingToDoIsNothingDone) {
  KernelDevice device;
  EXPECT_EQ(LaunchRmsNorm(device.context, {.x = nullptr,
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
}  // namespace minisgl
