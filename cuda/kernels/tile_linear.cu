// Matrix products of 17 to 128 rows: out[T, N] = x[T, K] * weight[N, K]^T, with what stands behind
// them (product_end.h). Such a product reads its weights once, like one of few rows, and is over in
// a few microseconds: what counts is how many multiprocessors take part, and that the next product
// begins to read while this one ends.
//
// Tiles: a block computes 32, 64 or 128 tokens by 64 rows of the weights. It copies 64 elements of
// K of both at a time into shared memory, several steps ahead, and multiplies them on the tensor
// cores (mma m16n8k16, x as the first operand); a warp computes 32 tokens by 16 or 32 rows.
//
// Splits: a matrix of few rows has too few tiles for all multiprocessors, so that the steps of K
// are divided among up to 8 blocks, which store their sums in a workspace. The block that arrives
// last adds them up, in the order of splits: an element's bits depend on the number of tokens (by
// the choice of tiles and splits) and on nothing else.
//
// The first weights are copied before GridWait, and a part of the next product's are asked for in
// the second-level cache, as in gemv.cu.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/product_end.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace tile_linear {
namespace {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;

constexpr int kOuts = 64;                // rows of the weights in a tile
constexpr int kStep = 64;                // elements of K at a time: rows of 128 bytes
constexpr int kChunks = kStep / kChunk;  // chunks of 16 bytes in a row of a step
constexpr int kStages = 4;               // steps in shared memory
constexpr int kSplitsMax = 8;
constexpr int kSumsStride = kOuts + 8;  // of the last sums in shared memory: fewer conflicts
constexpr int64_t kTilesMax = kTileLinearCounters;

struct TileLinearKernelParams {
  const uint16_t* weight;  // [N, K]
  const uint16_t* x;       // [T, K]
  ProductEnd end;
  int num_tokens;
  int num_in;
  int steps_per_split;
  float* parts;         // [tiles][splits][sums of a tile]
  uint32_t* arrived;    // [tiles] zero before and after
  const uint8_t* next;  // weights of the next product, next_bytes of them
  int64_t next_bytes;   // a multiple of kNextPiece; 0: nothing
};

constexpr int64_t kNextPiece = 4096;

// Tiles of 32 * TOKENS32 tokens.
template <int TOKENS32>
struct TileShape {
  static constexpr int kTokens = 32 * TOKENS32;
  static constexpr int kOuts8 = TOKENS32 == 1 ? 2 : 4;  // rows of a warp, in units of 8
  static constexpr int kWarpsAcross = kOuts / (8 * kOuts8);
  static constexpr int kThreads = TOKENS32 * kWarpsAcross * kWarpSize;
  static constexpr int kRowsAtOnce = kThreads / kChunks;  // rows copied by one copy of each thread
  static constexpr size_t kStageBytes = size_t{2} * (kTokens + kOuts) * kStep;
  static constexpr size_t kBytes = kStages * kStageBytes + 16;
  static_assert(kTokens * kSumsStride * sizeof(float) <= kStages * kStageBytes);
};

// Chunk c of row r is stored in the place of chunk c ^ (r % 8), so that the 8 rows of 16 bytes that
// a matrix load reads at once are in different banks.
MINISGL_DEVICE int TileOffset(int row, int chunk) {
  return row * kStep + (chunk ^ row % 8) * kChunk;
}

// This thread's part of a step: chunk `thread % 8` of every kRowsAtOnce-th row. `from`: the row's
// elements, or null for zeros.
MINISGL_DEVICE void CopyChunk(const TileLinearKernelParams& p, Shared<uint16_t> to, int row,
                              const uint16_t* from, int step) {
  const int chunk = static_cast<int>(threadIdx.x) % kChunks, k = step * kStep + chunk * kChunk;
  const bool valid = from != nullptr && k < p.num_in;
  device::CopyAsync16(to + TileOffset(row, chunk), valid ? from + k : p.weight, valid);
}

template <int TOKENS32>
MINISGL_DEVICE void CopyWeights(const TileLinearKernelParams& p, Shared<uint16_t> to, int step) {
  constexpr int kAtOnce = TileShape<TOKENS32>::kRowsAtOnce;
#pragma unroll
  for (int i = 0; i < kOuts / kAtOnce; ++i) {
    const int row = i * kAtOnce + static_cast<int>(threadIdx.x) / kChunks;
    const int out = RowOfTile<kOuts>(p.end, static_cast<int>(blockIdx.x), row);
    CopyChunk(p, to, row, p.weight + int64_t{out} * p.num_in, step);
  }
}

template <int TOKENS32>
MINISGL_DEVICE void CopyTokens(const TileLinearKernelParams& p, Shared<uint16_t> to, int step) {
  using Tile = TileShape<TOKENS32>;
  constexpr int kAtOnce = Tile::kRowsAtOnce;
#pragma unroll
  for (int i = 0; i < Tile::kTokens / kAtOnce; ++i) {
    const int row = i * kAtOnce + static_cast<int>(threadIdx.x) / kChunks;
    const int token = static_cast<int>(blockIdx.y) * Tile::kTokens + row;
    CopyChunk(p, to, row, token < p.num_tokens ? p.x + int64_t{token} * p.num_in : nullptr, step);
  }
}

// The sums of a warp: 2 x 16 tokens by 8 * OUTS8 rows.
template <int OUTS8>
struct WarpSums {
  float sum[2][OUTS8][4];
};

// Adds the warp's products of one step. x, weights: the warp's first rows.
template <typename T, int OUTS8>
MINISGL_DEVICE void MultiplyStep(Shared<uint16_t> x, Shared<uint16_t> weights, int lane,
                                 WarpSums<OUTS8>& sums) {
#pragma unroll
  for (int k = 0; k < kStep / 16; ++k) {
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      // Lane l addresses row l % 8 of matrix l / 8: tokens 0-7 and 8-15 of chunk 2 k, then of
      // chunk 2 k + 1.
      device::LoadMatrix4<uint16_t>(
          a[m], x + TileOffset(m * 16 + lane % 8 + lane / 8 % 2 * 8, 2 * k + lane / 16));
    }
#pragma unroll
    for (int n = 0; n < OUTS8; n += 2) {
      // Rows 0-7 with chunks 2 k and 2 k + 1, then rows 8-15 with the same.
      uint32_t w[4];
      device::LoadMatrix4<uint16_t>(
          w, weights + TileOffset(n * 8 + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
      const uint32_t low[2] = {w[0], w[1]}, high[2] = {w[2], w[3]};
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        device::Mma16816<T>(sums.sum[m][n], a[m], low);
        device::Mma16816<T>(sums.sum[m][n + 1], a[m], high);
      }
    }
  }
}

// This block's tile, and the sums of its splits in the workspace: vectors of 4, thread by thread,
// so that a thread finds its own sums of every split.
template <int TOKENS32>
MINISGL_DEVICE float* PartOf(const TileLinearKernelParams& p, int split, int vector) {
  using Tile = TileShape<TOKENS32>;
  const int64_t tile = int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  const int64_t part = tile * gridDim.z + split;
  return p.parts + part * (Tile::kTokens * kOuts) +
         (vector * Tile::kThreads + static_cast<int>(threadIdx.x)) * 4;
}

// Stores this split's sums. True in the block that is the last of its tile; `sums` are then those
// of all splits.
template <int TOKENS32, int OUTS8>
MINISGL_DEVICE bool AddSplits(const TileLinearKernelParams& p, Shared<uint32_t> is_last,
                              WarpSums<OUTS8>& sums) {
  const int split = static_cast<int>(blockIdx.z), num_splits = static_cast<int>(gridDim.z);
#pragma unroll
  for (int i = 0; i < 2 * OUTS8; ++i) {
    device::Vec<float, 4> part;
#pragma unroll
    for (int j = 0; j < 4; ++j) part[j] = sums.sum[i / OUTS8][i % OUTS8][j];
    device::StoreVec(PartOf<TOKENS32>(p, split, i), part);
  }
  __syncthreads();  // every thread has stored its sums
  if (threadIdx.x == 0) {
    uint32_t* const arrived = p.arrived + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x);
    device::ThreadFence();  // a block that sees this count sees the sums
    const uint32_t before = device::AtomicAddGlobal(arrived, 1u);
    const bool last = before + 1 == static_cast<uint32_t>(num_splits);
    device::ThreadFence();  // the last block sees the others' sums
    if (last) *arrived = 0;
    is_last[0] = last ? 1 : 0;
  }
  __syncthreads();  // is_last is written; the sums may be read
  const uint32_t last = is_last[0];
  if (last == 0) return false;
  sums = {};
  for (int s = 0; s < num_splits; ++s) {
#pragma unroll
    for (int i = 0; i < 2 * OUTS8; ++i) {
      const device::Vec<float, 4> part =
          device::LoadVec<4>(static_cast<const float*>(PartOf<TOKENS32>(p, s, i)));
#pragma unroll
      for (int j = 0; j < 4; ++j) sums.sum[i / OUTS8][i % OUTS8][j] += part[j];
    }
  }
  return true;
}

// Writes the tile's outputs, token by token, from its sums in shared memory.
template <typename T, int TOKENS32>
MINISGL_DEVICE void WriteTile(const TileLinearKernelParams& p, Shared<float> sums) {
  using Tile = TileShape<TOKENS32>;
  const bool gated = p.end.num_pairs > 0;
  const int outs = gated ? kOuts / 2 : kOuts;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kTokens * outs; i += Tile::kThreads) {
    const int local = i / outs, r = i % outs;
    const int token = static_cast<int>(blockIdx.y) * Tile::kTokens + local;
    const int row = static_cast<int>(blockIdx.x) * outs + r;
    if (token >= p.num_tokens || row >= p.end.width()) continue;
    const int64_t at = token * p.end.stride + row;
    const float before = p.end.residual != nullptr ? p.end.residual[at] : 0;
    const float sum = sums[local * kSumsStride + r];
    float up = 0;
    if (gated) {
      const float other = sums[local * kSumsStride + r + outs];
      up = AddBias(p.end, other, row + p.end.num_pairs);
    }
    StoreProduct<T>(p.end, at, AddBias(p.end, sum, row), up, before);
  }
}

// Pieces of the next product's weights, in turn.
MINISGL_DEVICE void PrefetchNext(const TileLinearKernelParams& p) {
  const int64_t block = (int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int64_t blocks = int64_t{gridDim.x} * gridDim.y * gridDim.z;
  for (int64_t at = (threadIdx.x * blocks + block) * kNextPiece; at < p.next_bytes;
       at += blocks * blockDim.x * kNextPiece) {
    device::PrefetchL2(p.next + at, static_cast<uint32_t>(kNextPiece));
  }
}

// Grid (tiles of 64 rows, tiles of tokens, splits), block 128, or 256 for tiles of 128 tokens.
// Shared memory: 48, 64 or 96 KB, so that two blocks fit. Traffic: 2 * N * K bytes for each tile of
// tokens, 2 * T * K for each tile of rows, mostly from the second-level cache, and 8 * T * N for
// each split, if there are several. 2 * T * N * K operations.
template <typename T, int TOKENS32>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(TileShape<TOKENS32>::kThreads, 2)
    TileLinearKernel(TileLinearKernelParams p) {
  using Tile = TileShape<TOKENS32>;
  constexpr int kStageElements = (Tile::kTokens + kOuts) * kStep;
  SharedArena arena;
  const Shared<uint16_t> stages = arena.Take<uint16_t>(kStages * kStageElements);
  const Shared<uint32_t> is_last = arena.Take<uint32_t>(1);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize;
  const int warp_token = thread / kWarpSize / Tile::kWarpsAcross * 32;
  const int warp_out = thread / kWarpSize % Tile::kWarpsAcross * 8 * Tile::kOuts8;
  const int num_steps = (p.num_in + kStep - 1) / kStep;
  const int begin = static_cast<int>(blockIdx.z) * p.steps_per_split;
  const int end = min(begin + p.steps_per_split, num_steps);
  // In a stage: tokens, then weights.
  const auto weights_of = [&](int step) {
    return stages + ((step - begin) % kStages * kStageElements + Tile::kTokens * kStep);
  };
  const auto tokens_of = [&](int step) {
    return stages + (step - begin) % kStages * kStageElements;
  };

  for (int step = begin; step < min(begin + kStages - 1, end); ++step) {
    CopyWeights<TOKENS32>(p, weights_of(step), step);
  }
  PrefetchNext(p);
  device::GridRelease();
  device::GridWait();
  // The first group has the weights of all of them, too.
  for (int step = begin; step < begin + kStages - 1; ++step) {
    if (step < end) CopyTokens<TOKENS32>(p, tokens_of(step), step);
    device::CopyAsyncCommit();
  }

  WarpSums<Tile::kOuts8> sums = {};
  for (int step = begin; step < end; ++step) {
    device::CopyAsyncWait<kStages - 2>();
    __syncthreads();  // the step's rows are visible, and those of the previous step are not in use
    const int ahead = step + kStages - 1;
    if (ahead < end) {
      CopyWeights<TOKENS32>(p, weights_of(ahead), ahead);
      CopyTokens<TOKENS32>(p, tokens_of(ahead), ahead);
    }
    device::CopyAsyncCommit();
    MultiplyStep<T>(tokens_of(step) + warp_token * kStep, weights_of(step) + warp_out * kStep, lane,
                    sums);
  }
  if (gridDim.z > 1 && !AddSplits<TOKENS32>(p, is_last, sums)) return;

  device::CopyAsyncWait<0>();
  __syncthreads();  // no thread reads the steps any more
  const Shared<float> tile_sums = stages.template As<float>();
#pragma unroll
  for (int i = 0; i < 2 * Tile::kOuts8; ++i) {
    const int m = i / Tile::kOuts8, n = i % Tile::kOuts8;
    const Shared<float> mine = tile_sums + ((warp_token + m * 16 + lane / 4) * kSumsStride +
                                            warp_out + n * 8 + lane % 4 * 2);
    mine[0] = sums.sum[m][n][0];
    mine[1] = sums.sum[m][n][1];
    mine[8 * kSumsStride] = sums.sum[m][n][2];
    mine[8 * kSumsStride + 1] = sums.sum[m][n][3];
  }
  __syncthreads();  // all sums are written
  WriteTile<T, TOKENS32>(p, tile_sums);
}

struct TileSplit {
  int64_t out_tiles, token_tiles, splits, steps_per_split;
};

// As many splits as make the longest multiprocessor's work shortest, in steps: those of its tiles,
// and for several splits the storing and adding of their sums.
TileSplit ChooseSplit(const LaunchContext& context, int64_t out_tiles, int64_t token_tiles,
                      int64_t num_steps) {
  constexpr int64_t kMergeSteps = 6;
  TileSplit best = {};
  int64_t best_cost = 0;
  for (int64_t splits = 1; splits <= kSplitsMax; splits *= 2) {
    const int64_t steps = CeilDiv(num_steps, splits);
    const int64_t used = CeilDiv(num_steps, steps);
    const int64_t rounds =
        CeilDiv<int64_t>(out_tiles * token_tiles * used, context.num_multiprocessors);
    const int64_t cost = rounds * steps + (used > 1 ? kMergeSteps : 0);
    if (best.splits == 0 || cost < best_cost) {
      best = {out_tiles, token_tiles, used, steps};
      best_cost = cost;
    }
  }
  return best;
}

template <typename T, int TOKENS32>
CudaError LaunchTiles(const LaunchContext& context, const TileSplit& split,
                      const TileLinearKernelParams& p) {
  using Tile = TileShape<TOKENS32>;
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(split.out_tiles), static_cast<unsigned>(split.token_tiles),
               static_cast<unsigned>(split.splits)},
      .block = {Tile::kThreads},
      .shared_bytes = Tile::kBytes,
      .programmatic = true};
  return Launch(context, shape, TileLinearKernel<T, TOKENS32>, p);
}

}  // namespace
}  // namespace tile_linear

bool TileLinearTakes(const LinearParams& linear) {
  using namespace tile_linear;  // NOLINT: this file's own
  const int64_t out_tiles = CeilDiv<int64_t>(linear.weight->num_out, kOuts / 2);
  return linear.num_tokens <= kTileLinearTokensMax && linear.weight->num_in % kChunk == 0 &&
         IsAligned16(linear.x.data) && out_tiles <= kTilesMax &&
         linear.weight->num_out <= kTileLinearOutsMax;
}

CudaError LaunchTileLinear(const LaunchContext& context, const ProductParams& params,
                           const void* weight, const TileLinearWorkspace& workspace) {
  using namespace tile_linear;  // NOLINT: this file's own
  const LinearParams& linear = params.linear;
  MINISGL_CHECK(params.norm == nullptr && TileLinearTakes(linear), "a product of other kernels");
  const int64_t tokens = linear.num_tokens, num_in = linear.weight->num_in;
  const int tokens32 = tokens <= 32 ? 1 : tokens <= 64 ? 2 : 4;
  TileLinearKernelParams p = {.weight = static_cast<const uint16_t*>(weight),
                              .x = linear.x.as<uint16_t>(),
                              .end = MakeProductEnd(params),
                              .num_tokens = static_cast<int>(tokens),
                              .num_in = static_cast<int>(num_in),
                              .steps_per_split = 0,
                              .parts = static_cast<float*>(workspace.parts),
                              .arrived = workspace.arrived,
                              .next = nullptr,
                              .next_bytes = 0};
  if (linear.next != nullptr && linear.next->storage != nullptr) {
    p.next = static_cast<const uint8_t*>(linear.next->storage.get());
    p.next_bytes =
        std::min(context.prefetch_bytes, linear.next->num_out * linear.next->num_in * 2) /
        kNextPiece * kNextPiece;
  }
  const int64_t outs = p.end.num_pairs > 0 ? kOuts / 2 : kOuts;
  const TileSplit split = ChooseSplit(context, CeilDiv<int64_t>(p.end.width(), outs),
                                      CeilDiv<int64_t>(tokens, 32 * tokens32),
                                      CeilDiv<int64_t>(num_in, tile_linear::kStep));
  p.steps_per_split = static_cast<int>(split.steps_per_split);
  MINISGL_CHECK(split.splits == 1 || split.out_tiles * split.token_tiles * split.splits * kOuts *
                                             32 * tokens32 * 4 <=
                                         kTileLinearPartBytes,
                "sums of {} splits do not fit the workspace", split.splits);
  return DispatchHalf(linear.x.dtype, [&]<typename T>() {
    if (tokens32 == 1) return LaunchTiles<T, 1>(context, split, p);
    if (tokens32 == 2) return LaunchTiles<T, 2>(context, split, p);
    return LaunchTiles<T, 4>(context, split, p);
  });
}

}  // namespace minisgl::cuda
