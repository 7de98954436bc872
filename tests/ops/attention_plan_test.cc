// Dividing attention: every split of every item once, and never more states at a time than allowed.
#include "cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace minisgl {
namespace {

// Requests of the given numbers of keys, one new token each.
struct Decodes {
  explicit Decodes(std::vector<int32_t> lengths) : kv_len(std::move(lengths)) {
    row_begin.resize(kv_len.size() + 1);
    std::iota(row_begin.begin(), row_begin.end(), 0);
    params.row_begin = row_begin.data();
    params.kv_len = kv_len.data();
    params.num_rows = static_cast<int32_t>(kv_len.size());
    params.num_tokens = params.num_rows;
    params.num_heads = 8;
    params.num_kv_heads = 2;
    params.head_dim = 16;
  }
  std::vector<int32_t> kv_len, row_begin;
  AttentionParams params = {};
};

TEST(AttentionPlanTest, BatchesHoldEverySplitOnceAndKeepToTheBound) {
  const Decodes decodes({1, 512, 513, 5000, 1024, 100000, 7, 2048});
  const AttentionParams& params = decodes.params;
  const auto items = PlanAttention(params);
  ASSERT_EQ(items.size(), 16u);
  const int64_t one = AttentionStateFloats(4, 16);
  for (const int64_t bound :
       {int64_t{0}, one, 3 * one, 4 * one, 12 * one, 195 * one, 196 * one, int64_t{1} << 40}) {
    SplitPlan plan = PlanSplits(params, items, bound);
    std::map<std::tuple<int32_t, int32_t, int64_t>, int> seen;  // row, KV head, split
    for (const AttentionItem& item : plan.whole) {
      EXPECT_GT(SplitStateFloats(params, item), bound);
      EXPECT_EQ(item.states, nullptr);
      for (int64_t split = item.split_begin; split < item.split_end; ++split) {
        ++seen[{item.row, item.kv_head, split}];
      }
    }
    for (auto& batch : plan.batches) {
      ASSERT_FALSE(batch.empty());
      int64_t floats = 0;
      for (const AttentionItem& item : batch) floats += SplitStateFloats(params, item);
      EXPECT_LE(floats, bound);
      std::vector<float> states(static_cast<size_t>(floats));
      int64_t place = 0;  // states lie one after another, an item's at its own address
      for (const AttentionItem& split : ShareOut(params, states.data(), &batch)) {
        EXPECT_EQ(split.split_end, split.split_begin + 1);
        EXPECT_EQ(split.states, states.data() + place);
        place += one;
        ++seen[{split.row, split.kv_head, split.split_begin}];
      }
      EXPECT_EQ(place, floats);
      EXPECT_EQ(batch.front().states, states.data());
    }
    EXPECT_EQ(seen.size(), 2u * (1 + 1 + 2 + 10 + 2 + 196 + 1 + 4)) << "bound " << bound;
    for (const auto& [split, count] : seen) EXPECT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace minisgl
