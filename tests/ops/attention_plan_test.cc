// The division of attention: every split of every token is computed once, shared keys are read once
// for a pack of rows, and the states in flight stay within their bound.
#include "cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace minisgl::cpu {
namespace {

constexpr int32_t kPlanPageSize = 16;

// Requests with the given numbers of keys and `extend` new tokens each. Those with at least
// `shared` keys begin with the same pages.
struct RowsOfPlan {
  RowsOfPlan(std::vector<int32_t> lengths, int32_t shared, int32_t extend = 1)
      : kv_len(std::move(lengths)) {
    const int64_t num_rows = std::ssize(kv_len);
    const int64_t stride = *std::max_element(kv_len.begin(), kv_len.end()) / kPlanPageSize + 1;
    pages.resize(num_rows * stride);
    row_begin = {0};
    for (int64_t row = 0; row < num_rows; ++row) {
      table_row.push_back(static_cast<int32_t>(row));
      row_begin.push_back(row_begin.back() + std::min(extend, kv_len[row]));
    }
    // A row's own pages come after all shared pages.
    for (int64_t i = 0; i < std::ssize(pages); ++i) {
      const int64_t row = i / stride, page = i % stride;
      const bool is_shared = kv_len[row] >= shared && page < shared / kPlanPageSize;
      pages[i] = static_cast<int32_t>(is_shared ? page : 1000000 + i);
    }
    params.page_table = pages.data();
    params.page_table_stride = stride;
    params.kv.page_size = kPlanPageSize;
    params.table_row = table_row.data();
    params.row_begin = row_begin.data();
    params.kv_len = kv_len.data();
    params.num_rows = static_cast<int32_t>(num_rows);
    params.num_tokens = row_begin.back();
    params.num_heads = 8;
    params.num_kv_heads = 2;
    params.head_dim = 16;
  }
  std::vector<int32_t> kv_len, row_begin, table_row, pages;
  AttentionParams params = {};
};

int64_t StateFloats(const AttentionParams& p, const AttentionItem& item) {
  return AttentionStateFloats(item.num_tokens * (p.num_heads / p.num_kv_heads), p.value_dim()) *
         (item.split_end - item.split_begin);
}

// How often each (token, KV head, split) is computed.
using Visits = std::map<std::tuple<int32_t, int32_t, int64_t>, int>;

Visits Expected(const RowsOfPlan& rows) {
  Visits visits;
  for (int32_t row = 0; row < rows.params.num_rows; ++row) {
    for (int32_t token = rows.row_begin[row]; token < rows.row_begin[row + 1]; ++token) {
      const int32_t keys = rows.kv_len[row] - (rows.row_begin[row + 1] - token - 1);
      for (int32_t head = 0; head < rows.params.num_kv_heads; ++head) {
        for (int64_t split = 0; split * kSplitKeys < keys; ++split) {
          visits[{token, head, split}] = 1;
        }
      }
    }
  }
  return visits;
}

// Adds the splits that an item visits; splits past a token's keys cost nothing and are not counted.
void AddVisits(const RowsOfPlan& rows, const AttentionItem& item, const Visits& expected,
               Visits* visits) {
  int64_t num_tokens = 0;
  for (int32_t i = 0; i < item.num_segments; ++i) {
    const AttentionSegment& segment = item.segments[i];
    EXPECT_GE(segment.token_begin, rows.row_begin[segment.row]);
    EXPECT_LE(segment.token_end, rows.row_begin[segment.row + 1]);
    num_tokens += segment.token_end - segment.token_begin;
    for (int32_t token = segment.token_begin; token < segment.token_end; ++token) {
      for (int64_t split = item.split_begin; split < item.split_end; ++split) {
        const std::tuple key{token, item.kv_head, split};
        if (expected.contains(key)) ++(*visits)[key];
      }
    }
  }
  EXPECT_EQ(item.num_tokens, num_tokens);
  EXPECT_LE(num_tokens * (rows.params.num_heads / rows.params.num_kv_heads), kQueryRowsMax);
}

// Checks that every split of every token is computed once, and that split items have separate
// states within the bound.
void ExpectSound(const RowsOfPlan& rows, int num_threads, int64_t bound) {
  const AttentionPlan plan = PlanAttention(rows.params, num_threads, bound);
  const Visits expected = Expected(rows);
  Visits visits;
  for (const AttentionLoop& loop : plan.loops) {
    EXPECT_LE(loop.state_floats, bound);
    std::map<int64_t, int64_t> taken;  // states: begin, end
    for (const AttentionItem& item : loop.attend) {
      AddVisits(rows, item, expected, &visits);
      if (item.state_begin < 0) continue;
      EXPECT_EQ(item.split_end, item.split_begin + 1);
      taken[item.state_begin] = item.state_begin + StateFloats(rows.params, item);
    }
    int64_t past = 0;
    for (const auto& [begin, end] : taken) {
      EXPECT_EQ(begin, past);
      past = end;
    }
    EXPECT_EQ(past, loop.state_floats);
    int64_t merged = 0;
    for (const AttentionItem& item : loop.merge) merged += StateFloats(rows.params, item);
    EXPECT_EQ(merged, loop.state_floats);
  }
  EXPECT_EQ(visits, expected) << num_threads << " threads, bound " << bound;
}

TEST(AttentionPlanTest, EverySplitOnceAndWithinTheBound) {
  for (const int32_t shared : {0, 64, 512, 1024}) {
    for (const int32_t extend : {1, 5, 30}) {
      const RowsOfPlan rows({1, 512, 513, 5000, 1024, 20000, 7, 2048, 2049}, shared, extend);
      const int64_t one = AttentionStateFloats(4, 16);
      for (const int num_threads : {1, 2, 3, 64}) {
        for (const int64_t bound : {int64_t{0}, one, 3 * one, 12 * one, int64_t{1} << 40}) {
          ExpectSound(rows, num_threads, bound);
        }
      }
    }
  }
}

// One long row is divided into splits, unless their states exceed the bound.
TEST(AttentionPlanTest, LongItemsAreSharedOut) {
  const RowsOfPlan rows({20000}, 0);
  EXPECT_EQ(PlanAttention(rows.params, 1).loops[0].attend.size(), 2u);
  EXPECT_EQ(PlanAttention(rows.params, 2).loops[0].attend.size(), 2u * 40);
  const int64_t one_item = 40 * AttentionStateFloats(4, 16);
  EXPECT_EQ(PlanAttention(rows.params, 2, one_item).loops.size(), 2u);
  const AttentionPlan bounded = PlanAttention(rows.params, 2, one_item - 1);
  ASSERT_EQ(bounded.loops.size(), 1u);
  EXPECT_EQ(bounded.loops[0].attend.size(), 2u);
  EXPECT_TRUE(bounded.loops[0].merge.empty());
}

// 40 rows of 4 query heads for each KV head: two packs of 20 rows, each of which reads the shared
// keys once.
TEST(AttentionPlanTest, RowsThatShareAPrefixArePacked) {
  const RowsOfPlan rows(std::vector<int32_t>(40, 430), 428);
  const AttentionPlan plan = PlanAttention(rows.params, 1);
  ASSERT_EQ(plan.loops.size(), 1u);
  ASSERT_EQ(plan.loops[0].attend.size(), 2u * 2);
  for (const AttentionItem& item : plan.loops[0].attend) {
    EXPECT_EQ(item.num_segments, 20);
    EXPECT_EQ(item.segments[0].shared_tiles, 0);
    // 26 pages of 16 are the same: 416 keys, 6 whole tiles.
    for (int i = 1; i < 20; ++i) EXPECT_EQ(item.segments[i].shared_tiles, 6);
  }
}

TEST(AttentionPlanTest, RowsWithoutSharedPagesAreNotGrouped) {
  for (const int32_t shared : {0, 48}) {
    const RowsOfPlan rows(std::vector<int32_t>(9, 430), shared);
    const AttentionPlan plan = PlanAttention(rows.params, 1);
    ASSERT_EQ(plan.loops[0].attend.size(), 9u * 2);
    for (const AttentionItem& item : plan.loops[0].attend) EXPECT_EQ(item.num_segments, 1);
  }
}

// If there are more threads than full packs, packs are smaller, so that each thread has some.
TEST(AttentionPlanTest, PacksAreSmallerWhereThreadsAreMany) {
  const RowsOfPlan rows(std::vector<int32_t>(40, 430), 428);
  EXPECT_EQ(PlanAttention(rows.params, 4).loops[0].attend.size(), 7u * 2);
}

TEST(AttentionPlanTest, APlanIsKeptForTheStep) {
  RowsOfPlan rows({600, 700}, 512);
  AttentionPlanner planner;
  rows.params.step = 1;
  const auto num_items = [&] { return planner.Plan(rows.params, 1).loops[0].attend.size(); };
  EXPECT_EQ(num_items(), 2u);
  rows.pages[0] = 7;  // not looked at again in this step
  EXPECT_EQ(num_items(), 2u);
  rows.params.sliding_window = 100;  // another kind of layer
  EXPECT_EQ(num_items(), 4u);
  rows.params.sliding_window = 0;
  EXPECT_EQ(num_items(), 2u);
  rows.params.step = 2;
  EXPECT_EQ(num_items(), 4u);
  rows.pages[0] = 0;
  rows.params.step = 0;  // step unknown: always planned again
  EXPECT_EQ(num_items(), 2u);
  rows.pages[0] = 7;
  EXPECT_EQ(num_items(), 4u);
}

// A step's layers of one shape use one plan, whatever layers are between them.
TEST(AttentionPlanTest, EachShapeOfAStepHasOnePlan) {
  RowsOfPlan rows({600, 700}, 512);
  rows.params.step = 1;
  struct Shape {
    int32_t num_heads, num_kv_heads, head_dim, v_head_dim, window;
  };
  const Shape shapes[] = {{8, 2, 16, 0, 0}, {8, 4, 16, 0, 0},  {4, 2, 16, 0, 0},
                          {8, 2, 32, 0, 0}, {8, 2, 16, 32, 0}, {8, 2, 16, 0, 64}};
  AttentionPlanner planner;
  std::vector<const AttentionLoop*> plans;
  for (int layer = 0; layer < 18; ++layer) {
    const Shape& shape = shapes[layer % 6];
    rows.params.num_heads = shape.num_heads;
    rows.params.num_kv_heads = shape.num_kv_heads;
    rows.params.head_dim = shape.head_dim;
    rows.params.v_head_dim = shape.v_head_dim;
    rows.params.sliding_window = shape.window;
    plans.push_back(planner.Plan(rows.params, 1).loops.data());
    for (int other = 0; other < layer; ++other) {
      EXPECT_EQ(plans[layer] == plans[other], layer % 6 == other % 6) << layer << " " << other;
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
