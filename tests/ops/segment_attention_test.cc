// The operations of towers against the oracle: attention in segments, sums of rows, bounds.
#include "op_check.h"

namespace minisgl::cpu {
namespace {

struct SegmentCase {
  std::vector<int32_t> begin;
  int32_t num_heads, head_dim;
};

const SegmentCase kSegmentCases[] = {
    {{0, 1}, 1, 2},
    {{0, 64}, 2, 16},
    {{0, 65}, 1, 72},
    {{0, 7, 7 + 63, 200}, 3, 20},
    {{0, 97, 97 + 128}, 2, 80},
    {{0, 1, 2, 5}, 2, 5},
    {{0, 300}, 1, 64},
};

struct SegmentInputs {
  std::vector<float> q, k, v;
};

SegmentInputs InputsOf(const SegmentCase& c, uint64_t seed, double deviation = 2) {
  const int64_t count = int64_t{c.begin.back()} * c.num_heads * c.head_dim;
  return {RandomFloats(count, seed, deviation), RandomFloats(count, seed + 1),
          RandomFloats(count, seed + 2)};
}

std::vector<float> Attend(Ops& ops, const SegmentCase& c, const SegmentInputs& in) {
  OpOutput out(std::ssize(in.q));
  ops.SegmentAttention({.q = in.q.data(),
                        .k = in.k.data(),
                        .v = in.v.data(),
                        .out = out.data(),
                        .segment_begin = c.begin.data(),
                        .num_segments = static_cast<int32_t>(c.begin.size()) - 1,
                        .num_heads = c.num_heads,
                        .head_dim = c.head_dim,
                        .scale = 0.25f});
  EXPECT_TRUE(out.GuardsIntact()) << ops.Name();
  return out.values();
}

TEST(SegmentAttentionTest, AgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const SegmentCase& c : kSegmentCases) {
    const SegmentInputs in = InputsOf(c, 1);
    const auto expected = Attend(*oracle, c, in);
    for (const auto& ops : AllCpuOps()) {
      // Scores reach some 10, and their roundings move a weight by as many parts of it.
      ExpectClose(
          Attend(*ops, c, in), expected,
          [&](size_t) { return 16 * static_cast<double>(c.head_dim + 16) * kEpsilon; },
          fmt::format("{} {} tokens of {}", ops->Name(), c.begin.back(), c.head_dim));
    }
  }
}

// Two equal keys: the mean of their values. A key far above the others: its value.
TEST(SegmentAttentionTest, ByHand) {
  const SegmentCase c = {{0, 2, 4}, 1, 2};
  const SegmentInputs in = {
      {1, 2, -3, 1, 400, 0, 0, 400}, {5, 5, 5, 5, 9, 0, 0, 9}, {1, 10, 3, 30, 7, 70, 8, 80}};
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  for (const auto& ops : all) {
    EXPECT_EQ(Attend(*ops, c, in), (std::vector<float>{2, 20, 2, 20, 7, 70, 8, 80})) << ops->Name();
  }
}

TEST(SegmentAttentionTest, ASegmentDependsOnNoOtherAndOnNoThreads) {
  const SegmentCase c = {{0, 130, 330}, 3, 24};
  const SegmentInputs in = InputsOf(c, 5);
  const int64_t width = 3 * 24;
  const SegmentCase alone = {{0, 200}, 3, 24};
  const auto part = [&](const std::vector<float>& all) {
    return std::vector<float>(all.begin() + 130 * width, all.end());
  };
  for (const CpuTarget target : FloatCpuTargets()) {
    const auto one = MakeOps(CpuTargetName(target), 1), two = MakeOps(CpuTargetName(target), 2);
    const auto whole = Attend(*one, c, in);
    ExpectSameBits(Attend(*two, c, in), whole, CpuTargetName(target));
    ExpectSameBits(Attend(*two, alone, {part(in.q), part(in.k), part(in.v)}), part(whole),
                   CpuTargetName(target));
  }
}

TEST(SegmentAttentionTest, NanStaysInItsSegment) {
  const SegmentCase c = {{0, 3, 6}, 1, 4};
  SegmentInputs in = InputsOf(c, 9);
  in.k[0] = std::numeric_limits<float>::quiet_NaN();
  for (const auto& ops : AllCpuOps()) {
    const auto out = Attend(*ops, c, in);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i < 12) << ops->Name();
  }
}

TEST(SegmentAttentionTest, ScratchIsBounded) {
  for (const SegmentCase& c : kSegmentCases) {
    const auto ops = MakeOps("", 2);
    Attend(*ops, c, InputsOf(c, 3));
    const auto bound = CpuSegmentAttentionBytes(2, c.begin.back(), std::ssize(c.begin) - 1,
                                                c.num_heads, c.head_dim);
    EXPECT_LE(ops->scratch_bytes(), bound.value());
  }
  EXPECT_EQ(CpuSegmentAttentionBytes(1, int64_t{1} << 40, 1, 1, 1), std::nullopt);
}

TEST(MixRowsTest, AgreesWithOracleAndByHand) {
  const auto oracle = MakeNaiveOps();
  const std::vector<int32_t> rows = {0, 2, 1, 1, 2, 0};
  const std::vector<float> shares = {1, 0.5f, 0.25f, 0.75f, -1, 2};
  for (const int64_t width : {1, 3, 16, 40}) {
    const auto x = RandomFloats(3 * width, 7);
    OpOutput expected(3 * width);
    const MixRowsParams params = {x.data(), rows.data(), shares.data(), expected.data(), 3, width,
                                  2};
    oracle->MixRows(params);
    EXPECT_NEAR(expected.data()[0], x[0] + 0.5 * x[2 * width], 1e-6);
    EXPECT_NEAR(expected.data()[width], x[width], 1e-6);
    for (const auto& ops : AllCpuOps()) {
      OpOutput out(3 * width);
      MixRowsParams own = params;
      own.out = out.data();
      ops->MixRows(own);
      EXPECT_TRUE(out.GuardsIntact());
      ExpectClose(
          out.values(), expected.values(), [](size_t) { return 40 * kEpsilon; }, ops->Name());
    }
  }
}

TEST(ClampTest, BoundsAndNan) {
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& ops : all) {
    std::vector<float> values(41, 3.0f);
    values[0] = -9;
    values[1] = 0.5f;
    values[2] = nan;
    values[40] = nan;
    ops->Clamp({values.data(), 41, -1.5f, 2});
    EXPECT_EQ(values[0], -1.5f);
    EXPECT_EQ(values[1], 0.5f);
    EXPECT_TRUE(std::isnan(values[2]) && std::isnan(values[40])) << ops->Name();
    EXPECT_EQ(values[39], 2.0f);
  }
}

}  // namespace
}  // namespace minisgl::cpu
