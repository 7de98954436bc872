// Products of few rows with large matrices (gemv_ring.cu) by kernels that are made for what stands
// behind the sums (gemv_ends.cu), and by kernels whose warps copy whole lines of the weights' rows.
// bf16, tiles of 16 rows.
//
// Whole lines (COPIES 4): a step of K is 64 elements, so that the halves of a line of 128 bytes are
// asked for by one warp, one right after the other. Sums are then of other steps, so every product
// of the matrix takes this form, whatever its number of tokens; otherwise the bits are those of
// gemv_ring.cu.
#include "kernels/gemv_ring_tile.cuh"
#include "kernels/launch.h"

namespace minisgl::cuda {
namespace gemv_ring {
namespace {

struct GemvRingEndKernelParams {
  GemvRingKernelParams product;
  FarWeights far;
};

// The compiler's limit: 64, 80 and 128 registers for each thread.
constexpr int BlocksOf(int tokens8, int copies) {
  return tokens8 == 2 ? 2 : copies == kCopies ? 4 : 3;
}

// Grid, block, shared memory and traffic: GemvRingKernel's; with whole lines the ring is 48 KB.
// What is far is fetched behind the last store.
template <int TOKENS8, bool STAGED, int COPIES, EndKind END, bool HINT>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kThreads, BlocksOf(TOKENS8, COPIES))
    GemvRingEndKernel(GemvRingEndKernelParams params) {
  using T = device::bf16;
  using Form = RingForm<2, COPIES, HINT>;
  constexpr int ROWS8 = Form::kRows8;
  const GemvRingKernelParams& p = params.product;
  constexpr int kStep = Form::kGroups * kGroup;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_steps = (p.input.num_in + kStep - 1) / kStep;
  SharedArena arena;
  WeightRing<Form, END> ring(p, arena, num_steps);
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
    const GemvPlace place = PlaceOfGemv<ROWS8, END>(p.end, p.input.num_tokens, tile);
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
    WriteGemvPlace<T, TOKENS8, ROWS8, END, kWarps>(p.end, place, tile_sums);
    parity ^= 1;
  }
  FetchFar(params.far);
}

struct Queued {
  const LaunchContext& context;
  const LaunchShape& shape;
  const GemvRingEndKernelParams& params;
};

template <int TOKENS8, bool STAGED, int COPIES, EndKind END>
CudaError LaunchEnd(const Queued& q) {
  return q.context.l2_hint
             ? Launch(q.context, q.shape, GemvRingEndKernel<TOKENS8, STAGED, COPIES, END, true>,
                      q.params)
             : Launch(q.context, q.shape, GemvRingEndKernel<TOKENS8, STAGED, COPIES, END, false>,
                      q.params);
}

template <int COPIES>
CudaError LaunchStaged(const Queued& q) {
  const EndKind kind = q.context.product_ends ? KindOfEnd(q.params.product.end) : EndKind::kAny;
  switch (kind) {
    case EndKind::kStore:
      return LaunchEnd<1, true, COPIES, EndKind::kStore>(q);
    case EndKind::kAdd:
      return LaunchEnd<1, true, COPIES, EndKind::kAdd>(q);
    case EndKind::kGatedSilu:
      return LaunchEnd<1, true, COPIES, EndKind::kGatedSilu>(q);
    case EndKind::kAny:
      break;
  }
  return LaunchEnd<1, true, COPIES, EndKind::kAny>(q);
}

}  // namespace

CudaError LaunchGemvRingEnds(const LaunchContext& context, const LaunchShape& shape,
                             const GemvSplit& split, const GemvRingKernelParams& product,
                             const FarWeights& far) {
  const GemvRingEndKernelParams params = {.product = product, .far = far};
  const Queued queued = {.context = context, .shape = shape, .params = params};
  if (!context.whole_lines) return LaunchStaged<kCopies>(queued);
  if (split.staged) return LaunchStaged<kLineCopies>(queued);
  return split.tokens8 == 2 ? LaunchEnd<2, false, kLineCopies, EndKind::kAny>(queued)
                            : LaunchEnd<1, false, kLineCopies, EndKind::kAny>(queued);
}

}  // namespace gemv_ring
}  // namespace minisgl::cuda
