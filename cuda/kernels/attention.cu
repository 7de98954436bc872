// The launchers of attention: which kernels a layer's rows need, and their arguments.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/attention_arguments.h"
#include "kernels/attention_choice.h"
#include "kernels/attention_state.h"
#include "kernels/attention_workspace.h"
#include "kernels/dispatch.h"

namespace minisgl::cuda {
namespace {

template <typename T>
AttentionArguments<T> MakeArguments(const AttentionParams& params,
                                    const AttentionWorkspace& workspace) {
  AttentionArguments<T> arguments;
  arguments.qkv = params.qkv.as<T>();
  arguments.out = params.out.as<T>();
  arguments.keys = params.kv.base.as<T>();
  arguments.page_stride = params.kv.page_stride;
  arguments.slot_stride = params.kv.slot_stride;
  arguments.head_stride = params.kv.head_stride;
  arguments.v_offset = params.kv.v_offset;
  arguments.page_table = params.page_table;
  arguments.page_table_stride = params.page_table_stride;
  arguments.table_row = params.table_row;
  arguments.row_begin = params.row_begin;
  arguments.kv_len = params.kv_len;
  arguments.sinks = params.sinks;
  arguments.plan = DivideWorkspace(workspace);
  arguments.page_shift = std::bit_width(static_cast<unsigned>(params.kv.page_size)) - 1;
  arguments.num_heads = params.num_heads;
  arguments.num_kv_heads = params.num_kv_heads;
  arguments.group = params.num_heads / params.num_kv_heads;
  arguments.other_heads =
      static_cast<int32_t>(params.token_width() / params.head_dim) - params.num_heads;
  const bool has_window = params.sliding_window > 0;
  arguments.window = has_window ? params.sliding_window : INT32_MAX;
  arguments.items = has_window ? arguments.plan.window_items : arguments.plan.items;
  arguments.num_items = arguments.plan.counts + (has_window ? 1 : 0);
  const bool capped = params.logit_softcap > 0;
  arguments.score.weight = (capped ? params.logit_softcap : params.scale) * kLog2OfE;
  arguments.score.inner = capped ? params.scale / params.logit_softcap : 0;
  return arguments;
}

// Rows of one token, then the rows that extend.
template <typename T>
CudaError LaunchRows(const LaunchContext& context, const AttentionParams& params,
                     const AttentionWorkspace& workspace, bool deterministic, bool early) {
  AttentionArguments<T> arguments = MakeArguments<T>(params, workspace);
  arguments.early = early;
  const int32_t head_dim = params.head_dim, group = arguments.group;
  const int32_t num_decode_rows = params.num_decode_rows;
  const int64_t max_cut_items = MaxCutItems(context, workspace);
  if (num_decode_rows > 0) {
    const CudaError error =
        deterministic
            ? LaunchExtend(context, arguments, head_dim,
                           SmallExtend(head_dim, context.shared_bytes_max),
                           {.max_tiles = int64_t{num_decode_rows} * DivideUp(group, kTileRows),
                            .max_cut_items = max_cut_items,
                            .decode_rows = true})
            : LaunchDecode(context, arguments, head_dim, num_decode_rows,
                           static_cast<int32_t>(MaxSplits(workspace.limits)));
    if (error != kCudaSuccess) return error;
  }
  const ExtendingRows rows = FindExtendingRows(context, params);
  if (rows.num_rows == 0) return kCudaSuccess;
  const ExtendWork work = {
      .max_tiles = MaxTiles(rows.num_tokens, rows.num_rows, group, rows.choice.tile_rows()),
      .max_cut_items = max_cut_items};
  if (params.distance_bias != nullptr) {
    return LaunchDistanceExtend(context, arguments, rows.choice, work, params);
  }
  if (params.key_end != nullptr) {
    return LaunchPictureExtend(context, arguments, head_dim, rows.choice, work, params.key_end,
                               params.first_key);
  }
  return LaunchExtend(context, arguments, head_dim, rows.choice, work);
}

// The same with wide heads: one kernel for both.
template <typename T>
CudaError LaunchWideRows(const LaunchContext& context, const AttentionParams& params,
                         const AttentionWorkspace& workspace) {
  const WideArguments<T> arguments = {.rows = MakeArguments<T>(params, workspace),
                                      .key_dim = params.head_dim,
                                      .value_dim = params.value_dim(),
                                      .token_width = params.token_width(),
                                      .v_slot_stride = params.kv.value_slot_stride(),
                                      .v_head_stride = params.kv.value_head_stride()};
  const int32_t group = arguments.rows.group, num_decode_rows = params.num_decode_rows;
  const bool in_keys = params.kv.values_in_keys;
  const auto launch = [&](const ExtendChoice& choice, int64_t num_tokens, int64_t num_rows,
                          bool decode_rows) {
    return LaunchWide(context, arguments, in_keys, choice,
                      {.max_tiles = MaxTiles(num_tokens, num_rows, group, choice.tile_rows()),
                       .max_cut_items = MaxCutItems(context, workspace),
                       .decode_rows = decode_rows});
  };
  if (num_decode_rows > 0) {
    const CudaError error =
        launch(WideDecode(context, params), num_decode_rows, num_decode_rows, true);
    if (error != kCudaSuccess) return error;
  }
  const ExtendingRows rows = FindExtendingRows(context, params);
  if (rows.num_rows == 0) return kCudaSuccess;
  if (params.key_end == nullptr) {
    return launch(rows.choice, rows.num_tokens, rows.num_rows, false);
  }
  const ExtendWork work = {
      .max_tiles = MaxTiles(rows.num_tokens, rows.num_rows, group, rows.choice.tile_rows()),
      .max_cut_items = MaxCutItems(context, workspace)};
  if (params.distance_bias != nullptr) {
    MINISGL_CHECK(!in_keys, "numbers of distances, with latent attention");
    return LaunchDistanceWide(context, arguments, rows.choice, work, params);
  }
  return LaunchPictureWide(context, arguments, in_keys, rows.choice, work, params.key_end,
                           params.first_key);
}

// The same with keys and values that are codes.
template <typename T>
CudaError LaunchCodedRows(const LaunchContext& context, const AttentionParams& params,
                          const AttentionWorkspace& workspace) {
  const KvLayer& kv = params.kv;
  CodedArguments<T> arguments;
  arguments.rows = MakeArguments<T>(params, workspace);
  arguments.key_dim = params.head_dim;
  arguments.value_dim = params.value_dim();
  arguments.token_width = params.token_width();
  arguments.v_slot_stride = kv.value_slot_stride();
  arguments.v_head_stride = kv.value_head_stride();
  arguments.codes = kv.base.as<uint8_t>();
  arguments.k_scales = kv.k_scales;
  arguments.v_scales = kv.v_scales;
  arguments.is_aligned = (kv.page_stride | kv.slot_stride | kv.head_stride | kv.v_offset |
                          kv.value_slot_stride() | kv.value_head_stride()) %
                             8 ==
                         0;
  const int32_t group = arguments.rows.group, num_decode_rows = params.num_decode_rows;
  const auto launch = [&](const ExtendChoice& choice, int64_t num_tokens, int64_t num_rows,
                          bool decode_rows) {
    return LaunchCoded(context, arguments, choice,
                       {.max_tiles = MaxTiles(num_tokens, num_rows, group, choice.tile_rows()),
                        .max_cut_items = MaxCutItems(context, workspace),
                        .decode_rows = decode_rows});
  };
  if (num_decode_rows > 0) {
    const CudaError error =
        launch(WideDecode(context, params), num_decode_rows, num_decode_rows, true);
    if (error != kCudaSuccess) return error;
  }
  const ExtendingRows rows = FindExtendingRows(context, params);
  if (rows.num_rows == 0) return kCudaSuccess;
  arguments.key_end = params.key_end;
  arguments.first_key = params.first_key;
  return launch(rows.choice, rows.num_tokens, rows.num_rows, false);
}

}  // namespace

bool HasAttention(int32_t head_dim, int32_t value_dim, bool values_in_keys) {
  if (!IsWide(head_dim, value_dim)) return !values_in_keys;
  if (!values_in_keys) {
    return head_dim % 8 == 0 && value_dim % 8 == 0 && std::max(head_dim, value_dim) <= kWideDimMax;
  }
  // The kernel reads kWideDimMax elements of a key from the 16 bytes in which the value begins.
  const int32_t offset = head_dim - value_dim;
  return head_dim % 8 == 0 && value_dim % 2 == 0 && head_dim <= kLatentKeyDimMax && offset > 0 &&
         offset / 8 * 8 <= kLatentKeyDimMax - kWideDimMax && offset % 8 + value_dim <= kWideDimMax;
}

bool HasDistances(int32_t head_dim, int32_t value_dim) {
  if (!HasAttention(head_dim, value_dim, /*values_in_keys=*/false)) return false;
  return IsWide(head_dim, value_dim) || head_dim == kDistanceHeadDim;
}

CudaError LaunchAttention(const LaunchContext& context, const AttentionParams& params,
                          const AttentionWorkspace& workspace, bool deterministic, bool early) {
  MINISGL_CHECK(params.key_end == nullptr || params.rows_known == RowsKnown::kExactly,
                "bounds of keys, of rows that are not known");
  MINISGL_CHECK(params.first_key == 0 || (params.key_end != nullptr && params.num_decode_rows == 0),
                "a first key of rows that decode, or without ends of keys");
  MINISGL_CHECK(
      params.distance_bias == nullptr || (params.key_end != nullptr && params.first_key == 0),
      "numbers of distances, without ends of keys");
  const AttentionHeads heads = HeadsOf(params);
  if (!HasAttention(heads.head_dim, heads.value_dim(), heads.values_in_keys)) {
    return kCudaInvalidValue;
  }
  if (heads.has_codes) {
    MINISGL_CHECK(params.token_width() % 8 == 0 && params.distance_bias == nullptr,
                  "codes, of tokens of {} elements or with distances", params.token_width());
    return DispatchHalf(params.qkv.dtype, [&]<typename T>() {
      return LaunchCodedRows<T>(context, params, workspace);
    });
  }
  if (IsWide(heads)) {
    MINISGL_CHECK(params.token_width() % 8 == 0, "tokens of {} elements", params.token_width());
    return DispatchHalf(params.qkv.dtype, [&]<typename T>() {
      return LaunchWideRows<T>(context, params, workspace);
    });
  }
  MINISGL_CHECK(params.token_width() % params.head_dim == 0 &&
                    params.kv.value_slot_stride() == params.kv.slot_stride &&
                    params.kv.value_head_stride() == params.kv.head_stride,
                "values that are not laid out as keys are");
  return DispatchHalf(params.qkv.dtype, [&]<typename T>() {
    return LaunchRows<T>(context, params, workspace, deterministic, early);
  });
}

}  // namespace minisgl::cuda
