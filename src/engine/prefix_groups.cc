// See prefix_groups.h.
#include "engine/prefix_groups.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>

#include "minisgl/base/check.h"

namespace minisgl::engine {
namespace {

// Number of leading pages, at most `pages_max`, that are the same in `a` and `b`.
int64_t CommonPages(const std::vector<int32_t>& a, const std::vector<int32_t>& b,
                    int64_t pages_max) {
  MINISGL_CHECK(pages_max <= std::ssize(a) && pages_max <= std::ssize(b),
                "{} pages of rows that have {} and {}", pages_max, a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + pages_max, b.begin()).first - a.begin();
}

}  // namespace

PrefixGrouper::PrefixGrouper(int32_t num_table_rows, int32_t page_size)
    : page_size_(page_size),
      pages_(static_cast<size_t>(num_table_rows)),
      version_(static_cast<size_t>(num_table_rows), 0) {}

// A write at the end of what was written is a request that grows. A write before it is a new
// request in the table row, or a page replaced by one with the same contents.
void PrefixGrouper::ApplyWrites(const BatchPlan& plan) {
  for (const PageTableWrite& write : plan.page_table_writes) {
    const auto row = static_cast<size_t>(write.table_row);
    const auto first = static_cast<size_t>(write.first), count = static_cast<size_t>(write.count);
    std::vector<int32_t>& pages = pages_[row];
    if (first < pages.size()) ++version_[row];
    if (pages.size() < first + count) pages.resize(first + count, -1);
    std::copy_n(plan.pages.data() + write.offset, write.count, pages.begin() + write.first);
  }
}

const PrefixGroups& PrefixGrouper::Group(const BatchPlan& plan, int32_t num_decode_rows,
                                         int32_t rows_max) {
  signature_.clear();
  for (int32_t row = 0; row < num_decode_rows; ++row) {
    const int32_t table_row = plan.table_row[row];
    signature_.push_back({table_row, version_[static_cast<size_t>(table_row)],
                          AttentionSplitKeys(plan.kv_len[row])});
  }
  if (signature_ != last_signature_ || rows_max != last_rows_max_) {
    Regroup(plan, num_decode_rows, rows_max);
    std::swap(signature_, last_signature_);
    last_rows_max_ = rows_max;
  }
  return groups_;
}

// Sorts rows by the length of their splits and the last page of the first split, so that rows that
// share a split are adjacent. A group is the rows that share at least one whole split with its
// first row; its shared splits are those that all of them share.
void PrefixGrouper::Regroup(const BatchPlan& plan, int32_t num_decode_rows, int32_t rows_max) {
  groups_ = PrefixGroups();
  groups_.shared_splits.assign(static_cast<size_t>(num_decode_rows), 0);
  if (rows_max < 2) return;
  std::vector<int32_t> order(static_cast<size_t>(num_decode_rows));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int32_t row) {
    const std::vector<int32_t>& pages = PagesOf(plan, row);
    const int32_t split_keys = AttentionSplitKeys(plan.kv_len[row]);
    // The last page of the first split, because different prefixes may share their first page.
    const auto last = static_cast<size_t>(split_keys / page_size_ - 1);
    return std::tuple(split_keys, last < pages.size() ? pages[last] : -1, row);
  };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });

  size_t next = 0;
  while (next < order.size()) {
    const int32_t first = order[next];
    const int32_t split_keys = AttentionSplitKeys(plan.kv_len[first]);
    int64_t shared = INT64_MAX;  // splits
    size_t end = next + 1;
    for (; end < order.size() && end - next < static_cast<size_t>(rows_max); ++end) {
      const int32_t row = order[end];
      if (AttentionSplitKeys(plan.kv_len[row]) != split_keys) break;
      // The last key of a row is its own, because the step writes it.
      const int64_t keys = std::min(plan.kv_len[first], plan.kv_len[row]) - 1;
      const int64_t pages =
          CommonPages(PagesOf(plan, first), PagesOf(plan, row), keys / page_size_);
      const int64_t splits = pages * page_size_ / split_keys;
      if (splits == 0) break;
      shared = std::min(shared, splits);
    }
    if (end - next >= 2) {
      for (size_t i = next; i < end; ++i) {
        groups_.rows.push_back(order[i]);
        groups_.shared_splits[static_cast<size_t>(order[i])] = static_cast<int32_t>(shared);
      }
      groups_.group_begin.push_back(static_cast<int32_t>(groups_.rows.size()));
    }
    next = end;
  }
}

}  // namespace minisgl::engine
