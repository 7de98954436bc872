// Extend attention over several splits, on the emulator: against the oracle, and against itself
// with the same keys divided among blocks in other ways. How a plan divides them depends on the
// number of multiprocessors.
#include <bit>
#include <map>

#include "attention_check.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_fold.cuh"

namespace minisgl::cuda {
namespace {

PagedAttentionCase FoldCase(const std::vector<PagedAttentionRow>& rows) {
  PagedAttentionCase c;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.page_size = 64;
  c.rows = rows;
  return c;
}

// A run, and the items of cut tiles of the list that is asked for.
struct DividedRun {
  std::vector<unsigned char> out;
  int32_t cut_items = 0, cut_shift = 0;
};

DividedRun RunOn(const PagedAttentionScene& scene, int num_multiprocessors, bool deterministic,
                 bool decode_rows = false) {
  KernelDevice device;
  device.context.num_multiprocessors = num_multiprocessors;
  const auto workspace = scene.MakeWorkspace();
  DividedRun run;
  run.out = scene.Run(deterministic, &device, workspace.get());
  const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
  const int32_t* const counts = (decode_rows ? plan.decode_list : plan.extend_list).counts;
  run.cut_items = counts[ExtendList::kCutItems];
  run.cut_shift = counts[ExtendList::kCutShift];
  return run;
}

// 17 splits, so that there are boundaries of three levels: a whole tile, items of 16, of 4 and of 1
// split.
TEST(AttentionFoldTest, EveryDivisionGivesTheSame) {
  PagedAttentionCase c = FoldCase({{2, 16 * kExtendSplitKeys + 40}});
  c.num_heads = 4;
  c.num_kv_heads = 4;
  const PagedAttentionScene scene(c);
  const DividedRun whole = RunOn(scene, 1, false);
  EXPECT_EQ(whole.cut_items, 0);
  scene.Check(whole.out, "whole");
  const std::map<int, int32_t> shifts = {{4, 4}, {16, 2}, {132, 0}};
  for (const auto& [num_multiprocessors, shift] : shifts) {
    const DividedRun divided = RunOn(scene, num_multiprocessors, false);
    EXPECT_EQ(divided.cut_shift, shift) << num_multiprocessors;
    EXPECT_EQ(divided.cut_items, (16 >> shift) + 1) << num_multiprocessors;
    EXPECT_EQ(divided.out, whole.out) << num_multiprocessors << " multiprocessors";
  }
}

// Both sizes of tiles and every head_dim; prefixes with sliding windows, soft caps and sinks.
// Tokens lie on both sides of a boundary.
TEST(AttentionFoldTest, DivisionsOfCachedPrefixes) {
  for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
    for (const int32_t num_tokens : {3, 40}) {
      PagedAttentionCase c = FoldCase({{num_tokens, 5 * kExtendSplitKeys + num_tokens / 2}});
      c.dtype = head_dim == 80 ? DType::kF16 : DType::kBF16;
      c.head_dim = head_dim;
      c.window = head_dim == 96 ? 700 : head_dim == 64 ? 20 : 0;
      c.softcap = head_dim == 128 ? 5.0f : 0;
      c.sinks = head_dim != 128;
      const PagedAttentionScene scene(c);
      const DividedRun few = RunOn(scene, 1, false), many = RunOn(scene, 132, false);
      EXPECT_LT(few.cut_items, many.cut_items);
      scene.Check(many.out, "many blocks");
      EXPECT_EQ(few.out, many.out) << c.Name();
    }
  }
}

TEST(AttentionFoldTest, WindowsCapsAndSinks) {
  for (const int32_t window : {0, 1, 300, 512, 513, 1100, 5000}) {
    for (const float softcap : {0.0f, 3.0f}) {
      PagedAttentionCase c = FoldCase({{40, 3 * kExtendSplitKeys + 20}, {4, 1030}, {2, 500}});
      c.dtype = DType::kF16;
      c.window = window;
      c.softcap = softcap;
      c.sinks = softcap > 0;
      const PagedAttentionScene scene(c);
      const DividedRun run = RunOn(scene, 132, false);
      EXPECT_GT(run.cut_items, 0);
      scene.Check(run.out, "extend");
      EXPECT_EQ(RunOn(scene, 1, false).out, run.out) << c.Name();
    }
  }
}

// The basis of deterministic mode, over several splits: a token of a long row alone, as a draft and
// in a chunk; beside other rows; and as a decode row.
TEST(AttentionFoldTest, TokenAloneIsTheSame) {
  for (const int32_t window : {0, 600}) {
    PagedAttentionCase c = FoldCase({{70, 2100}, {1, 1300}, {30, 30}});
    c.num_heads = 3;
    c.window = window;
    c.sinks = window > 0;
    const PagedAttentionScene scene(c);
    const std::vector<unsigned char> all = RunOn(scene, 4, true).out;
    scene.Check(all, "all");
    const PagedAttentionScene few = scene.Pick({0}, 0, 4), one = scene.Pick({0}, 1, 1);
    EXPECT_EQ(few.Run(true), scene.Tokens(all, 66, 70));
    EXPECT_EQ(scene.Pick({1}, 1).Run(true), scene.Tokens(all, 70, 71));
    for (const int num_multiprocessors : {1, 132}) {
      const DividedRun run = RunOn(one, num_multiprocessors, true, /*decode_rows=*/true);
      EXPECT_EQ(run.cut_shift, num_multiprocessors == 1 ? 2 : 0);
      EXPECT_GT(run.cut_items, 0);
      EXPECT_EQ(run.out, scene.Tokens(all, 69, 70)) << num_multiprocessors;
    }
  }
}

TEST(AttentionFoldTest, SameUnderEveryThreadOrder) {
  for (const int32_t num_tokens : {2, 40}) {
    PagedAttentionCase c = FoldCase({{1, 1100}, {num_tokens, 5 * kExtendSplitKeys + 1}});
    c.num_heads = 1;
    c.num_decode_rows = 1;
    const PagedAttentionScene scene(c);
    const std::vector<unsigned char> expected = RunOn(scene, 132, true).out;
    scene.Check(expected, "extend");
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      EXPECT_EQ(RunOn(scene, order % 2 == 0 ? 2 : 132, true).out, expected) << "order " << order;
    });
  }
}

// Launches with bounds, as graphs have them.
TEST(AttentionFoldTest, BoundsGiveTheSame) {
  PagedAttentionCase c = FoldCase({{1, 1500}, {5, 1100}, {40, 2500}});
  c.num_decode_rows = 1;
  ExpectBoundsGiveTheSame(c);
}

// Every place is in the queue once.
void ExpectAllFree(const PlaceQueue& queue) {
  ASSERT_GT(queue.num_places, 0);
  EXPECT_EQ(queue.words[1] - queue.words[0], static_cast<uint32_t>(queue.num_places));
  std::vector<uint32_t> places(queue.words + 2, queue.words + 2 + queue.num_places);
  std::sort(places.begin(), places.end());
  for (int32_t i = 0; i < queue.num_places; ++i) {
    EXPECT_EQ(places[static_cast<size_t>(i)], static_cast<uint32_t>(i) + 1);
  }
}

// After every launch no boundary waits for a block, and all places are free.
TEST(AttentionFoldTest, NothingIsLeftBetweenLaunches) {
  for (const int32_t num_tokens : {2, 40}) {
    PagedAttentionCase c = FoldCase({{1, 1500}, {num_tokens, 3000}});
    c.num_decode_rows = 1;
    const PagedAttentionScene scene(c);
    const auto workspace = scene.MakeWorkspace();
    KernelDevice device;
    device.context.num_multiprocessors = 1;
    const auto once = scene.Run(true, &device, workspace.get());
    EXPECT_EQ(scene.Run(true, &device, workspace.get(), 3), once);
    const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
    EXPECT_GT(plan.extend_list.counts[ExtendList::kCutItems], 0);
    for (int32_t i = 0; i < plan.extend_list.counts[ExtendList::kCutItems]; ++i) {
      EXPECT_EQ(plan.met[i], 0u) << i;
    }
    ExpectAllFree(plan.small_places);
    ExpectAllFree(plan.large_places);
    const PlaceQueue& used = num_tokens == 40 ? plan.large_places : plan.small_places;
    EXPECT_GT(used.words[0], 0u);  // some were taken
  }
}

// A workspace for one multiprocessor: whole tiles of several splits, more than there are places, of
// which eight run at once. So places are used again, and blocks wait for one.
TEST(AttentionFoldTest, FewPlacesGiveTheSame) {
  struct Tiles {
    int32_t head_dim, num_tokens, kv_len;
    int32_t num_places, num_tiles;
    int num_orders;
  };
  for (const Tiles& tiles : {Tiles{64, 2, kExtendSplitKeys + 30, 5, 9, emulator::kNumOrders},
                             {64, 40, kExtendSplitKeys + 30, 2, 5, 2},
                             {256, 40, kExtendSplitKeys + 30, 1, 3, 1}}) {
    PagedAttentionCase c = FoldCase(std::vector<PagedAttentionRow>(
        static_cast<size_t>(tiles.num_tiles), {tiles.num_tokens, tiles.kv_len}));
    c.head_dim = tiles.head_dim;
    KernelDevice device;
    device.context.num_multiprocessors = 1;
    const std::vector<unsigned char> expected = PagedAttentionScene(c).Run(false, &device);
    c.workspace_multiprocessors = 1;
    const PagedAttentionScene scene(c);
    scene.Check(expected, "many places");
    const auto workspace = scene.MakeWorkspace();
    const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
    const PlaceQueue& places = tiles.num_tokens == 2 ? plan.small_places : plan.large_places;
    EXPECT_EQ(places.num_places, tiles.num_places);
    emulator::ForEachOrder(tiles.num_orders, [&](int order) {
      emulator::Options options = emulator::GetOptions();
      options.blocks_at_once = 8;
      emulator::SetOptions(options);
      EXPECT_EQ(scene.Run(false, &device, workspace.get()), expected) << "order " << order;
      EXPECT_EQ(plan.extend_list.counts[ExtendList::kCutItems], 0);
      EXPECT_EQ(places.words[0], static_cast<uint32_t>(tiles.num_tiles));  // places were taken
      ExpectAllFree(places);
    });
  }
}

// A value that is not finite reaches no other row, whichever split it is in.
TEST(AttentionFoldTest, NanStaysInItsRow) {
  PagedAttentionScene scene(FoldCase({{3, 1300}, {3, 1300}}));
  const std::vector<unsigned char> before = RunOn(scene, 132, false).out;
  scene.SpoilValue(1, 600);
  const std::vector<unsigned char> after = RunOn(scene, 132, false).out;
  EXPECT_EQ(scene.Tokens(after, 0, 3), scene.Tokens(before, 0, 3));
  const std::vector<unsigned char> row = scene.Tokens(after, 3, 6);
  for (int64_t i = 0; i < 3 * scene.out_width(); ++i) {
    EXPECT_TRUE(std::isnan(LoadElement(row.data(), DType::kBF16, i))) << i;
  }
}

// The tree is the same from every split and for every end: written out as a formula.
std::string FoldFormula(int32_t low, int32_t high, int32_t item_splits) {
  std::map<int32_t, std::string> left;  // what waits at a boundary, for who comes second
  const auto fold = [](const std::string& a, const std::string& b) { return "(" + a + b + ")"; };
  // Items from the last to the first, the splits of an item in order, as blocks may come.
  for (int32_t item = (high - 1) / item_splits; item >= low / item_splits; --item) {
    const int32_t begin = std::max(low, item * item_splits);
    const int32_t end = std::min(high, (item + 1) * item_splits);
    for (int32_t split = begin; split < end; ++split) {
      std::string held = fmt::format("{} ", split);
      HeldSplits splits = {split, split + 1};
      bool waits = false;
      while (!waits && (splits.begin > low || splits.end < high)) {
        const int32_t boundary = splits.FindBoundary();
        const bool is_right = splits.IsRight();
        EXPECT_EQ(boundary, is_right ? splits.begin : splits.end);
        if (low < boundary && boundary < high) {
          const auto found = left.find(boundary);
          waits = found == left.end();
          if (waits) {
            left[boundary] = held;
          } else {
            held = is_right ? fold(found->second, held) : fold(held, found->second);
            left.erase(found);
          }
        }
        splits.Fold();
      }
      if (!waits) {
        EXPECT_TRUE(left.empty());
        return held;
      }
    }
  }
  return "nothing";
}

TEST(AttentionFoldTest, TreeDependsOnNoDivision) {
  EXPECT_EQ(FoldFormula(0, 1, 1), "0 ");
  EXPECT_EQ(FoldFormula(0, 6, 64), "((((0 1 )2 )3 )(4 5 ))");
  EXPECT_EQ(FoldFormula(2, 6, 64), "((2 3 )(4 5 ))");
  for (const int32_t high : {2, 3, 4, 5, 16, 17, 63, 64, 65, 100}) {
    for (const int32_t low : {0, 1, 7, 15, 16, 50}) {
      if (low >= high) continue;
      const std::string formula = FoldFormula(low, high, 1 << 20);
      EXPECT_EQ(std::count(formula.begin(), formula.end(), ' '), high - low);
      for (const int32_t item_splits : {1, 4, 16, 64}) {
        EXPECT_EQ(FoldFormula(low, high, item_splits), formula) << low << " " << high;
      }
    }
  }
}

TEST(AttentionFoldTest, FoldIsTheSameFromBothSides) {
  const SoftmaxState states[] = {{3.5f, 2.25f}, {-7.0f, 1.1f}, {3.5f, 9.0f}, SoftmaxState()};
  const float values[] = {0.1f, -3.7f, -0.0f, 0.0f};
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      SoftmaxState one = states[a], other = states[b];
      const FoldFactor one_factor = FoldState(states[b], &one);
      const FoldFactor other_factor = FoldState(states[a], &other);
      EXPECT_EQ(one.largest, other.largest);
      EXPECT_EQ(one.sum, other.sum);
      const float value = FoldValue(values[a], values[b], one_factor);
      EXPECT_EQ(value, FoldValue(values[b], values[a], other_factor));
      if (b == 3) {  // nothing: changes no bit, not even the sign of -0
        EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(values[a]));
        EXPECT_EQ(one.sum, states[a].sum);
      }
    }
  }
  SoftmaxState state = {1.0f, 3.0f};
  const FoldFactor factor = FoldState({3.0f, 5.0f}, &state);
  EXPECT_EQ(state.largest, 3.0f);
  EXPECT_EQ(state.sum, 3.0f / 4 + 5.0f);
  EXPECT_EQ(FoldValue(8.0f, 1.0f, factor), 3.0f);
}

}  // namespace
}  // namespace minisgl::cuda
