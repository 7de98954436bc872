// Rotation, QK-norm and KV writing against the oracle, over head sizes that take vectors and that
// do not, partial rotation, KV layouts and thread orders.
#include <numeric>

#include "kernel_check.h"

namespace minisgl::cuda {
namespace {

struct RopeCase {
  DType dtype = DType::kBF16;
  int64_t num_tokens = 5;
  int32_t num_heads = 4, num_kv_heads = 2;
  int32_t head_dim = 128, rotary_dim = 128;
  bool q_norm = false, k_norm = false;
  bool norm_last = false;
  bool query_scale = false;
  bool heads_outermost = false;  // within a page: [head][slot][E] instead of [slot][head][E]
  int32_t page_size = 4;
  int32_t value_dim = 0;        // 0: head_dim
  bool values_in_keys = false;  // and no values in qkv
  bool queries_alone = false;   // qkv has no keys either

  int32_t stored_value_dim() const {
    return values_in_keys ? 0 : value_dim == 0 ? head_dim : value_dim;
  }
  int32_t own_kv_heads() const { return queries_alone ? 0 : num_kv_heads; }
  int64_t token_width() const {
    return QkvWidth(num_heads, own_kv_heads(), head_dim, stored_value_dim());
  }
};

std::string Name(const RopeCase& c) {
  return std::string(DTypeName(c.dtype)) + " T" + std::to_string(c.num_tokens) + " H" +
         std::to_string(c.num_heads) + "/" + std::to_string(c.num_kv_heads) + " E" +
         std::to_string(c.head_dim) + " rot " + std::to_string(c.rotary_dim) +
         (c.q_norm ? " q_norm" : "") + (c.k_norm ? " k_norm" : "") +
         (c.norm_last ? " norm last" : "") + (c.query_scale ? " query scale" : "") +
         (c.heads_outermost ? " heads outermost" : "") +
         (c.value_dim > 0 ? " V" + std::to_string(c.value_dim) : "") +
         (c.values_in_keys ? " in keys" : "") + (c.queries_alone ? " queries alone" : "");
}

// A step's inputs, as floats that the dtype holds.
struct RopeInput {
  static constexpr int64_t kNumPages = 7;
  static constexpr int64_t kMaxPosition = 50;

  RopeInput(const RopeCase& c, int64_t first_token)
      : half(c.rotary_dim / 2), positions(c.num_tokens), slots(c.num_tokens) {
    const int64_t token_width = c.token_width();
    const std::vector<float> all = RandomFloats((first_token + c.num_tokens) * token_width, 1);
    qkv.assign(all.begin() + first_token * token_width, all.end());
    std::vector<int64_t> all_slots(kNumPages * c.page_size);
    std::iota(all_slots.begin(), all_slots.end(), 0);
    std::mt19937_64 random(2);
    std::shuffle(all_slots.begin(), all_slots.end(), random);
    for (int64_t t = 0; t < c.num_tokens; ++t) {
      positions[t] = static_cast<int32_t>((first_token + t) * 13 % kMaxPosition);
      slots[t] = all_slots[first_token + t];
    }
    for (int64_t position = 0; position < kMaxPosition; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = position * std::pow(10000.0, -static_cast<double>(i) / half);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
      query_scale.push_back(1 + 0.1f * static_cast<float>(position));
    }
    kv_elements = kNumPages * c.page_size * c.num_kv_heads * (c.head_dim + c.stored_value_dim());
  }

  RopeKvWriteParams Params(const RopeCase& c) const {
    const int64_t num_kv_heads = c.num_kv_heads, page_size = c.page_size, head_dim = c.head_dim;
    const int64_t keys = page_size * num_kv_heads * head_dim;
    const int64_t value_dim = c.values_in_keys ? head_dim : c.stored_value_dim();
    return {.qkv = nullptr,
            .positions = positions.data(),
            .slots = slots.data(),
            .cos = half == 0 ? nullptr : cos.data(),
            .sin = half == 0 ? nullptr : sin.data(),
            .kv = {.base = nullptr,
                   .page_stride = page_size * num_kv_heads * (head_dim + c.stored_value_dim()),
                   .slot_stride = c.heads_outermost ? head_dim : num_kv_heads * head_dim,
                   .head_stride = c.heads_outermost ? page_size * head_dim : head_dim,
                   .v_offset = c.values_in_keys ? head_dim - c.value_dim : keys,
                   .page_size = c.page_size,
                   .v_slot_stride = c.heads_outermost ? value_dim : num_kv_heads * value_dim,
                   .v_head_stride = c.heads_outermost ? page_size * value_dim : value_dim,
                   .values_in_keys = c.values_in_keys},
            .num_tokens = c.num_tokens,
            .num_heads = c.num_heads,
            .num_kv_heads = c.own_kv_heads(),
            .head_dim = c.head_dim,
            .rotary_dim = c.rotary_dim,
            .q_norm = nullptr,
            .k_norm = nullptr,
            .norm_eps = 1e-6f,
            .norm_last = c.norm_last,
            .query_scale = c.query_scale ? query_scale.data() : nullptr,
            .v_head_dim = c.value_dim};
  }

  int64_t half;
  std::vector<float> qkv;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  std::vector<float> cos, sin, query_scale;
  int64_t kv_elements;
};

struct RopeResult {
  std::vector<float> qkv, kv;
};

class RopeKvWriteTest : public ::testing::Test {
 protected:
  RopeResult Run(const RopeCase& c, int64_t first_token = 0) {
    const RopeInput input(c, first_token);
    DeviceOutput qkv(c.dtype, input.qkv);
    DeviceOutput kv(c.dtype, input.kv_elements);
    const DeviceArray<int32_t> positions(input.positions);
    const DeviceArray<int64_t> slots(input.slots);
    const DeviceInput cos(DType::kF32, input.cos), sin(DType::kF32, input.sin);
    const DeviceInput query_scale(DType::kF32, input.query_scale);
    const DeviceInput q_norm(DType::kF32, RandomFloats(c.head_dim, 3));
    const DeviceInput k_norm(DType::kF32, RandomFloats(c.head_dim, 4));
    RopeKvWriteParams params = input.Params(c);
    params.qkv = qkv.ptr();
    params.kv.base = kv.ptr();
    params.positions = positions.data();
    params.slots = slots.data();
    if (params.cos != nullptr) params.cos = cos.f32();
    if (params.sin != nullptr) params.sin = sin.f32();
    if (c.query_scale) params.query_scale = query_scale.f32();
    if (c.q_norm) params.q_norm = q_norm.f32();
    if (c.k_norm) params.k_norm = k_norm.f32();
    EXPECT_EQ(LaunchRopeKvWrite(device_.context, params), kCudaSuccess);
    EXPECT_TRUE(qkv.GuardsIntact()) << Name(c);
    EXPECT_TRUE(kv.GuardsIntact()) << Name(c);
    return {qkv.values(), kv.values()};
  }

  // The kernel does not change k and v in qkv.
  RopeResult Expected(const RopeCase& c) {
    const RopeInput input(c, 0);
    const DeviceInput qkv(c.dtype, input.qkv);
    const std::vector<float> q_norm = RandomFloats(c.head_dim, 3);
    const std::vector<float> k_norm = RandomFloats(c.head_dim, 4);
    RopeResult result = {qkv.values(), std::vector<float>(input.kv_elements,
                                                          std::numeric_limits<float>::quiet_NaN())};
    RopeKvWriteParams params = input.Params(c);
    params.qkv = result.qkv.data();
    params.kv.base = result.kv.data();
    if (c.q_norm) params.q_norm = q_norm.data();
    if (c.k_norm) params.k_norm = k_norm.data();
    oracle_->RopeKvWrite(params);
    const int64_t q_width = int64_t{c.num_heads} * c.head_dim;
    const int64_t token_width = c.token_width();
    for (int64_t t = 0; t < c.num_tokens; ++t) {
      std::copy(qkv.values().begin() + t * token_width + q_width,
                qkv.values().begin() + (t + 1) * token_width,
                result.qkv.begin() + t * token_width + q_width);
    }
    return result;
  }

  void Check(const RopeCase& c) {
    const RopeResult result = Run(c), expected = Expected(c);
    // Elements are a few units large at most (the scale of queries is at most 6), so the f32 part
    // of the error is a few of its roundings of numbers up to 16.
    const double largest = c.query_scale ? 6 * 16 : 16;
    const auto bound_of = [&](const std::vector<float>& values) {
      return [&, largest](size_t i) {
        const double f32_error = largest * 8 * 0x1.0p-24;
        return f32_error + RoundingError(c.dtype, std::abs(values[i]) + f32_error);
      };
    };
    ExpectWithin(result.qkv, expected.qkv, bound_of(expected.qkv), Name(c) + " q");
    ExpectWithin(result.kv, expected.kv, bound_of(expected.kv), Name(c) + " kv");
  }

  KernelDevice device_;
  std::unique_ptr<Ops> oracle_ = MakeNaiveOps();
};

// With and without the norms, in both KV layouts.
TEST_F(RopeKvWriteTest, HeadsOfVectorsMatchOracle) {
  for (DType dtype : kHalfTypes) {
    for (int32_t head_dim : {16, 64, 80, 96, 128, 256, 512}) {
      RopeCase c = {.dtype = dtype, .head_dim = head_dim, .rotary_dim = head_dim};
      Check(c);
      c.q_norm = c.k_norm = true;
      Check(c);
      c.heads_outermost = true;
      c.k_norm = false;
      Check(c);
    }
  }
}

TEST_F(RopeKvWriteTest, PartialRotationMatchesOracle) {
  // Past the rotated part: an odd number of vectors of 8, an even one, all of the head.
  for (const auto& [head_dim, rotary_dim] :
       {std::pair{80, 32}, {88, 32}, {128, 64}, {64, 16}, {128, 0}}) {
    RopeCase c = {.head_dim = head_dim, .rotary_dim = rotary_dim};
    Check(c);
    c.q_norm = c.k_norm = true;
    Check(c);
  }
}

// Heads of more elements than most lanes have; values of another size than keys, or that are part
// of them; no keys at all.
TEST_F(RopeKvWriteTest, OtherKeysAndValuesMatchOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const bool heads_outermost : {false, true}) {
      RopeCase c = {.dtype = dtype, .heads_outermost = heads_outermost};
      const auto check = [&](int32_t head_dim, int32_t rotary_dim, int32_t value_dim,
                             bool values_in_keys) {
        c.head_dim = head_dim;
        c.rotary_dim = rotary_dim;
        c.value_dim = value_dim;
        c.values_in_keys = values_in_keys;
        Check(c);
      };
      check(192, 64, 128, false);
      check(64, 64, 512, false);
      check(1024, 128, 8, false);
      check(24, 6, 18, false);
      check(1000, 100, 1000, false);
      c.num_kv_heads = 1;
      check(576, 64, 512, true);
      check(24, 6, 18, true);
      check(48, 16, 32, true);
      c.queries_alone = true;
      check(512, 128, 512, false);
      check(7, 4, 7, false);
    }
  }
}

// No rotation, with null tables; the norm after the rotation; queries scaled by position.
TEST_F(RopeKvWriteTest, EveryOptionMatchesOracle) {
  for (const auto& [head_dim, rotary_dim] :
       {std::pair{128, 128}, {128, 96}, {64, 16}, {64, 0}, {96, 72}, {7, 4}, {7, 0}}) {
    for (const DType dtype : kHalfTypes) {
      for (const bool has_norm : {false, true}) {
        for (const bool query_scale : {false, true}) {
          Check({.dtype = dtype,
                 .head_dim = head_dim,
                 .rotary_dim = rotary_dim,
                 .q_norm = has_norm,
                 .k_norm = has_norm,
                 .norm_last = has_norm,
                 .query_scale = query_scale});
        }
      }
    }
  }
}

TEST_F(RopeKvWriteTest, HeadsWithoutVectorsMatchOracle) {
  for (const auto& [head_dim, rotary_dim] :
       {std::pair{96, 72}, {12, 12}, {7, 4}, {2, 2}, {100, 100}, {511, 500}}) {
    RopeCase c = {.head_dim = head_dim, .rotary_dim = rotary_dim};
    Check(c);
    c.q_norm = c.k_norm = true;
    c.dtype = DType::kF16;
    Check(c);
  }
}

TEST_F(RopeKvWriteTest, EveryNumberOfTokensAndHeadsMatchesOracle) {
  for (int64_t num_tokens : {1, 2, 17}) {
    for (const auto& [num_heads, num_kv_heads] : {std::pair{1, 1}, {3, 1}, {14, 2}, {6, 3}}) {
      Check({.num_tokens = num_tokens,
             .num_heads = num_heads,
             .num_kv_heads = num_kv_heads,
             .head_dim = 64,
             .rotary_dim = 64,
             .q_norm = true,
             .k_norm = true,
             .page_size = 3});
    }
  }
}

TEST_F(RopeKvWriteTest, TokenDoesNotDependOnItsBatchMates) {
  const RopeCase all = {.num_tokens = 4, .num_heads = 3, .num_kv_heads = 1, .q_norm = true};
  const RopeResult together = Run(all);
  const int64_t token_width = together.qkv.size() / 4;
  RopeCase one = all;
  one.num_tokens = 1;
  for (int64_t t = 0; t < 4; ++t) {
    const RopeResult alone = Run(one, t);
    ExpectSameBytes(alone.qkv.data(), together.qkv.data() + t * token_width,
                    token_width * sizeof(float), "token " + std::to_string(t));
    for (size_t i = 0; i < alone.kv.size(); ++i) {
      if (!std::isnan(alone.kv[i])) {
        EXPECT_EQ(alone.kv[i], together.kv[i]) << i;
      }
    }
  }
}

TEST_F(RopeKvWriteTest, EveryThreadOrderGivesTheSame) {
  for (int32_t rotary_dim : {96, 72}) {
    const RopeCase c = {.head_dim = 96,
                        .rotary_dim = rotary_dim,
                        .q_norm = true,
                        .k_norm = true,
                        .norm_last = rotary_dim == 72,
                        .query_scale = true};
    const RopeResult first = Run(c);
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      const RopeResult result = Run(c);
      const std::string name = "order " + std::to_string(order);
      ExpectSameBytes(result.qkv.data(), first.qkv.data(), first.qkv.size() * sizeof(float), name);
      ExpectSameBytes(result.kv.data(), first.kv.data(), first.kv.size() * sizeof(float), name);
    });
  }
}

}  // namespace
}  // namespace minisgl::cuda
