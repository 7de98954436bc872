// Keys and values as codes of 8 bits: the codes that are written, one by one, and attention over
// them, against the oracle and bit for bit over pages, chunks and batch-mates.
#include <cmath>
#include <cstdint>
#include <limits>

#include "attention_run.h"
#include "minisgl/tensor/e4m3_scale.h"

namespace minisgl::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
double NumberOf(uint8_t code) { return E4M3ToFloat(code); }

TEST(E4M3ScaleTest, EachCodeIsTheCodeOfItsNumber) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    EXPECT_EQ(ToE4M3(E4M3ToFloat(static_cast<uint8_t>(code))), code);
  }
}

// Between two neighbours: the nearer one, and of two equally near ones the even one.
TEST(E4M3ScaleTest, NumbersRoundToTheNearestTiesToEven) {
  for (int code = 0; code + 1 < 0x7F; ++code) {
    const double low = NumberOf(static_cast<uint8_t>(code));
    const double high = NumberOf(static_cast<uint8_t>(code + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    for (const int sign : {0, 0x80}) {
      const float factor = sign == 0 ? 1.0f : -1.0f;
      EXPECT_EQ(ToE4M3(factor * middle), sign | even) << middle;
      EXPECT_EQ(ToE4M3(factor * std::nextafter(middle, 0.0f)), sign | code) << middle;
      EXPECT_EQ(ToE4M3(factor * std::nextafter(middle, 500.0f)), sign | (code + 1)) << middle;
    }
  }
  EXPECT_EQ(ToE4M3(0x1p-140f), 0);
  EXPECT_EQ(ToE4M3(-0.0f), 0x80);
  EXPECT_EQ(ToE4M3(449), 0x7E);
  EXPECT_EQ(ToE4M3(-kInfinity), 0xFE);
  EXPECT_EQ(ToE4M3(kNotANumber), 0);
}

TEST(E4M3ScaleTest, TheScaleIsTheSmallestThatHoldsTheLargest) {
  for (int exponent = -90; exponent <= 118; ++exponent) {
    const float most = std::ldexp(448.0f, exponent);
    const int byte = 127 + exponent;
    EXPECT_EQ(E4M3ScaleOf(BitsOf(most)), byte);
    EXPECT_EQ(E4M3ScaleOf(BitsOf(std::nextafter(most, kInfinity))), byte + 1);
    EXPECT_EQ(E4M3ScaleOf(BitsOf(std::nextafter(most / 2, kInfinity))), byte);
    EXPECT_EQ(FloatOf(E4M3ScaleBits(static_cast<uint8_t>(byte))), std::ldexp(1.0f, exponent));
    EXPECT_EQ(FloatOf(E4M3InverseScaleBits(static_cast<uint8_t>(byte))),
              std::ldexp(1.0f, -exponent));
  }
  EXPECT_EQ(E4M3ScaleOf(0), kE4M3ScaleMin);
  EXPECT_EQ(E4M3ScaleOf(BitsOf(0x1p-140f)), kE4M3ScaleMin);
  EXPECT_EQ(E4M3ScaleOf(BitsOf(std::numeric_limits<float>::max())), kE4M3ScaleMax);
  EXPECT_EQ(E4M3ScaleOf(BitsOf(kInfinity)), kE4M3ScaleNaN);
  EXPECT_EQ(E4M3ScaleOf(BitsOf(kNotANumber)), kE4M3ScaleNaN);
  EXPECT_TRUE(std::isnan(FloatOf(E4M3ScaleBits(kE4M3ScaleNaN))));
}

// Every product of a code and a scale is a bf16.
TEST(E4M3ScaleTest, ProductsAreExactInBf16) {
  for (int scale = kE4M3ScaleMin; scale <= kE4M3ScaleMax; ++scale) {
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7F) == 0x7F) continue;
      const float factor = FloatOf(E4M3ScaleBits(static_cast<uint8_t>(scale)));
      const float product = E4M3ToFloat(static_cast<uint8_t>(code)) * factor;
      ASSERT_EQ(static_cast<double>(product),
                NumberOf(static_cast<uint8_t>(code)) * static_cast<double>(factor));
      ASSERT_EQ(Bf16ToFloat(FloatToBf16(product)), product);
    }
  }
}

// Heads whose numbers test the borders: of scales, of codes and of ties.
std::vector<float> BorderHead(int kind, int64_t width, uint64_t seed) {
  std::vector<float> head = RandomFloats(width, seed);
  switch (kind) {
    case 0:
      break;
    case 1:
      head.assign(head.size(), 0.0f);
      head[1] = -0.0f;
      break;
    case 2:  // the largest is 448 times a power of two
      head[3] = 3.5f;
      break;
    case 3:  // a little above
      head[5] = std::nextafter(-3.5f, -4.0f);
      break;
    case 4:  // each tie, of normal and of subnormal codes
      for (size_t i = 1; i < head.size(); ++i) {
        const int code = static_cast<int>((i * 7 + seed) % 0x7E);
        const double tie =
            (NumberOf(static_cast<uint8_t>(code)) + NumberOf(static_cast<uint8_t>(code + 1))) / 2;
        head[i] = static_cast<float>(i % 2 == 0 ? tie : -tie);
      }
      head[0] = 448;
      break;
    case 5:  // tiny
      for (float& x : head) x *= 0x1p-110f;
      break;
    case 6:  // huge: it saturates
      for (float& x : head) x *= 0x1p120f;
      head[2] = std::numeric_limits<float>::max();
      break;
    case 7:
      head[4] = kInfinity;
      break;
    default:
      head[6] = kNotANumber;
      break;
  }
  return head;
}

// The bytes of a head, by the scalar reference.
std::vector<uint8_t> BytesOf(const std::vector<float>& head, uint8_t* scale) {
  uint32_t most = 0;
  for (const float x : head) most = std::max(most, BitsOf(x) & 0x7FFFFFFFu);
  *scale = E4M3ScaleOf(most);
  std::vector<uint8_t> bytes;
  for (const float x : head) {
    const float inverse = FloatOf(E4M3InverseScaleBits(*scale));
    bytes.push_back(*scale == kE4M3ScaleNaN ? uint8_t{0} : ToE4M3(x * inverse));
  }
  return bytes;
}

// Where byte `e` of the head of a token lies within the block of a head and a page.
int64_t PlaceOf(KvOrder order, int64_t page_size, int64_t width, int64_t offset, int64_t e) {
  switch (order) {
    case KvOrder::kColumnPairs:
      return (e / 2 * page_size + offset) * 2 + e % 2;
    case KvOrder::kRowPairs:
      return (offset / 2 * width + e) * 2 + offset % 2;
    default:
      return offset * width + e;
  }
}

TEST(KvCodesTest, WritesTheNearestCodesAndTheirScales) {
  constexpr int64_t kHeadDim = 48, kValueDim = 32;
  constexpr int32_t kHeads = 3, kTokens = 27;
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  for (const auto& ops : all) {
    for (const int64_t page_size : {1, 4, 16, 64}) {
      const int64_t values = kHeads * page_size * kHeadDim;
      const int64_t scales = values + kHeads * page_size * kValueDim;
      const int64_t stride = scales + 2 * kHeads * page_size;
      const int64_t num_pages = 64 / page_size;
      std::vector<uint8_t> pages(static_cast<size_t>(num_pages * stride), 0xAA);
      auto expected = pages;
      const KvLayer kv = {.base = {pages.data(), DType::kE4M3},
                          .page_stride = stride,
                          .slot_stride = kHeadDim,
                          .head_stride = page_size * kHeadDim,
                          .v_offset = values,
                          .page_size = static_cast<int32_t>(page_size),
                          .v_slot_stride = kValueDim,
                          .v_head_stride = page_size * kValueDim,
                          .k_scales = scales,
                          .v_scales = scales + kHeads * page_size};
      const KvOrders orders = ops->OrdersOf(kv);
      std::vector<float> qkv;
      std::vector<int64_t> slots;
      const std::vector<int32_t> positions(kTokens, 0);
      for (int32_t t = 0; t < kTokens; ++t) {
        slots.push_back((t * 5 + 3) % 64);
        const int64_t page = slots.back() / page_size * stride, offset = slots.back() % page_size;
        qkv.insert(qkv.end(), kHeads * kHeadDim, 1.0f);
        const auto put = [&](int64_t width, int64_t base, int64_t scale_base, KvOrder order) {
          for (int64_t h = 0; h < kHeads; ++h) {
            const auto head = BorderHead(static_cast<int>(t + h) % 9, width, 31 * t + h + width);
            qkv.insert(qkv.end(), head.begin(), head.end());
            uint8_t scale;
            const auto bytes = BytesOf(head, &scale);
            expected[page + scale_base + h * page_size + offset] = scale;
            for (int64_t e = 0; e < width; ++e) {
              const int64_t at = PlaceOf(order, page_size, width, offset, e);
              expected[page + base + h * page_size * width + at] = bytes[e];
            }
          }
        };
        put(kHeadDim, 0, scales, orders.keys);
        put(kValueDim, values, scales + kHeads * page_size, orders.values);
      }
      ops->RopeKvWrite({qkv.data(), positions.data(), slots.data(), nullptr, nullptr, kv, kTokens,
                        kHeads, kHeads, kHeadDim, /*rotary_dim=*/0, nullptr, nullptr, 0, false,
                        nullptr, kValueDim});
      EXPECT_EQ(pages, expected) << ops->Name() << " pages of " << page_size;
    }
  }
}

void ExpectCodesAgreeWithOracle(AttentionCase c, const std::vector<int32_t>& lengths,
                                const Schedule& schedule) {
  c.keeps_codes = true;
  const auto oracle = MakeNaiveOps();
  AttentionRun exact(*oracle, c, lengths, 1), rounding(*oracle, c, lengths, 1);
  rounding.RoundQueries();
  const auto as_stored = exact.Run(kAtOnce), rounded = rounding.Run(kAtOnce);
  auto all_ops = AllCpuOps();
  if (AvailableCpuTargets().front() != CpuTarget::kAmx) {
    all_ops.push_back(MakeOps(CpuTargetName(CpuTarget::kAmxStandIn), 2));
  }
  for (const auto& ops : all_ops) {
    const bool rounds = RoundsToBf16(*ops);
    const double bound = Bound(c) + (rounds ? kBf16WeightError * 5 * c.deviation : 0);
    const auto actual = AttentionRun(*ops, c, lengths, 2).Run(schedule);
    for (size_t row = 0; row < lengths.size(); ++row) {
      ExpectClose(
          actual[row], (rounds ? rounded : as_stored)[row], [&](size_t) { return bound; },
          fmt::format("{} {} row {}", ops->Name(), c.Name(), row));
    }
  }
}

TEST(KvCodesTest, AttentionAgreesWithTheOracle) {
  for (const AttentionCase& c : std::vector<AttentionCase>{
           {.num_heads = 2, .num_kv_heads = 2, .head_dim = 64},
           {.num_heads = 4, .num_kv_heads = 2, .head_dim = 80, .page_size = 4},
           {.num_heads = 6, .num_kv_heads = 2, .head_dim = 96, .page_size = 1},
           {.num_heads = 4, .num_kv_heads = 1, .head_dim = 128, .page_size = 64},
           {.num_heads = 16, .num_kv_heads = 1, .head_dim = 64, .logit_softcap = 2},
           {.num_heads = 3, .num_kv_heads = 1, .head_dim = 16, .page_size = 32, .has_sinks = true},
           {.num_heads = 4, .num_kv_heads = 2, .head_dim = 48, .v_head_dim = 32},
           {.num_heads = 4, .num_kv_heads = 1, .head_dim = 16, .v_head_dim = 80},
           {.num_heads = 2, .num_kv_heads = 1, .head_dim = 32, .page_size = 8, .deviation = 0.01},
       }) {
    ExpectCodesAgreeWithOracle(c, {1, 2, 17, 64, 65, 131}, {{1, 40, 7, 64}});
  }
  ExpectCodesAgreeWithOracle({.head_dim = 16, .has_distances = true, .runs = {{0, 30}}}, {252, 140},
                             {{30, 200}, {170, 3}, {2}, {50}});
  ExpectCodesAgreeWithOracle({.num_heads = 4,
                              .num_kv_heads = 2,
                              .head_dim = 32,
                              .page_size = 2,
                              .runs = {{1, 30}, {30, 131}}},
                             {252, 200, 140}, {{30, 200, 140}, {170, 3}, {2}, {50}});
  ExpectCodesAgreeWithOracle({.head_dim = 16}, {1060}, {{560}, {1}, {499}});
}

TEST(KvCodesTest, ResultsDependOnTheRequestOnly) {
  for (const auto& [target, keeps_bf16] : AttentionTargets()) {
    if (!keeps_bf16) continue;  // the same kernels
    for (AttentionCase c : {AttentionCase{.num_heads = 4, .num_kv_heads = 2, .head_dim = 32},
                            {.num_heads = 6, .num_kv_heads = 2, .head_dim = 80},
                            {.num_heads = 15, .head_dim = 48, .v_head_dim = 32}}) {
      c.keeps_codes = true;
      const auto one = MakeOps(CpuTargetName(target), 1);
      const auto two = MakeOps(CpuTargetName(target), 2);
      const auto expected = AttentionRun(*one, c, {170}, 1).Run(kAtOnce)[0];
      for (const int32_t page_size : {1, 4, 16, 64}) {
        c.page_size = page_size;
        for (const Schedule& schedule : {kAtOnce, Schedule{{1}}, Schedule{{7}}, Schedule{{32}}}) {
          Ops& ops = schedule[0][0] == 7 ? *one : *two;
          ExpectSameBits(AttentionRun(ops, c, {170}, 2).Run(schedule)[0], expected, c.Name());
        }
        ExpectSameBits(AttentionRun(*two, c, {170, 90, 200, 3, 64}, 3).Run({{1, 20, 33}})[0],
                       expected, "with batch-mates");
      }
    }
  }
}

// A number that is not finite makes its head NaN: each output that sees the key, or the value, and
// no other.
TEST(KvCodesTest, ANumberThatIsNotFiniteIsNotHidden) {
  for (const auto& [target, keeps_bf16] : AttentionTargets()) {
    if (!keeps_bf16) continue;  // the same kernels
    const auto ops = MakeOps(CpuTargetName(target), 1);
    for (const int32_t poisoned : {0, 5, 63, 64, 69}) {
      for (const bool value : {false, true}) {
        for (const int32_t page_size : {4, 16}) {
          const AttentionCase c = {
              .num_heads = 2, .head_dim = 16, .page_size = page_size, .keeps_codes = true};
          AttentionRun run(*ops, c, {72}, 1);
          run.Poison(0, poisoned, value);
          const std::vector<float> out = run.Run(kAtOnce)[0];
          for (size_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(std::isnan(out[i]), static_cast<int32_t>(i / 32) >= poisoned)
                << c.Name() << (value ? " value " : " key ") << poisoned;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
