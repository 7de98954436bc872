// Matrix times few vectors (gemv.cu), for large matrices: the weights go through shared memory.
//
// Division: a block takes tiles of 8 * ROWS8 rows of the weights. Its 8 warps share a tile's K in
// steps of 32 * kGroups elements, step s to warp s % 8, and their sums are added in the order of
// the warps. An element's result does not depend on the number of tokens.
//
// Loads in flight (Little's law): 4.8 TB/s * 0.9 us / 132 multiprocessors = 33 KB are needed on
// each. A lane copies its part of the weights to a place of its own: a ring of kStages steps, 8
// copies of 16 bytes, 32 KB for a block. No thread reads another's copy, so the ring needs no
// barriers, and a copy is issued as soon as its place has been used, also for the next tile: the
// end of a tile (a barrier, the sum over warps) does not drain the ring.
//
// Neighbours: a block has 64 registers for each thread and about 45 KB of shared memory, so that
// four fit on a multiprocessor, and no product takes more than three: blocks of the next product
// begin, and fill their rings, while this one computes. A step of the ring takes a warp longer than
// a batch of registers, which is why smaller matrices do not use it.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/gemv_input.h"
#include "kernels/gemv_parts.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace gemv_ring {
namespace {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;
using device::Vec;

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kStages = 4;
constexpr int kCopies = 2;               // of 16 bytes in each stage of a lane
constexpr int kGroup = 32;               // elements of a row that 4 lanes load at once
constexpr int kBlocksMax = 3;            // of a product on a multiprocessor
constexpr int64_t kLineBytes = 128;      // bytes of a line of the second-level cache
constexpr size_t kBlockReserved = 1024;  // shared memory that CUDA takes for itself in each block
static_assert(kGemvTokensMax == 16, "tokens are rows of one product");

// Groups of a step of K, for tiles of 8 * ROWS8 rows.
template <int ROWS8>
constexpr int kGroups = kCopies / ROWS8;

struct GemvRingKernelParams {
  const uint16_t* weight;  // [N, K]
  GemvInput input;
  ProductEnd end;
  int num_tiles;
  GemvNext next;
};

using Words = GemvWords;

// The first element of a step that is this lane's.
template <int ROWS8>
MINISGL_DEVICE int StepBegin(int step) {
  return step * kGroups<ROWS8> * kGroup + static_cast<int>(threadIdx.x) % 4 * 8;
}

// The weights of this lane, step by step.
template <int ROWS8>
class WeightRing {
 public:
  MINISGL_DEVICE WeightRing(const GemvRingKernelParams& p, SharedArena& arena, int num_steps)
      : num_steps_(num_steps) {
    ring_ =
        arena.Take<uint32_t>(kStages * kCopies * kThreads * 4) + static_cast<int>(threadIdx.x) * 4;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    tile_ = warp < num_steps ? static_cast<int>(blockIdx.x) : p.num_tiles;
    BeginTile(p);
  }

  // Begins the copies of the next step into `stage`. An empty group past the end.
  MINISGL_DEVICE void Copy(const GemvRingKernelParams& p, int stage) {
    if (tile_ < p.num_tiles) CopyStep(p, stage);
    device::CopyAsyncCommit();
  }

  // The words that Copy wrote to `stage`, the oldest of kStages. REQUIRES CopyAsyncWait<kStages -
  // 1>.
  MINISGL_DEVICE Words Load(int stage, int group, int n) const {
    return device::LoadShared<4>(ring_ + (stage * kCopies + group * ROWS8 + n) * kThreads * 4);
  }

 private:
  // This lane's elements of the warp's first step.
  MINISGL_DEVICE void BeginTile(const GemvRingKernelParams& p) {
    k_ = StepBegin<ROWS8>(static_cast<int>(threadIdx.x) / kWarpSize);
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      const int row =
          RowOfTile<8 * ROWS8>(p.end, tile_, n * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4);
      at_[n] = static_cast<uint32_t>(row) * static_cast<uint32_t>(p.input.num_in) +
               static_cast<uint32_t>(k_);
    }
  }

  MINISGL_DEVICE void CopyStep(const GemvRingKernelParams& p, int stage) {
    constexpr int kAhead = kWarps * kGroups<ROWS8> * kGroup;  // from a step to the warp's next
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
#pragma unroll
      for (int group = 0; group < kGroups<ROWS8>; ++group) {
        device::CopyAsync16(ring_ + (stage * kCopies + group * ROWS8 + n) * kThreads * 4,
                            reinterpret_cast<const uint32_t*>(p.weight + at_[n] + group * kGroup),
                            k_ + group * kGroup < p.input.num_in);
      }
      at_[n] += kAhead;
    }
    k_ += kAhead;
    if (k_ - static_cast<int>(threadIdx.x) % 4 * 8 >= num_steps_ * (kAhead / kWarps)) {
      tile_ += static_cast<int>(gridDim.x);
      BeginTile(p);
    }
  }

  const int num_steps_;
  Shared<uint32_t> ring_;
  int tile_;            // copied next: its tile,
  int k_;               // this lane's first element,
  uint32_t at_[ROWS8];  // and where that is in the matrix
};

// The elements of x of one step, as the first operand of its products.
template <int TOKENS8, int ROWS8>
struct StepInput {
  Words words[kGroups<ROWS8>][TOKENS8];
};

// STAGED: x is in shared memory.
template <int TOKENS8, int ROWS8, bool STAGED>
MINISGL_DEVICE void LoadInput(const GemvInput& p, Shared<uint32_t> staged, int step,
                              StepInput<TOKENS8, ROWS8>& x) {
  const int k = StepBegin<ROWS8>(step);
#pragma unroll
  for (int group = 0; group < kGroups<ROWS8>; ++group) {
#pragma unroll
    for (int m = 0; m < TOKENS8; ++m) {
      const int token = m * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4;
      const int at = k + group * kGroup;
      x.words[group][m] = Words{};
      if (token >= p.num_tokens || at >= p.num_in) continue;
      if constexpr (STAGED) {
        x.words[group][m] = device::LoadShared<4>(staged + (token * p.stride + at) / 2);
      } else {
        const uint16_t* const row = p.x + int64_t{token} * p.num_in;
        x.words[group][m] = device::LoadVec<4>(reinterpret_cast<const uint32_t*>(row + at));
      }
    }
  }
}

// The compiler's limit: 64 and 80 registers for each thread.
constexpr int BlocksByRegisters(bool staged) { return staged ? 4 : 3; }

// Grid (tiles, but at most the blocks that run at once), block 256; a block takes tiles b, b + grid
// and so on. Shared memory: the ring, two tiles' sums in turn, so that one barrier for each tile is
// enough (4 to 16 KB), and x where it is staged. A tile has at most as many elements as the block
// threads. Traffic: 2 * N * K bytes, and 2 * T * K of x for each block, or each tile if x is not
// staged. 2 * 16 * N * K operations of the tensor cores. The first weights are copied before
// GridWait.
template <typename T, int TOKENS8, int ROWS8, bool STAGED>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kThreads, BlocksByRegisters(STAGED))
    GemvRingKernel(GemvRingKernelParams p) {
  constexpr int kStep = kGroups<ROWS8> * kGroup;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_steps = (p.input.num_in + kStep - 1) / kStep;
  SharedArena arena;
  WeightRing<ROWS8> ring(p, arena, num_steps);
  const Shared<float> partial = arena.Take<float>(2 * kWarps * kGemvTileSums<TOKENS8, ROWS8>);
  GemvInputMemory memory;
  if constexpr (STAGED) {
    memory = TakeGemvInput(p.input, arena);
    LoadGemvInputEarly(p.input, memory);
  }
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) ring.Copy(p, stage);
  const int blocks = static_cast<int>(gridDim.x);
  if (static_cast<int>(blockIdx.x) + blocks >= p.num_tiles) PrefetchNext(p.next);
  device::GridRelease();
  device::GridWait();

  if constexpr (STAGED) {
    device::CopyAsyncWait<kStages - 1>();
    StageGemvInput<T>(p.input, memory);
  }
  int parity = 0, stage = 0;
  StepInput<TOKENS8, ROWS8> x, next_x;
  if constexpr (!STAGED) {
    if (warp < num_steps) LoadInput<TOKENS8, ROWS8, STAGED>(p.input, memory.x, warp, next_x);
  }
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    if (tile >= blocks && tile + blocks >= p.num_tiles) PrefetchNext(p.next);
    const GemvPlace place = PlaceOfGemv<ROWS8>(p.end, p.input.num_tokens, tile);
    GemvSums<ROWS8> sums = {};
    for (int step = warp; step < num_steps; step += kWarps) {
      if constexpr (!STAGED) {
        x = next_x;
        const int next_step = step + kWarps < num_steps ? step + kWarps : warp;
        LoadInput<TOKENS8, ROWS8, STAGED>(p.input, memory.x, next_step, next_x);
      } else {
        LoadInput<TOKENS8, ROWS8, STAGED>(p.input, memory.x, step, x);
      }
      device::CopyAsyncWait<kStages - 1>();
#pragma unroll
      for (int group = 0; group < kGroups<ROWS8>; ++group) {
#pragma unroll
        for (int n = 0; n < ROWS8; ++n) {
          MultiplyGemvWords<T>(x.words[group], ring.Load(stage, group, n), n, sums);
        }
      }
      ring.Copy(p, stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    const Shared<float> tile_sums = partial + parity * kWarps * kGemvTileSums<TOKENS8, ROWS8>;
    StoreGemvSums<TOKENS8, ROWS8>(sums, tile_sums);
    __syncthreads();  // all warps' sums are written
    WriteGemvPlace<T, TOKENS8, ROWS8>(p.end, place, tile_sums);
    parity ^= 1;
  }
}

// The instance that computes a matrix, and how many blocks run at once.
struct GemvSplit {
  bool staged;  // x
  int rows8;
  int tokens8;
  size_t shared_bytes;
  int blocks;
};

// The share of blocks that have a tile, over the rounds in which `blocks` blocks take all tiles.
double TileShare(int64_t num_tiles, int64_t blocks) {
  return static_cast<double>(num_tiles) / static_cast<double>(CeilDiv(num_tiles, blocks) * blocks);
}

// As many blocks as leave each multiprocessor the fewest rounds of tiles; two or more, so that
// enough is in flight, but no more than there are tiles for, which leaves room for the next kernel.
int ChooseBlocks(const LaunchContext& context, int64_t num_tiles, size_t shared_bytes) {
  const auto fit = static_cast<int>((context.shared_bytes_max + kBlockReserved) /
                                    (shared_bytes + kBlockReserved));
  const int most = std::clamp(fit, 1, kBlocksMax);
  int best = 1;
  for (int blocks = 1; blocks <= most; ++blocks) {
    const int64_t rounds =
        CeilDiv<int64_t>(num_tiles, int64_t{blocks} * context.num_multiprocessors);
    const int64_t best_rounds =
        CeilDiv<int64_t>(num_tiles, int64_t{best} * context.num_multiprocessors);
    if (rounds == best_rounds) continue;
    // More rounds than a few: what counts is that no block is idle in the last.
    if (best == 1 || rounds == 1 ||
        TileShare(num_tiles, int64_t{blocks} * context.num_multiprocessors) >=
            TileShare(num_tiles, int64_t{best} * context.num_multiprocessors)) {
      best = blocks;
    }
  }
  return best * context.num_multiprocessors;
}

// From 4,096 rows on tiles of 16: a load of x serves two of weights, and there are still 256 tiles,
// two for each of 132 multiprocessors. It does not depend on the number of tokens.
GemvSplit ChooseSplit(const LaunchContext& context, int64_t num_out, const GemvInput& input) {
  GemvSplit split = {.staged = false,
                     .rows8 = num_out >= 4096 ? 2 : 1,
                     .tokens8 = input.num_tokens <= 8 ? 1 : 2,
                     .shared_bytes = size_t{kStages} * kCopies * kThreads * 16,
                     .blocks = 0};
  split.shared_bytes +=
      size_t{2} * kWarps * static_cast<size_t>(64 * split.rows8 * split.tokens8) * sizeof(float);
  split.staged = split.tokens8 == 1 && int64_t{input.num_tokens} * input.num_in <= kGemvStagedMax;
  if (split.staged) split.shared_bytes += GemvInputBytes(input);
  split.blocks =
      ChooseBlocks(context, CeilDiv<int64_t>(num_out, 8 * split.rows8), split.shared_bytes);
  return split;
}

template <typename T, int ROWS8>
CudaError LaunchTiles(const LaunchContext& context, const LaunchShape& shape,
                      const GemvSplit& split, const GemvRingKernelParams& p) {
  if (split.tokens8 == 2) return Launch(context, shape, GemvRingKernel<T, 2, ROWS8, false>, p);
  return split.staged ? Launch(context, shape, GemvRingKernel<T, 1, ROWS8, true>, p)
                      : Launch(context, shape, GemvRingKernel<T, 1, ROWS8, false>, p);
}

template <typename T>
CudaError LaunchInstance(const LaunchContext& context, const LaunchShape& shape,
                         const GemvSplit& split, const GemvRingKernelParams& p) {
  return split.rows8 == 1 ? LaunchTiles<T, 1>(context, shape, split, p)
                          : LaunchTiles<T, 2>(context, shape, split, p);
}

}  // namespace
}  // namespace gemv_ring

bool GemvTakesRing(const LaunchContext& context, const Matrix& weight) {
  // The ring counts elements of the matrix in 32 bits.
  return weight.num_in % kChunk == 0 && weight.num_out * weight.num_in < int64_t{1} << 32 &&
         weight.num_out * weight.num_in * 2 >= context.ring_bytes_min;
}

// The blocks of the next product copy the beginnings of their first tiles' rows before they wait:
// so first the ends of those rows, or the rows after them if the beginnings are all.
GemvNext NextOfGemv(const LaunchContext& context, const Matrix* next, int64_t num_tokens) {
  using namespace gemv_ring;  // NOLINT: this file's own
  if (next == nullptr || next->storage == nullptr || !GemvTakesRing(context, *next)) return {};
  const GemvSplit split = ChooseSplit(context, next->num_out,
                                      {.num_tokens = static_cast<int>(num_tokens),
                                       .num_in = static_cast<int>(next->num_in),
                                       .stride = GemvInputStride(next->num_in)});
  const int64_t tile_rows = int64_t{split.blocks} * 8 * split.rows8;
  const int64_t loaded = int64_t{kWarps} * kStages * kCopies / split.rows8 * kGroup;
  const int64_t row_bytes = next->num_in * 2, bytes_max = context.prefetch_bytes;
  int64_t row = 0, rows = std::min(next->num_out, tile_rows), num_bytes = row_bytes;
  if (loaded < next->num_in) {
    num_bytes = std::min(row_bytes, bytes_max / rows / kLineBytes * kLineBytes);
  } else {
    rows = std::min(next->num_out, bytes_max / row_bytes);
    row = std::min(tile_rows, next->num_out - rows);
  }
  if (rows == 0 || num_bytes == 0) return {};
  return {
      .begin = static_cast<const uint8_t*>(next->storage.get()) + (row + 1) * row_bytes - num_bytes,
      .rows = static_cast<int>(rows),
      .stride = static_cast<int>(row_bytes),
      .bytes = static_cast<int>(num_bytes)};
}

CudaError LaunchGemvRing(const LaunchContext& context, const ProductParams& params,
                         const void* weight) {
  using namespace gemv_ring;  // NOLINT: this file's own
  const LinearParams& linear = params.linear;
  const int64_t num_out = linear.weight->num_out, num_in = linear.weight->num_in;
  MINISGL_CHECK(num_out * num_in < int64_t{1} << 32, "a matrix of {} elements", num_out * num_in);
  GemvRingKernelParams p = {.weight = static_cast<const uint16_t*>(weight),
                            .input = MakeGemvInput(params),
                            .end = MakeProductEnd(params),
                            .num_tiles = 0,
                            .next = NextOfGemv(context, linear.next, linear.num_tokens)};
  const GemvSplit split = ChooseSplit(context, num_out, p.input);
  const int64_t tile_rows = 8 * split.rows8;
  p.num_tiles =
      static_cast<int>(p.end.num_pairs > 0 ? CeilDiv<int64_t>(p.end.num_pairs, tile_rows / 2)
                                           : CeilDiv(num_out, tile_rows));
  const LaunchShape shape = {.grid = {static_cast<unsigned>(std::min(p.num_tiles, split.blocks))},
                             .block = {kThreads},
                             .shared_bytes = split.shared_bytes,
                             .programmatic = true};
  return DispatchHalf(linear.x.dtype,
                      [&]<typename T>() { return LaunchInstance<T>(context, shape, split, p); });
}

}  // namespace minisgl::cuda
