// Rows that begin with the same pages become neighbours: compared with a search over all pairs.
#include "cpu/prefix_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "cpu/kernels/attention_kernels.h"

namespace minisgl::cpu {
namespace {

struct Table {
  int32_t page_size = 16;
  int32_t sliding_window = 0;
  std::vector<std::vector<int32_t>> pages;
  std::vector<int32_t> kv_len;
  std::vector<int32_t> extend;
};

std::vector<PrefixRow> Order(const Table& table) {
  const int64_t stride =
      std::max_element(table.pages.begin(), table.pages.end(), [](const auto& a, const auto& b) {
        return a.size() < b.size();
      })->size();
  std::vector<int32_t> flat, table_row, row_begin = {0};
  for (const auto& pages : table.pages) {
    flat.insert(flat.end(), pages.begin(), pages.end());
    flat.resize(flat.size() + stride - pages.size(), 12345);  // the same in all: must not count
    table_row.push_back(static_cast<int32_t>(table_row.size()));
    row_begin.push_back(row_begin.back() + table.extend[table_row.back()]);
  }
  AttentionParams params = {};
  params.kv.page_size = table.page_size;
  params.page_table = flat.data();
  params.page_table_stride = stride;
  params.table_row = table_row.data();
  params.row_begin = row_begin.data();
  params.kv_len = table.kv_len.data();
  params.num_rows = static_cast<int32_t>(table_row.size());
  params.sliding_window = table.sliding_window;
  return OrderByPrefix(params);
}

int64_t SharedTiles(const Table& table, int32_t a, int32_t b) {
  int64_t keys = std::min(table.kv_len[a] - table.extend[a], table.kv_len[b] - table.extend[b]);
  const int32_t longest = std::max(table.kv_len[a], table.kv_len[b]);
  if (table.sliding_window > 0 && longest > table.sliding_window) keys = 0;
  int64_t pages = 0;
  while ((pages + 1) * table.page_size <= keys && table.pages[a][pages] == table.pages[b][pages]) {
    ++pages;
  }
  return pages * table.page_size / kTileKeys;
}

// Checks that each row occurs once, that the tiles a row shares with an earlier one are the minimum
// in between, and that no row follows one with which it shares less than with an earlier row that
// could be its predecessor. Returns the number of rows that share tiles with the one before.
int ExpectOrder(const Table& table) {
  const std::vector<PrefixRow> order = Order(table);
  EXPECT_EQ(order.size(), table.pages.size());
  int num_sharing = 0;
  std::vector<int> seen(order.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    ++seen[order[i].row];
    if (i == 0) {
      EXPECT_EQ(order[i].shared_tiles, 0);
      continue;
    }
    num_sharing += order[i].shared_tiles > 0 ? 1 : 0;
    int64_t least = INT64_MAX;
    for (size_t j = i; j-- > 0;) {
      least = std::min(least, order[j + 1].shared_tiles);
      EXPECT_EQ(SharedTiles(table, order[i].row, order[j].row), least)
          << "rows " << order[j].row << " and " << order[i].row;
    }
  }
  for (const int count : seen) EXPECT_EQ(count, 1);
  return num_sharing;
}

// Pages of a tree of prefixes: each row copies the beginning of an earlier one.
Table RandomTable(int num_rows, int32_t page_size, std::mt19937_64* random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>((*random)() % n); };
  Table table;
  table.page_size = page_size;
  int32_t next_page = 0;
  for (int row = 0; row < num_rows; ++row) {
    const int64_t kv_len = 1 + below(below(3) == 0 ? 1500 : 300);
    std::vector<int32_t> pages;
    if (row > 0 && below(5) > 0) {
      const auto& from = table.pages[below(row)];
      pages.assign(from.begin(), from.begin() + below(std::ssize(from) + 1));
    }
    while (std::ssize(pages) * page_size < kv_len) pages.push_back(next_page++);
    pages.resize((kv_len + page_size - 1) / page_size);
    table.pages.push_back(pages);
    table.kv_len.push_back(static_cast<int32_t>(kv_len));
    table.extend.push_back(static_cast<int32_t>(below(2) == 0 ? 1 : 1 + below(kv_len)));
  }
  return table;
}

TEST(PrefixOrderTest, NeighboursShareAsMuchAsAnyPair) {
  std::mt19937_64 random(1);
  int num_sharing = 0;
  for (int round = 0; round < 60; ++round) {
    const int32_t page_size = std::vector<int32_t>{1, 4, 16, 48, 64, 256}[round % 6];
    Table table = RandomTable(1 + round, page_size, &random);
    if (round % 4 == 3) table.sliding_window = 200;
    num_sharing += ExpectOrder(table);
  }
  EXPECT_GT(num_sharing, 100);
}

TEST(PrefixOrderTest, EqualPagesPastTheKeysDoNotCount) {
  ExpectOrder({.pages = {{1, 2, 3, 4, 9}, {1, 2, 3, 4, 9}, {1, 2, 3, 4}, {1, 2, 3}},
               .kv_len = {65, 64, 64, 48},
               .extend = {1, 1, 64, 1}});
  const auto order =
      Order({.pages = {{1, 2, 3, 4, 9}, {1, 2, 3, 4, 8}}, .kv_len = {65, 66}, .extend = {1, 2}});
  EXPECT_EQ(order[1].shared_tiles, 1);
}

}  // namespace
}  // namespace minisgl::cpu
