// Products of low rank against the oracle, and the order of their sums.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/adapter_params.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

// Parts of one adapter: first output, outputs, rank.
struct LowRankShape {
  int64_t num_in, num_out;
  std::vector<LowRankPart> parts;
  bool has_factor = false, is_bf16 = false;
};

const LowRankShape kLowRankShapes[] = {
    {64, 48, {{0, 48, 0, 8, 0.5f}}},
    {37, 100, {{0, 33, 0, 1, 2.0f}, {40, 17, 1, 5, 1.0f}}, true},
    {300, 513, {{0, 256, 0, 16, 1.0f}, {256, 128, 16, 3, 0.25f}, {384, 129, 19, 33, 1.0f}}},
    {128, 32, {{0, 32, 0, 12, 1.5f}}, false, true},
    {16, 20, {}, true},
    {5, 16, {{15, 1, 0, 1, 1.0f}}, true},
};

// Matrices in memory of their own.
struct LowRankAdapter {
  LowRankAdapter(const LowRankShape& shape, uint64_t seed) : parts(shape.parts) {
    int32_t num_ranks = 0;
    std::vector<size_t> begins;
    for (const LowRankPart& part : parts) {
      num_ranks += part.rank;
      begins.push_back(b.size());
      const int64_t tiles = (part.num_out + kLowRankTile - 1) / kLowRankTile;
      const auto tile = RandomFloats(tiles * part.rank * kLowRankTile, seed + b.size() + 9);
      b.insert(b.end(), tile.begin(), tile.end());
    }
    a = RandomFloats(num_ranks * shape.num_in, seed + 1);
    if (shape.has_factor) {
      factor = RandomFloats(shape.num_out, seed + 2);
      offset = RandomFloats(shape.num_out, seed + 3);
    }
    for (const float value : a) a_bits.push_back(FloatToBf16(value));
    for (const float value : b) b_bits.push_back(FloatToBf16(value));
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].b = shape.is_bf16 ? static_cast<const void*>(b_bits.data() + begins[i])
                                 : b.data() + begins[i];
    }
    matrices = {.num_in = shape.num_in,
                .num_out = shape.num_out,
                .num_ranks = num_ranks,
                .dtype = shape.is_bf16 ? DType::kBF16 : DType::kF32,
                .a = shape.is_bf16 ? static_cast<const void*>(a_bits.data()) : a.data(),
                .parts = parts,
                .factor = shape.has_factor ? factor.data() : nullptr,
                .offset = shape.has_factor ? offset.data() : nullptr};
  }
  std::vector<LowRankPart> parts;
  std::vector<float> a, b, factor, offset;
  std::vector<uint16_t> a_bits, b_bits;
  LowRankMatrices matrices;
};

constexpr int32_t kNumRows = 90;

std::vector<float> Apply(Ops& ops, const LowRankShape& shape,
                         const std::vector<LowRankGroup>& groups, int64_t rows_per_input = 1) {
  const auto x = RandomFloats(kNumRows * shape.num_in, 21);
  const auto before = RandomFloats(kNumRows * shape.num_out, 22);
  OpOutput out(std::ssize(before));
  std::copy(before.begin(), before.end(), out.data());
  std::vector<float> inner(static_cast<size_t>(kNumRows) * 128);
  ops.LowRank({.x = x.data(),
               .out = out.data(),
               .groups = groups,
               .inner = inner.data(),
               .rows_per_input = rows_per_input});
  EXPECT_TRUE(out.GuardsIntact()) << ops.Name();
  return out.values();
}

std::vector<int32_t> Rows(int32_t first, int32_t step, int32_t end = kNumRows) {
  std::vector<int32_t> rows;
  for (int32_t row = first; row < end; row += step) rows.push_back(row);
  return rows;
}

TEST(LowRankTest, AgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const LowRankShape& shape : kLowRankShapes) {
    const LowRankAdapter first(shape, 1), second(shape, 50);
    const std::vector<int32_t> rows = Rows(0, 2), others = Rows(1, 14);
    const std::vector<LowRankGroup> groups = {{&first.matrices, rows}, {&second.matrices, others}};
    for (const int64_t per_input : {1, 3}) {
      const auto expected = Apply(*oracle, shape, groups, per_input);
      for (const auto& ops : AllCpuOps()) {
        const double rank = 33, depth = static_cast<double>(shape.num_in) + rank;
        ExpectClose(
            Apply(*ops, shape, groups, per_input), expected,
            [&](size_t) { return 8 * depth * std::sqrt(depth) * kEpsilon; },
            fmt::format("{} {} to {}", ops->Name(), shape.num_in, shape.num_out));
      }
    }
  }
}

// Rows of no group keep their bits, and a row's do not depend on the groups and rows beside it.
TEST(LowRankTest, ARowDoesNotDependOnOthers) {
  for (const LowRankShape& shape : kLowRankShapes) {
    const LowRankAdapter adapter(shape, 1), other(shape, 50);
    const std::vector<int32_t> all = Rows(0, 1);
    const auto before = RandomFloats(kNumRows * shape.num_out, 22);
    for (const auto& ops : AllCpuOps()) {
      const auto together = Apply(*ops, shape, {{&adapter.matrices, all}});
      for (const int32_t row : {0, 3, 64, 88, 89}) {
        const std::vector<int32_t> own = {row}, rest = Rows(row + 1, 2);
        const auto apart = Apply(*ops, shape, {{&other.matrices, rest}, {&adapter.matrices, own}});
        for (int64_t o = 0; o < shape.num_out; ++o) {
          const auto at = static_cast<size_t>(row * shape.num_out + o);
          ASSERT_EQ(apart[at], together[at]) << ops->Name() << " row " << row;
          if (row == 0) continue;
          ASSERT_EQ(apart[static_cast<size_t>(o)], before[static_cast<size_t>(o)]) << ops->Name();
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
