// The parts of a step that both engines share: table writes, places, acceptance of drafts, results
// of rows.
#include "engine/step_tables.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/step_places.h"

namespace minisgl::engine {
namespace {

constexpr int32_t kLongest = 8;  // max_seq_len, and the stride of the token pool

// Two rows that want a token, the second with two drafts, and one between them that wants none.
class StepTablesTest : public testing::Test {
 protected:
  StepTablesTest() {
    plan_.positions = {3, 0, 1, 3, 4, 5};
    plan_.table_row = {1, 2, 0};
    plan_.row_begin = {0, 1, 3, 6};
    plan_.kv_len = {4, 2, 6};
    plan_.wants_token = {1, 0, 1};
    plan_.num_drafts = {0, 0, 2};
    plan_.prompt_len = {2, 5, 3};
    plan_.sampling = {&sampling_, &sampling_, &sampling_};
    pool_.assign(3 * kLongest, 50);
    pool_[4] = 11;  // the drafts of table row 0, at positions 4 and 5
    pool_[5] = 12;
  }

  // Accepts tokens with the ids `sampled`, one for each place; -1 stands for none.
  std::vector<int32_t> Accept(const std::vector<int32_t>& sampled) {
    std::vector<DeviceToken> tokens;
    for (const int32_t id : sampled) {
      const auto outcome = id < 0 ? RowResult::Outcome::kNonFinite : RowResult::Outcome::kToken;
      tokens.push_back({id, static_cast<int32_t>(outcome), 0, 0});
    }
    std::vector<int32_t> begin(4), accepted(3, -1);
    ForEachPlace(plan_, begin.data(), [](int32_t, int32_t, int32_t) {});
    AcceptTokens({.table_row = plan_.table_row.data(),
                  .kv_len = plan_.kv_len.data(),
                  .place_begin = begin.data(),
                  .num_rows = 3,
                  .sampled = tokens.data(),
                  .token_pool = pool_.data(),
                  .token_pool_stride = kLongest,
                  .num_accepted = accepted.data()});
    return accepted;
  }

  SamplingParams sampling_;
  BatchPlan plan_;
  std::vector<TokenId> pool_;
};

using Ids = std::vector<int32_t>;

TEST_F(StepTablesTest, PlacesAreTheLastTokenAndThoseBeforeDrafts) {
  Ids begin(4), rows, tokens, lengths;
  ForEachPlace(plan_, begin.data(), [&](int32_t row, int32_t token, int32_t history_len) {
    rows.push_back(row);
    tokens.push_back(token);
    lengths.push_back(history_len);
  });
  EXPECT_EQ(begin, (Ids{0, 1, 1, 4}));
  EXPECT_EQ(rows, (Ids{0, 2, 2, 2}));
  EXPECT_EQ(tokens, (Ids{0, 3, 4, 5}));
  EXPECT_EQ(lengths, (Ids{4, 4, 5, 6}));
}

TEST_F(StepTablesTest, DraftsAreAcceptedUpToTheFirstThatDiffers) {
  EXPECT_EQ(Accept({7, 11, 12, 13}), (Ids{0, 0, 2}));
  EXPECT_EQ(pool_[kLongest + 4], 7);
  EXPECT_EQ(pool_[6], 13) << "after both drafts";
  EXPECT_EQ(Accept({7, 11, 20, 12}), (Ids{0, 0, 1}));
  EXPECT_EQ(pool_[5], 20) << "in place of the draft that differs";
  EXPECT_EQ(Accept({7, 30, 20, 13}), (Ids{0, 0, 0}));
  EXPECT_EQ(pool_[4], 30);
}

TEST_F(StepTablesTest, APlaceWithoutATokenEndsItsRowAndWritesNothing) {
  EXPECT_EQ(Accept({-1, 11, -1, 13}), (Ids{0, 0, 1}));
  EXPECT_EQ(pool_[kLongest + 4], 50);
  EXPECT_EQ(pool_[5], 12) << "the draft stays";
}

TEST_F(StepTablesTest, ATokenAfterTheLongestLengthIsNotWritten) {
  plan_.kv_len[0] = kLongest;  // the next would be the first token of table row 2
  EXPECT_EQ(Accept({7, 11, 12, 13}), (Ids{0, 0, 2}));
  EXPECT_EQ(pool_[2 * kLongest], 50);
}

TEST_F(StepTablesTest, ResultsAreThoseOfTheFirstPlaceAndOfAcceptedDrafts) {
  const Ids accepted = {0, 0, 1};
  const auto rows = MakeRowResults(plan_, accepted.data(), [](int32_t place, const auto&) {
    RowResult result;
    result.token = 100 + place;
    return result;
  });
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].token, 100);
  EXPECT_TRUE(rows[0].more.empty());
  EXPECT_EQ(rows[1].token, -1);
  EXPECT_EQ(rows[2].token, 101);
  ASSERT_EQ(rows[2].more.size(), 1u);
  EXPECT_EQ(rows[2].more[0].token, 102);
}

TEST_F(StepTablesTest, WritesGoToEachTableOnceAndNowhereIfThereAreNone) {
  Ids pages(6, -1), windows(6, -1);
  const StepTables tables = {pages.data(), 3, pool_.data(), kLongest, windows.data()};
  int num_calls = 0;
  const auto apply = [&](const PlanWritesParams& params) {
    ++num_calls;
    ApplyPlanWrites(params);
  };
  ApplyTableWrites(plan_, {}, tables, apply);
  EXPECT_EQ(num_calls, 0);

  plan_.page_table_writes = {{1, 1, 2, 0}};
  plan_.pages = {4, 5};
  plan_.window_pages = {8, 9};
  plan_.token_pool_writes = {{2, 3, 1, 1}};
  plan_.tokens = {70, 71};
  ApplyTableWrites(plan_,
                   {plan_.page_table_writes.data(), plan_.pages.data(), plan_.window_pages.data(),
                    plan_.token_pool_writes.data(), plan_.tokens.data()},
                   tables, apply);
  EXPECT_EQ(num_calls, 2);
  EXPECT_EQ(pages, (Ids{-1, -1, -1, -1, 4, 5}));
  EXPECT_EQ(windows, (Ids{-1, -1, -1, -1, 8, 9}));
  EXPECT_EQ(pool_[2 * kLongest + 3], 71);
}

}  // namespace
}  // namespace minisgl::engine
