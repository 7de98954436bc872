// What the kernels of attention are told: typed pointers and the numbers of the step, the plan in
// the workspace.
#pragma once

#include <cstdint>

#include "cuda_api.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/launch.h"
#include "minisgl/base/host_device.h"

namespace minisgl {

// Rows of a tile of the tensor cores: query heads of one token in the decode kernel.
inline constexpr int32_t kTileRows = 16;

MINISGL_HOST_DEVICE inline int32_t DivideUp(int32_t a, int32_t b) { return (a + b - 1) / b; }

// One split of a decode row, or of all rows of a group that share it: their keys are read once, and
// their query heads are M rows of one tile, those of a row side by side.
struct DecodeItem {
  int32_t row;  // the first row of the group
  int32_t split;
  int32_t kv_len;  // of `row`
  int32_t split_keys;
  int32_t first_query;  // into DeviceAttentionPlan::queries, where there are several rows
  int32_t num_queries;  // rows
};
inline constexpr int32_t kItemWords = 8;

// M rows [first, first + tile) of a row that extends; M row m is query head m % G of the KV head's
// G and token m / G of the row.
struct ExtendTile {
  int32_t row;
  int32_t first;
};

// The workspace, divided. A row's parts (its splits' states and sums) are neighbours, in order of
// splits, from part_begin on, whatever items they come of.
struct DeviceAttentionPlan {
  int32_t* counts = nullptr;      // [2] items, tiles
  int32_t* items = nullptr;       // DecodeItem, kItemWords apart
  int32_t* queries = nullptr;     // rows of groups
  int32_t* part_begin = nullptr;  // [decode rows]
  int32_t* tiles = nullptr;       // ExtendTile
  uint32_t* arrived = nullptr;  // [rows, HKV, M tiles of G]: splits written; zero between launches
  float* states = nullptr;      // [parts, H, 2] SoftmaxState
  float* sums = nullptr;        // [parts, H, E] of values, each relative to its state
};
DeviceAttentionPlan DivideWorkspace(const AttentionWorkspace& workspace);

// How scores come from products: log2 units are product * weight, or weight * tanh(product * inner)
// where there is a cap. REQUIRES weight > 0: masked products are -infinity.
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
  ScoreScale score;
  int32_t page_shift = 0;  // page_size == 1 << page_shift
  int32_t num_heads = 0, num_kv_heads = 0;
  int32_t group = 0;   // G = H / HKV
  int32_t window = 0;  // keys that a token sees; INT32_MAX: all
};

// Which kernel rows that extend take: M rows of a block, and stages of its ring of key tiles. Known
// to the plan too, whose tiles it cuts.
struct ExtendChoice {
  bool large = false;
  int stages = 1;
};
ExtendChoice ChooseExtend(int32_t head_dim, int32_t group, int64_t num_tokens, int64_t num_rows,
                          size_t shared_bytes_max);
// The kernel of few M rows, for decode rows too.
ExtendChoice SmallExtend(int32_t head_dim, size_t shared_bytes_max);
inline constexpr int32_t kLargeTileRows = 128;

// attention_decode.cu, attention_decode_f16.cu: rows [0, num_decode_rows).
template <typename T>
CudaError LaunchDecode(const LaunchContext& context, const AttentionArguments<T>& arguments,
                       int32_t head_dim, int32_t num_decode_rows, int32_t max_splits);
// attention_extend.cu, attention_extend_f16.cu: the plan's tiles, at most max_tiles; or, where
// `decode_rows`, the rows [0, max_tiles / ceil(G / 16)), each of one token.
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

}  // namespace minisgl
