// Decode attention of rows that share their first keys: keys are read once for a group, and each
// row has bit for bit the result that it has alone.
#include "attention_check.h"
#include "kernels/attention_arguments.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

PagedAttentionCase SharingCase(const std::vector<int32_t>& kv_lens, int32_t group) {
  PagedAttentionCase c;
  for (const int32_t kv_len : kv_lens) c.rows.push_back({1, kv_len});
  c.num_decode_rows = static_cast<int32_t>(kv_lens.size());
  c.num_heads = group;
  c.num_kv_heads = 1;
  c.page_size = 64;
  return c;
}

// Checks that groups change no byte, and compares with the oracle.
void ExpectSame(PagedAttentionScene scene, const std::vector<PagedAttentionScene::Group>& groups,
                const std::string& what) {
  for (const auto& group : groups) scene.Share(group.rows, group.splits * kSplitKeysMin);
  const auto alone = scene.Run();
  scene.Check(alone, what);
  scene.SetGroups(groups);
  EXPECT_EQ(scene.Run(), alone) << what;
}

// Items of one and of two tiles, several items of a group, and heads that fill more than a tile.
TEST(AttentionCascadeTest, GroupsOfEverySizeChangeNoByte) {
  MarkSlow("many rows on the emulator");
  for (const int32_t group : {1, 2, 3, 4, 5, 7, 8, 16, 17}) {
    for (const int32_t num_rows : {2, std::max(2, 32 / group), std::max(3, 64 / group)}) {
      std::vector<int32_t> rows, kv_lens;
      for (int32_t row = 0; row < num_rows; ++row) {
        rows.push_back(row);
        kv_lens.push_back(257 + 7 * row % 60);
      }
      PagedAttentionCase c = SharingCase(kv_lens, group);
      c.dtype = group % 2 == 0 ? DType::kF16 : DType::kBF16;
      ExpectSame(PagedAttentionScene(c), {{rows, 1}},
                 fmt::format("G {}, {} rows", group, num_rows));
    }
  }
}

TEST(AttentionCascadeTest, HeadDimsTypesHeadsAndSinks) {
  MarkSlow("a product of options on the emulator");
  for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
    for (const int32_t page_size : {1, 16}) {
      PagedAttentionCase c = SharingCase({300, 520, 270, 258, 400, 333}, 4);
      c.dtype = (head_dim == 80) == (page_size == 1) ? DType::kF16 : DType::kBF16;
      c.head_dim = head_dim;
      c.page_size = page_size;
      c.num_kv_heads = 2;
      c.num_heads = 8;
      c.sinks = page_size == 1;
      c.softcap = head_dim == 64 ? 4.0f : 0.0f;
      ExpectSame(PagedAttentionScene(c), {{{2, 0, 1, 5, 3}, 1}},
                 fmt::format("E {} P {}", head_dim, page_size));
    }
  }
}

TEST(AttentionCascadeTest, SeveralGroupsAndRowsOutsideGroups) {
  PagedAttentionCase c = SharingCase({700, 5, 520, 600, 300, 770, 515, 290}, 2);
  ExpectSame(PagedAttentionScene(c), {{{0, 2}, 2}, {{3, 5, 6}, 2}, {{7, 4}, 1}}, "three groups");
}

// Items of two tiles and of one, on grids from one block to one for each work.
TEST(AttentionCascadeTest, EveryOrderOfThreadsAndBlocks) {
  PagedAttentionScene scene(SharingCase({300, 400, 330, 280, 310, 600, 530}, 4));
  scene.Share({0, 1, 2, 3, 4}, kSplitKeysMin);
  scene.Share({5, 6}, 2 * kSplitKeysMin);
  const auto alone = scene.Run();
  scene.SetGroups({{{0, 1, 2, 3, 4}, 1}, {{6, 5}, 2}});
  for (const int num_multiprocessors : {1, 20}) {
    KernelDevice device;
    device.context.num_multiprocessors = num_multiprocessors;
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      EXPECT_EQ(scene.Run(false, &device), alone)
          << num_multiprocessors << " multiprocessors, order " << order;
    });
  }
}

// Splits longer than those that groups are made of: some shared keys are then each row's own.
TEST(AttentionCascadeTest, LongSplits) {
  PagedAttentionScene scene(SharingCase({1500, 1700, 1330, 280, 310, 600, 530}, 4));
  scene.Share({0, 1, 2}, 5 * kSplitKeysMin);
  scene.Share({3, 4}, kSplitKeysMin);
  scene.Share({5, 6}, 2 * kSplitKeysMin);
  KernelDevice device;
  device.context.num_multiprocessors = 1;
  for (const int32_t times : {1, 2, 4}) {
    device.context.split_times_max = times;
    scene.SetGroups({});
    const auto alone = scene.Run(false, &device);
    scene.Check(alone, "alone");
    scene.SetGroups({{{0, 1, 2}, 5}, {{3, 4}, 1}, {{6, 5}, 2}});
    EXPECT_EQ(scene.Run(false, &device), alone) << "splits of " << times << " times the least";
  }
}

// Every layer uses the plan: counters are zero again after each.
TEST(AttentionCascadeTest, AgainWithTheSamePlan) {
  PagedAttentionScene scene(SharingCase({300, 400}, 2));
  scene.Share({0, 1}, kSplitKeysMin);
  const auto alone = scene.Run();
  scene.SetGroups({{{0, 1}, 1}});
  EXPECT_EQ(scene.Run(false, nullptr, nullptr, 3), alone);
}

// Layers with a window have items of their own, for windows up to the largest.
TEST(AttentionCascadeTest, LayersWithAWindowAndWithout) {
  for (const int32_t window : {0, 40, 300}) {
    PagedAttentionCase c = SharingCase({300, 600, 530, 1200}, 4);
    c.window = window;
    c.plan_window = 300;
    ExpectSame(PagedAttentionScene(c), {{{0, 1}, 1}, {{2, 3}, 2}},
               "window " + std::to_string(window));
  }
}

// A group's shared splits are in the plan once.
TEST(AttentionCascadeTest, ItemsOfAGroupAreThereOnce) {
  PagedAttentionScene scene(SharingCase({700, 800, 600}, 2));
  const auto count = [&](const PagedAttentionScene& of) {
    const auto workspace = of.MakeWorkspace();
    of.Run(false, nullptr, workspace.get());
    return DivideWorkspace(of.Workspace(workspace.get())).counts[0];
  };
  scene.Share({0, 1, 2}, 2 * kSplitKeysMin);
  EXPECT_EQ(count(scene), 3 + 4 + 3);
  scene.SetGroups({{{0, 1, 2}, 2}});
  EXPECT_EQ(count(scene), 2 + 1 + 2 + 1);
}

// The items of a group's split are next to each other, and as even as possible.
TEST(AttentionCascadeTest, ItemsOfALargeGroup) {
  std::vector<int32_t> rows, kv_lens;
  for (int32_t row = 0; row < 21; ++row) {
    rows.push_back(row);
    kv_lens.push_back(520 + row);
  }
  PagedAttentionScene scene(SharingCase(kv_lens, 3));
  scene.Share(rows, 2 * kSplitKeysMin);
  scene.SetGroups({{rows, 2}});
  const auto workspace = scene.MakeWorkspace();
  scene.Check(scene.Run(false, nullptr, workspace.get()), "a large group");
  const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
  EXPECT_EQ(plan.counts[0], 2 * 3 + 21);
  for (int32_t i = 0; i < 6; ++i) {
    const int32_t* const item = plan.items + kItemWords * i;
    EXPECT_EQ(item[1], i / 3) << "the split of item " << i;
    EXPECT_EQ(item[4], i % 3 * 7) << "the first row of item " << i;
    EXPECT_EQ(item[5], 7) << "the rows of item " << i;
  }
}

// Splits before the largest window are not in the plan for layers with a window.
TEST(AttentionCascadeTest, WindowItemsAreThoseThatTheWindowShows) {
  PagedAttentionCase c = SharingCase({700, 255, 1025, 9000}, 2);
  c.window = 257;
  PagedAttentionScene scene(c);
  scene.Share({0, 2}, 2 * kSplitKeysMin);
  scene.SetGroups({{{0, 2}, 2}});
  const auto workspace = scene.MakeWorkspace();
  scene.Check(scene.Run(false, nullptr, workspace.get()), "windows");
  const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
  std::vector<std::pair<int32_t, int32_t>> splits;
  for (int32_t i = 0; i < plan.counts[1]; ++i) {
    const int32_t* const item = plan.window_items + kItemWords * i;
    splits.emplace_back(item[0], item[1]);
  }
  const std::vector<std::pair<int32_t, int32_t>> expected = {{3, 17}, {0, 1}, {0, 2},
                                                             {1, 0},  {2, 3}, {2, 4}};
  EXPECT_EQ(splits, expected);
}

}  // namespace
}  // namespace minisgl::cuda
