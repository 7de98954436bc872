// Groups the rows of a decode step that begin with the same pages, so that attention reads shared
// keys once.
//
// Keeps a host copy of the page table, updated by the writes of every plan. Groups follow from page
// numbers alone: rows with the same pages have the same keys. The groups of the previous step are
// reused while rows, their first pages and their splits are the same, so most steps cost one
// comparison a row.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/device_ops.h"

namespace minisgl::engine {

// SharedPrefixes (device_ops.h) on the host.
struct PrefixGroups {
  std::vector<int32_t> group_begin = {0};  // [groups + 1]
  std::vector<int32_t> rows;               // of the plan
  std::vector<int32_t> shared_splits;      // [R]; 0 for a row in no group

  int32_t num_groups() const { return static_cast<int32_t>(group_begin.size()) - 1; }
};

class PrefixGrouper {
 public:
  PrefixGrouper(int32_t num_table_rows, int32_t page_size);

  // Applies the page-table writes of `plan`. REQUIRES every plan, in the order of the steps.
  void ApplyWrites(const BatchPlan& plan);

  // Returns the groups of the first `num_decode_rows` rows of `plan`. The rows of a group share at
  // least one whole split (AttentionSplitKeys of their kv_len).
  const PrefixGroups& Group(const BatchPlan& plan, int32_t num_decode_rows);

 private:
  // All that a row's membership depends on.
  struct Signature {
    int32_t table_row;
    int32_t version;
    int32_t split_keys;
    bool operator==(const Signature&) const = default;
  };
  const std::vector<int32_t>& PagesOf(const BatchPlan& plan, int32_t row) const {
    return pages_[static_cast<size_t>(plan.table_row[static_cast<size_t>(row)])];
  }
  void Regroup(const BatchPlan& plan, int32_t num_decode_rows);
  std::vector<int32_t> SortByPages(const BatchPlan& plan, int32_t num_decode_rows) const;
  int32_t CommonSplits(const BatchPlan& plan, int32_t a, int32_t b) const;

  const int32_t page_size_;
  // [num_table_rows] as far as they were ever written. A row's own pages end at its kv_len; entries
  // after them may be those of a request that had the table row before.
  std::vector<std::vector<int32_t>> pages_;
  std::vector<int32_t> version_;  // [num_table_rows] increases if written entries change
  std::vector<Signature> signature_, last_signature_;
  PrefixGroups groups_;
};

}  // namespace minisgl::engine
