// Decode attention of rows that share their first keys: keys are read once for a group, and each
// row has bit for bit the result that it has alone.
#include "attention_check.h"
#include "kernels/attention_arguments.h"

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

TEST(AttentionCascadeTest, GroupsOfEverySizeChangeNoByte) {
  for (const int32_t group : {1, 2, 3, 5, 8}) {
    std::vector<int32_t> rows, kv_lens;
    for (int32_t row = 0; row < 16 / group; ++row) {
      rows.push_back(row);
      kv_lens.push_back(257 + 60 * row);
    }
    ExpectSame(PagedAttentionScene(SharingCase(kv_lens, group)), {{rows, 1}},
               "G " + std::to_string(group));
  }
}

TEST(AttentionCascadeTest, HeadDimsTypesHeadsAndSinks) {
  for (const int32_t head_dim : {64, 80, 128, 256}) {
    PagedAttentionCase c = SharingCase({300, 520, 270}, 4);
    c.dtype = head_dim == 80 ? DType::kF16 : DType::kBF16;
    c.head_dim = head_dim;
    c.num_kv_heads = 2;
    c.num_heads = 8;
    c.sinks = true;
    c.softcap = head_dim == 64 ? 4.0f : 0.0f;
    ExpectSame(PagedAttentionScene(c), {{{2, 0, 1}, 1}}, "E " + std::to_string(head_dim));
  }
}

TEST(AttentionCascadeTest, SeveralGroupsAndRowsOutsideGroups) {
  PagedAttentionCase c = SharingCase({700, 5, 520, 600, 300, 770, 515, 290}, 2);
  ExpectSame(PagedAttentionScene(c), {{{0, 2}, 2}, {{3, 5, 6}, 2}, {{7, 4}, 1}}, "three groups");
}

TEST(AttentionCascadeTest, EveryOrderOfThreadsAndBlocks) {
  PagedAttentionCase c = SharingCase({300, 400, 330, 280}, 4);
  PagedAttentionScene scene(c);
  scene.Share({0, 1, 2, 3}, kSplitKeysMin);
  const auto alone = scene.Run();
  scene.SetGroups({{{0, 1, 2, 3}, 1}});
  emulator::ForEachOrder(emulator::kNumOrders,
                         [&](int order) { EXPECT_EQ(scene.Run(), alone) << order; });
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
    return DivideWorkspace({workspace->data(), of.Limits()}).counts[0];
  };
  scene.Share({0, 1, 2}, 2 * kSplitKeysMin);
  EXPECT_EQ(count(scene), 3 + 4 + 3);
  scene.SetGroups({{{0, 1, 2}, 2}});
  EXPECT_EQ(count(scene), 2 + 1 + 2 + 1);
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
  const DeviceAttentionPlan plan = DivideWorkspace({workspace->data(), scene.Limits()});
  std::vector<std::pair<int32_t, int32_t>> splits;
  for (int32_t i = 0; i < plan.counts[3]; ++i) {
    const int32_t* const item = plan.window_items + kItemWords * i;
    splits.emplace_back(item[0], item[1]);
  }
  const std::vector<std::pair<int32_t, int32_t>> expected = {{3, 17}, {0, 1}, {0, 2},
                                                             {1, 0},  {2, 3}, {2, 4}};
  EXPECT_EQ(splits, expected);
}

}  // namespace
}  // namespace minisgl::cuda
