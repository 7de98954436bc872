// Matrix times few vectors against the oracle: matrices of whole tiles, batches and vectors and
// with remainders, and each division of the work; and a token's result does not depend on the other
// tokens.
#include "kernel_check.h"

namespace minisgl::cuda {
namespace {

struct GemvCase {
  DType dtype = DType::kBF16;
  DType out_dtype = DType::kBF16;
  int64_t num_tokens = 1;
  int64_t num_out = 8;
  int64_t num_in = 32;
  bool has_bias = false;
};

std::string Name(const GemvCase& c) {
  return std::string(DTypeName(c.dtype)) + " -> " + DTypeName(c.out_dtype) + " T" +
         std::to_string(c.num_tokens) + " " + std::to_string(c.num_out) + "x" +
         std::to_string(c.num_in) + (c.has_bias ? " bias" : "");
}

// True: weights go through the ring of large matrices.
class GemvTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) device_.context.ring_bytes_min = 0;
  }
  // The rows of x are those from first_token on of one long input.
  DeviceInput X(const GemvCase& c, int64_t first_token) const {
    const std::vector<float> all = RandomFloats((first_token + c.num_tokens) * c.num_in, 1);
    return {c.dtype, {all.begin() + first_token * c.num_in, all.end()}};
  }
  DeviceInput Weight(const GemvCase& c) const {
    return {c.dtype, RandomFloats(c.num_out * c.num_in, 2)};
  }
  DeviceInput Bias(const GemvCase& c) const {
    return {DType::kF32, RandomFloats(c.num_out, 3, 10.0)};
  }

  std::vector<float> Run(const GemvCase& c, int64_t first_token = 0, const Matrix* next = nullptr) {
    const DeviceInput x = X(c, first_token), weight = Weight(c), bias = Bias(c);
    DeviceOutput out(c.out_dtype, c.num_tokens * c.num_out);
    const Matrix matrix = {
        .num_out = c.num_out, .num_in = c.num_in, .dtype = c.dtype, .storage = nullptr};
    EXPECT_EQ(LaunchGemv(device_.context,
                         {.linear = {.x = x.ptr(),
                                     .weight = &matrix,
                                     .bias = c.has_bias ? bias.f32() : nullptr,
                                     .out = out.ptr(),
                                     .num_tokens = c.num_tokens,
                                     .next = next}},
                         weight.data()),
              kCudaSuccess);
    EXPECT_TRUE(out.GuardsIntact()) << Name(c);
    return out.values();
  }

  void Check(const GemvCase& c) {
    const DeviceInput x = X(c, 0), weight = Weight(c), bias = Bias(c);
    std::vector<float> expected, bounds;
    for (int64_t t = 0; t < c.num_tokens; ++t) {
      for (int64_t o = 0; o < c.num_out; ++o) {
        double sum = c.has_bias ? bias.values()[o] : 0, magnitude = std::abs(sum);
        for (int64_t i = 0; i < c.num_in; ++i) {
          const double product =
              static_cast<double>(x.values()[t * c.num_in + i]) * weight.values()[o * c.num_in + i];
          sum += product;
          magnitude += std::abs(product);
        }
        expected.push_back(static_cast<float>(sum));
        // A sum of n terms in any order is off by at most n roundings of the terms' magnitudes;
        // random ones cancel, so the root of that serves.
        const double f32_error = 8 * std::sqrt(c.num_in + 1.0) * 0x1.0p-24 * magnitude;
        bounds.push_back(static_cast<float>(f32_error + RoundingError(c.out_dtype, sum) * 1.01));
      }
    }
    ExpectWithin(
        Run(c), expected, [&](size_t i) { return bounds[i]; }, Name(c));
  }

  KernelDevice device_;
};

TEST_P(GemvTest, MatchesTheSum) {
  for (DType dtype : kHalfTypes) {
    for (const auto& [num_out, num_in] :
         {std::pair{1, 8}, {8, 32}, {17, 96}, {100, 1000}, {24, 520}, {5, 4104}}) {
      for (int64_t num_tokens : {1, 8, 9, 16}) {
        Check({.dtype = dtype,
               .out_dtype = dtype,
               .num_tokens = num_tokens,
               .num_out = num_out,
               .num_in = num_in});
      }
      Check({.dtype = dtype,
             .out_dtype = DType::kF32,
             .num_tokens = 2,
             .num_out = num_out,
             .num_in = num_in,
             .has_bias = true});
      Check({.dtype = dtype,
             .out_dtype = DType::kF32,
             .num_tokens = 13,
             .num_out = num_out,
             .num_in = num_in,
             .has_bias = true});
    }
  }
}

TEST_P(GemvTest, MatchesTheSumWhereRowsAreNotAligned) {
  for (DType dtype : kHalfTypes) {
    for (const auto& [num_out, num_in] :
         {std::pair{1, 1}, {9, 33}, {17, 100}, {3, 1023}, {8, 4099}, {4100, 7}}) {
      for (int64_t num_tokens : {5, 11}) {
        Check({.dtype = dtype,
               .out_dtype = dtype,
               .num_tokens = num_out == 4100 ? num_tokens / 5 : num_tokens,
               .num_out = num_out,
               .num_in = num_in,
               .has_bias = true});
      }
    }
  }
}

// Other tile sizes and numbers of warps, several tiles for each block, and a last tile cut short.
TEST_P(GemvTest, MatchesTheSumWithManyRows) {
  Check({.num_tokens = 3, .num_out = 2051, .num_in = 72});
  Check({.num_tokens = 3, .num_out = 4103, .num_in = 40});
  Check({.out_dtype = DType::kF32, .num_tokens = 8, .num_out = 4112, .num_in = 8});
  Check({.num_tokens = 9, .num_out = 2051, .num_in = 72});
  Check({.num_tokens = 16, .num_out = 4103, .num_in = 40});
}

// Each way of dividing the work; long enough that warps have several batches and add them up.
const GemvCase kDivisions[] = {
    {.num_out = 24, .num_in = 4200},
    {.num_out = 2056, .num_in = 96},
    {.num_out = 4112, .num_in = 136},
    {.num_out = 16, .num_in = 2051},
};

TEST_P(GemvTest, TokenDoesNotDependOnItsBatchMates) {
  for (GemvCase c : kDivisions) {
    c.out_dtype = DType::kF32;
    c.num_tokens = 16;
    const std::vector<float> all = Run(c);
    // Large matrices are slow here; there is an instance for up to 8 tokens, and one for more.
    const bool is_large = c.num_out > 1000;
    for (int64_t num_tokens = 1; num_tokens < 16; num_tokens += is_large ? 8 : 5) {
      c.num_tokens = num_tokens;
      const std::vector<float> first = Run(c);
      ExpectSameBytes(first.data(), all.data(), first.size() * sizeof(float), Name(c));
    }
    c.num_tokens = 1;
    for (const int64_t token : {7, 15}) {
      const std::vector<float> alone = Run(c, token);
      ExpectSameBytes(alone.data(), all.data() + token * c.num_out, alone.size() * sizeof(float),
                      Name(c) + " token " + std::to_string(token));
    }
  }
}

// The distribution of tiles to blocks depends on the device; no sum does.
TEST_P(GemvTest, ResultDoesNotDependOnTheNumberOfMultiprocessors) {
  for (GemvCase c : {kDivisions[0], kDivisions[2]}) {
    c.num_tokens = 2;
    const std::vector<float> four = Run(c);
    device_.context.num_multiprocessors = 132;
    const std::vector<float> many = Run(c);
    device_.context.num_multiprocessors = 4;
    ExpectSameBytes(many.data(), four.data(), four.size() * sizeof(float), Name(c));
  }
}

TEST_P(GemvTest, EveryThreadOrderGivesTheSame) {
  const GemvCase cases[] = {{.num_tokens = 5, .num_out = 80, .num_in = 1000},
                            {.num_tokens = 12, .num_out = 40, .num_in = 520},
                            {.num_tokens = 2, .num_out = 40, .num_in = 1003}};
  for (const GemvCase& c : cases) {
    const std::vector<float> first = Run(c);
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      const std::vector<float> result = Run(c);
      ExpectSameBytes(result.data(), first.data(), first.size() * sizeof(float),
                      Name(c) + " order " + std::to_string(order));
    });
  }
}

class GemvPrefetchTest : public GemvTest {
 protected:
  // A matrix of `c`'s shape and the parts of it that a product before it asked for, as
  // {byte, number of bytes}, sorted.
  std::vector<std::pair<int64_t, int64_t>> PartsOf(const GemvCase& next, const GemvCase& before) {
    const DeviceInput weight = Weight(next);
    const Matrix matrix = {.num_out = next.num_out,
                           .num_in = next.num_in,
                           .dtype = next.dtype,
                           .storage = {weight.data(), [](const void*) {}}};
    const std::vector<float> without = Run(before);
    emulator::Options options = emulator::GetOptions();
    options.records_prefetches = true;
    emulator::SetOptions(options);
    const std::vector<float> with = Run(before, 0, &matrix);
    options.records_prefetches = false;
    emulator::SetOptions(options);
    ExpectSameBytes(with.data(), without.data(), with.size() * sizeof(float), Name(before));
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (const emulator::Prefetch& part : emulator::TakePrefetches()) {
      const auto* const begin = static_cast<const unsigned char*>(part.begin);
      parts.emplace_back(begin - static_cast<const unsigned char*>(weight.data()),
                         static_cast<int64_t>(part.num_bytes));
    }
    std::sort(parts.begin(), parts.end());
    return parts;
  }
  // Parts of `num_bytes` at the ends of rows [first, first + num_rows).
  static std::vector<std::pair<int64_t, int64_t>> RowEnds(const GemvCase& c, int64_t first,
                                                          int64_t num_rows, int64_t num_bytes) {
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (int64_t row = first; row < first + num_rows; ++row) {
      parts.emplace_back((row + 1) * c.num_in * 2 - num_bytes, num_bytes);
    }
    return parts;
  }
  const GemvCase one_tile_ = {.num_tokens = 2, .num_out = 24, .num_in = 64};
};

// 4 multiprocessors: the first tiles of all blocks are 32, 96 or 192 rows (kDivisions).
TEST_P(GemvPrefetchTest, AsksForWhatTheNextProductDoesNotLoadBeforeItsWait) {
  // All of K is loaded: the rows after the first tiles.
  device_.context.prefetch_bytes = 100 * 136 * 2;
  EXPECT_EQ(PartsOf(kDivisions[2], one_tile_), RowEnds(kDivisions[2], 192, 100, 272));
  // Room for all but 10 rows: those that blocks load themselves are left out.
  device_.context.prefetch_bytes = (2056 - 10) * 96 * 2;
  EXPECT_EQ(PartsOf(kDivisions[1], one_tile_), RowEnds(kDivisions[1], 10, 2046, 192));
  device_.context.prefetch_bytes = 1 << 30;
  EXPECT_EQ(PartsOf(kDivisions[1], one_tile_), RowEnds(kDivisions[1], 0, 2056, 192));
  // 2,048 of 4,200 inputs are loaded: the ends of the rows, in whole lines.
  device_.context.prefetch_bytes = 24 * (256 + 100);
  EXPECT_EQ(PartsOf(kDivisions[0], one_tile_), RowEnds(kDivisions[0], 0, 24, 256));
  device_.context.prefetch_bytes = 1 << 30;
  EXPECT_EQ(PartsOf(kDivisions[0], one_tile_), RowEnds(kDivisions[0], 0, 24, 8400));
}

TEST_P(GemvPrefetchTest, AsksOnceWhateverTheNumberOfTiles) {
  device_.context.prefetch_bytes = 1 << 20;
  for (const GemvCase& before :
       {one_tile_, GemvCase{.num_tokens = 9, .num_out = 72, .num_in = 64},
        GemvCase{.num_out = 2056, .num_in = 8}, GemvCase{.num_out = 4112, .num_in = 8}}) {
    EXPECT_EQ(PartsOf(one_tile_, before), RowEnds(one_tile_, 0, 24, 128)) << Name(before);
  }
}

TEST_P(GemvPrefetchTest, AsksForNothingWithoutRoomOrAlignment) {
  EXPECT_TRUE(PartsOf(one_tile_, one_tile_).empty());
  device_.context.prefetch_bytes = 100;
  EXPECT_TRUE(PartsOf(one_tile_, one_tile_).empty());
  EXPECT_TRUE(PartsOf(kDivisions[0], one_tile_).empty());
  device_.context.prefetch_bytes = 1 << 20;
  EXPECT_TRUE(PartsOf(kDivisions[3], one_tile_).empty());
  // A matrix that does not take the ring fetches nothing, either.
  EXPECT_FALSE(PartsOf(kDivisions[1], one_tile_).empty());
  device_.context.ring_bytes_min = kDivisions[1].num_out * kDivisions[1].num_in * 2 + 1;
  EXPECT_TRUE(PartsOf(kDivisions[1], one_tile_).empty());
}

// Infinity times the zeros of absent tokens is NaN; it must not reach tokens that exist.
TEST_P(GemvTest, NonFiniteWeightsReachOnlyTheirOwnOutputs) {
  for (const int64_t num_tokens : {2, 10}) {
    const GemvCase c = {
        .out_dtype = DType::kF32, .num_tokens = num_tokens, .num_out = 20, .num_in = 40};
    const DeviceInput x(c.dtype, std::vector<float>(c.num_tokens * c.num_in, 1.0f));
    std::vector<float> values(c.num_out * c.num_in, 0.5f);
    values[3 * c.num_in + 39] = std::numeric_limits<float>::infinity();
    const DeviceInput weight(c.dtype, values);
    DeviceOutput out(c.out_dtype, c.num_tokens * c.num_out);
    const Matrix matrix = {
        .num_out = c.num_out, .num_in = c.num_in, .dtype = c.dtype, .storage = nullptr};
    ASSERT_EQ(LaunchGemv(device_.context,
                         {.linear = {.x = x.ptr(),
                                     .weight = &matrix,
                                     .bias = nullptr,
                                     .out = out.ptr(),
                                     .num_tokens = c.num_tokens}},
                         weight.data()),
              kCudaSuccess);
    for (int64_t i = 0; i < out.size(); ++i) {
      const float expected = i % c.num_out == 3 ? std::numeric_limits<float>::infinity() : 20.0f;
      EXPECT_EQ(out.values()[i], expected) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, GemvTest, testing::Bool());
INSTANTIATE_TEST_SUITE_P(Ring, GemvPrefetchTest, testing::Values(true));

}  // namespace
}  // namespace minisgl::cuda
