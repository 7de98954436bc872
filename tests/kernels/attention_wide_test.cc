// Attention of wide heads on the emulator: latent heads, whose values are part of the keys, and
// heads of sizes that no other kernel has. Against the oracle, and token by token against itself
// with other tiles, divisions of the keys, chunks and thread orders.
#include "attention_check.h"
#include "kernels/attention_arguments.h"
#include "long_form.h"

namespace minisgl::cuda {
namespace {

// The heads of DeepSeek V2 and GLM-4.7-Flash, but fewer.
PagedAttentionCase LatentCase(const std::vector<PagedAttentionRow>& rows,
                              int32_t num_decode_rows = 0) {
  PagedAttentionCase c;
  c.head_dim = 576;
  c.value_dim = 512;
  c.values_in_keys = true;
  c.num_heads = 4;
  c.num_kv_heads = 1;
  c.rows = rows;
  c.num_decode_rows = num_decode_rows;
  return c;
}

PagedAttentionCase ApartCase(int32_t head_dim, int32_t value_dim,
                             const std::vector<PagedAttentionRow>& rows,
                             int32_t num_decode_rows = 0) {
  PagedAttentionCase c;
  c.head_dim = head_dim;
  c.value_dim = value_dim;
  c.rows = rows;
  c.num_decode_rows = num_decode_rows;
  return c;
}

void ExpectWideOracle(const PagedAttentionCase& c) {
  const PagedAttentionScene scene(c);
  scene.Check(scene.Run(), "wide");
}

const std::vector<PagedAttentionRow> kWideRows = {{1, 1},  {1, 32}, {1, 33}, {1, 150},
                                                  {5, 40}, {3, 3},  {33, 70}};
constexpr int32_t kWideDecodeRows = 4;

TEST(AttentionWideTest, LatentHeadsMatchTheOracle) {
  for (const DType dtype : kHalfTypes) {
    PagedAttentionCase c = LatentCase(kWideRows, kWideDecodeRows);
    c.dtype = dtype;
    ExpectWideOracle(c);
  }
}

// Values that begin within a chunk of 16 bytes of their keys, and keys that end within 16 elements.
TEST(AttentionWideTest, SmallLatentHeadsMatchTheOracle) {
  for (const auto& [key_dim, value_dim] :
       {std::pair{24, 18}, {48, 32}, {40, 34}, {8, 6}, {576, 512}, {520, 512}, {560, 496}}) {
    PagedAttentionCase c = LatentCase({{1, 50}, {7, 70}}, 1);
    c.head_dim = key_dim;
    c.value_dim = value_dim;
    c.dtype = key_dim % 16 == 0 ? DType::kF16 : DType::kBF16;
    ExpectWideOracle(c);
  }
}

// Every size of tiles, whole and not, and rows of several tiles.
TEST(AttentionWideTest, NumbersOfQueryHeads) {
  for (const int32_t group : {1, 3, 16, 17, 20, 32, 40, 64, 128}) {
    PagedAttentionCase c = LatentCase({{1, 40}, {3, 70}}, 1);
    c.head_dim = 48;
    c.value_dim = 32;
    c.num_heads = group;
    ExpectWideOracle(c);
  }
}

TEST(AttentionWideTest, PageSizes) {
  for (const int32_t page_size : {1, 4, 16, 64}) {
    PagedAttentionCase c = LatentCase(kWideRows, kWideDecodeRows);
    c.page_size = page_size;
    c.head_dim = 72;
    c.value_dim = 64;
    ExpectWideOracle(c);
    c = ApartCase(192, 128, kWideRows, kWideDecodeRows);
    c.page_size = page_size;
    ExpectWideOracle(c);
  }
}

TEST(AttentionWideTest, ValuesApartMatchTheOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const auto& [head_dim, value_dim] :
         {std::pair{512, 512}, {192, 128}, {64, 128}, {112, 112}, {8, 16}}) {
      PagedAttentionCase c = ApartCase(head_dim, value_dim, {{1, 60}, {5, 70}, {20, 20}}, 1);
      c.dtype = dtype;
      ExpectWideOracle(c);
    }
  }
}

TEST(AttentionWideTest, WindowsCapsAndSinks) {
  for (const bool in_keys : {false, true}) {
    PagedAttentionCase c = in_keys ? LatentCase(kWideRows, kWideDecodeRows)
                                   : ApartCase(160, 160, kWideRows, kWideDecodeRows);
    if (in_keys) c.head_dim = c.value_dim + 8;
    for (const int32_t window : {1, 20, 37}) {
      c.window = window;
      ExpectWideOracle(c);
    }
    c.window = 0;
    c.softcap = 3;
    ExpectWideOracle(c);
    c.sinks = true;
    c.window = 33;
    ExpectWideOracle(c);
  }
}

// A run, and the items of cut tiles of the list that is asked for.
struct WideRun {
  std::vector<unsigned char> out;
  int32_t cut_items = 0;
};

WideRun RunWideOn(const PagedAttentionScene& scene, int num_multiprocessors,
                  bool decode_rows = false) {
  KernelDevice device;
  device.context.num_multiprocessors = num_multiprocessors;
  const auto workspace = scene.MakeWorkspace();
  WideRun run;
  run.out = scene.Run(false, &device, workspace.get());
  const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
  run.cut_items = (decode_rows ? plan.decode_list : plan.extend_list).counts[ExtendList::kCutItems];
  return run;
}

// Every size of tiles; one item for all keys, and items that meet. In the short form each size has
// its values in the keys or apart, and the smallest both.
TEST(AttentionWideTest, EveryDivisionGivesTheSame) {
  for (const bool in_keys : {true, false}) {
    for (const int32_t num_tokens : {1, 2, 6, 20}) {
      if (!IsLongForm() && num_tokens > 1 && in_keys == (num_tokens == 6)) continue;
      const std::vector<PagedAttentionRow> rows = {{num_tokens, 5 * kExtendSplitKeys + 7}};
      PagedAttentionCase c = in_keys ? LatentCase(rows) : ApartCase(40, 24, rows);
      if (in_keys) c.head_dim = 48, c.value_dim = 32, c.num_heads = num_tokens == 2 ? 20 : 4;
      c.page_size = 64;
      c.sinks = num_tokens == 6;
      c.window = num_tokens == 6 ? 1100 : 0;
      c.num_decode_rows = num_tokens == 1 ? 1 : 0;
      const PagedAttentionScene scene(c);
      const WideRun few = RunWideOn(scene, 1, num_tokens == 1);
      const WideRun many = RunWideOn(scene, 132, num_tokens == 1);
      EXPECT_LT(few.cut_items, many.cut_items) << c.Name();
      scene.Check(few.out, "few");
      EXPECT_EQ(few.out, many.out) << c.Name();
    }
  }
}

// A token's bits are the same decoded alone, as a draft, and as the end of a long chunk, whether or
// not --deterministic is asked for.
TEST(AttentionWideTest, ATokenDependsOnItsKeysAlone) {
  for (const bool in_keys : {true, false}) {
    const std::vector<PagedAttentionRow> rows = {{40, kExtendSplitKeys + 60}, {3, 300}};
    PagedAttentionCase c = in_keys ? LatentCase(rows) : ApartCase(72, 72, rows);
    if (in_keys) c.head_dim = 48, c.value_dim = 32, c.num_heads = 20;
    const PagedAttentionScene scene(c);
    const auto all = scene.Run();
    scene.Check(all, "chunk");
    EXPECT_EQ(scene.Run(true), all);
    for (const int32_t last : {1, 2, 5}) {
      const auto expected = scene.Tokens(all, 40 - last, 40);
      EXPECT_EQ(scene.Pick({0}, 0, last).Run(), expected) << last;
      if (last > 1) continue;
      EXPECT_EQ(scene.Pick({0}, 1, last).Run(), expected);
    }
  }
}

TEST(AttentionWideTest, BoundsGiveTheSame) {
  PagedAttentionCase c = LatentCase({{1, 700}, {1, 20}, {5, 600}, {40, 100}}, 2);
  c.head_dim = 48;
  c.value_dim = 32;
  c.num_heads = 20;
  ExpectBoundsGiveTheSame(c);
  c = ApartCase(40, 40, c.rows, 2);
  ExpectBoundsGiveTheSame(c);
}

// After every launch no boundary waits for a block, and all places are free.
TEST(AttentionWideTest, NothingIsLeftBetweenLaunches) {
  for (const int32_t num_tokens : {2, 40}) {
    PagedAttentionCase c = LatentCase({{1, 700}, {num_tokens, 5 * kExtendSplitKeys}}, 1);
    c.head_dim = 24;
    c.value_dim = 18;
    const PagedAttentionScene scene(c);
    const auto workspace = scene.MakeWorkspace();
    KernelDevice device;
    device.context.num_multiprocessors = 1;
    const auto once = scene.Run(false, &device, workspace.get());
    EXPECT_EQ(scene.Run(false, &device, workspace.get(), 3), once);
    const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
    const int32_t cut = plan.extend_list.counts[ExtendList::kCutItems];
    for (int32_t i = 0; i < cut; ++i) EXPECT_EQ(plan.met[i], 0u) << i;
    for (const PlaceQueue* const queue : {&plan.small_places, &plan.large_places}) {
      EXPECT_EQ(queue->words[1] - queue->words[0], static_cast<uint32_t>(queue->num_places));
    }
    EXPECT_GT(plan.small_places.words[0] + plan.large_places.words[0], 0u);
  }
}

// A value that is not finite reaches no other row.
TEST(AttentionWideTest, NanStaysInItsRow) {
  PagedAttentionScene scene(ApartCase(40, 40, {{3, 700}, {3, 700}}));
  const auto before = scene.Run();
  scene.SpoilValue(1, 600);
  const auto after = scene.Run();
  EXPECT_EQ(scene.Tokens(after, 0, 3), scene.Tokens(before, 0, 3));
  const auto row = scene.Tokens(after, 3, 6);
  for (int64_t i = 0; i < 3 * scene.out_width(); ++i) {
    EXPECT_TRUE(std::isnan(LoadElement(row.data(), DType::kBF16, i))) << i;
  }
}

// Less shared memory: smaller tiles, and one stage.
TEST(AttentionWideTest, SmallerDevicesGiveTheSame) {
  for (const bool in_keys : {true, false}) {
    const std::vector<PagedAttentionRow> rows = {{1, 100}, {40, 90}};
    const PagedAttentionScene scene(in_keys ? LatentCase(rows, 1) : ApartCase(512, 512, rows, 1));
    const auto expected = scene.Run();
    for (const size_t kilobytes : {163, 99}) {
      KernelDevice device;
      device.context.shared_bytes_max = kilobytes * 1024;
      EXPECT_EQ(scene.Run(false, &device), expected) << kilobytes;
    }
  }
}

TEST(AttentionWideTest, ThreadOrdersGiveTheSame) {
  PagedAttentionCase c = LatentCase({{1, 600}, {9, 600}}, 1);
  c.head_dim = 24;
  c.value_dim = 18;
  const PagedAttentionScene scene(c);
  const auto expected = scene.Run();
  emulator::ForEachOrder(emulator::kNumOrders,
                         [&](int order) { EXPECT_EQ(scene.Run(), expected) << "order " << order; });
}

}  // namespace
}  // namespace minisgl::cuda
