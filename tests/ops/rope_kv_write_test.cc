// RopeKvWrite: every option against the oracle, and both against values computed by hand.
#include "op_check.h"

namespace minisgl::cpu {
namespace {

struct RopeShape {
  int32_t num_heads, num_kv_heads, head_dim, rotary_dim;
};

TEST(RopeKvWriteTest, AgreesWithOracleInBothLayouts) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (const RopeShape& s :
         {RopeShape{4, 2, 64, 64}, {3, 3, 80, 32}, {6, 2, 96, 96}, {2, 1, 6, 6}, {1, 1, 8, 4}}) {
      for (int64_t num_tokens : {1, 5, 40}) {
        const int64_t width = (s.num_heads + 2 * s.num_kv_heads) * s.head_dim;
        const auto before = RandomFloats(num_tokens * width, 11);
        const auto cos = RandomFloats(100 * s.rotary_dim / 2, 12, 0.7);
        const auto sin = RandomFloats(100 * s.rotary_dim / 2, 13, 0.7);
        std::vector<int32_t> positions;
        std::vector<int64_t> slots;
        for (int64_t t = 0; t < num_tokens; ++t) {
          positions.push_back(static_cast<int32_t>(99 - t));
          slots.push_back((t * 7 + 3) % 48);
        }
        const int64_t page = 2 * 4 * s.num_kv_heads * s.head_dim;
        auto qkv = before, expected = before;
        std::vector<float> kv(12 * page, 0.0f), expected_kv(12 * page, 0.0f);
        // Token first, so that the CPU stores keys at the strides, and storages can be compared.
        const auto layer = [&](float* base) {
          return KvLayer{base,
                         page,
                         int64_t{s.num_kv_heads} * s.head_dim,
                         s.num_kv_heads == 1 ? page : s.head_dim,
                         page / 2,
                         4};
        };
        const auto q_norm = RandomFloats(s.head_dim, 14), k_norm = RandomFloats(s.head_dim, 15);
        const bool norms = num_tokens == 5;
        const auto run = [&](Ops& on, float* data, float* storage) {
          on.RopeKvWrite({data, positions.data(), slots.data(), cos.data(), sin.data(),
                          layer(storage), num_tokens, s.num_heads, s.num_kv_heads, s.head_dim,
                          s.rotary_dim, norms ? q_norm.data() : nullptr,
                          norms ? k_norm.data() : nullptr, 1e-5f});
        };
        run(*ops, qkv.data(), kv.data());
        run(*oracle, expected.data(), expected_kv.data());
        const auto name = fmt::format("{} head_dim {}", ops->Name(), s.head_dim);
        // Weights and normalised values of a few units each.
        const auto bound = [&](size_t) { return (norms ? 32 : 4) * kEpsilon * 16; };
        // The keys and values in qkv are unspecified afterwards.
        for (int64_t t = 0; t < num_tokens; ++t) {
          const auto queries = [&](const std::vector<float>& of) {
            return std::vector<float>(of.begin() + t * width,
                                      of.begin() + t * width + s.num_heads * s.head_dim);
          };
          ExpectClose(queries(qkv), queries(expected), bound, name);
        }
        if (s.num_kv_heads > 1) ExpectClose(kv, expected_kv, bound, name);
      }
    }
  }
}

// One token at position 1 of a model with one head of each kind, which is rotated by 90 degrees.
// The norms reveal the order of norm and rotation. Holds q and k after the operation.
struct Heads {
  std::vector<float> q, k;
};
Heads TurnOne(Ops& ops, RopeKvWriteParams p, int32_t head_dim, std::vector<float> qkv) {
  const int32_t position = 1;
  const int64_t slot = 0;
  const std::vector<float> v(qkv.begin() + 2 * head_dim, qkv.end());
  std::vector<float> storage(2 * head_dim);
  p.qkv = qkv.data();
  p.positions = &position;
  p.slots = &slot;
  p.kv = {storage.data(), 2 * head_dim, head_dim, 2 * head_dim, head_dim, 1};
  p.num_tokens = p.num_heads = p.num_kv_heads = 1;
  p.head_dim = head_dim;
  ops.RopeKvWrite(p);
  EXPECT_EQ(std::vector<float>(storage.begin() + head_dim, storage.end()), v);
  return {{qkv.begin(), qkv.begin() + head_dim}, {storage.begin(), storage.begin() + head_dim}};
}

TEST(RopeKvWriteTest, OrderOfNormRotationAndScaleByHand) {
  const float cos[] = {1, 0}, sin[] = {0, 1}, query_scale[] = {1, 10};
  // The root mean square of (1, 7) and of (5, 5) is 5.
  const std::vector<float> q_norm = {1, 2}, k_norm = {3, 1}, qkv = {1, 7, 5, -5, 8, 9};
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  for (const auto& ops : all) {
    const auto expect = [&](const RopeKvWriteParams& p, std::vector<float> q, std::vector<float> k,
                            const char* what) {
      const Heads heads = TurnOne(*ops, p, 2, qkv);
      const auto bound = [](size_t) { return 4e-6; };
      ExpectClose(heads.q, q, bound, ops->Name() + " q " + what);
      ExpectClose(heads.k, k, bound, ops->Name() + " k " + what);
    };
    RopeKvWriteParams p = {};
    expect(p, {1, 7}, {5, -5}, "neither rotated nor scaled");
    p.query_scale = query_scale;
    expect(p, {10, 70}, {5, -5}, "scaled");
    p.query_scale = nullptr;
    p.cos = cos;
    p.sin = sin;
    p.rotary_dim = 2;
    expect(p, {-7, 1}, {5, 5}, "rotated");
    p.q_norm = q_norm.data();
    p.k_norm = k_norm.data();
    expect(p, {-2.8f, 0.2f}, {1, 3}, "norm first");
    p.norm_last = true;
    expect(p, {-1.4f, 0.4f}, {3, 1}, "norm last");
    p.query_scale = query_scale;
    expect(p, {-14, 4}, {3, 1}, "norm last, scaled");
    p.cos = p.sin = nullptr;
    p.rotary_dim = 0;
    expect(p, {2, 28}, {3, -1}, "norm without rotation");
  }
}

// Features past rotary_dim stay; pairs are (i, i + rotary_dim / 2).
TEST(RopeKvWriteTest, PartOfAHeadByHand) {
  const float cos[] = {1, 1, 0, 0}, sin[] = {0, 0, 1, -1};
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  for (const auto& ops : all) {
    RopeKvWriteParams p = {};
    p.cos = cos;
    p.sin = sin;
    p.rotary_dim = 4;
    const Heads heads =
        TurnOne(*ops, p, 6, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6});
    EXPECT_EQ(heads.q, std::vector<float>({-3, 4, 1, -2, 5, 6})) << ops->Name();
    EXPECT_EQ(heads.k, std::vector<float>({-9, 10, 7, -8, 11, 12})) << ops->Name();
  }
}

// bf16 keys and values are rounded to nearest, ties to even, both as pairs and at strides.
TEST(RopeKvWriteTest, Bf16IsTheNearestInBothLayouts) {
  constexpr int32_t kKvHeads = 2;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {1 + 0x1p-8f,  1 + 0x3p-8f, -1 - 0x1p-8f,  0x1.fffp127f,
                                      -0x1.ffp127f, kInfinity,   -kInfinity,    0x1p-140f,
                                      -0.0f,        1 + 0x1p-9f, 1 + 0x1.1p-8f, 0x1.fefp5f};
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  for (const auto& ops : all) {
    const bool is_naive = all.back() == ops;
    for (const int32_t head_dim : {32, 20}) {
      for (const int32_t page_size : {16, 4}) {
        const int64_t width = int64_t{3} * kKvHeads * head_dim, num_tokens = 37;
        const int64_t head_stride = int64_t{page_size} * head_dim;
        auto qkv = RandomFloats(num_tokens * width, 70);
        for (size_t i = 0; i < qkv.size(); i += 3) qkv[i] = special[i / 3 % special.size()];
        qkv[5 * width + 2 * kKvHeads * head_dim] = std::numeric_limits<float>::quiet_NaN();
        const auto given = qkv;
        const int64_t page_stride = 2 * kKvHeads * head_stride;
        std::vector<float> memory = KvMemory(40 / page_size * page_stride);  // twice what is needed
        std::vector<int32_t> positions(num_tokens, 0);
        std::vector<int64_t> slots;
        for (int64_t t = 0; t < num_tokens; ++t) slots.push_back((t * 7 + 3) % 37);
        ops->RopeKvWrite({.qkv = qkv.data(),
                          .positions = positions.data(),
                          .slots = slots.data(),
                          .cos = nullptr,
                          .sin = nullptr,
                          .kv = {.base = KvBase(&memory, true),
                                 .page_stride = page_stride,
                                 .slot_stride = head_dim,
                                 .head_stride = head_stride,
                                 .v_offset = kKvHeads * head_stride,
                                 .page_size = page_size},
                          .num_tokens = num_tokens,
                          .num_heads = kKvHeads,
                          .num_kv_heads = kKvHeads,
                          .head_dim = head_dim,
                          .rotary_dim = 0});
        const bool has_pairs = !is_naive && head_dim == 32 && page_size == 16;
        const auto* const words = reinterpret_cast<const uint16_t*>(memory.data());
        for (int64_t t = 0; t < num_tokens; ++t) {
          for (int64_t h = 0; h < kKvHeads; ++h) {
            const int64_t offset = slots[t] % page_size;
            const int64_t head = slots[t] / page_size * page_stride + h * head_stride;
            for (int64_t e = 0; e < head_dim; ++e) {
              const int64_t plain = offset * head_dim + e;
              const int64_t key = has_pairs ? (e / 2 * page_size + offset) * 2 + e % 2 : plain;
              const int64_t value =
                  has_pairs ? (offset / 2 * head_dim + e) * 2 + offset % 2 : plain;
              const float* const k = given.data() + t * width + (kKvHeads + h) * head_dim;
              const float* const v = k + kKvHeads * head_dim;
              ASSERT_EQ(words[head + key], FloatToBf16(k[e]))
                  << ops->Name() << " key " << t << ", " << e << ": " << k[e];
              ASSERT_EQ(words[head + kKvHeads * head_stride + value], FloatToBf16(v[e]))
                  << ops->Name() << " value " << t << ", " << e << ": " << v[e];
            }
          }
        }
      }
    }
  }
}

// Two KV heads of keys of 2 and values of 3, at strides: slot after slot, and head after head.
TEST(RopeKvWriteTest, ValuesOfAnotherWidthByHand) {
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  for (const auto& ops : all) {
    std::vector<float> qkv = {1, 2, 10, 11, 12, 13, 20, 21, 22, 23, 24, 25};
    const std::vector<float> before = qkv;
    std::vector<float> storage(20);
    const int32_t position = 0;
    const int64_t slot = 1;
    ops->RopeKvWrite({.qkv = qkv.data(),
                      .positions = &position,
                      .slots = &slot,
                      .cos = nullptr,
                      .sin = nullptr,
                      .kv = {.base = storage.data(),
                             .page_stride = 20,
                             .slot_stride = 4,
                             .head_stride = 2,
                             .v_offset = 8,
                             .page_size = 2,
                             .v_slot_stride = 6,
                             .v_head_stride = 3},
                      .num_tokens = 1,
                      .num_heads = 1,
                      .num_kv_heads = 2,
                      .head_dim = 2,
                      .rotary_dim = 0,
                      .v_head_dim = 3});
    EXPECT_EQ(storage, std::vector<float>(
                           {0, 0, 0, 0, 10, 11, 12, 13, 0, 0, 0, 0, 0, 0, 20, 21, 22, 23, 24, 25}))
        << ops->Name();
  }
}

// Without KV heads, queries are turned and nothing is written.
TEST(RopeKvWriteTest, QueriesAloneByHand) {
  const float cos[] = {0, 0}, sin[] = {1, -1};
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  for (const auto& ops : all) {
    std::vector<float> q = {1, 2, 3, 4, 5, 6, 7, 8};
    const int32_t positions[] = {0, 1};
    const int64_t slots[] = {0, 1};
    ops->RopeKvWrite({.qkv = q.data(),
                      .positions = positions,
                      .slots = slots,
                      .cos = cos,
                      .sin = sin,
                      .kv = {},
                      .num_tokens = 2,
                      .num_heads = 2,
                      .num_kv_heads = 0,
                      .head_dim = 2,
                      .rotary_dim = 2});
    EXPECT_EQ(q, std::vector<float>({-2, 1, -4, 3, 6, -5, 8, -7})) << ops->Name();
  }
}

// A token's queries, key and value do not depend on the other tokens of the call.
TEST(RopeKvWriteTest, EveryOptionAloneAndAgainstTheOracle) {
  const auto oracle = MakeNaiveOps();
  constexpr int32_t kHeadDim = 40, kNumTokens = 33, kWidth = 4 * kHeadDim;
  const auto qkv = RandomFloats(kNumTokens * kWidth, 60);
  const auto tables = RandomFloats(2 * kNumTokens * kHeadDim, 61);
  const auto norm = RandomFloats(kHeadDim, 62), scale = RandomFloats(kNumTokens, 63);
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  for (int32_t t = 0; t < kNumTokens; ++t) {
    positions.push_back(kNumTokens - 1 - t);
    slots.push_back(t);
  }
  const auto run = [&](Ops& on, int64_t token, int64_t num_tokens, int options) {
    std::vector<float> data(qkv.begin() + token * kWidth,
                            qkv.begin() + (token + num_tokens) * kWidth);
    std::vector<float> storage(kNumTokens * 2 * kHeadDim);
    RopeKvWriteParams p = {};
    p.qkv = data.data();
    p.positions = positions.data() + token;
    p.slots = slots.data() + token;
    p.rotary_dim = options % 3 == 0 ? 0 : options % 3 == 1 ? 12 : kHeadDim;
    if (p.rotary_dim > 0) p.cos = tables.data();
    if (p.rotary_dim > 0) p.sin = tables.data() + kNumTokens * kHeadDim;
    p.kv = {storage.data(), 2 * kHeadDim, 2 * kHeadDim, kHeadDim, kHeadDim, 1};
    p.num_tokens = num_tokens;
    p.num_heads = 2;
    p.num_kv_heads = 1;
    p.head_dim = kHeadDim;
    if (options / 3 % 3 > 0) p.q_norm = p.k_norm = norm.data();
    p.norm_eps = 1e-5f;
    p.norm_last = options / 3 % 3 == 2;
    p.query_scale = options / 9 == 1 ? scale.data() : nullptr;
    on.RopeKvWrite(p);
    std::vector<float> all;  // for each token q, k, v
    for (int64_t t = 0; t < num_tokens; ++t) {
      all.insert(all.end(), data.begin() + t * kWidth, data.begin() + t * kWidth + 2 * kHeadDim);
      const auto kv = storage.begin() + slots[token + t] * 2 * kHeadDim;
      all.insert(all.end(), kv, kv + 2 * kHeadDim);
    }
    return all;
  };
  for (const auto& ops : AllCpuOps()) {
    for (int options = 0; options < 18; ++options) {
      const auto name = fmt::format("{} options {}", ops->Name(), options);
      const auto all = run(*ops, 0, kNumTokens, options);
      // Up to four factors of a few units.
      ExpectClose(
          all, run(*oracle, 0, kNumTokens, options), [](size_t) { return 64 * kEpsilon * 32; },
          name);
      const int64_t row = 4 * kHeadDim;
      ExpectSameBits(run(*ops, 20, 1, options), {all.begin() + 20 * row, all.begin() + 21 * row},
                     name);
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
