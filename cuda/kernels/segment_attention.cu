// Attention in both directions within segments, of towers: a token attends to all tokens of its own
// segment (SegmentAttentionParams).
//
// A token's result depends on its segment alone: keys are taken in tiles of 64, counted from the
// segment's first token, in order, and the rows of a tile of queries do not interact.
//
// Work. A head and 64 consecutive tokens of a segment. Segments are cut on their own, so the last
//   tile of each may be short: windows of 64 tokens fill theirs.
// Grid. tiles * H blocks; the heads of a tile are neighbours, as they are in memory. The segments
//   are part of the kernel's parameters, so that nothing is copied or kept; more segments than fit
//   there take several launches.
// Block. 4 warps of 16 rows of queries, which share the keys (attention_tile.cuh). A head of E
//   elements is computed as one of D, 32, 64, 80, 96 or 128: zeros behind it change no sum.
// Shared memory. The queries, and 2 stages of keys and values: 5 * 64 * (D + 8) elements, 87 KB for
//   D = 128, so that a multiprocessor with 227 KB holds two blocks.
// Traffic. 8 * E bytes for each token and head, and 4 * E for each key of a tile of queries, after
//   the first from the second-level cache: 64 operations a byte, so that the tensor cores bound it.
// Operations. 4 * D for each query and key, with those of the last tile that are masked.
#include <algorithm>

#include "kernels/attention_state.h"
#include "kernels/attention_tile.cuh"
#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

constexpr int kSegmentWarps = 4;
constexpr int kSegmentThreads = kSegmentWarps * device::kWarpSize;
constexpr int kSegmentRows = 16 * kSegmentWarps;  // queries of a tile
constexpr int kSegmentKeys = 64;                  // keys of a tile
// As many as keep the parameters at 1 KB of the 4 that a kernel may have.
constexpr int kSegmentsOfLaunch = 120;

struct SegmentKernelParams {
  const void *q, *k, *v;
  void* out;
  int64_t width;  // H * E
  int32_t num_heads, head_dim;
  float weight;  // of a product, in units of log2
  bool aligned;  // heads are whole chunks of 16 bytes
  int32_t num_segments;
  int32_t begin[kSegmentsOfLaunch + 1];       // tokens
  int32_t first_tile[kSegmentsOfLaunch + 1];  // tiles of queries before the segment's
};

template <int D>
struct SegmentShape {
  static constexpr int kPart = kSegmentKeys * kPaddedRow<D>;  // elements of K, or V, of a stage
  static constexpr size_t kBytes =
      (static_cast<size_t>(kSegmentRows) * kPaddedRow<D> + size_t{4} * kPart) * 2;
};

template <typename T, int D>
class SegmentBlock {
 public:
  using Shape = SegmentShape<D>;

  MINISGL_DEVICE explicit SegmentBlock(const SegmentKernelParams& p)
      : p_(p),
        head_(static_cast<int>(blockIdx.x) % p.num_heads),
        lane_(static_cast<int>(threadIdx.x) % device::kWarpSize),
        warp_(static_cast<int>(threadIdx.x) / device::kWarpSize) {
    device::SharedArena arena;
    query_ = arena.Take<T>(kSegmentRows * kPaddedRow<D>);
    ring_ = arena.Take<T>(4 * Shape::kPart);
    FindTile(static_cast<int32_t>(blockIdx.x) / p.num_heads);
  }

  MINISGL_DEVICE void Run() const {
    CopyTokens(p_.q, first_row_, query_);
    CopyKeysOf(0, 0);
    RowStates<D> rows[1];
    rows[0].Clear();
    int stage = 0;
    for (int32_t tile = 0; tile < length_; tile += kSegmentKeys) {
      device::CopyAsyncWait<0>();
      __syncthreads();  // the tile's copies are there; no warp reads the other stage any more
      if (tile + kSegmentKeys < length_) CopyKeysOf(tile + kSegmentKeys, stage ^ 1);
      Attend(tile, stage, rows);
      stage ^= 1;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) StoreRow(rows[0], h);
  }

 private:
  // Sets the segment of `tile`, and where in it the tile begins.
  MINISGL_DEVICE void FindTile(int32_t tile) {
    int32_t low = 0, high = p_.num_segments;  // first_tile[low] <= tile < first_tile[high]
    while (high - low > 1) {
      const int32_t middle = (low + high) / 2;
      (p_.first_tile[middle] <= tile ? low : high) = middle;
    }
    begin_ = p_.begin[low];
    length_ = p_.begin[low + 1] - begin_;
    first_row_ = (tile - p_.first_tile[low]) * kSegmentRows;
  }

  // Copies the head's elements of 64 tokens of the segment, from `first` on; zeros past its end and
  // behind the head.
  MINISGL_DEVICE void CopyTokens(const void* from, int32_t first, device::Shared<T> to) const {
    constexpr int kRowChunks = D / kChunk, kCopies = 64 * kRowChunks / kSegmentThreads;
    static_assert(64 * kRowChunks % kSegmentThreads == 0);
    const T* const head =
        static_cast<const T*>(from) + begin_ * p_.width + static_cast<int64_t>(head_) * p_.head_dim;
#pragma unroll(4)
    for (int i = 0; i < kCopies; ++i) {
      const int chunk = i * kSegmentThreads + static_cast<int>(threadIdx.x);
      const int row = chunk / kRowChunks, column = chunk % kRowChunks * kChunk;
      const int32_t token = first + row;
      const int32_t count = token < length_ ? p_.head_dim - column : 0;
      const T* const source = head + (count > 0 ? token * p_.width + column : 0);
      const device::Shared<T> target = to + (row * kPaddedRow<D> + column);
      if (p_.aligned) {
        device::CopyAsync16(target, source, count > 0);
        continue;
      }
      device::Vec<T, kChunk> elements;
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        elements[e] = e < count ? source[e] : device::FromFloat<T>(0);
      }
      device::StoreShared(target, elements);
    }
    device::CopyAsyncCommit();
  }

  MINISGL_DEVICE void CopyKeysOf(int32_t tile, int stage) const {
    const device::Shared<T> keys = ring_ + stage * 2 * Shape::kPart;
    CopyTokens(p_.k, tile, keys);
    CopyTokens(p_.v, tile, keys + Shape::kPart);
  }

  MINISGL_DEVICE void Attend(int32_t tile, int stage, RowStates<D> (&rows)[1]) const {
    const device::Shared<T> keys = ring_ + stage * 2 * Shape::kPart;
    float scores[1][kSegmentKeys / 8][4];
    const device::Shared<T> corner =
        query_ + ((warp_ * 16 + lane_ % 16) * kPaddedRow<D> + lane_ / 16 * 8);
    MultiplyKeys<T, D, kSegmentKeys, 1>(scores, keys, lane_, [&](int k, int, uint32_t(&a)[4]) {
      device::LoadMatrix4<T>(a, corner + k * 16);
    });
    if (tile + kSegmentKeys > length_) {
      const int32_t low[2] = {0, 0}, high[2] = {length_, length_};
      MaskScores(scores[0], tile, low, high, lane_);
    }
    uint32_t weights[1][kSegmentKeys / 16][4];
    UpdateStates<T, D, kSegmentKeys / 8>(scores[0], p_.weight, weights[0], &rows[0]);
    MultiplyValues<T, D, kSegmentKeys, 1>(weights, keys + Shape::kPart, lane_, rows);
  }

  MINISGL_DEVICE void StoreRow(const RowStates<D>& rows, int h) const {
    const SoftmaxState state = rows.StateOfRow(h);
    const int32_t token = first_row_ + warp_ * 16 + h * 8 + lane_ / 4;
    if (token >= length_) return;
    const float factor = Normaliser(state);
    T* const out = static_cast<T*>(p_.out) + (begin_ + token) * p_.width +
                   static_cast<int64_t>(head_) * p_.head_dim;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const int element = n * 8 + lane_ % 4 * 2;
      const float low = rows.out[n][2 * h] * factor, high = rows.out[n][2 * h + 1] * factor;
      if (p_.aligned) {
        if (element < p_.head_dim) StorePair(out + element, low, high);
        continue;
      }
      if (element < p_.head_dim) out[element] = device::FromFloat<T>(low);
      if (element + 1 < p_.head_dim) out[element + 1] = device::FromFloat<T>(high);
    }
  }

  const SegmentKernelParams& p_;
  const int head_, lane_, warp_;
  int32_t begin_ = 0, length_ = 0;  // of the segment
  int32_t first_row_ = 0;           // in the segment
  device::Shared<T> query_;         // [64][D + 8]
  device::Shared<T> ring_;          // [2][K, V][64][D + 8]
};

// Grid, block, shared memory and traffic: see the head of this file.
template <typename T, int D>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kSegmentThreads, 2)
    SegmentAttentionKernel(MINISGL_GRID_CONSTANT SegmentKernelParams p) {
  device::GridRelease();
  device::GridWait();
  SegmentBlock<T, D>(p).Run();
}

// Calls f.operator()<D>() with the least D that holds a head.
template <typename F>
CudaError DispatchSegmentDim(int32_t head_dim, const F& f) {
  if (head_dim <= 32) return f.template operator()<32>();
  if (head_dim <= 64) return f.template operator()<64>();
  if (head_dim <= 80) return f.template operator()<80>();
  if (head_dim <= 96) return f.template operator()<96>();
  return f.template operator()<128>();
}

// Queues segments [first, first + p->num_segments) of `params`.
template <typename T>
CudaError LaunchSegments(const LaunchContext& context, const SegmentAttentionParams& params,
                         int32_t first, SegmentKernelParams* p) {
  int32_t num_tiles = 0;
  for (int32_t i = 0; i <= p->num_segments; ++i) {
    p->begin[i] = params.segment_begin[first + i];
    if (i > 0) num_tiles += CeilDiv(p->begin[i] - p->begin[i - 1], kSegmentRows);
    p->first_tile[i] = num_tiles;
  }
  const int64_t num_blocks = int64_t{num_tiles} * params.num_heads;
  MINISGL_CHECK(num_blocks < int64_t{1} << 31, "{} tiles of {} heads", num_tiles, params.num_heads);
  return DispatchSegmentDim(params.head_dim, [&]<int D>() {
    return Launch(context,
                  {.grid = {static_cast<unsigned>(num_blocks)},
                   .block = {kSegmentThreads},
                   .shared_bytes = SegmentShape<D>::kBytes,
                   .programmatic = true},
                  SegmentAttentionKernel<T, D>, *p);
  });
}

}  // namespace

CudaError LaunchSegmentAttention(const LaunchContext& context,
                                 const SegmentAttentionParams& params) {
  MINISGL_CHECK(params.head_dim <= kSegmentHeadDimMax, "heads of {} elements; {} at most",
                params.head_dim, kSegmentHeadDimMax);
  SegmentKernelParams p = {.q = params.q.data,
                           .k = params.k.data,
                           .v = params.v.data,
                           .out = params.out.data,
                           .width = int64_t{params.num_heads} * params.head_dim,
                           .num_heads = params.num_heads,
                           .head_dim = params.head_dim,
                           .weight = params.scale * kLog2OfE,
                           .aligned = params.head_dim % kChunk == 0 && IsAligned16(params.q.data) &&
                                      IsAligned16(params.k.data) && IsAligned16(params.v.data) &&
                                      IsAligned16(params.out.data),
                           .num_segments = 0,
                           .begin = {},
                           .first_tile = {}};
  return DispatchHalf(params.q.dtype, [&]<typename T>() {
    for (int32_t first = 0; first < params.num_segments; first += kSegmentsOfLaunch) {
      p.num_segments = std::min(kSegmentsOfLaunch, params.num_segments - first);
      const CudaError error = LaunchSegments<T>(context, params, first, &p);
      if (error != kCudaSuccess) return error;
    }
    return kCudaSuccess;
  });
}

}  // namespace minisgl::cuda
