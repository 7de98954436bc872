// Attention on the device: every head size, group and page size, decode, extension and both in one
// step, long contexts; and a decoded row does not depend on other rows.
#include "gpu/attention_scene.h"

namespace minisgl::cuda {
namespace {

using GpuAttentionTest = GpuTest;

const std::vector<PagedAttentionRow> kDecode = {{1, 1}, {1, 16}, {1, 17}, {1, 100}, {1, 333}};
const std::vector<PagedAttentionRow> kExtend = {{5, 5}, {33, 40}, {2, 130}, {70, 70}};
const std::vector<PagedAttentionRow> kMixed = {{1, 40}, {1, 200}, {3, 3}, {40, 90}};

// The length of a long context; a slow device would take seconds for more.
std::vector<PagedAttentionRow> Shortened(std::vector<PagedAttentionRow> rows) {
  if (!IsSlow()) return rows;
  for (PagedAttentionRow& row : rows) {
    row.num_tokens = std::min(row.num_tokens, 9);
    row.kv_len = std::min(row.kv_len, 70);
  }
  return rows;
}

TEST_F(GpuAttentionTest, EveryHeadSizeMatchesTheOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
      for (const auto& rows : {kDecode, kExtend, kMixed}) {
        if (IsSlow() && (dtype == DType::kF16) != (rows.size() == kDecode.size())) continue;
        GpuAttentionScene({.dtype = dtype, .head_dim = head_dim, .rows = Shortened(rows)}).Check();
      }
    }
  }
}

TEST_F(GpuAttentionTest, EveryGroupMatchesTheOracle) {
  for (const int32_t group : {1, 2, 4, 5, 8, 16}) {
    if (IsSlow() && group % 4 == 0) continue;
    GpuAttentionScene({.num_heads = 2 * group, .num_kv_heads = 2, .rows = Shortened(kMixed)})
        .Check();
    if (IsSlow()) continue;
    GpuAttentionScene({.num_heads = 2 * group, .num_kv_heads = 2, .rows = kDecode}).Check();
    GpuAttentionScene({.num_heads = 2 * group, .num_kv_heads = 2, .rows = kExtend}).Check();
  }
}

TEST_F(GpuAttentionTest, EveryPageSizeMatchesTheOracle) {
  for (const int32_t page_size : {1, 4, 16, 64}) {
    GpuAttentionScene({.head_dim = 64, .page_size = page_size, .rows = Shortened(kMixed)}).Check();
    if (IsSlow()) continue;
    GpuAttentionScene({.page_size = page_size, .rows = kDecode}).Check();
    GpuAttentionScene({.page_size = page_size, .rows = kExtend}).Check();
  }
}

TEST_F(GpuAttentionTest, WindowsCapsAndSinksMatchTheOracle) {
  const std::vector<PagedAttentionRow> rows = Shortened(kMixed);
  GpuAttentionScene({.head_dim = 64, .rows = rows, .window = 20}).Check();
  GpuAttentionScene({.head_dim = 64, .rows = rows, .softcap = 5.0f}).Check();
  GpuAttentionScene({.head_dim = 64, .rows = rows, .has_sinks = true}).Check();
  GpuAttentionScene({.head_dim = 64, .rows = rows, .window = 33, .softcap = 3, .has_sinks = true})
      .Check();
}

// More keys than one block processes, up to as many as the longest answers have.
TEST_F(GpuAttentionTest, LongContextsMatchTheOracle) {
  if (IsSlow()) return GpuAttentionScene({.head_dim = 64, .rows = {{1, 700}, {2, 600}}}).Check();
  GpuAttentionScene({.rows = {{1, 33000}}}).Check();
  GpuAttentionScene({.rows = {{1, 5}, {1, 33000}, {1, 4097}, {1, 1}}}).Check();
  GpuAttentionScene({.num_heads = 16, .num_kv_heads = 8, .rows = {{1, 8192}, {17, 9000}}}).Check();
  GpuAttentionScene({.dtype = DType::kF16, .page_size = 1, .rows = {{1, 20000}, {40, 6000}}})
      .Check();
  GpuAttentionScene({.rows = {{300, 300}, {129, 2000}}}).Check();
  GpuAttentionScene({.rows = {{3, 33000}}, .window = 4096}).Check();
}

TEST_F(GpuAttentionTest, ManyRowsMatchTheOracle) {
  std::vector<PagedAttentionRow> rows;
  for (int32_t i = 0; i < (IsSlow() ? 9 : 256); ++i) rows.push_back({1, 1 + i * 37 % 900});
  GpuAttentionScene({.num_heads = 2, .num_kv_heads = 1, .rows = Shortened(rows)}).Check();
}

// Latent heads: of DeepSeek V2 Lite, GLM-4.7-Flash and DeepSeek V3; small ones.
TEST_F(GpuAttentionTest, LatentHeadsMatchTheOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const int32_t num_heads : {16, 20, 128}) {
      if (IsSlow() && num_heads != (dtype == DType::kF16 ? 16 : 20)) continue;
      GpuAttentionCase c = {.dtype = dtype,
                            .head_dim = 576,
                            .num_heads = num_heads,
                            .num_kv_heads = 1,
                            .value_dim = 512,
                            .values_in_keys = true};
      for (const auto& rows : {kDecode, kExtend, kMixed}) {
        c.rows = Shortened(rows);
        c.page_size = rows.size() == kMixed.size() ? 1 : 64;
        GpuAttentionScene(c).Check();
        if (IsSlow()) break;
      }
    }
    GpuAttentionScene({.dtype = dtype,
                       .head_dim = 24,
                       .num_kv_heads = 1,
                       .rows = Shortened(kMixed),
                       .value_dim = 18,
                       .values_in_keys = true})
        .Check();
  }
}

TEST_F(GpuAttentionTest, LongLatentContextsMatchTheOracle) {
  GpuAttentionCase c = {.head_dim = 576,
                        .num_heads = 16,
                        .num_kv_heads = 1,
                        .page_size = 64,
                        .value_dim = 512,
                        .values_in_keys = true};
  if (IsSlow()) c.head_dim = 48, c.value_dim = 32, c.num_heads = 4;
  c.rows = {{1, 1100}, {2, 600}};
  GpuAttentionScene(c).Check();
  if (IsSlow()) return;
  c.rows = {{1, 33000}, {1, 5}, {1, 4097}, {17, 9000}};
  GpuAttentionScene(c).Check();
  c.rows = {{300, 2300}, {129, 129}};
  GpuAttentionScene(c).Check();
}

// Heads of 512 elements, as Gemma 4 has, and values of another size than keys.
TEST_F(GpuAttentionTest, WideHeadsMatchTheOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const auto& [head_dim, value_dim] : {std::pair{512, 512}, {192, 128}, {72, 72}}) {
      if (IsSlow() && (dtype == DType::kF16) != (head_dim == 192)) continue;
      GpuAttentionCase c = {
          .dtype = dtype, .head_dim = head_dim, .num_heads = 16, .value_dim = value_dim};
      if (IsSlow()) c.num_heads = 4;
      for (const auto& rows : {kMixed, kDecode, kExtend}) {
        c.rows = Shortened(rows);
        GpuAttentionScene(c).Check();
        if (IsSlow()) break;
      }
      if (IsSlow()) continue;
      c.rows = {{1, 6000}, {3, 1000}, {40, 400}};
      GpuAttentionScene(c).Check();
      c.window = 700;
      c.softcap = 5;
      c.has_sinks = true;
      GpuAttentionScene(c).Check();
    }
  }
}

// The same bit for bit with any division of the keys, alone and in a batch, decoded and in a chunk.
TEST_F(GpuAttentionTest, ALatentRowDoesNotDependOnItsBatchMates) {
  GpuAttentionCase c = {.head_dim = 576,
                        .num_heads = 20,
                        .num_kv_heads = 1,
                        .rows = {{1, 3000}, {1, 1}, {1, 777}, {7, 600}},
                        .value_dim = 512,
                        .values_in_keys = true};
  if (IsSlow()) c.head_dim = 24, c.value_dim = 18, c.rows = {{1, 700}, {1, 1}, {3, 60}};
  const GpuAttentionScene scene(c);
  const auto all = scene.Run();
  for (size_t row = 0; row < c.rows.size(); ++row) {
    EXPECT_TRUE(scene.Alone(static_cast<int32_t>(row)) ==
                scene.RowOf(all, static_cast<int32_t>(row)))
        << "row " << row;
  }
}

// The same bit for bit, whatever other rows are in the step: without --deterministic as long as
// there is too little to do for longer splits.
TEST_F(GpuAttentionTest, ADecodedRowDoesNotDependOnItsBatchMates) {
  for (const bool deterministic : {false, true}) {
    std::vector<PagedAttentionRow> rows =
        Shortened({{1, 3000}, {1, 1}, {1, 777}, {1, 64}, {1, 129}});
    rows.push_back({7, 60});
    const GpuAttentionScene scene({.head_dim = 64, .rows = rows, .deterministic = deterministic});
    const auto all = scene.Run();
    for (int32_t row = 0; row < (IsSlow() ? 2 : 5); ++row) {
      EXPECT_TRUE(scene.Alone(row) == scene.RowOf(all, row))
          << "row " << row << (deterministic ? ", deterministic" : "");
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
