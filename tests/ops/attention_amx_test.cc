// Attention's products of tiles: the processor's have the bits of the stand-in, which the other
// tests of attention hold against the oracle on every machine.
#include <algorithm>
#include <numeric>

#include "cpu/attention_plan.h"
#include "cpu/kernels/attention_bf16.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

struct AmxAttentionCase {
  int32_t num_heads = 4, num_kv_heads = 2, head_dim = 64, page_size = 16;
  int32_t sliding_window = 0;
  int32_t kv_len = 0, num_tokens = 1;
};

// One row over keys and values of random numbers, all written.
std::vector<float> Attend(const AmxAttentionCase& c, const Bf16Products* products) {
  const int64_t pages = (c.kv_len + c.page_size - 1) / c.page_size;
  const int64_t page_elements = 2 * int64_t{c.page_size} * c.num_kv_heads * c.head_dim;
  std::vector<uint16_t> kv;
  for (const float value : RandomFloats(pages * page_elements, 5)) kv.push_back(FloatToBf16(value));
  std::vector<int32_t> table(static_cast<size_t>(pages));
  std::iota(table.rbegin(), table.rend(), 0);
  const int64_t width = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_dim;
  const auto qkv = RandomFloats(c.num_tokens * width, 6);
  const int32_t table_row = 0, row_begin[] = {0, c.num_tokens};
  OpOutput out(int64_t{c.num_tokens} * c.num_heads * c.head_dim);
  AttentionParams p = {};
  p.qkv = qkv.data();
  p.out = out.data();
  p.kv = {.base = {kv.data(), DType::kBF16},
          .page_stride = page_elements,
          .slot_stride = c.head_dim,
          .head_stride = int64_t{c.page_size} * c.head_dim,
          .v_offset = page_elements / 2,
          .page_size = c.page_size};
  p.page_table = table.data();
  p.page_table_stride = pages;
  p.table_row = &table_row;
  p.row_begin = row_begin;
  p.kv_len = &c.kv_len;
  p.num_rows = 1;
  p.num_tokens = c.num_tokens;
  p.num_heads = c.num_heads;
  p.num_kv_heads = c.num_kv_heads;
  p.head_dim = c.head_dim;
  p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)));
  p.sliding_window = c.sliding_window;
  const AttentionKernels kernels =
      AttentionKernelGetters()[static_cast<size_t>(AvailableCpuTargets().front())]();
  std::vector<float> scratch(
      static_cast<size_t>(AttentionScratchFloats(kQueryRowsMax, c.head_dim, c.head_dim)) + 16);
  float* const aligned =
      reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  for (const AttentionLoop& loop : PlanAttention(p, /*num_threads=*/1).loops) {
    EXPECT_EQ(loop.state_floats, 0);
    for (const AttentionItem& item : loop.attend) {
      kernels.attend(p, item, products, nullptr, aligned);
    }
  }
  EXPECT_TRUE(out.GuardsIntact());
  return out.values();
}

TEST(AttentionAmxTest, TheProcessorsTilesHaveTheBitsOfTheStandIn) {
  if (AvailableCpuTargets().front() != CpuTarget::kAmx) {
    GTEST_SKIP() << "this processor has no AMX, or the system does not lend it";
  }
  const AmxAttentionCase cases[] = {
      {.kv_len = 1},
      {.kv_len = 200},
      {.kv_len = 70, .num_tokens = 70},
      {.num_heads = 2,
       .num_kv_heads = 2,
       .head_dim = 128,
       .page_size = 64,
       .kv_len = 130,
       .num_tokens = 37},
      {.num_heads = 8, .num_kv_heads = 1, .head_dim = 80, .kv_len = 99, .num_tokens = 20},
      {.num_heads = 7,
       .num_kv_heads = 1,
       .head_dim = 20,
       .page_size = 3,
       .kv_len = 77,
       .num_tokens = 9},
      {.head_dim = 48, .sliding_window = 21, .kv_len = 150, .num_tokens = 60},
  };
  for (const AmxAttentionCase& c : cases) {
    ExpectSameBits(Attend(c, AttentionAmxProducts()), Attend(c, AttentionAmxStandInProducts()),
                   fmt::format("head_dim {} page {} keys {} tokens {}", c.head_dim, c.page_size,
                               c.kv_len, c.num_tokens));
  }
}

}  // namespace
}  // namespace minisgl::cpu
