// The arguments of the attention kernels: typed pointers, the sizes of the step, and the plan in
// the workspace.
#pragma once

#include <cstdint>

#include "cuda_api.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/launch.h"
#include "minisgl/base/host_device.h"

namespace minisgl::cuda {

// Rows of a tensor core tile: query heads of one token in the decode kernel.
inline constexpr int32_t kTileRows = 16;
// M rows of an item of a group in the decode kernel: two tiles, or one if registers are scarce.
MINISGL_HOST_DEVICE constexpr int32_t SharedTileRows(int32_t head_dim) {
  return head_dim == 80 || head_dim > 128 ? kTileRows : 2 * kTileRows;
}

MINISGL_HOST_DEVICE inline int32_t DivideUp(int32_t a, int32_t b) { return (a + b - 1) / b; }

// One split of a decode row, or of rows of a group that share it. Its keys are read once. The query
// heads of all its rows are its M rows, a row's heads next to each other: at most SharedTileRows,
// or the tiles of one row, each of which is a work of its own.
struct DecodeItem {
  int32_t row;  // the first of the rows
  int32_t split;
  int32_t kv_len;  // of `row`
  int32_t split_keys;
  int32_t first_query;  // index into DeviceAttentionPlan::queries, if there are several rows
  int32_t num_queries;  // number of rows
};
inline constexpr int32_t kItemWords = 8;

// M rows [first, first + tile) of a row that extends. M row m is query head m % G of the KV head's
// G query heads, and token m / G of the row.
struct ExtendTile {
  int32_t row;
  int32_t first;
};

// The parts of the workspace. A row's splits have their states and sums next to each other, in
// order, from part_begin on, whatever items compute them.
struct DeviceAttentionPlan {
  int32_t* counts = nullptr;        // [4] items, tiles, decode rows, window items
  int32_t* items = nullptr;         // DecodeItem, kItemWords apart
  int32_t* window_items = nullptr;  // of layers with a window: the splits that the largest shows
  int32_t* queries = nullptr;       // the rows of the groups
  int32_t* part_begin = nullptr;    // [decode rows]
  int32_t* tiles = nullptr;         // ExtendTile
  uint32_t* arrived = nullptr;  // [rows, HKV, M tiles of G] splits written; zero between launches
  uint32_t* works_taken = nullptr;  // [1] by the decode kernel's blocks; zero between launches
  float* states = nullptr;          // [parts, H, 2] SoftmaxState
  float* sums = nullptr;            // [parts, H, E] weighted sums of values, relative to the state
};
DeviceAttentionPlan DivideWorkspace(const AttentionWorkspace& workspace);

// Converts products to scores in units of log2: product * weight, or with a soft cap weight *
// tanh(product * inner). REQUIRES weight > 0: masked products are -infinity.
struct ScoreScale {
  float weight = 1;
  float inner = 0;  // 0: no cap
};

template <typename T>
struct AttentionArguments {
  const T* qkv = nullptr;
  T* out = nullptr;
  const T* keys = nullptr;
  int64_t page_stride = 0, slot_stride = 0, head_stride = 0, v_offset = 0;
  const int32_t* page_table = nullptr;
  int64_t page_table_stride = 0;
  const int32_t* table_row = nullptr;
  const int32_t* row_begin = nullptr;
  const int32_t* kv_len = nullptr;
  const float* sinks = nullptr;
  DeviceAttentionPlan plan;
  const int32_t* items = nullptr;      // of the plan, for this layer
  const int32_t* num_items = nullptr;  // [1]
  ScoreScale score;
  int32_t page_shift = 0;  // page_size == 1 << page_shift
  int32_t num_heads = 0, num_kv_heads = 0;
  int32_t group = 0;   // G = H / HKV
  int32_t window = 0;  // keys that a token sees; INT32_MAX: all
};

// The kernel for rows that extend: whether its tiles are large, and the stages of its ring of key
// tiles. The plan cuts its tiles to match.
struct ExtendChoice {
  bool large = false;
  int stages = 1;
};
ExtendChoice ChooseExtend(int32_t head_dim, int32_t group, int64_t num_tokens, int64_t num_rows,
                          size_t shared_bytes_max);
// The kernel of small tiles, which also serves decode rows.
ExtendChoice SmallExtend(int32_t head_dim, size_t shared_bytes_max);
inline constexpr int32_t kLargeTileRows = 128;

// attention_decode.cu, attention_decode_f16.cu: the plan's items, of at most `num_decode_rows`
// rows.
template <typename T>
CudaError LaunchDecode(const LaunchContext& context, const AttentionArguments<T>& arguments,
                       int32_t head_dim, int32_t num_decode_rows, int32_t max_splits);
// attention_extend.cu, attention_extend_f16.cu: the plan's tiles, at most max_tiles; or, if
// `decode_rows`, the plan's decode rows, at most max_tiles / ceil(G / 16), of one token each.
template <typename T>
CudaError LaunchExtend(const LaunchContext& context, const AttentionArguments<T>& arguments,
                       int32_t head_dim, ExtendChoice choice, int64_t max_tiles, bool decode_rows);

// Calls f.operator()<E>().
template <typename F>
CudaError DispatchHeadDim(int32_t head_dim, const F& f) {
  switch (head_dim) {
    case 64:
      return f.template operator()<64>();
    case 80:
      return f.template operator()<80>();
    case 96:
      return f.template operator()<96>();
    case 128:
      return f.template operator()<128>();
    case 256:
      return f.template operator()<256>();
    default:
      return kCudaInvalidValue;
  }
}

}  // namespace minisgl::cuda
