// Matrix times few vectors: out[T, N] = x[T, K] * weight[N, K]^T + bias for T <= 16, with what
// stands before and behind it: x may be the norm of the residual stream (gemv_input.h), and the
// sums may be activated, or added to that stream. Bound by reading the weights once.
//
// An element's result does not depend on the number of tokens: the rows of a product do not
// interact, and the division of K is a function of (N, K) only. What stands around a product
// changes no bit either (gemv_input.h, product_end.h).
//
// Products: tensor cores, mma m16n8k16, with x as the first operand (its 16 rows are tokens, those
// past the last zero) and 8 rows of the weights as the second. There are instances for at most 8
// tokens, which pass zeros as rows 8 to 15, and for at most 16. Products, loads of weights and
// order of sums are the same in both. A step of K needs no shuffles: the order of k within a
// product is free if both operands have the same, so a lane passes the 8 consecutive elements that
// it loads with 16 bytes (lane 4 g + q: elements 8 q ... of row g), as two products of 4 elements
// each. Lanes then read 64 bytes of each of 8 rows: whole sectors.
//
// Division: a block takes tiles of 8 * ROWS8 rows of the weights. Its 8 warps share a tile's K in
// steps of 32 * kGroups elements, step s to warp s % 8, and their sums are added in the order of
// the warps.
//
// Loads in flight (Little's law): 4.8 TB/s * 0.9 us / 132 multiprocessors = 33 KB are needed on
// each. A lane copies its part of the weights to a place of its own in shared memory: a ring of
// kStages steps, 8 copies of 16 bytes, 32 KB for a block. No thread reads another's copy, so the
// ring needs no barriers, and a copy is issued as soon as its place has been used, also for the
// next tile: the end of a tile (a barrier, the sum over warps) does not drain the ring.
//
// Neighbours: in a decode step most kernels are products, each of which waits for the one before
// it. A block has 64 registers for each thread and about 45 KB of shared memory, so that four fit
// on a multiprocessor, and no product takes more than three: blocks of the next product begin, and
// fill their rings, while this one computes.
//
// The next product's weights: a block that begins its last tile (before GridWait if that is its
// first) asks for its share of a part of them in the second-level cache, behind its own copies. All
// blocks ask: one multiprocessor is too slow, and other kernels in between have few blocks. The
// part is what the next product does not copy before its own GridWait, then what it does; no more
// than context.prefetch_bytes.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/gemv_input.h"
#include "kernels/kernels.h"
#include "kernels/product_end.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace gemv {
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

struct GemvKernelParams {
  const uint16_t* weight;  // [N, K]
  GemvInput input;
  ProductEnd end;
  int num_tiles;
  // A part of the next product's weights, to be fetched into the second-level cache: next_bytes
  // from next on, and the same of each row after it.
  const uint8_t* next;
  int next_rows;    // 0: nothing
  int next_stride;  // bytes; a multiple of 16
  int next_bytes;   // a multiple of 16
};

using Words = Vec<uint32_t, 4>;  // 8 elements

// Elements [at, at + 8) of a row of `left` elements, zeros from there on. For rows that are not
// aligned.
MINISGL_DEVICE Words LoadElements(const uint16_t* from, int at, int left) {
  Words words = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t element = at + i < left ? from[at + i] : 0;
    words[i / 2] |= element << (i % 2 * 16);
  }
  return words;
}

// The first element of a step that is this lane's.
template <int ROWS8>
MINISGL_DEVICE int StepBegin(int step) {
  return step * kGroups<ROWS8> * kGroup + static_cast<int>(threadIdx.x) % 4 * 8;
}

// The weights of this lane, step by step. ALIGNED: K is a multiple of 8 and rows begin at multiples
// of 16 bytes; else there is no ring.
template <int ROWS8, bool ALIGNED>
class WeightRing {
 public:
  MINISGL_DEVICE WeightRing(const GemvKernelParams& p, SharedArena& arena, int num_steps)
      : num_steps_(num_steps) {
    if constexpr (ALIGNED) {
      ring_ = arena.Take<uint32_t>(kStages * kCopies * kThreads * 4) +
              static_cast<int>(threadIdx.x) * 4;
    }
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    tile_ = warp < num_steps ? static_cast<int>(blockIdx.x) : p.num_tiles;
    step_ = warp;
  }

  // Begins the copies of the next step into `stage`. An empty group past the end.
  MINISGL_DEVICE void Copy(const GemvKernelParams& p, int stage) {
    if constexpr (ALIGNED) {
      if (tile_ < p.num_tiles) CopyStep(p, stage);
      device::CopyAsyncCommit();
    }
  }

  // What Copy wrote to `stage`, the oldest of kStages. REQUIRES CopyAsyncWait<kStages - 1>.
  MINISGL_DEVICE Words Load(int stage, int group, int n) const {
    return device::LoadShared<4>(ring_ + (stage * kCopies + group * ROWS8 + n) * kThreads * 4);
  }

 private:
  MINISGL_DEVICE void CopyStep(const GemvKernelParams& p, int stage) {
    const int k = StepBegin<ROWS8>(step_);
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      const int row =
          RowOfTile<8 * ROWS8>(p.end, tile_, n * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4);
      const uint16_t* const from = p.weight + int64_t{row} * p.input.num_in + k;
#pragma unroll
      for (int group = 0; group < kGroups<ROWS8>; ++group) {
        device::CopyAsync16(ring_ + (stage * kCopies + group * ROWS8 + n) * kThreads * 4,
                            reinterpret_cast<const uint32_t*>(from + group * kGroup),
                            k + group * kGroup < p.input.num_in);
      }
    }
    step_ += kWarps;
    if (step_ >= num_steps_) {
      step_ = static_cast<int>(threadIdx.x) / kWarpSize;
      tile_ += static_cast<int>(gridDim.x);
    }
  }

  const int num_steps_;
  Shared<uint32_t> ring_;
  int tile_, step_;  // copied next
};

// The elements of x of one step, as the first operand of its products.
template <int TOKENS8, int ROWS8>
struct StepInput {
  Words words[kGroups<ROWS8>][TOKENS8];
};

// ALIGNED as for WeightRing. STAGED: x is in shared memory.
template <int TOKENS8, int ROWS8, bool ALIGNED, bool STAGED>
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
        if constexpr (ALIGNED) {
          x.words[group][m] = device::LoadVec<4>(reinterpret_cast<const uint32_t*>(row + at));
        } else {
          x.words[group][m] = LoadElements(row, at, p.num_in);
        }
      }
    }
  }
}

// Sums in two independent chains of products: of the first 4 elements of each lane's 8, and of the
// last 4.
template <int ROWS8>
struct Sums {
  float chain[ROWS8][2][4];
};

template <typename T, int TOKENS8, int ROWS8>
MINISGL_DEVICE void Multiply(const Words (&x)[TOKENS8], const Words& weight, int n,
                             Sums<ROWS8>& sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t a[4] = {x[0][2 * half], 0, x[0][2 * half + 1], 0};
    if constexpr (TOKENS8 == 2) {
      a[1] = x[1][2 * half];
      a[3] = x[1][2 * half + 1];
    }
    const uint32_t b[2] = {weight[2 * half], weight[2 * half + 1]};
    device::Mma16816<T>(sums.chain[n][half], a, b);
  }
}

// The warps' sums of a tile: [warps][tokens][rows].
template <int TOKENS8, int ROWS8>
constexpr int kTileSums = 8 * TOKENS8 * 8 * ROWS8;

template <int TOKENS8, int ROWS8>
MINISGL_DEVICE void StoreSums(const Sums<ROWS8>& sums, Shared<float> partial) {
  constexpr int kRows = 8 * ROWS8;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize;
  const Shared<float> mine =
      partial + (thread / kWarpSize * kTileSums<TOKENS8, ROWS8> + lane / 4 * kRows + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < TOKENS8; ++m) {
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      const int at = 8 * m * kRows + n * 8;
      mine[at] = sums.chain[n][0][2 * m] + sums.chain[n][1][2 * m];
      mine[at + 1] = sums.chain[n][0][2 * m + 1] + sums.chain[n][1][2 * m + 1];
    }
  }
}

// An output element of this thread, if it has one.
struct OutPlace {
  bool valid;
  int token, row;  // row of the weights; of a gate, if outputs are gated
  int64_t at;      // index in `out` or `residual`
  int partial;     // index in a warp's sums
};

template <int TOKENS8, int ROWS8>
MINISGL_DEVICE OutPlace PlaceOf(const GemvKernelParams& p, int tile) {
  const int tile_rows = p.end.num_pairs > 0 ? 4 * ROWS8 : 8 * ROWS8, width = p.end.width();
  const int thread = static_cast<int>(threadIdx.x), token = thread / tile_rows;
  const int r = thread % tile_rows, row = tile * tile_rows + r;
  return {.valid = token < p.input.num_tokens && row < width,
          .token = token,
          .row = row,
          .at = token * p.end.stride + row,
          .partial = token * 8 * ROWS8 + r};
}

// The sum over warps, in their order, and the bias.
template <int TOKENS8, int ROWS8>
MINISGL_DEVICE float SumWarps(const GemvKernelParams& p, Shared<float> partial, int row) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += partial[warp * kTileSums<TOKENS8, ROWS8>];
  return AddBias(p.end, sum, row);
}

// Writes the elements of a tile. `before`: that of the residual stream at `place`.
template <typename T, int TOKENS8, int ROWS8>
MINISGL_DEVICE void WriteTile(const GemvKernelParams& p, const OutPlace& place,
                              Shared<float> partial, float before) {
  if (!place.valid) return;
  const float sum = SumWarps<TOKENS8, ROWS8>(p, partial + place.partial, place.row);
  float up = 0;
  if (p.end.num_pairs > 0) {
    up = SumWarps<TOKENS8, ROWS8>(p, partial + (place.partial + 4 * ROWS8),
                                  place.row + p.end.num_pairs);
  }
  StoreProduct<T>(p.end, place.at, sum, up, before);
}

// Blocks take rows in turn, so that all ask for about as many.
MINISGL_DEVICE void PrefetchNext(const GemvKernelParams& p) {
  const int blocks = static_cast<int>(gridDim.x);
  for (int row = static_cast<int>(threadIdx.x) * blocks + static_cast<int>(blockIdx.x);
       row < p.next_rows; row += blocks * static_cast<int>(blockDim.x)) {
    device::PrefetchL2(p.next + int64_t{row} * p.next_stride, static_cast<uint32_t>(p.next_bytes));
  }
}

// The compiler's limit: 64, 80 and 128 registers for each thread.
constexpr int BlocksByRegisters(bool aligned, bool staged) { return staged ? 4 : aligned ? 3 : 2; }

// Grid (tiles, but at most the blocks that run at once), block 256; a block takes tiles b, b + grid
// and so on. Shared memory: the ring, two tiles' sums in turn, so that one barrier for each tile is
// enough (4 to 16 KB), and x where it is staged. A tile has at most as many elements as the block
// threads. Traffic: 2 * N * K bytes, and 2 * T * K of x for each block, or each tile if x is not
// staged. 2 * 16 * N * K operations of the tensor cores. The first weights are copied before
// GridWait.
template <typename T, int TOKENS8, int ROWS8, bool ALIGNED, bool STAGED>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kThreads, BlocksByRegisters(ALIGNED, STAGED))
    GemvKernel(GemvKernelParams p) {
  constexpr int kStep = kGroups<ROWS8> * kGroup;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_steps = (p.input.num_in + kStep - 1) / kStep;
  SharedArena arena;
  WeightRing<ROWS8, ALIGNED> ring(p, arena, num_steps);
  const Shared<float> partial = arena.Take<float>(2 * kWarps * kTileSums<TOKENS8, ROWS8>);
  GemvInputMemory memory;
  if constexpr (STAGED) {
    memory = TakeGemvInput(p.input, arena);
    LoadGemvInputEarly(p.input, memory);
  }
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) ring.Copy(p, stage);
  const int blocks = static_cast<int>(gridDim.x);
  if (static_cast<int>(blockIdx.x) + blocks >= p.num_tiles) PrefetchNext(p);
  device::GridRelease();
  device::GridWait();

  if constexpr (STAGED) {
    device::CopyAsyncWait<kStages - 1>();
    StageGemvInput<T>(p.input, memory);
  }
  int parity = 0, stage = 0;
  StepInput<TOKENS8, ROWS8> x, next_x;
  if constexpr (ALIGNED && !STAGED) {
    if (warp < num_steps)
      LoadInput<TOKENS8, ROWS8, ALIGNED, STAGED>(p.input, memory.x, warp, next_x);
  }
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    if (tile >= blocks && tile + blocks >= p.num_tiles) PrefetchNext(p);
    const OutPlace place = PlaceOf<TOKENS8, ROWS8>(p, tile);
    float before = 0;
    if (p.end.residual != nullptr && place.valid) before = p.end.residual[place.at];
    Sums<ROWS8> sums = {};
    for (int step = warp; step < num_steps; step += kWarps) {
      if constexpr (ALIGNED && !STAGED) {
        x = next_x;
        const int next_step = step + kWarps < num_steps ? step + kWarps : warp;
        LoadInput<TOKENS8, ROWS8, ALIGNED, STAGED>(p.input, memory.x, next_step, next_x);
      } else {
        LoadInput<TOKENS8, ROWS8, ALIGNED, STAGED>(p.input, memory.x, step, x);
      }
      if constexpr (ALIGNED) device::CopyAsyncWait<kStages - 1>();
#pragma unroll
      for (int group = 0; group < kGroups<ROWS8>; ++group) {
#pragma unroll
        for (int n = 0; n < ROWS8; ++n) {
          Words words;
          if constexpr (ALIGNED) {
            words = ring.Load(stage, group, n);
          } else {
            const int row = RowOfTile<8 * ROWS8>(
                p.end, tile, n * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4);
            words = LoadElements(p.weight + int64_t{row} * p.input.num_in,
                                 StepBegin<ROWS8>(step) + group * kGroup, p.input.num_in);
          }
          Multiply<T>(x.words[group], words, n, sums);
        }
      }
      ring.Copy(p, stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    const Shared<float> tile_sums = partial + parity * kWarps * kTileSums<TOKENS8, ROWS8>;
    StoreSums<TOKENS8, ROWS8>(sums, tile_sums);
    __syncthreads();  // all warps' sums are written
    WriteTile<T, TOKENS8, ROWS8>(p, place, tile_sums, before);
    parity ^= 1;
  }
}

// The division of a matrix, the instance that computes it, and how many blocks run at once.
struct GemvSplit {
  bool aligned;
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
  GemvSplit split = {.aligned = input.num_in % 8 == 0,
                     .staged = false,
                     .rows8 = 1,
                     .tokens8 = input.num_tokens <= 8 ? 1 : 2,
                     .shared_bytes = 0,
                     .blocks = 0};
  if (split.aligned && num_out >= 4096) split.rows8 = 2;
  split.shared_bytes =
      size_t{2} * kWarps * static_cast<size_t>(64 * split.rows8 * split.tokens8) * sizeof(float);
  if (split.aligned) split.shared_bytes += size_t{kStages} * kCopies * kThreads * 16;
  split.staged = split.aligned && split.tokens8 == 1 &&
                 int64_t{input.num_tokens} * input.num_in <= kGemvStagedMax;
  if (split.staged) split.shared_bytes += GemvInputBytes(input);
  split.blocks =
      ChooseBlocks(context, CeilDiv<int64_t>(num_out, 8 * split.rows8), split.shared_bytes);
  return split;
}

// Sets the part of `next` (null: none) to fetch. The blocks of its product copy the beginnings of
// their first tiles' rows before they wait: so first the ends of those rows, or the rows after
// them if the beginnings are all.
void SetNext(const LaunchContext& context, const Matrix* next, GemvKernelParams* p) {
  if (next == nullptr || next->storage == nullptr || next->num_in % 8 != 0) return;
  GemvInput input = p->input;
  input.num_in = static_cast<int>(next->num_in);
  input.stride = GemvInputStride(next->num_in);
  const GemvSplit split = ChooseSplit(context, next->num_out, input);
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
  if (rows == 0 || num_bytes == 0) return;
  p->next = static_cast<const uint8_t*>(next->storage.get()) + (row + 1) * row_bytes - num_bytes;
  p->next_rows = static_cast<int>(rows);
  p->next_stride = static_cast<int>(row_bytes);
  p->next_bytes = static_cast<int>(num_bytes);
}

template <typename T, int ROWS8>
CudaError LaunchAligned(const LaunchContext& context, const LaunchShape& shape,
                        const GemvSplit& split, const GemvKernelParams& p) {
  if (split.tokens8 == 2) return Launch(context, shape, GemvKernel<T, 2, ROWS8, true, false>, p);
  return split.staged ? Launch(context, shape, GemvKernel<T, 1, ROWS8, true, true>, p)
                      : Launch(context, shape, GemvKernel<T, 1, ROWS8, true, false>, p);
}

template <typename T>
CudaError LaunchInstance(const LaunchContext& context, const LaunchShape& shape,
                         const GemvSplit& split, const GemvKernelParams& p) {
  if (!split.aligned) {
    return split.tokens8 == 1 ? Launch(context, shape, GemvKernel<T, 1, 1, false, false>, p)
                              : Launch(context, shape, GemvKernel<T, 2, 1, false, false>, p);
  }
  return split.rows8 == 1 ? LaunchAligned<T, 1>(context, shape, split, p)
                          : LaunchAligned<T, 2>(context, shape, split, p);
}

}  // namespace
}  // namespace gemv

bool GemvTakesNorm(const NormParams& norm) {
  // Each block normalises all tokens: of more of them, one kernel for all takes less time.
  constexpr int64_t kElementsMax = 4096;
  const bool whole = norm.group_width == 0 || norm.group_width == norm.width;
  return norm.kind == NormKind::kRms && norm.x == nullptr && norm.residual != nullptr &&
         norm.weight != nullptr && norm.bias == nullptr && norm.residual_factor == 1 && whole &&
         norm.width % kChunk == 0 && norm.width <= kGemvNormWidthMax && norm.num_tokens <= 8 &&
         norm.num_tokens * norm.width <= std::max(kElementsMax, norm.width) &&
         IsAligned16(norm.residual) && IsAligned16(norm.weight);
}

bool ProductTakesActivation(const ActivateParams& p) {
  return p.activation != Activation::kGelu && p.activation != Activation::kSigmoid &&
         p.up == nullptr && p.gate_scale == 1 && p.out.dtype != DType::kF32;
}

CudaError LaunchGemv(const LaunchContext& context, const ProductParams& params,
                     const void* weight) {
  using namespace gemv;  // NOLINT: this file's own
  const LinearParams& linear = params.linear;
  MINISGL_CHECK(linear.num_tokens <= kGemvTokensMax, "{} tokens; at most {}", linear.num_tokens,
                kGemvTokensMax);
  const int64_t num_out = linear.weight->num_out, num_in = linear.weight->num_in;
  GemvKernelParams p = {};
  p.weight = static_cast<const uint16_t*>(weight);
  p.input = {.x = linear.x.as<uint16_t>(),
             .num_tokens = static_cast<int>(linear.num_tokens),
             .num_in = static_cast<int>(num_in),
             .stride = GemvInputStride(num_in)};
  p.end = MakeProductEnd(params);
  SetNext(context, linear.next, &p);
  if (params.norm != nullptr) {
    MINISGL_CHECK(GemvTakesNorm(*params.norm), "a norm that no product begins with");
    p.input.stream = params.norm->residual;
    p.input.norm_weight = params.norm->weight;
    p.input.norm_eps = params.norm->eps;
  }
  const GemvSplit split = ChooseSplit(context, num_out, p.input);
  const int64_t tile_rows = 8 * split.rows8;
  p.num_tiles =
      static_cast<int>(p.end.num_pairs > 0 ? CeilDiv<int64_t>(p.end.num_pairs, tile_rows / 2)
                                           : CeilDiv(num_out, tile_rows));
  const LaunchShape shape = {
      .grid = {linear.num_tokens == 0 ? 0u
                                      : static_cast<unsigned>(std::min(p.num_tiles, split.blocks))},
      .block = {kThreads},
      .shared_bytes = split.shared_bytes,
      .programmatic = true};
  MINISGL_CHECK(!split.aligned || (IsAligned16(weight) && IsAligned16(p.input.x)),
                "matrices must begin at multiples of 16 bytes");
  return DispatchHalf(linear.x.dtype,
                      [&]<typename T>() { return LaunchInstance<T>(context, shape, split, p); });
}

}  // namespace minisgl::cuda
