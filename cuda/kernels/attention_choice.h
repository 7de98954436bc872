// Which kernels a step's attention uses, and with which tiles. The plan and the launch of a layer's
// attention choose alike. Host code.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention_arguments.h"
#include "minisgl/device_ops.h"

namespace minisgl::cuda {

inline bool IsWide(const AttentionHeads& heads) {
  return heads.has_codes || IsWide(heads.head_dim, heads.value_dim());
}

// Rows that extend, as far as the host knows them, and the kernel for them.
struct ExtendingRows {
  int64_t num_rows, num_tokens;  // of which none is a decode row; or upper bounds of both
  ExtendChoice choice;
};

// Fragments of 16 M rows that suit `rows` M rows.
inline int WideFragments(int64_t rows) {
  return rows <= kTileRows ? 1 : rows <= 2 * kTileRows ? 2 : 4;
}

// The kernel of wide heads for rows whose tokens are not known.
template <typename Params>
ExtendChoice WideDecode(const LaunchContext& context, const Params& params) {
  const int32_t group = params.num_heads / params.num_kv_heads;
  return ChooseWide(HeadsOf(params).values_in_keys, WideFragments(group), context.shared_bytes_max);
}

template <typename Params>
ExtendingRows FindExtendingRows(const LaunchContext& context, const Params& params) {
  const int32_t group = params.num_heads / params.num_kv_heads;
  const bool wide = IsWide(HeadsOf(params));
  ExtendingRows rows = {.num_rows = params.num_rows, .num_tokens = params.num_tokens};
  const auto choose = [&](int64_t num_rows) {
    if (!wide) {
      return ChooseExtend(params.head_dim, group, rows.num_tokens, num_rows,
                          context.shared_bytes_max);
    }
    if (!HasLongRows(group, rows.num_tokens, num_rows)) return WideDecode(context, params);
    return ChooseWide(HeadsOf(params).values_in_keys, WideFragments(INT32_MAX),
                      context.shared_bytes_max);
  };
  switch (params.rows_known) {
    case RowsKnown::kExactly:
      rows.num_rows -= params.num_decode_rows;
      rows.num_tokens -= params.num_decode_rows;
      rows.choice = choose(rows.num_rows);
      break;
    case RowsKnown::kBoundsShort:
      rows.choice = wide ? WideDecode(context, params)
                         : SmallExtend(params.head_dim, context.shared_bytes_max);
      break;
    case RowsKnown::kBoundsLong:
      rows.num_rows = std::min(rows.num_rows, LongRowsMax(group, rows.num_tokens));
      rows.choice = choose(1);
      break;
  }
  return rows;
}

}  // namespace minisgl::cuda
