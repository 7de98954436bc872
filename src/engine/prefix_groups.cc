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

// Rows [begin, end) of an order, all of which share `shared` splits.
struct RowRange {
  size_t begin, end;
  int32_t shared;
};

// Cuts an order of rows into ranges; common[i]: splits that rows i and i + 1 share. Of all ways to
// cut, one that saves the most reads of a split: the sum of shared * (rows - 1). Returns the ranges
// of several rows.
std::vector<RowRange> CutIntoGroups(const std::vector<int32_t>& common) {
  const size_t num_rows = common.size() + 1;
  std::vector<int64_t> saved(num_rows + 1, 0);  // by the first rows, at best
  std::vector<RowRange> last(num_rows + 1);     // of these rows, the last range
  for (size_t end = 1; end <= num_rows; ++end) {
    saved[end] = saved[end - 1];
    last[end] = {end - 1, end, 0};
    int32_t shared = INT32_MAX;
    for (size_t begin = end - 1; begin-- > 0;) {
      shared = std::min(shared, common[begin]);
      if (shared == 0) break;
      const int64_t with = saved[begin] + shared * static_cast<int64_t>(end - begin - 1);
      if (with <= saved[end]) continue;
      saved[end] = with;
      last[end] = {begin, end, shared};
    }
  }
  std::vector<RowRange> ranges;
  for (size_t end = num_rows; end > 0; end = last[end].begin) {
    if (last[end].shared > 0) ranges.push_back(last[end]);
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
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

const PrefixGroups& PrefixGrouper::Group(const BatchPlan& plan, int32_t num_decode_rows) {
  signature_.clear();
  for (int32_t row = 0; row < num_decode_rows; ++row) {
    const int32_t table_row = plan.table_row[row];
    signature_.push_back({table_row, version_[static_cast<size_t>(table_row)],
                          AttentionSplitKeys(plan.kv_len[row])});
  }
  if (signature_ != last_signature_) {
    Regroup(plan, num_decode_rows);
    std::swap(signature_, last_signature_);
  }
  return groups_;
}

// Rows by the length of their splits, then by the last pages of their splits, one after another:
// rows are next to those with which they share most. (The last pages, because different prefixes
// may share their first page.) The last key of a row is its own, because the step writes it.
std::vector<int32_t> PrefixGrouper::SortByPages(const BatchPlan& plan,
                                                int32_t num_decode_rows) const {
  std::vector<int32_t> order(static_cast<size_t>(num_decode_rows));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int32_t split_keys = AttentionSplitKeys(plan.kv_len[a]);
    const int32_t other_keys = AttentionSplitKeys(plan.kv_len[b]);
    if (split_keys != other_keys) return split_keys < other_keys;
    const int32_t splits_a = (plan.kv_len[a] - 1) / split_keys;
    const int32_t splits_b = (plan.kv_len[b] - 1) / split_keys;
    const std::vector<int32_t>&pages_a = PagesOf(plan, a), &pages_b = PagesOf(plan, b);
    for (int32_t split = 0; split < std::min(splits_a, splits_b); ++split) {
      const auto last = static_cast<size_t>(((split + 1) * split_keys - 1) / page_size_);
      if (pages_a[last] != pages_b[last]) return pages_a[last] < pages_b[last];
    }
    return std::tuple(splits_a, a) < std::tuple(splits_b, b);
  });
  return order;
}

// Number of leading splits that two rows share.
int32_t PrefixGrouper::CommonSplits(const BatchPlan& plan, int32_t a, int32_t b) const {
  const int32_t split_keys = AttentionSplitKeys(plan.kv_len[a]);
  if (AttentionSplitKeys(plan.kv_len[b]) != split_keys) return 0;
  const int64_t keys = std::min(plan.kv_len[a], plan.kv_len[b]) - 1;
  const int64_t pages = CommonPages(PagesOf(plan, a), PagesOf(plan, b), keys / page_size_);
  return static_cast<int32_t>(pages * page_size_ / split_keys);
}

void PrefixGrouper::Regroup(const BatchPlan& plan, int32_t num_decode_rows) {
  groups_ = PrefixGroups();
  groups_.shared_splits.assign(static_cast<size_t>(num_decode_rows), 0);
  const std::vector<int32_t> order = SortByPages(plan, num_decode_rows);
  std::vector<int32_t> common;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    common.push_back(CommonSplits(plan, order[i], order[i + 1]));
  }
  for (const RowRange& range : CutIntoGroups(common)) {
    for (size_t i = range.begin; i < range.end; ++i) {
      groups_.rows.push_back(order[i]);
      groups_.shared_splits[static_cast<size_t>(order[i])] = range.shared;
    }
    groups_.group_begin.push_back(static_cast<int32_t>(groups_.rows.size()));
  }
}

}  // namespace minisgl::engine
