// Attention within segments, in both directions, against the oracle.
#include "kernel_check.h"
#include "paged_attention.h"

namespace minisgl::cuda {
namespace {

struct SegmentScene {
  DType dtype = DType::kBF16;
  int32_t num_heads = 2, head_dim = 64;
  std::vector<int32_t> begin;

  std::string Name() const {
    return std::string(DTypeName(dtype)) + " H " + std::to_string(num_heads) + " E " +
           std::to_string(head_dim) + " " + std::to_string(begin.size() - 1) + " segments of " +
           std::to_string(begin.back());
  }
  int64_t count() const { return int64_t{begin.back()} * num_heads * head_dim; }
  SegmentAttentionParams Params() const {
    return {.q = nullptr,
            .k = nullptr,
            .v = nullptr,
            .out = nullptr,
            .segment_begin = begin.data(),
            .num_segments = static_cast<int32_t>(begin.size()) - 1,
            .num_heads = num_heads,
            .head_dim = head_dim,
            .scale = 2.0f / std::sqrt(static_cast<float>(head_dim))};
  }
};

// The bits of the kernel's result.
std::vector<float> RunSegments(const SegmentScene& s, const DeviceInput& q, const DeviceInput& k,
                               const DeviceInput& v) {
  KernelDevice device;
  DeviceOutput out(s.dtype, s.count());
  SegmentAttentionParams params = s.Params();
  params.q = q.ptr();
  params.k = k.ptr();
  params.v = v.ptr();
  params.out = out.ptr();
  EXPECT_EQ(LaunchSegmentAttention(device.context, params), kCudaSuccess);
  EXPECT_TRUE(out.GuardsIntact()) << s.Name();
  return out.values();
}

std::vector<float> SegmentsOfOracle(const SegmentScene& s, const DeviceInput& q,
                                    const DeviceInput& k, const std::vector<float>& v) {
  std::vector<float> out(static_cast<size_t>(s.count()));
  SegmentAttentionParams params = s.Params();
  params.q = q.values().data();
  params.k = k.values().data();
  params.v = v.data();
  params.out = out.data();
  MakeNaiveOps()->SegmentAttention(params);
  return out;
}

void ExpectSegmentOracle(const SegmentScene& s) {
  const DeviceInput q(s.dtype, RandomFloats(s.count(), 1)), k(s.dtype, RandomFloats(s.count(), 2)),
      v(s.dtype, RandomFloats(s.count(), 3));
  std::vector<float> magnitudes = v.values();
  for (float& value : magnitudes) value = std::abs(value);
  const auto expected = SegmentsOfOracle(s, q, k, v.values());
  const auto magnitude = SegmentsOfOracle(s, q, k, magnitudes);
  ExpectWithin(
      RunSegments(s, q, k, v), expected,
      [&](size_t i) {
        return AttentionBound(s.dtype, 16.0 * s.head_dim, s.begin.back(), expected[i],
                              magnitude[i]);
      },
      s.Name());
}

// Odd sizes, which are read element by element, too.
TEST(SegmentAttentionTest, HeadDims) {
  for (const DType dtype : kHalfTypes) {
    for (const int32_t head_dim : {1, 8, 12, 16, 33, 64, 72, 80, 88, 96, 104, 128}) {
      ExpectSegmentOracle({dtype, 2, head_dim, {0, 70}});
    }
  }
}

TEST(SegmentAttentionTest, SegmentsOfAllLengths) {
  for (const int32_t head_dim : {16, 72}) {
    ExpectSegmentOracle({DType::kBF16, 3, head_dim, {0, 1, 64, 129, 130, 258, 321}});
  }
  ExpectSegmentOracle({DType::kF16, 1, 24, {0, 3, 3, 10}});  // one is empty
}

// More segments than one launch has.
TEST(SegmentAttentionTest, ManySegments) {
  SegmentScene s = {DType::kF16, 1, 16, {0}};
  for (int32_t i = 0; i < 250; ++i) s.begin.push_back(s.begin.back() + 1 + i % 4);
  ExpectSegmentOracle(s);
}

// A token's result depends on its segment alone, bit for bit.
TEST(SegmentAttentionTest, SegmentsAreAlone) {
  const SegmentScene all = {DType::kBF16, 2, 40, {0, 37, 150, 170}};
  const SegmentScene one = {DType::kBF16, 2, 40, {0, 113}};
  const auto q = RandomFloats(all.count(), 1), k = RandomFloats(all.count(), 2),
             v = RandomFloats(all.count(), 3);
  const auto part = [&](const std::vector<float>& values) {
    const auto first = values.begin() + 37 * 80;
    return std::vector<float>(first, first + one.count());
  };
  const DType dtype = all.dtype;
  const auto whole =
      RunSegments(all, DeviceInput(dtype, q), DeviceInput(dtype, k), DeviceInput(dtype, v));
  EXPECT_EQ(RunSegments(one, DeviceInput(dtype, part(q)), DeviceInput(dtype, part(k)),
                        DeviceInput(dtype, part(v))),
            part(whole));
}

}  // namespace
}  // namespace minisgl::cuda
