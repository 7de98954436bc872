// Matrix times few vectors: out[T, N] = x[T, K] * weight[N, K]^T + bias for T <= 16. Bound by
// reading the weights once.
//
// An element's result does not depend on the number of tokens: the rows of a product do not
// interact, and the division of K is a function of (N, K) only.
//
// Products: tensor cores, mma m16n8k16, with x as the first operand (its 16 rows are tokens, those
// past the last zero) and 8 rows of the weights as the second. There are two instances: that for
// at most 8 tokens passes zeros as rows 8 to 15, that for at most 16 loads them. Products, loads
// of weights and order of sums are the same in both. A step of K needs no shuffles: the order of k
// within a product is free if both operands have the same, so a lane passes the 8 consecutive
// elements that it loads with 16 bytes (lane 4 g + q: elements 8 q ... of row g), as two products
// of 4 elements each. Lanes then read 64 bytes of each of 8 rows: whole sectors.
//
// Division: a block takes tiles of 8 * ROWS8 rows of the weights. Its warps share a tile's K in
// batches, batch b to warp b % warps, and their sums are added in the order of the warps.
//
// Loads in flight (Little's law): 4.3 TB/s * 0.8 us / 132 multiprocessors = 26 KB are needed on
// each. 16 warps with kLoads = 8 loads of 16 bytes in each lane have 64 KB. Each load is reissued,
// for the next batch or the next tile, as soon as its registers have been used, so that the end of
// a tile (a barrier, the sum over warps) does not drain them.
//
// The next product's weights: a block that begins its last tile (before GridWait if that is its
// first) asks for its share of a part of them in the second-level cache, behind its own loads. So
// memory has work while this product ends and while the kernels up to the next one wait for each
// other. All blocks ask: one multiprocessor is too slow, and the kernels in between have few
// blocks. The part is what the next product does not load before its own GridWait, then what it
// does; no more than context.prefetch_bytes.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;
using device::Vec;

constexpr int kLoads = 8;               // loads of 16 bytes in flight in a lane
constexpr int kGroup = 32;              // elements of a row that 4 lanes load at once
constexpr int kWarpsPerProcessor = 16;  // 128 registers for each thread
// For rows that are not aligned, which are loaded element by element.
constexpr int kGroupsUnaligned = 2;
constexpr int64_t kLineBytes = 128;  // bytes of a line of the second-level cache
constexpr int kGemvThreadsMax = kWarpsPerProcessor * kWarpSize;
static_assert(kGemvTokensMax == 16, "tokens are rows of one product");

struct GemvKernelParams {
  const uint16_t* weight;  // [N, K]
  const uint16_t* x;       // [T, K]
  const float* bias;       // [N] or null
  void* out;               // [T, N]
  bool out_is_f32;
  int num_tokens;
  int num_out;
  int num_in;
  int num_tiles;
  int groups_per_batch;  // <= GROUPS
  // A part of the next product's weights, to be fetched into the second-level cache: next_bytes
  // from next on, and the same of each row after it.
  const uint8_t* next;
  int next_rows;    // 0: nothing
  int next_stride;  // bytes; a multiple of 16
  int next_bytes;   // a multiple of 16
};

using Words = Vec<uint32_t, 4>;  // 8 elements

// Number of elements of a row from this lane's first element of a batch on, to the end of the row
// or of the batch's groups. Sets `k` to that first element.
MINISGL_DEVICE int RowLeft(const GemvKernelParams& p, int batch, int* k) {
  *k = batch * p.groups_per_batch * kGroup + static_cast<int>(threadIdx.x) % 4 * 8;
  return min(p.num_in - *k, p.groups_per_batch * kGroup);
}

// Loads elements [at, at + 8) from `from` on, zeros from element `left` on. ALIGNED: K is a
// multiple of 8 and rows begin at multiples of 16 bytes. STREAM: the data is read once.
template <bool ALIGNED, bool STREAM>
MINISGL_DEVICE Words LoadWords(const uint16_t* from, int at, int left) {
  Words words = {};
  if constexpr (ALIGNED) {
    if (at >= left) return words;
    const uint32_t* const p = reinterpret_cast<const uint32_t*>(from + at);
    return STREAM ? device::LoadStream<4>(p) : device::LoadVec<4>(p);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t element = at + i < left ? from[at + i] : 0;
      words[i / 2] |= element << (i % 2 * 16);
    }
    return words;
  }
}

// This lane's part of a batch of the weights.
template <int ROWS8, int GROUPS>
struct WeightBatch {
  Words words[GROUPS][ROWS8];
};

// Where this lane's part of a batch begins in each of its rows.
template <int ROWS8>
struct WeightSource {
  const uint16_t* row[ROWS8];
  int left;
};

template <int ROWS8>
MINISGL_DEVICE WeightSource<ROWS8> FindWeights(const GemvKernelParams& p, int tile, int batch) {
  int k = 0;
  const int left = RowLeft(p, batch, &k);
  WeightSource<ROWS8> source = {.row = {}, .left = tile < p.num_tiles ? left : 0};
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    // Rows past the last alias it; their results are not stored.
    const int row =
        min((tile * ROWS8 + n) * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4, p.num_out - 1);
    source.row[n] = p.weight + int64_t{row} * p.num_in + k;
  }
  return source;
}

template <int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_DEVICE void LoadWeightGroup(const WeightSource<ROWS8>& source, int group,
                                    WeightBatch<ROWS8, GROUPS>& w) {
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    w.words[group][n] = LoadWords<ALIGNED, true>(source.row[n], group * kGroup, source.left);
  }
}

// Sums in two independent chains of products: of the first 4 elements of each lane's 8, and of the
// last 4.
template <int ROWS8>
struct Sums {
  float chain[ROWS8][2][4];
};

// Adds the batch's products to `sums` and starts the loads of the next batch. TOKENS8: tokens in
// units of 8. With two, x is loaded for half of the groups at a time, into as many registers.
template <typename T, int TOKENS8, int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_DEVICE void MultiplyBatch(const GemvKernelParams& p, int batch, int next_tile,
                                  int next_batch, WeightBatch<ROWS8, GROUPS>& w,
                                  Sums<ROWS8>& sums) {
  constexpr int kGroupsAtOnce = GROUPS / TOKENS8;
  const int token = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  int k = 0;
  const int left = RowLeft(p, batch, &k);
  const uint16_t* const x_row = p.x + int64_t{token} * p.num_in + k;
  const WeightSource<ROWS8> next = FindWeights<ROWS8>(p, next_tile, next_batch);
#pragma unroll
  for (int first = 0; first < GROUPS; first += kGroupsAtOnce) {
    // Keeps the compiler from loading more of x at once than there are registers for.
    if (TOKENS8 > 1 && first > 0) __syncwarp();
    Words x[kGroupsAtOnce][TOKENS8];
#pragma unroll
    for (int i = 0; i < kGroupsAtOnce; ++i) {
#pragma unroll
      for (int m = 0; m < TOKENS8; ++m) {
        x[i][m] = LoadWords<ALIGNED, false>(x_row + int64_t{m} * 8 * p.num_in, (first + i) * kGroup,
                                            m * 8 + token < p.num_tokens ? left : 0);
      }
    }
#pragma unroll
    for (int i = 0; i < kGroupsAtOnce; ++i) {
#pragma unroll
      for (int n = 0; n < ROWS8; ++n) {
        const Words& words = w.words[first + i][n];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t a[4] = {x[i][0][2 * half], 0, x[i][0][2 * half + 1], 0};
          if constexpr (TOKENS8 == 2) {
            a[1] = x[i][1][2 * half];
            a[3] = x[i][1][2 * half + 1];
          }
          const uint32_t b[2] = {words[2 * half], words[2 * half + 1]};
          device::Mma16816<T>(sums.chain[n][half], a, b);
        }
      }
      LoadWeightGroup<ROWS8, GROUPS, ALIGNED>(next, first + i, w);
    }
  }
}

// Writes the tile: the warps' sums, added in the order of warps. `partial`: [warps][tokens * rows]
// floats, which are not written again before the barrier of the next tile.
template <typename T, int TOKENS8, int ROWS8>
MINISGL_DEVICE void CombineTile(const GemvKernelParams& p, int tile, const Sums<ROWS8>& sums,
                                Shared<float> partial) {
  constexpr int kRows = 8 * ROWS8;
  constexpr int kTile = 8 * TOKENS8 * kRows;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize, num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const Shared<float> mine = partial + thread / kWarpSize * kTile + lane / 4 * kRows + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < TOKENS8; ++m) {
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      const int at = 8 * m * kRows + n * 8;
      mine[at] = sums.chain[n][0][2 * m] + sums.chain[n][1][2 * m];
      mine[at + 1] = sums.chain[n][0][2 * m + 1] + sums.chain[n][1][2 * m + 1];
    }
  }
  __syncthreads();  // all warps' sums are written
  const int row = tile * kRows + thread % kRows, token = thread / kRows;
  if (token >= p.num_tokens || row >= p.num_out) return;
  float sum = 0;
  for (int warp = 0; warp < num_warps; ++warp) sum += partial[warp * kTile + thread];
  if (p.bias != nullptr) sum += p.bias[row];
  const int64_t at = int64_t{token} * p.num_out + row;
  if (p.out_is_f32) {
    static_cast<float*>(p.out)[at] = sum;
  } else {
    static_cast<T*>(p.out)[at] = device::FromFloat<T>(sum);
  }
}

// Blocks take rows in turn, so that all ask for about as many.
MINISGL_DEVICE void PrefetchNext(const GemvKernelParams& p) {
  const int blocks = static_cast<int>(gridDim.x);
  for (int row = static_cast<int>(threadIdx.x) * blocks + static_cast<int>(blockIdx.x);
       row < p.next_rows; row += blocks * static_cast<int>(blockDim.x)) {
    device::PrefetchL2(p.next + int64_t{row} * p.next_stride, static_cast<uint32_t>(p.next_bytes));
  }
}

// Grid (min(tiles, blocks that run at once)), block 32 * warps; a block takes tiles b, b + grid,
// ... Shared memory: 2 * warps * 8 * TOKENS8 * 8 * ROWS8 floats (at most 16 KB), for the sums of
// two tiles in turn, so that one barrier for each tile is enough. A tile has at most as many
// elements as the block threads. Traffic: 2 * N * K bytes, and 2 * T * K of x for each tile, mostly
// from the first-level cache. 2 * 16 * N * K operations of the tensor cores. The first weights are
// loaded before GridWait.
template <typename T, int TOKENS8, int ROWS8, int GROUPS, bool ALIGNED>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kGemvThreadsMax, 1) GemvKernel(GemvKernelParams p) {
  constexpr int kTile = 8 * TOKENS8 * 8 * ROWS8;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int num_batches =
      (p.num_in + p.groups_per_batch * kGroup - 1) / (p.groups_per_batch * kGroup);
  SharedArena arena;
  const Shared<float> partial = arena.Take<float>(2 * num_warps * kTile);

  WeightBatch<ROWS8, GROUPS> w;
  const auto source = FindWeights<ROWS8>(p, static_cast<int>(blockIdx.x), warp);
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    LoadWeightGroup<ROWS8, GROUPS, ALIGNED>(source, group, w);
  }
  const int blocks = static_cast<int>(gridDim.x);
  if (static_cast<int>(blockIdx.x) + blocks >= p.num_tiles) PrefetchNext(p);
  device::GridRelease();
  device::GridWait();

  int parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    if (tile >= blocks && tile + blocks >= p.num_tiles) PrefetchNext(p);
    Sums<ROWS8> sums = {};
    for (int batch = warp; batch < num_batches; batch += num_warps) {
      const bool ends = batch + num_warps >= num_batches;
      MultiplyBatch<T, TOKENS8, ROWS8, GROUPS, ALIGNED>(p, batch, ends ? tile + blocks : tile,
                                                        ends ? warp : batch + num_warps, w, sums);
    }
    CombineTile<T, TOKENS8, ROWS8>(p, tile, sums, partial + parity * num_warps * kTile);
    parity ^= 1;
  }
}

// The division of a matrix, and the instance that computes it.
struct GemvSplit {
  bool aligned;
  int rows8;
  int num_warps;
  int groups_per_batch;
};

int BlocksAtOnce(const LaunchContext& context, const GemvSplit& split) {
  return context.num_multiprocessors * (kWarpsPerProcessor / split.num_warps);
}

// The share of blocks that have a tile, over the rounds in which `blocks` blocks take all tiles.
double TileShare(int64_t num_out, int rows8, int64_t blocks) {
  const int64_t tiles = CeilDiv<int64_t>(num_out, 8 * rows8);
  return static_cast<double>(tiles) / static_cast<double>(CeilDiv(tiles, blocks) * blocks);
}

// From 4,096 rows on, tiles of 16 rows (a load of x serves two loads of weights) still give 256
// blocks of 8 warps, two for each of 132 multiprocessors; for up to 8 tokens tiles of 24 rows, if
// more blocks then have a tile in the last round (6,144 rows: 256 tiles for 264 blocks, where 384
// take two rounds). From 2,048 rows on, tiles of 8 rows are enough. Below that there are at most
// two tiles for each multiprocessor, and 16 warps share one. A batch is as long as a lane's loads
// of two rows allow, but not so long that warps would have no batch: it does not depend on the
// number of tokens.
GemvSplit ChooseSplit(const LaunchContext& context, int64_t num_out, int64_t num_in,
                      int64_t num_tokens) {
  GemvSplit split = {.aligned = num_in % 8 == 0,
                     .rows8 = num_in % 8 == 0 && num_out >= 4096 ? 2 : 1,
                     .num_warps = num_out >= 2048 ? 8 : kWarpsPerProcessor,
                     .groups_per_batch = 1};
  const int groups_max = split.aligned ? kLoads / split.rows8 : kGroupsUnaligned;
  const int64_t groups = CeilDiv<int64_t>(num_in, kGroup);
  split.groups_per_batch = static_cast<int>(
      std::clamp<int64_t>(CeilDiv<int64_t>(groups, split.num_warps), 1, groups_max));
  const int64_t blocks = BlocksAtOnce(context, split);
  if (split.rows8 == 2 && num_tokens <= 8 &&
      TileShare(num_out, 3, blocks) > TileShare(num_out, 2, blocks) + 0.1) {
    split.rows8 = 3;
  }
  return split;
}

// Sets the part of `next` (null: none) to fetch. The blocks of its product load the beginnings of
// their first tiles' rows before they wait: so first the ends of those rows, or the rows after
// them if the beginnings are all.
void SetNext(const LaunchContext& context, const Matrix* next, GemvKernelParams* p) {
  if (next == nullptr || next->storage == nullptr || next->num_in % 8 != 0) return;
  const GemvSplit split = ChooseSplit(context, next->num_out, next->num_in, p->num_tokens);
  const int64_t tile_rows = int64_t{BlocksAtOnce(context, split)} * 8 * split.rows8;
  const int64_t loaded = int64_t{split.num_warps} * split.groups_per_batch * kGroup;
  const int64_t row_bytes = next->num_in * 2, bytes_max = context.prefetch_bytes;
  int64_t row = 0, rows = std::min(next->num_out, tile_rows), num_bytes = row_bytes;
  if (loaded < next->num_in) {
    num_bytes = std::min(row_bytes, bytes_max / rows / kLineBytes * kLineBytes);
  } else {
    rows = std::min(next->num_out, bytes_max / row_bytes);
    row = std::min(tile_rows, next->num_out - rows);
  }
  if (rows == 0 || num_bytes == 0) return;
  p->next = static_cast<const uint8_t*>(next->storage.get()) + (row + 1) * row_bytes - num_bytes;
  p->next_rows = static_cast<int>(rows);
  p->next_stride = static_cast<int>(row_bytes);
  p->next_bytes = static_cast<int>(num_bytes);
}

template <typename T, int TOKENS8>
CudaError LaunchInstance(const LaunchContext& context, const LaunchShape& shape,
                         const GemvSplit& split, const GemvKernelParams& p) {
  if (!split.aligned) {
    return Launch(context, shape, GemvKernel<T, TOKENS8, 1, kGroupsUnaligned, false>, p);
  }
  if (split.rows8 == 1) return Launch(context, shape, GemvKernel<T, TOKENS8, 1, kLoads, true>, p);
  if constexpr (TOKENS8 == 1) {
    if (split.rows8 == 3) return Launch(context, shape, GemvKernel<T, 1, 3, kLoads / 2, true>, p);
  }
  return Launch(context, shape, GemvKernel<T, TOKENS8, 2, kLoads / 2, true>, p);
}

}  // namespace

CudaError LaunchGemv(const LaunchContext& context, const LinearParams& params, const void* weight) {
  MINISGL_CHECK(params.num_tokens <= kGemvTokensMax, "{} tokens; at most {}", params.num_tokens,
                kGemvTokensMax);
  const int64_t num_out = params.weight->num_out, num_in = params.weight->num_in;
  const GemvSplit split = ChooseSplit(context, num_out, num_in, params.num_tokens);
  const int64_t tile_rows = 8 * split.rows8, tile_tokens = params.num_tokens <= 8 ? 8 : 16;
  GemvKernelParams p = {.weight = static_cast<const uint16_t*>(weight),
                        .x = params.x.as<uint16_t>(),
                        .bias = params.bias,
                        .out = params.out.data,
                        .out_is_f32 = params.out.dtype == DType::kF32,
                        .num_tokens = static_cast<int>(params.num_tokens),
                        .num_out = static_cast<int>(num_out),
                        .num_in = static_cast<int>(num_in),
                        .num_tiles = static_cast<int>(CeilDiv(num_out, tile_rows)),
                        .groups_per_batch = split.groups_per_batch,
                        .next = nullptr,
                        .next_rows = 0,
                        .next_stride = 0,
                        .next_bytes = 0};
  SetNext(context, params.next, &p);
  const int blocks_at_once = BlocksAtOnce(context, split);
  const size_t tile_bytes = static_cast<size_t>(tile_tokens * tile_rows) * sizeof(float);
  const LaunchShape shape = {.grid = {params.num_tokens == 0 ? 0u
                                                             : static_cast<unsigned>(std::min(
                                                                   p.num_tiles, blocks_at_once))},
                             .block = {static_cast<unsigned>(split.num_warps * kWarpSize)},
                             .shared_bytes = 2 * static_cast<size_t>(split.num_warps) * tile_bytes,
                             .programmatic = true};
  MINISGL_CHECK(!split.aligned || (IsAligned16(weight) && IsAligned16(p.x)),
                "matrices must begin at multiples of 16 bytes");
  return DispatchHalf(params.x.dtype, [&]<typename T>() {
    if (tile_tokens == 8) return LaunchInstance<T, 1>(context, shape, split, p);
    return LaunchInstance<T, 2>(context, shape, split, p);
  });
}

}  // namespace minisgl::cuda
