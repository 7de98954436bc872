// See prefix_order.h.
//
// Among rows known to share their first pages, one is the leader. The others are sorted by how many
// pages they have in common with it. Rows that differ from it at the same page are divided further
// among themselves, from that page on. So each page is compared once for each row that has it.
#include "cpu/prefix_order.h"

#include <algorithm>
#include <cstring>

#include "cpu/kernels/attention_kernels.h"

namespace minisgl::cpu {
namespace {

struct Row {
  int32_t row;
  const int32_t* pages;
  int64_t num_pages;  // pages that may be shared
  int64_t common;     // pages in common with the previous row

  int32_t PageAt(int64_t index) const { return index < num_pages ? pages[index] : -1; }
};

// Rows [begin, end), which share pages [0, depth) with each other and with the row before them, but
// not page `depth` with that row.
struct Range {
  size_t begin, end;
  int64_t depth;
};

// Returns the number of leading pages that are equal. REQUIRES the first `known` to be.
int64_t CommonPages(const Row& a, const Row& b, int64_t known) {
  constexpr int64_t kBlock = 64;  // compared by memcmp, which is vectorised
  const int64_t most = std::min(a.num_pages, b.num_pages);
  int64_t same = known;
  while (same + kBlock <= most &&
         std::memcmp(a.pages + same, b.pages + same, kBlock * sizeof(int32_t)) == 0) {
    same += kBlock;
  }
  while (same < most && a.pages[same] == b.pages[same]) ++same;
  return same;
}

// Sorts rows [begin, end), which share more than `depth` pages, and appends the ranges that need
// further division to `ranges`.
void DivideAlike(size_t begin, size_t end, int64_t depth, std::vector<Row>* rows,
                 std::vector<Range>* ranges) {
  const auto at = [&](size_t i) { return rows->begin() + static_cast<int64_t>(i); };
  for (size_t i = begin + 1; i < end; ++i) {
    at(i)->common = CommonPages(*at(begin), *at(i), depth + 1);
  }
  std::stable_sort(at(begin + 1), at(end),
                   [](const Row& a, const Row& b) { return a.common > b.common; });
  for (size_t first = begin + 1, last = first; first < end; first = last) {
    while (last < end && at(last)->common == at(first)->common) ++last;
    if (last - first > 1) ranges->push_back({first, last, at(first)->common});
  }
}

void Divide(const Range& range, std::vector<Row>* rows, std::vector<Range>* ranges) {
  const auto at = [&](size_t i) { return rows->begin() + static_cast<int64_t>(i); };
  const auto page = [&](const Row& row) { return row.PageAt(range.depth); };
  std::stable_sort(at(range.begin), at(range.end),
                   [&](const Row& a, const Row& b) { return page(a) < page(b); });
  for (size_t first = range.begin, last = first; first < range.end; first = last) {
    last = first + 1;
    at(first)->common = range.depth;
    if (page(*at(first)) < 0) continue;  // ends here: shares nothing more
    while (last < range.end && page(*at(last)) == page(*at(first))) ++last;
    DivideAlike(first, last, range.depth, rows, ranges);
  }
}

}  // namespace

std::vector<PrefixRow> OrderByPrefix(const AttentionParams& p) {
  std::vector<Row> rows;
  rows.reserve(static_cast<size_t>(p.num_rows));
  for (int32_t row = 0; row < p.num_rows; ++row) {
    const int64_t kv_len = p.kv_len[row];
    const int64_t num_old = kv_len - (p.row_begin[row + 1] - p.row_begin[row]);
    const bool is_cut = p.sliding_window > 0 && kv_len > p.sliding_window;
    rows.push_back({row, p.page_table + p.table_row[row] * p.page_table_stride,
                    is_cut ? 0 : num_old / p.kv.page_size, 0});
  }
  std::vector<Range> ranges;
  if (rows.size() > 1) ranges.push_back({0, rows.size(), 0});
  while (!ranges.empty()) {
    const Range range = ranges.back();
    ranges.pop_back();
    Divide(range, &rows, &ranges);
  }
  std::vector<PrefixRow> order;
  order.reserve(rows.size());
  for (const Row& row : rows) {
    order.push_back({row.row, row.common * p.kv.page_size / kTileKeys});
  }
  return order;
}

}  // namespace minisgl::cpu
