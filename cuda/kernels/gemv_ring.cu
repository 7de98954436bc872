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

#include "kernels/dispatch.h"
#include "kernels/gemv_ring_tile.cuh"

namespace minisgl::cuda {
namespace gemv_ring {
namespace {

constexpr int64_t kLineBytes = 128;  // bytes of a line of the second-level cache

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
  using Form = RingForm<ROWS8, kCopies, false>;
  constexpr int kStep = Form::kGroups * kGroup;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_steps = (p.input.num_in + kStep - 1) / kStep;
  SharedArena arena;
  WeightRing<Form, EndKind::kAny> ring(p, arena, num_steps);
  const Shared<float> partial = arena.Take<float>(2 * kWarps * kGemvTileSums<TOKENS8, ROWS8>);
  GemvInputMemory memory;
  if constexpr (STAGED) {
    memory = TakeGemvInput(p.input, arena);
    LoadGemvInputEarly(p.input, memory);
  }
#pragma unroll
  for (int stage = 0; stage < Form::kStages; ++stage) ring.Copy(p, stage);
  const int blocks = static_cast<int>(gridDim.x);
  if (static_cast<int>(blockIdx.x) + blocks >= p.num_tiles) PrefetchNext(p.next);
  device::GridRelease();
  device::GridWait();

  if constexpr (STAGED) {
    device::CopyAsyncWait<Form::kStages - 1>();
    StageGemvInput<T>(p.input, memory);
  }
  int parity = 0, stage = 0;
  StepInput<Form, TOKENS8> x, next_x;
  if constexpr (!STAGED) {
    if (warp < num_steps) LoadInput<Form, TOKENS8, STAGED>(p.input, memory.x, warp, next_x);
  }
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    if (tile >= blocks && tile + blocks >= p.num_tiles) PrefetchNext(p.next);
    const GemvPlace place = PlaceOfGemv<ROWS8>(p.end, p.input.num_tokens, tile);
    GemvSums<ROWS8> sums = {};
    for (int step = warp; step < num_steps; step += kWarps) {
      if constexpr (!STAGED) {
        x = next_x;
        const int next_step = step + kWarps < num_steps ? step + kWarps : warp;
        LoadInput<Form, TOKENS8, STAGED>(p.input, memory.x, next_step, next_x);
      } else {
        LoadInput<Form, TOKENS8, STAGED>(p.input, memory.x, step, x);
      }
      device::CopyAsyncWait<Form::kStages - 1>();
#pragma unroll
      for (int group = 0; group < Form::kGroups; ++group) {
#pragma unroll
        for (int n = 0; n < ROWS8; ++n) {
          MultiplyGemvWords<T>(x.words[group], ring.Load(stage, group, n), n, sums);
        }
      }
      ring.Copy(p, stage);
      stage = stage + 1 == Form::kStages ? 0 : stage + 1;
    }
    const Shared<float> tile_sums = partial + parity * kWarps * kGemvTileSums<TOKENS8, ROWS8>;
    StoreGemvSums<TOKENS8, ROWS8>(sums, tile_sums);
    __syncthreads();  // all warps' sums are written
    WriteGemvPlace<T, TOKENS8, ROWS8>(p.end, place, tile_sums);
    parity ^= 1;
  }
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
                                       .stride = GemvInputStride(next->num_in)},
                                      next->dtype);
  const int64_t tile_rows = int64_t{split.blocks} * 8 * split.rows8;
  const int64_t loaded =
      int64_t{kWarps} * RingForm<1, kCopies, false>::kStages * kCopies / split.rows8 * kGroup;
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
  const GemvSplit split = ChooseSplit(context, num_out, p.input, linear.x.dtype);
  const int64_t tile_rows = 8 * split.rows8;
  p.num_tiles =
      static_cast<int>(p.end.num_pairs > 0 ? CeilDiv<int64_t>(p.end.num_pairs, tile_rows / 2)
                                           : CeilDiv(num_out, tile_rows));
  const LaunchShape shape = {.grid = {static_cast<unsigned>(std::min(p.num_tiles, split.blocks))},
                             .block = {kThreads},
                             .shared_bytes = split.shared_bytes,
                             .programmatic = true};
  const FarWeights far = FarOf(context, linear);
  if (TakesEnds(context, split, linear.x.dtype, far)) {
    return LaunchGemvRingEnds(context, shape, split, p, far);
  }
  return DispatchHalf(linear.x.dtype,
                      [&]<typename T>() { return LaunchInstance<T>(context, shape, split, p); });
}

}  // namespace minisgl::cuda
