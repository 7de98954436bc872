// Operations on rows of tokens that have pictures, on every implementation of the host.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "minisgl/ops.h"
#include "ops/op_check.h"

namespace minisgl {
namespace {

std::vector<std::unique_ptr<Ops>> HostOps() {
  std::vector<std::unique_ptr<Ops>> all;
  all.push_back(MakeNaiveOps());
  for (const int num_threads : {1, 3}) {
    all.push_back(MakeCpuOps({.num_threads = num_threads}).value());
  }
  return all;
}

TEST(TokenRowsTest, RowsAreReplacedOrAdded) {
  constexpr int64_t kRows = 70, kWidth = 33, kStride = 99;
  const std::vector<float> x = cpu::RandomFloats(kRows * kStride, 1);
  const std::vector<float> before = cpu::RandomFloats((kRows + 2) * kWidth, 2);
  for (const auto& ops : HostOps()) {
    for (const bool adds : {false, true}) {
      std::vector<float> out = before;
      ops->PlaceRows({.x = x.data() + kWidth,
                      .x_stride = kStride,
                      .out = out.data() + kWidth,
                      .out_stride = kWidth,
                      .num_rows = kRows,
                      .width = kWidth,
                      .adds = adds});
      for (int64_t i = 0; i < kRows + 2; ++i) {
        const bool is_placed = i > 0 && i <= kRows;
        for (int64_t d = 0; d < kWidth; ++d) {
          const float own = before[static_cast<size_t>(i * kWidth + d)];
          const float placed =
              is_placed ? x[static_cast<size_t>((i - 1) * kStride + kWidth + d)] : 0;
          const float expected = !is_placed ? own : adds ? own + placed : placed;
          ASSERT_EQ(out[static_cast<size_t>(i * kWidth + d)], expected) << i << " " << d;
        }
      }
    }
  }
}

// The part of each of eight frequencies in Qwen2-VL's order, and in Qwen3-VL's.
TEST(TokenRowsTest, FrequenciesTurnByTheirPartOfThePosition) {
  const struct {
    std::array<int32_t, 3> sections;
    bool mixed;
    std::vector<int32_t> parts;
  } cases[] = {{{2, 3, 3}, false, {0, 0, 1, 1, 1, 2, 2, 2}},
               {{4, 2, 2}, true, {0, 1, 2, 0, 1, 2, 0, 0}},
               {{3, 3, 2}, true, {0, 1, 2, 0, 1, 2, 0, 1}},
               {{6, 1, 1}, true, {0, 1, 2, 0, 0, 0, 0, 0}}};
  constexpr int32_t kHalf = 8, kLength = 40, kTokens = 50;
  const std::vector<float> cos = cpu::RandomFloats(kLength * kHalf, 3);
  const std::vector<float> sin = cpu::RandomFloats(kLength * kHalf, 4);
  std::vector<RopePosition> positions;
  for (int32_t t = 0; t < kTokens; ++t) {
    positions.push_back({t % kLength, (t * 7) % kLength, (t * 11 + 3) % kLength});
  }
  for (const auto& c : cases) {
    for (const auto& ops : HostOps()) {
      std::vector<float> out_cos(kTokens * kHalf), out_sin(kTokens * kHalf);
      ops->MixRotary({.cos = cos.data(),
                      .sin = sin.data(),
                      .out_cos = out_cos.data(),
                      .out_sin = out_sin.data(),
                      .positions = positions.data(),
                      .num_tokens = kTokens,
                      .half = kHalf,
                      .sections = c.sections,
                      .mixed = c.mixed});
      for (size_t t = 0; t < kTokens; ++t) {
        for (size_t i = 0; i < kHalf; ++i) {
          const int32_t position = positions[t][static_cast<size_t>(c.parts[i])];
          const size_t from = static_cast<size_t>(position) * kHalf + i;
          ASSERT_EQ(out_cos[t * kHalf + i], cos[from]) << t << " " << i;
          ASSERT_EQ(out_sin[t * kHalf + i], sin[from]) << t << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl
