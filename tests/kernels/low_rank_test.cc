// The kernels of adapters in slots against the oracle: products of several parts and types, odd
// sizes, rows of many adapters, weights in place of the model's, embeddings; and the bits of a row,
// which do not depend on its tile.
#include <cstring>

#include "kernel_check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

// A slot's bytes while they are made.
class SlotBytes {
 public:
  explicit SlotBytes(size_t head) : bytes_((head + 15) / 16 * 16) {}
  template <typename T>
  int64_t Add(const std::vector<T>& values) {
    const size_t at = bytes_.size();
    bytes_.resize(at + (values.size() * sizeof(T) + 15) / 16 * 16);
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
    return static_cast<int64_t>(at);
  }
  int64_t AddFloats(const std::vector<float>& values, bool is_bf16) {
    if (!is_bf16) return Add(values);
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(FloatToBf16(value));
    return Add(bits);
  }
  template <typename T>
  void Put(size_t at, const T& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

 private:
  std::vector<unsigned char> bytes_;
};

struct PartShape {
  int32_t first_out, num_out, rank;
};

struct SlotShape {
  int64_t num_in, num_out;
  std::vector<PartShape> parts;
  bool has_factor = false, is_bf16 = false, has_whole = false;
};

SlotProduct AddProduct(const SlotShape& shape, uint64_t seed, SlotBytes* slot) {
  SlotProduct product = {.is_bf16 = shape.is_bf16 ? 1 : 0};
  std::vector<SlotPart> parts;
  for (const PartShape& part : shape.parts) {
    const int64_t count = CeilDiv<int64_t>(part.num_out, kLowRankTile) * kLowRankTile * part.rank;
    parts.push_back(
        {.b = slot->AddFloats(RandomFloats(count, seed + parts.size() + 5), shape.is_bf16),
         .first_out = part.first_out,
         .num_out = part.num_out,
         .first_rank = product.num_ranks,
         .rank = part.rank,
         .scale = 0.5f + static_cast<float>(parts.size())});
    product.num_ranks += part.rank;
  }
  product.num_parts = static_cast<int32_t>(parts.size());
  product.parts = slot->Add(parts);
  product.a =
      slot->AddFloats(RandomFloats(product.num_ranks * shape.num_in, seed + 1), shape.is_bf16);
  if (shape.has_factor) {
    product.factor = slot->Add(RandomFloats(shape.num_out, seed + 2));
    product.offset = slot->Add(RandomFloats(shape.num_out, seed + 3));
  }
  if (!shape.has_whole) return product;
  const int64_t num_out = shape.num_out - 3;
  product.whole = slot->Add(std::vector<SlotWhole>{
      {.weights = slot->AddFloats(RandomFloats(num_out * shape.num_in, seed + 4), shape.is_bf16),
       .first_out = 2,
       .num_out = static_cast<int32_t>(num_out),
       .is_bf16 = product.is_bf16}});
  product.num_whole = 1;
  return product;
}

// Slots one after another; slot 1 changes nothing of the product.
std::vector<unsigned char> MakeSlots(const SlotShape& shape, int num_slots, int num_experts,
                                     size_t* slot_bytes) {
  std::vector<SlotBytes> slots;
  for (int i = 0; i < num_slots; ++i) {
    slots.emplace_back(sizeof(SlotProduct) * static_cast<size_t>(num_experts + 1));
    for (int expert = 0; expert < num_experts && i != 1; ++expert) {
      const auto seed = static_cast<uint64_t>(100 * i + 10 * expert);
      const SlotProduct product = AddProduct(shape, seed, &slots.back());
      slots.back().Put(sizeof(SlotProduct) * static_cast<size_t>(expert + 1), product);
    }
    *slot_bytes = std::max(*slot_bytes, slots.back().bytes().size());
  }
  std::vector<unsigned char> all(*slot_bytes * slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    std::copy(slots[i].bytes().begin(), slots[i].bytes().end(), all.data() + i * *slot_bytes);
  }
  return all;
}

const SlotShape kSlotShapes[] = {
    {64, 48, {{0, 48, 8}}},
    {37, 100, {{0, 33, 1}, {40, 17, 5}}, true},
    {304, 300, {{0, 128, 16}, {128, 64, 3}, {192, 108, 33}}, false, true},
    {300, 40, {{0, 40, 20}}, false, true},
    {16, 20, {}, true},
    {24, 70, {{15, 1, 1}, {17, 1, 1}, {60, 1, 1}}, true},
    {40, 67, {}, false, false, true},
    {33, 50, {{4, 30, 4}}, true, true, true},
};

struct SlotCase {
  DType dtype = DType::kBF16, out_dtype = DType::kBF16;
  int64_t num_rows = 5, rows_per_input = 1, rows_per_token = 1;
  bool has_tokens = false, has_experts = false, has_inner = false;
  int64_t gap = 0;  // of the outputs' stride
};

// Row r of the case has the slot and the expert that these give.
int32_t SlotAt(int64_t token) { return static_cast<int32_t>(token * 7 % 5) - 1; }
int32_t ExpertAt(int64_t row) { return static_cast<int32_t>(row * 3 % 2); }

// `first`, `count`: of the case's rows, which alone are run; count 0: all of them.
std::vector<float> RunSlots(KernelDevice* device, const SlotShape& shape, const SlotCase& c,
                            int64_t first = 0, int64_t count = 0, bool oracle = false) {
  if (count == 0) count = c.num_rows;
  const int num_experts = c.has_experts ? 2 : 1;
  size_t slot_bytes = 0;
  const DeviceArray<unsigned char> slots(MakeSlots(shape, 4, num_experts, &slot_bytes));
  std::vector<int32_t> slot_of, tokens, experts;
  for (int64_t row = 0; row < c.num_rows; ++row) {
    slot_of.push_back(SlotAt(row));
    tokens.push_back(static_cast<int32_t>((row * 5 + 2) % c.num_rows));
    experts.push_back(ExpertAt(row));
  }
  // Tokens that stand for themselves begin with the first one.
  const int64_t first_token = c.has_tokens ? 0 : first / c.rows_per_token;
  const DeviceArray<int32_t> device_slots(
      std::vector<int32_t>(slot_of.begin() + first_token, slot_of.end()));
  const DeviceArray<int32_t> device_tokens(tokens), device_experts(experts);
  const int64_t stride = shape.num_out + c.gap;
  const DeviceInput x(c.dtype, RandomFloats(c.num_rows * shape.num_in, 21));
  const std::vector<float> before = RandomFloats(c.num_rows * stride, 22);
  DeviceOutput out(c.out_dtype, std::vector<float>(before.begin() + first * stride,
                                                   before.begin() + (first + count) * stride));
  int32_t max_ranks = 0;
  for (const PartShape& part : shape.parts) max_ranks += part.rank;
  DeviceOutput inner(DType::kF32, RandomFloats(count * std::max(max_ranks, 1), 23));
  SlotLowRankParams params = {.x = c.has_inner
                                       ? ConstActivationPtr(nullptr)
                                       : x.ptr().At(first / c.rows_per_input * shape.num_in),
                              .out = out.ptr(),
                              .slots = {.memory = reinterpret_cast<const std::byte*>(slots.data()),
                                        .slot_bytes = static_cast<int64_t>(slot_bytes),
                                        .slot_of = device_slots.data()},
                              .first_product = 1,
                              .tokens = c.has_tokens ? device_tokens.data() + first : nullptr,
                              .experts = c.has_experts ? device_experts.data() + first : nullptr,
                              .num_rows = count,
                              .num_in = shape.num_in,
                              .num_out = shape.num_out,
                              .out_stride = c.gap == 0 ? 0 : stride,
                              .rows_per_input = c.rows_per_input,
                              .rows_per_token = c.rows_per_token,
                              .max_ranks = max_ranks,
                              .has_whole = shape.has_whole,
                              .inner = inner.f32()};
  if (!oracle) {
    EXPECT_EQ(LaunchSlotLowRank(device->context, params), kCudaSuccess);
    EXPECT_TRUE(out.GuardsIntact() && inner.GuardsIntact());
    return out.values();
  }
  // In f32, on the inputs as the device has them.
  std::vector<float> values = out.values();
  params.x = c.has_inner ? ConstActivationPtr(nullptr) : x.values().data();
  params.out = values.data();
  MakeNaiveOps()->SlotLowRank(params);
  return values;
}

const SlotCase kSlotCases[] = {
    {},
    {.dtype = DType::kF16, .out_dtype = DType::kF16, .num_rows = 21, .gap = 5},
    {.out_dtype = DType::kF32, .num_rows = 70, .has_tokens = true},
    {.num_rows = 84, .rows_per_input = 2, .rows_per_token = 2, .has_experts = true},
    {.num_rows = 12, .rows_per_token = 3, .has_experts = true},
    {.out_dtype = DType::kF32, .num_rows = 66, .has_inner = true},
};

TEST(LowRankKernelTest, MatchesOracle) {
  KernelDevice device;
  for (const SlotShape& shape : kSlotShapes) {
    for (const SlotCase& c : kSlotCases) {
      if (c.has_inner && shape.has_whole) continue;
      const auto expected = RunSlots(&device, shape, c, 0, 0, /*oracle=*/true);
      const double depth = static_cast<double>(shape.num_in) + 70;
      ExpectWithin(
          RunSlots(&device, shape, c), expected,
          [&](size_t i) {
            // Weights in place of the model's give an output that is rounded before the rest.
            const double whole = shape.has_whole ? RoundingError(c.out_dtype, 24) : 0;
            return RoundingError(c.out_dtype, expected[i]) + whole +
                   8 * depth * std::sqrt(depth) * 0x1.0p-24;
          },
          std::to_string(shape.num_in) + " to " + std::to_string(shape.num_out) + ", " +
              std::to_string(c.num_rows) + " rows");
    }
  }
}

// Some of the steps are so long that several rows are a tile.
TEST(LowRankKernelTest, ARowDoesNotDependOnOthers) {
  KernelDevice device;
  for (const SlotShape& shape : kSlotShapes) {
    for (const SlotCase& c : kSlotCases) {
      if (c.has_inner) continue;
      const auto all = RunSlots(&device, shape, c);
      const int64_t stride = shape.num_out + c.gap;
      for (const int64_t begin : {int64_t{0}, c.num_rows / 6 * 3}) {
        const int64_t count = std::min<int64_t>(6, c.num_rows - begin);
        const auto some = RunSlots(&device, shape, c, begin, count);
        for (size_t i = 0; i < some.size(); ++i) {
          ASSERT_EQ(some[i], all[static_cast<size_t>(begin * stride) + i])
              << shape.num_in << " to " << shape.num_out << ", " << c.num_rows << " rows";
        }
      }
    }
  }
}

// Products by heads: the rows of a head follow one another, and its elements stand behind some that
// are copied.
TEST(LowRankKernelTest, HeadsHaveProductsOfTheirOwn) {
  KernelDevice device;
  constexpr int64_t kHeads = 2, kCopied = 3;
  for (const SlotShape& shape : kSlotShapes) {
    for (const int64_t num_tokens : {3, 40}) {
      size_t slot_bytes = 0;
      const DeviceArray<unsigned char> slots(MakeSlots(shape, 4, kHeads, &slot_bytes));
      std::vector<int32_t> slot_of;
      for (int64_t token = 0; token < num_tokens; ++token) slot_of.push_back(SlotAt(token));
      const DeviceArray<int32_t> device_slots(slot_of);
      const int64_t x_head = kCopied + shape.num_in, out_head = kCopied + shape.num_out;
      const DeviceInput x(DType::kBF16, RandomFloats(num_tokens * kHeads * x_head, 21));
      DeviceOutput out(DType::kBF16, RandomFloats(num_tokens * (kHeads * out_head + 5), 22));
      int32_t max_ranks = 0;
      for (const PartShape& part : shape.parts) max_ranks += part.rank;
      DeviceOutput inner(DType::kF32, num_tokens * kHeads * std::max(max_ranks, 1));
      std::vector<float> expected = out.values(), own_inner(static_cast<size_t>(inner.size()));
      SlotLowRankParams params = {
          .x = x.values().data() + kCopied,
          .out = expected.data() + kCopied,
          .slots = {.memory = reinterpret_cast<const std::byte*>(slots.data()),
                    .slot_bytes = static_cast<int64_t>(slot_bytes),
                    .slot_of = device_slots.data()},
          .first_product = 1,
          .heads = {.num_tokens = num_tokens,
                    .x_token = kHeads * x_head,
                    .x_head = x_head,
                    .out_token = kHeads * out_head + 5,
                    .out_head = out_head},
          .num_rows = num_tokens * kHeads,
          .num_in = shape.num_in,
          .num_out = shape.num_out,
          .max_ranks = max_ranks,
          .inner = own_inner.data()};
      if (shape.has_whole) continue;
      MakeNaiveOps()->SlotLowRank(params);
      params.x = x.ptr().At(kCopied);
      params.out = out.ptr().At(kCopied);
      params.inner = inner.f32();
      EXPECT_EQ(LaunchSlotLowRank(device.context, params), kCudaSuccess);
      const double depth = static_cast<double>(shape.num_in) + 70;
      ExpectWithin(
          out.values(), expected,
          [&](size_t i) {
            return RoundingError(DType::kBF16, expected[i]) +
                   8 * depth * std::sqrt(depth) * 0x1.0p-24;
          },
          std::to_string(shape.num_in) + " to " + std::to_string(shape.num_out));
      EXPECT_TRUE(out.GuardsIntact() && inner.GuardsIntact());
    }
  }
}

TEST(LowRankKernelTest, EmbeddingsAreThoseOfTheOracle) {
  KernelDevice device;
  constexpr int64_t kVocab = 11, kWidth = 150;
  constexpr int32_t kRank = 5;
  for (const bool is_bf16 : {false, true}) {
    for (const bool is_first : {false, true}) {
      // Slot 0 has single rows before a whole table, slot 1 an A, slot 2 nothing.
      size_t slot_bytes = 0;
      std::vector<SlotBytes> made(3, SlotBytes(sizeof(SlotEmbedding)));
      SlotEmbedding own = {.whole = made[0].AddFloats(RandomFloats(kVocab * kWidth, 1), is_bf16),
                           .rows = made[0].AddFloats(RandomFloats(2 * kWidth, 2), !is_bf16),
                           .whole_is_bf16 = is_bf16 ? 1 : 0,
                           .rows_are_bf16 = is_bf16 ? 0 : 1};
      own.row_of = made[0].Add(std::vector<int32_t>{-1, 1, -1, -1, 0, -1, -1, -1, -1, -1, -1});
      made[0].Put(0, own);
      made[1].Put(0, SlotEmbedding{.a = made[1].AddFloats(RandomFloats(kRank * kVocab, 3), is_bf16),
                                   .num_ids = kVocab,
                                   .rank = kRank,
                                   .a_is_bf16 = is_bf16 ? 1 : 0});
      for (const SlotBytes& slot : made) slot_bytes = std::max(slot_bytes, slot.bytes().size());
      std::vector<unsigned char> all(3 * slot_bytes);
      for (size_t i = 0; i < 3; ++i) {
        std::copy(made[i].bytes().begin(), made[i].bytes().end(), all.data() + i * slot_bytes);
      }
      const DeviceArray<unsigned char> slots(all);
      const DeviceArray<int32_t> slot_of(std::vector<int32_t>{0, -1, 1, 2, 0, 0, 1});
      const DeviceArray<int32_t> ids(std::vector<int32_t>{4, 4, 3, 0, 1, 10, 0});
      DeviceOutput out(DType::kF32, RandomFloats(7 * kWidth, 4)),
          inner(DType::kF32, RandomFloats(7 * 6, 5));
      std::vector<float> expected = out.values(), expected_inner = inner.values();
      SlotEmbeddingParams params = {
          .ids = ids.data(),
          .out = out.f32(),
          .inner = is_first ? inner.f32() : nullptr,
          .slots = {.memory = reinterpret_cast<const std::byte*>(slots.data()),
                    .slot_bytes = static_cast<int64_t>(slot_bytes),
                    .slot_of = slot_of.data()},
          .num_tokens = 7,
          .width = kWidth,
          .max_ranks = 6,
          .scale = 1.25f,
          .is_first_rank = is_first};
      EXPECT_EQ(LaunchSlotEmbeddings(device.context, params), kCudaSuccess);
      params.out = expected.data();
      params.inner = is_first ? expected_inner.data() : nullptr;
      MakeNaiveOps()->SlotEmbeddings(params);
      EXPECT_EQ(out.values(), expected);
      EXPECT_EQ(inner.values(), expected_inner);
      EXPECT_TRUE(out.GuardsIntact() && inner.GuardsIntact());
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
