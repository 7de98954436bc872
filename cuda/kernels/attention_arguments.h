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

// Blocks of the decode kernel on a multiprocessor: as many as registers and 227 KB of shared memory
// allow.
MINISGL_HOST_DEVICE constexpr int32_t DecodeBlocks(int32_t head_dim) {
  return head_dim <= 80 ? 3 : 2;
}

// Heads that no instance of the decode and the extend kernel has are wide: attention_wide.cuh. They
// have up to kWideDimMax elements, or if their values are part of the keys, keys of up to
// kLatentKeyDimMax and values of up to kWideDimMax.
inline constexpr int32_t kWideDimMax = 512;
inline constexpr int32_t kLatentKeyDimMax = 576;
MINISGL_HOST_DEVICE constexpr bool IsWide(int32_t head_dim, int32_t value_dim) {
  const bool has_instance =
      head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
  return !has_instance || value_dim != head_dim;
}

// Blocks of its kernel on a multiprocessor: two of 16 M rows of a latent head, as registers and
// shared memory allow.
MINISGL_HOST_DEVICE constexpr int32_t WideBlocks(int32_t fragments, bool in_keys) {
  return fragments == 1 && in_keys ? 2 : 1;
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

// M rows [first, first + tile) of a row, a tile, and the keys from split `begin` on. M row m is
// query head m % G of the KV head's G query heads, and token m / G of the row. Either one item has
// all of a tile's keys, or the tile is cut: its items lie next to each other, in order, and each
// has 2^counts[kCutShift] splits.
struct ExtendItem {
  int32_t row;
  int32_t first;
  int32_t begin;
};
inline constexpr int32_t kExtendItemWords = 4;

// Extend attention cuts the keys of every row into splits of this many, from position 0 on, and
// folds the splits in a tree (attention_fold.cuh).
// - One warp takes about 10 us for 512 keys of 128 elements, and a fold 2 us.
// - A tile of 128 M rows takes about 18 us for them; to put their sums by and to fetch them again
//   moves 136 KB within the second-level cache.
inline constexpr int32_t kExtendSplitKeys = 512;
inline constexpr int32_t kFoldShift = 2;  // a node of the tree has 4 children

// Items of the rows of one launch, in two runs: items of cut tiles, then the others.
struct ExtendList {
  enum Count { kItems, kCutItems, kCutShift, kNumCounts };
  int32_t* counts = nullptr;  // [kNumCounts]
  int32_t* items = nullptr;   // ExtendItem, kExtendItemWords apart
};

// Floats of an image (attention_fold.cuh) of 16 M rows.
MINISGL_HOST_DEVICE constexpr int32_t ImageFloats(int32_t head_dim) {
  return (head_dim / 8 + 1) * 128;
}

// The same of the kernel for wide heads.
inline constexpr int32_t kWideImageFloats = kTileRows * (kWideDimMax + 2);

// Places for the folds of running blocks (attention_fold.cuh): a queue of those that
// are free.
struct PlaceQueue {
  int32_t num_places = 0;
  uint32_t* words = nullptr;  // [2 + num_places] taken, returned, places + 1 (0: not yet returned)
};

// The parts of the workspace. A decode row's splits have their states and sums next to each other,
// in order, from part_begin on, whatever items compute them.
//
// The decode kernel and the extend kernel run one after the other, so the states and sums of the
// one and the images of the other share memory.
struct DeviceAttentionPlan {
  int32_t* counts = nullptr;        // [2] items, window items
  int32_t* items = nullptr;         // DecodeItem, kItemWords apart
  int32_t* window_items = nullptr;  // of layers with a window: the splits that the largest shows
  int32_t* queries = nullptr;       // the rows of the groups
  int32_t* part_begin = nullptr;    // [decode rows]
  uint32_t* arrived = nullptr;  // [rows, HKV, M tiles of G] splits written; zero between launches
  uint32_t* works_taken = nullptr;  // [1] by the decode kernel's blocks; zero between launches
  float* states = nullptr;          // [parts, H, 2] SoftmaxState
  float* sums = nullptr;            // [parts, H, E] weighted sums of values, relative to the state

  ExtendList decode_list;  // of the decode rows, in deterministic mode and of wide heads
  ExtendList extend_list;  // of the rows that extend
  // Between blocks: the block that came first to the boundary in front of an item, with its image
  // of the tile.
  uint32_t* met = nullptr;  // [cut items, HKV] item * HKV + head + 1, or 0; zero between launches
  float* images = nullptr;  // [cut items, HKV] images of tiles (attention_fold.cuh)
  // Within a block: images of what waits for later splits, one for each level of the tree.
  float* kept = nullptr;  // [places, fold_levels] images of tiles
  int32_t fold_levels = 0;
  PlaceQueue small_places, large_places;  // by size of the tile
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
  ExtendList list;                     // of the plan, for this launch of the extend kernel
  ScoreScale score;
  int32_t page_shift = 0;  // page_size == 1 << page_shift
  int32_t num_heads = 0, num_kv_heads = 0;
  int32_t group = 0;        // G = H / HKV
  int32_t other_heads = 0;  // keys and values of a token in qkv
  int32_t window = 0;       // keys that a token sees; INT32_MAX: all
  // Everything but qkv and the newest key of each row may be read before GridWait.
  bool early = false;
};

// The arguments of attention with wide heads.
template <typename T>
struct WideArguments {
  AttentionArguments<T> rows;
  int32_t key_dim = 0, value_dim = 0;
  int64_t token_width = 0;  // elements of a token in qkv
  int64_t v_slot_stride = 0, v_head_stride = 0;
};

// The same of heads that are kept as codes of 8 bits (attention_codes.cuh).
template <typename T>
struct CodedArguments : WideArguments<T> {
  const uint8_t* codes = nullptr;      // KvLayer::base
  int64_t k_scales = 0, v_scales = 0;  // of KvLayer
  bool is_aligned = false;             // each head's codes are, to 8 bytes
  const int32_t* key_end = nullptr;    // of pictures
  int32_t first_key = 0;
};

inline constexpr int32_t kLargeTileRows = 128;

// The kernel for rows that extend: whether its tiles are large, and the stages of its ring of key
// tiles. The plan cuts its tiles to match.
struct ExtendChoice {
  bool large = false;
  int stages = 1;
  int fragments = 0;  // of 16 M rows, of a tile of wide heads; 0: heads are not wide

  int32_t tile_rows() const {
    return fragments > 0 ? fragments * kTileRows : large ? kLargeTileRows : kTileRows;
  }
};
ExtendChoice ChooseExtend(int32_t head_dim, int32_t group, int64_t num_tokens, int64_t num_rows,
                          size_t shared_bytes_max);
// The kernel of small tiles, which also serves decode rows.
ExtendChoice SmallExtend(int32_t head_dim, size_t shared_bytes_max);
// The kernel of wide heads, of at most so many fragments.
ExtendChoice ChooseWide(bool in_keys, int fragments, size_t shared_bytes_max);

// attention_decode.cu, attention_decode_f16.cu: the plan's items, of at most `num_decode_rows`
// rows.
template <typename T>
CudaError LaunchDecode(const LaunchContext& context, const AttentionArguments<T>& arguments,
                       int32_t head_dim, int32_t num_decode_rows, int32_t max_splits);
// Upper bounds on the work of a launch of the extend kernel.
struct ExtendWork {
  int64_t max_tiles = 0;
  int64_t max_cut_items = 0;  // times KV heads
  bool decode_rows = false;   // the plan's decode_list instead of its extend_list
};
// attention_extend.cu, attention_extend_f16.cu
template <typename T>
CudaError LaunchExtend(const LaunchContext& context, AttentionArguments<T> arguments,
                       int32_t head_dim, ExtendChoice choice, const ExtendWork& work);
// attention_wide.cu, attention_wide_f16.cu
template <typename T>
CudaError LaunchWide(const LaunchContext& context, WideArguments<T> arguments, bool in_keys,
                     ExtendChoice choice, const ExtendWork& work);

// attention_codes.cu, attention_codes_f16.cu: with the tiles of wide heads; by key_end if there is
// one.
template <typename T>
CudaError LaunchCoded(const LaunchContext& context, CodedArguments<T> arguments,
                      ExtendChoice choice, const ExtendWork& work);

// attention_pictures.cu, attention_pictures_f16.cu: the rows of the plan's extend_list, by key_end.
template <typename T>
CudaError LaunchPictureExtend(const LaunchContext& context, AttentionArguments<T> arguments,
                              int32_t head_dim, ExtendChoice choice, const ExtendWork& work,
                              const int32_t* key_end, int32_t first_key);
template <typename T>
CudaError LaunchPictureWide(const LaunchContext& context, WideArguments<T> arguments, bool in_keys,
                            ExtendChoice choice, const ExtendWork& work, const int32_t* key_end,
                            int32_t first_key);

// attention_distances.cu, attention_distances_f16.cu: the same with params.distance_bias.
inline constexpr int32_t kDistanceHeadDim = 64;  // of heads that are not wide
template <typename T>
CudaError LaunchDistanceExtend(const LaunchContext& context, AttentionArguments<T> arguments,
                               ExtendChoice choice, const ExtendWork& work,
                               const AttentionParams& params);
template <typename T>
CudaError LaunchDistanceWide(const LaunchContext& context, WideArguments<T> arguments,
                             ExtendChoice choice, const ExtendWork& work,
                             const AttentionParams& params);

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
