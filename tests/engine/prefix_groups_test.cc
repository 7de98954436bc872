// Grouping of rows that attention reads together: those that share the pages of whole splits.
#include "engine/prefix_groups.h"

#include <gtest/gtest.h>

#include <numeric>

namespace minisgl::engine {
namespace {

constexpr int32_t kGroupPageSize = 16;
constexpr int32_t kSplitPages = kSplitKeysMin / kGroupPageSize;

// Rows of one token, and writes of pages numbered from `begin` on.
class Steps {
 public:
  // Pages [first, first + count) of the row become begin, begin + 1, ...
  void Write(int32_t table_row, int32_t first, int32_t count, int32_t begin) {
    plan_.page_table_writes.push_back(
        {table_row, first, count, static_cast<int32_t>(plan_.pages.size())});
    for (int32_t i = 0; i < count; ++i) plan_.pages.push_back(begin + i);
  }
  void Row(int32_t table_row, int32_t kv_len) {
    plan_.table_row.push_back(table_row);
    plan_.kv_len.push_back(kv_len);
  }
  // The groups as "rows:splits", by plan row.
  std::string Run() {
    grouper_.ApplyWrites(plan_);
    const auto& groups = grouper_.Group(plan_, static_cast<int32_t>(plan_.table_row.size()));
    std::string text;
    std::vector<int32_t> grouped;
    for (int32_t g = 0; g < groups.num_groups(); ++g) {
      text += text.empty() ? "" : " ";
      for (int32_t i = groups.group_begin[g]; i < groups.group_begin[g + 1]; ++i) {
        text += fmt::format("{}{}", i == groups.group_begin[g] ? "" : ",", groups.rows[i]);
        grouped.push_back(groups.rows[i]);
      }
      text += fmt::format(":{}", groups.shared_splits[groups.rows[groups.group_begin[g]]]);
    }
    for (size_t row = 0; row < groups.shared_splits.size(); ++row) {
      const bool in_group =
          std::find(grouped.begin(), grouped.end(), static_cast<int32_t>(row)) != grouped.end();
      EXPECT_EQ(groups.shared_splits[row] > 0, in_group) << "row " << row;
    }
    plan_ = BatchPlan();
    return text;
  }

 private:
  PrefixGrouper grouper_{8, kGroupPageSize};
  BatchPlan plan_;
};

TEST(PrefixGrouperTest, RowsThatShareWholeSplitsAreGrouped) {
  Steps steps;
  steps.Write(0, 0, 3 * kSplitPages, 0);
  steps.Write(1, 0, 2 * kSplitPages, 0);
  steps.Write(1, 2 * kSplitPages, kSplitPages, 500);
  steps.Write(2, 0, 3 * kSplitPages, 1000);
  steps.Row(0, 600);
  steps.Row(2, 600);
  steps.Row(1, 700);
  EXPECT_EQ(steps.Run(), "0,2:2");
}

// The pages that follow come from anywhere in the pool.
TEST(PrefixGrouperTest, RowsOfTwoPrefixesInTurnAreTwoGroups) {
  Steps steps;
  for (int32_t row = 0; row < 4; ++row) {
    steps.Write(row, 0, kSplitPages, row % 2 == 0 ? 0 : 500);
    steps.Write(row, kSplitPages, 1, 1000 + row);
    steps.Row(row, kSplitKeysMin + 4);
  }
  EXPECT_EQ(steps.Run(), "0,2:1 1,3:1");
}

TEST(PrefixGrouperTest, LessThanASplitMakesNoGroup) {
  Steps steps;
  steps.Write(0, 0, kSplitPages + 2, 0);
  steps.Write(1, 0, kSplitPages - 1, 0);
  steps.Write(1, kSplitPages - 1, 3, 500);
  steps.Row(0, 280);
  steps.Row(1, 280);
  EXPECT_EQ(steps.Run(), "");
}

// A step writes a row's last key, so it is never shared, even if the pages are equal.
TEST(PrefixGrouperTest, TheLastKeyIsTheRowsOwn) {
  Steps steps;
  for (const int32_t row : {0, 1}) steps.Write(row, 0, kSplitPages, 0);
  steps.Row(0, kSplitKeysMin);
  steps.Row(1, kSplitKeysMin);
  EXPECT_EQ(steps.Run(), "");
}

TEST(PrefixGrouperTest, AGroupHasAnyNumberOfRows) {
  Steps steps;
  for (int32_t row = 0; row < 7; ++row) {
    steps.Write(row, 0, kSplitPages, 0);
    steps.Write(row, kSplitPages, 1, 100 + row);
    steps.Row(row, 260);
  }
  EXPECT_EQ(steps.Run(), "0,1,2,3,4,5,6:1");
}

// Two documents behind one system prompt save the splits times the rows but one.
TEST(PrefixGrouperTest, RowsOfLongerPrefixesAreGroupsOfTheirOwn) {
  Steps steps;
  for (int32_t row = 0; row < 5; ++row) {
    steps.Write(row, 0, kSplitPages, 0);
    steps.Write(row, kSplitPages, 2 * kSplitPages, row % 2 == 0 ? 1000 : 500);
    steps.Write(row, 3 * kSplitPages, 1, 100 + row);
    steps.Row(row, 3 * kSplitKeysMin + 4);
  }
  EXPECT_EQ(steps.Run(), "1,3:3 0,2,4:3") << "3 + 6 splits; together 4";
}

TEST(PrefixGrouperTest, OneGroupIfThatSavesMore) {
  Steps steps;
  for (int32_t row = 0; row < 4; ++row) {
    steps.Write(row, 0, 2 * kSplitPages, 0);
    steps.Write(row, 2 * kSplitPages, kSplitPages, row < 2 ? 500 : 1000 * row);
    steps.Write(row, 3 * kSplitPages, 1, 100 + row);
    steps.Row(row, 3 * kSplitKeysMin + 4);
  }
  EXPECT_EQ(steps.Run(), "0,1,2,3:2") << "6 splits; in pairs 3 + 2";
}

// A row that has only the system prompt is in the order before those with which it shares it.
TEST(PrefixGrouperTest, AShortRowSplitsNoGroup) {
  Steps steps;
  for (int32_t row = 0; row < 4; ++row) {
    steps.Write(row, 0, kSplitPages, 0);
    if (row > 0) steps.Write(row, kSplitPages, 2 * kSplitPages, 500);
    steps.Write(row, (row > 0 ? 3 : 1) * kSplitPages, 1, 100 + row);
    steps.Row(row, (row > 0 ? 3 : 1) * kSplitKeysMin + 4);
  }
  EXPECT_EQ(steps.Run(), "1,2,3:3");
}

TEST(PrefixGrouperTest, SplitsOfAnotherLengthAreNotShared) {
  Steps steps;
  const int32_t long_len = kSplitKeysMin * kSplitsMax + 1;
  steps.Write(0, 0, 2 * kSplitPages, 0);
  steps.Write(1, 0, (long_len + 15) / 16, 0);
  steps.Row(0, 300);
  steps.Row(1, long_len);
  EXPECT_EQ(steps.Run(), "");
}

TEST(PrefixGrouperTest, GroupsLastWhileRowsGrowAndEndWithThem) {
  Steps steps;
  for (const int32_t row : {0, 1}) {
    steps.Write(row, 0, kSplitPages, 0);
    steps.Write(row, kSplitPages, 1, 100 + row);
    steps.Row(row, 260);
  }
  EXPECT_EQ(steps.Run(), "0,1:1");
  steps.Write(1, kSplitPages + 1, 1, 300);
  for (const int32_t row : {0, 1}) steps.Row(row, 273);
  EXPECT_EQ(steps.Run(), "0,1:1");
  // Another request takes table row 1.
  steps.Write(1, 0, kSplitPages + 2, 2000);
  for (const int32_t row : {0, 1}) steps.Row(row, 274);
  EXPECT_EQ(steps.Run(), "");
}

TEST(PrefixGrouperTest, APageChangedForAnEqualOneJoinsRows) {
  Steps steps;
  steps.Write(0, 0, kSplitPages + 1, 0);
  steps.Write(1, 0, kSplitPages + 1, 1000);
  for (const int32_t row : {0, 1}) steps.Row(row, 270);
  EXPECT_EQ(steps.Run(), "");
  steps.Write(1, 0, 1, 0);
  for (const int32_t row : {0, 1}) steps.Row(row, 271);
  EXPECT_EQ(steps.Run(), "");
  steps.Write(1, 1, kSplitPages - 1, 1);
  for (const int32_t row : {0, 1}) steps.Row(row, 272);
  EXPECT_EQ(steps.Run(), "0,1:1");
}

}  // namespace
}  // namespace minisgl::engine
