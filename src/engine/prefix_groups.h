// Which rows of a decode step begin with the same pages, for attention that reads shared keys once.
//
// Keeps the host's copy of the page table, from the writes of every plan. What a step's groups are
// follows from page numbers alone: rows that name the same pages have the same keys. The answer of
// the step before is kept while the rows, their beginnings and their splits stay, so that most
// steps cost a comparison for each row.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/device_ops.h"

namespace minisgl::engine {

// Groups of rows as SharedPrefixes (device_ops.h) has them, on the host.
struct PrefixGroups {
  std::vector<int32_t> group_begin = {0};  // [groups + 1]
  std::vector<int32_t> rows;               // of the plan
  std::vector<int32_t> shared_splits;      // [R]; 0 for a row of no group

  int32_t num_groups() const { return static_cast<int32_t>(group_begin.size()) - 1; }
};

class PrefixGrouper {
 public:
  PrefixGrouper(int32_t num_table_rows, int32_t page_size);

  // Every plan's writes, in the order of the steps.
  void ApplyWrites(const BatchPlan& plan);

  // Of the first `num_decode_rows` rows of `plan`: at most `rows_max` rows a group. Rows share
  // whole splits (SplitKeys of their kv_len) or are in no group.
  const PrefixGroups& Group(const BatchPlan& plan, int32_t num_decode_rows, int32_t rows_max);

 private:
  // What a row's membership depends on.
  struct Signature {
    int32_t table_row;
    int32_t version;
    int32_t split_keys;
    bool operator==(const Signature&) const = default;
  };
  const std::vector<int32_t>& PagesOf(const BatchPlan& plan, int32_t row) const {
    return pages_[static_cast<size_t>(plan.table_row[static_cast<size_t>(row)])];
  }
  void Regroup(const BatchPlan& plan, int32_t num_decode_rows, int32_t rows_max);

  const int32_t page_size_;
  // [num_table_rows] as far as they were ever written: a row's own pages reach to its kv_len, what
  // lies behind may be another's that had the table row before
  std::vector<std::vector<int32_t>> pages_;
  std::vector<int32_t> version_;  // [num_table_rows] changes where what was written changes
  std::vector<Signature> signature_, last_signature_;
  int32_t last_rows_max_ = 0;
  PrefixGroups groups_;
};

}  // namespace minisgl::engine
