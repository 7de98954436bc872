// The plan of attention, the division of its workspace, the rule of splits and the states.
#include <set>
#include <tuple>

#include "attention_check.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_state.h"
#include "kernels/attention_workspace.h"

namespace minisgl::cuda {
namespace {

TEST(AttentionPlanTest, SplitsOfARow) {
  for (const int64_t kv_len : {1, 255, 256, 257, 8191, 8192, 8193, 16384, 16385, 131072, 1 << 30}) {
    const int64_t keys = AttentionSplitKeys(kv_len);
    EXPECT_GE(keys, kSplitKeysMin);
    EXPECT_EQ(keys & (keys - 1), 0);
    EXPECT_LE((kv_len + keys - 1) / keys, kSplitsMax);
    if (keys > kSplitKeysMin) {
      EXPECT_GT(kv_len, keys / 2 * kSplitsMax);
    }
  }
}

// The length of splits of 600 keys in each of `num_rows` rows, on `num_multiprocessors`.
int32_t SplitKeysOf(int32_t num_rows, int num_multiprocessors, int32_t split_times_max) {
  KernelDevice device;
  device.context.num_multiprocessors = num_multiprocessors;
  device.context.split_times_max = split_times_max;
  PagedAttentionCase c;
  c.rows.assign(static_cast<size_t>(num_rows), {1, 600});
  c.num_decode_rows = num_rows;
  c.num_heads = c.num_kv_heads = 1;
  c.head_dim = 64;  // 3 blocks of a multiprocessor
  const PagedAttentionScene scene(c);
  const auto workspace = scene.MakeWorkspace();
  scene.Check(scene.Run(false, &device, workspace.get()), "decode");
  const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
  for (int32_t i = 1; i < plan.counts[0]; ++i) {
    EXPECT_EQ(plan.items[i * kItemWords + 3], plan.items[3]);
  }
  return plan.items[3];
}

// As long as every block has about two works.
TEST(AttentionPlanTest, SplitsAreLongerIfThereIsMuchToDo) {
  EXPECT_EQ(SplitKeysOf(3, 1, 4), 256);
  EXPECT_EQ(SplitKeysOf(4, 1, 4), 512);  // 12 pieces of 256 keys for 3 blocks
  EXPECT_EQ(SplitKeysOf(7, 1, 4), 512);
  EXPECT_EQ(SplitKeysOf(8, 1, 4), 1024);
  EXPECT_EQ(SplitKeysOf(8, 2, 4), 512);
  EXPECT_EQ(SplitKeysOf(40, 1, 4), 1024);
  EXPECT_EQ(SplitKeysOf(40, 1, 2), 512);
  EXPECT_EQ(SplitKeysOf(40, 1, 1), 256);
}

// A plan's lists, read back.
struct Lists {
  std::vector<DecodeItem> items;
  std::vector<ExtendItem> tiles;
  int32_t cut_items = 0, cut_shift = 0;
};

// Rows of the given lengths, decode rows first. Items of cut tiles: at most
// 4 * num_multiprocessors / num_kv_heads.
Lists MakePlan(const std::vector<PagedAttentionRow>& rows, int32_t num_decode_rows,
               int32_t num_heads, int32_t num_kv_heads, int num_multiprocessors = 4) {
  std::vector<int32_t> row_begin = {0}, kv_len;
  int32_t longest = 0;
  for (const PagedAttentionRow& row : rows) {
    row_begin.push_back(row_begin.back() + row.num_tokens);
    kv_len.push_back(row.kv_len);
    longest = std::max(longest, row.kv_len);
  }
  const DeviceArray<int32_t> device_begin(row_begin), device_len(kv_len);
  const DeviceLimits limits = {.max_rows = static_cast<int32_t>(rows.size()),
                               .max_tokens = row_begin.back(),
                               .max_seq_len = longest,
                               .num_heads = num_heads,
                               .num_kv_heads = num_kv_heads,
                               .head_dim = 64};
  DeviceArray<unsigned char> workspace(
      std::vector<unsigned char>(AttentionWorkspaceBytes(limits, num_multiprocessors), 0));
  const AttentionWorkspace space = {workspace.data(), limits, num_multiprocessors};
  KernelDevice device;
  device.context.num_multiprocessors = num_multiprocessors;
  EXPECT_EQ(LaunchPlanAttention(device.context,
                                {.row_begin = device_begin.data(),
                                 .kv_len = device_len.data(),
                                 .num_rows = limits.max_rows,
                                 .num_decode_rows = num_decode_rows,
                                 .num_tokens = row_begin.back(),
                                 .num_heads = num_heads,
                                 .num_kv_heads = num_kv_heads,
                                 .head_dim = 64},
                                space, false),
            kCudaSuccess);
  const DeviceAttentionPlan plan = DivideWorkspace(space);
  Lists lists;
  for (int32_t i = 0; i < plan.counts[0]; ++i) {
    const int32_t* const item = plan.items + kItemWords * i;
    lists.items.push_back({item[0], item[1], item[2], item[3], item[4], item[5]});
    EXPECT_EQ(lists.items.back().num_queries, 1);
  }
  lists.cut_items = plan.extend_list.counts[ExtendList::kCutItems];
  lists.cut_shift = plan.extend_list.counts[ExtendList::kCutShift];
  for (int32_t i = 0; i < plan.extend_list.counts[ExtendList::kItems]; ++i) {
    const int32_t* const item = plan.extend_list.items + kExtendItemWords * i;
    lists.tiles.push_back({item[0], item[1], item[2]});
  }
  return lists;
}

// Every split once; the longest splits first, and of one length whole ones before the ends of rows,
// each in the order of rows.
TEST(AttentionPlanTest, ItemsAreTheSplitsAndTheLongestComeFirst) {
  emulator::ForEachOrder(emulator::kNumOrders, [](int order) {
    const std::vector<int32_t> kv_lens = {1, 256, 257, 9000, 1, 700, 20000, 8193};
    std::vector<PagedAttentionRow> rows;
    for (const int32_t kv_len : kv_lens) rows.push_back({1, kv_len});
    const Lists lists = MakePlan(rows, 8, 4, 2);
    EXPECT_TRUE(lists.tiles.empty());
    size_t i = 0;
    for (const std::vector<int32_t>& same : {{6}, {3, 7}, std::vector<int32_t>{0, 1, 2, 4, 5}}) {
      for (const bool whole : {true, false}) {
        for (const int32_t row : same) {
          const int32_t kv_len = kv_lens[static_cast<size_t>(row)];
          const int32_t split_keys = AttentionSplitKeys(kv_len);
          for (int32_t split = 0; split * split_keys < kv_len; ++split) {
            if (((split + 1) * split_keys <= kv_len) != whole) continue;
            ASSERT_LT(i, lists.items.size());
            EXPECT_EQ(lists.items[i].row, row);
            EXPECT_EQ(lists.items[i].split, split);
            EXPECT_EQ(lists.items[i].kv_len, kv_len);
            EXPECT_EQ(lists.items[i].split_keys, split_keys);
            ++i;
          }
        }
      }
    }
    EXPECT_EQ(i, lists.items.size()) << "order " << order;
  });
}

// More rows than the block has threads, with tiles of 128 and of 16.
TEST(AttentionPlanTest, TilesCoverEveryRowOnce) {
  for (const int32_t tokens_max : {300, 5}) {
    std::mt19937 random(3);
    std::vector<PagedAttentionRow> rows;
    int64_t num_tokens = 0;
    for (int32_t r = 0; r < 700; ++r) {
      const int32_t tokens =
          r < 300 ? 1 : std::uniform_int_distribution<int32_t>(1, tokens_max)(random);
      rows.push_back({tokens, tokens + 600});
      if (r >= 300) num_tokens += tokens;
    }
    const int32_t group = 3;
    const Lists lists = MakePlan(rows, 300, 2 * group, 2);
    EXPECT_EQ(lists.items.size(), 300u * 3);
    const bool large = ChooseExtend(64, group, num_tokens, 400, 227 * 1024).large;
    EXPECT_EQ(large, tokens_max == 300);
    const int32_t tile_rows = large ? kLargeTileRows : kTileRows;
    std::set<std::pair<int32_t, int32_t>> expected;
    for (int32_t r = 300; r < 700; ++r) {
      for (int32_t m = 0; m < rows[static_cast<size_t>(r)].num_tokens * group; m += tile_rows) {
        expected.insert({r, m});
      }
    }
    std::set<std::pair<int32_t, int32_t>> actual;
    for (size_t i = 0; i < lists.tiles.size(); ++i) {
      actual.insert({lists.tiles[i].row, lists.tiles[i].first});
      if (i > 0 && lists.tiles[i - 1].row == lists.tiles[i].row) {
        EXPECT_LT(lists.tiles[i].first, lists.tiles[i - 1].first);  // heavier ones first
      }
    }
    EXPECT_EQ(actual, expected);
    EXPECT_EQ(lists.tiles.size(), expected.size());
  }
}

// 50 tokens over 32k keys, as two tiles of 128 and 8 KV heads: 16 items of 4 splits each.
TEST(AttentionPlanTest, FewTilesAreCut) {
  const Lists lists = MakePlan({{50, 32768}}, 0, 32, 8, 132);
  EXPECT_EQ(lists.cut_shift, 2);
  EXPECT_EQ(lists.cut_items, 2 * 16);
  ASSERT_EQ(lists.tiles.size(), 32u);
  for (int32_t i = 0; i < 32; ++i) {
    const ExtendItem& item = lists.tiles[static_cast<size_t>(i)];
    EXPECT_EQ(item.row, 0);
    EXPECT_EQ(item.first, i < 16 ? 128 : 0);
    EXPECT_EQ(item.begin, i % 16 * 4);
  }
}

TEST(AttentionPlanTest, TilesThatFillTheDeviceAreNotCut) {
  const Lists chunk = MakePlan({{2048, 2048}}, 0, 32, 8, 132);
  EXPECT_EQ(chunk.cut_items, 0);
  EXPECT_EQ(chunk.tiles.size(), 64u);
  EXPECT_EQ(MakePlan({{2048, 40000}}, 0, 32, 8, 132).cut_items, 0);
  // A long row beside them is, and comes first.
  const Lists both = MakePlan({{2048, 2048}, {50, 131072}}, 0, 32, 8, 132);
  EXPECT_EQ(both.cut_shift, 4);
  EXPECT_EQ(both.cut_items, 2 * 16);
  EXPECT_EQ(both.tiles.size(), 64u + 32u);
  EXPECT_EQ(both.tiles[0].row, 1);
  EXPECT_EQ(both.tiles.back().row, 0);
}

// The lists fit whatever the rows are.
TEST(AttentionPlanTest, CutItemsAreBounded) {
  std::mt19937 random(5);
  for (int i = 0; i < 12; ++i) {
    std::vector<PagedAttentionRow> rows;
    const int num_rows = std::uniform_int_distribution<int>(1, 300)(random);
    for (int row = 0; row < num_rows; ++row) {
      const int32_t tokens = std::uniform_int_distribution<int32_t>(1, 40)(random);
      const int32_t bits = std::uniform_int_distribution<int32_t>(0, 17)(random);
      rows.push_back(
          {tokens, tokens + std::uniform_int_distribution<int32_t>(0, 1 << bits)(random)});
    }
    const Lists lists = MakePlan(rows, 0, 8, 2, 20);
    EXPECT_LE(lists.cut_items, 40);
    std::set<std::tuple<int32_t, int32_t, int32_t>> found;
    for (const ExtendItem& item : lists.tiles) {
      EXPECT_TRUE(found.insert({item.row, item.first, item.begin}).second);
    }
  }
}

TEST(AttentionPlanTest, WorkspacePiecesLieApart) {
  const DeviceLimits limits = {.max_rows = 7,
                               .max_tokens = 100,
                               .max_seq_len = 600,
                               .num_heads = 34,
                               .num_kv_heads = 2,
                               .head_dim = 80};
  std::vector<unsigned char> memory(AttentionWorkspaceBytes(limits, 132));
  const DeviceAttentionPlan plan = DivideWorkspace({memory.data(), limits, 132});
  const auto at = [&](const void* p) {
    return static_cast<const unsigned char*>(p) - memory.data();
  };
  EXPECT_GE(at(plan.items) - at(plan.counts), 8);
  EXPECT_GE(at(plan.arrived) - at(plan.items), 7 * 3 * 32);
  EXPECT_GE(at(plan.states) - at(plan.arrived), 7 * 2 * 2 * 4);
  EXPECT_GE(at(plan.sums) - at(plan.states), 7 * 3 * 34 * 8);
  EXPECT_GE(static_cast<int64_t>(memory.size()) - at(plan.sums), 7 * 3 * 34 * 80 * 4);
  EXPECT_EQ(at(plan.sums) % 256, 0);
  // The extend kernel's pieces: 2 splits, a level, 528 cut items of KV heads at most.
  const int64_t tiles = (100 * 17 / 128 + 7) * 2, items = tiles * 2,
                image = 8 * ImageFloats(80) * 4;
  EXPECT_GE(at(plan.extend_list.items) - at(plan.decode_list.items), (7 * 2 + items) * 16);
  EXPECT_GE(at(plan.met) - at(plan.extend_list.items), ((100 * 17 / 16 + 7) * 2 + items) * 16);
  EXPECT_GE(at(plan.small_places.words) - at(plan.met), items * 4);
  EXPECT_GE(at(plan.states), at(plan.large_places.words) + (2 + plan.large_places.num_places) * 4);
  EXPECT_EQ(plan.fold_levels, 1);
  EXPECT_EQ(plan.large_places.num_places, tiles + items);
  EXPECT_EQ(at(plan.images), at(plan.states));
  EXPECT_GE(at(plan.kept) - at(plan.images), items * image);
  EXPECT_GE(static_cast<int64_t>(memory.size()) - at(plan.kept), (tiles + items) * image);
}

// Images of tiles, for 32 heads of 128 and one decode row: 18.4 MB a level, and 36.8 MB, on 132
// multiprocessors. With one split there are none.
TEST(AttentionPlanTest, MemoryOfSplits) {
  DeviceLimits limits = {.max_rows = 1,
                         .max_tokens = 8192,
                         .max_seq_len = 32768,
                         .num_heads = 32,
                         .num_kv_heads = 8,
                         .head_dim = 128};
  const auto megabytes = [&](int num_multiprocessors) {
    return AttentionWorkspaceBytes(limits, num_multiprocessors) / 1e6;
  };
  EXPECT_NEAR(megabytes(132), 92.5, 0.5);
  EXPECT_NEAR(megabytes(14), 92.5 * 14 / 132, 0.5);
  EXPECT_NEAR(megabytes(148), 92.5 * 148 / 132, 0.5);
  limits.max_seq_len = 131072;
  EXPECT_NEAR(megabytes(132), 110.9, 0.5);
  limits.max_seq_len = kExtendSplitKeys;
  EXPECT_LT(megabytes(148), 1);
}

// A place for every block that runs at once, and as many cut items as the plan may make.
TEST(AttentionPlanTest, BoundsAreThoseOfTheDevice) {
  const DeviceLimits limits = {.max_rows = 1,
                               .max_tokens = 8192,
                               .max_seq_len = 32768,
                               .num_heads = 32,
                               .num_kv_heads = 8,
                               .head_dim = 128};
  for (const int num_multiprocessors : {14, 132, 148}) {
    const AttentionWorkspace workspace = {nullptr, limits, num_multiprocessors};
    const ExtendBounds small = BoundSmallExtend(workspace), large = BoundLargeExtend(workspace);
    EXPECT_EQ(small.places, 5 * num_multiprocessors);
    EXPECT_EQ(large.places, 2 * num_multiprocessors);
    EXPECT_EQ(small.cut_items, 4 * num_multiprocessors);
    EXPECT_EQ(large.cut_items, 4 * num_multiprocessors);
    const DeviceAttentionPlan plan = DivideWorkspace(workspace);
    EXPECT_EQ(plan.small_places.num_places, small.places);
    EXPECT_EQ(plan.large_places.num_places, large.places);
    // The plan's part of it, whatever the launch's context says.
    LaunchContext context;
    context.num_multiprocessors = num_multiprocessors + 1;
    EXPECT_EQ(MaxCutItems(context, workspace), large.cut_items);
  }
}

TEST(AttentionStateTest, MergeHasAnIdentity) {
  const SoftmaxState none, state = {3.5f, 2.25f};
  for (const SoftmaxState& merged : {Merge(none, state), Merge(state, none)}) {
    EXPECT_EQ(merged.largest, state.largest);
    EXPECT_EQ(merged.sum, state.sum);
  }
  const SoftmaxState empty = Merge(none, none);
  EXPECT_EQ(empty.largest, kMinusInfinity);
  EXPECT_EQ(empty.sum, 0);
  EXPECT_EQ(Normaliser(empty), 0);
  EXPECT_EQ(Rescale(none.largest, state.largest), 0);
  EXPECT_EQ(Rescale(none.largest, none.largest), 0);
}

TEST(AttentionStateTest, MergeAddsWeights) {
  const SoftmaxState merged = Merge({1.0f, 3.0f}, {3.0f, 5.0f});
  EXPECT_EQ(merged.largest, 3.0f);
  EXPECT_EQ(merged.sum, 3.0f / 4 + 5.0f);
  const SoftmaxState sink = SinkState(2.0f);
  EXPECT_FLOAT_EQ(sink.largest, 2.0f * 1.442695041f);
  EXPECT_EQ(sink.sum, 1.0f);
  EXPECT_TRUE(std::isnan(Normaliser({0.0f, std::numeric_limits<float>::quiet_NaN()})));
}

}  // namespace
}  // namespace minisgl::cuda
