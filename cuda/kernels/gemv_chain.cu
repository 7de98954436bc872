// A chain of products of few rows in one kernel: each phase is one product with what stands around
// it (gemv.cu), and begins when all blocks have ended the phase before it.
//
// The bits are the ones that separate kernels give: an element's sum has the order of gemv.cu or
// gemv_ring.cu, whichever takes the matrix, which is a function of (N, K) only. A tile has 8 rows
// of the weights. Its K is divided among 8 or 16 warps, run by run of neighbouring groups of 32
// inputs, run r to warp r % warps. Where 8 warps share a tile, the block has two tiles at a time.
//
// Loads in flight: a lane copies its part of the weights to places of its own in shared memory, a
// ring of kStages copies of 16 bytes, 96 KB for a block. The ring walks through all tiles of all
// phases without a stop, so that while blocks meet and x is staged memory goes on: 132 blocks have
// 12.7 MB under way, 3 us of it. The first copies begin before GridWait.
//
// Meeting: all blocks run at once, one on each multiprocessor. They count their arrivals in one
// word, whose uppermost bit changes when all have come: block 0 adds what the others leave of 2^31,
// so that the word needs no reset. Later kernels may begin in the last phase only, when every block
// has its place: before, their blocks could take the places of blocks that the others wait for.
#include <algorithm>
#include <span>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/gemv_chain.h"
#include "kernels/gemv_input.h"
#include "kernels/gemv_parts.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace gemv_chain {
namespace {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;

constexpr int kWarps = 16, kThreads = kWarps * kWarpSize;
constexpr int kStages = 12;
constexpr int kGroup = 32;  // elements of a row that 4 lanes load at once
constexpr int kTileRows = 8, kTileTokens = 8;
constexpr int kTile = kGemvTileSums<1, 1>;
constexpr uint32_t kAllCame = 0x80000000;

struct Phase {
  const uint16_t* weight = nullptr;  // [N, K]
  GemvInput input;
  ProductEnd end;
  int num_tiles = 0;
  int num_warps = 0;  // that share a tile: 8 or 16
  int run = 0;        // groups
};

struct GemvChainKernelParams {
  Phase phases[kChainProductsMax];
  int num_phases;
  // Room for x and for sums of its squares, of any phase.
  int x_words, num_sums;
  uint32_t* arrived;
};

// This warp's share of a phase's tiles.
struct WarpShare {
  int first_tile;  // of the block's two or one at a time the warp's
  int tiles_apart;
  int warp;  // index among the warps of its tile

  MINISGL_DEVICE explicit WarpShare(const Phase& phase) {
    const int of_block = static_cast<int>(threadIdx.x) / kWarpSize;
    const int at_once = kWarps / phase.num_warps;
    warp = of_block % phase.num_warps;
    first_tile = static_cast<int>(blockIdx.x) * at_once + of_block / phase.num_warps;
    tiles_apart = static_cast<int>(gridDim.x) * at_once;
  }
};

MINISGL_DEVICE int LaneInput() { return static_cast<int>(threadIdx.x) % 4 * kChunk; }
MINISGL_DEVICE int LaneRow() { return static_cast<int>(threadIdx.x) % kWarpSize / 4; }

// The weights of this lane, group by group, through all phases.
class ChainRing {
 public:
  MINISGL_DEVICE ChainRing(const GemvChainKernelParams& p, SharedArena& arena)
      : ring_(arena.Take<uint32_t>(kStages * kThreads * 4) + static_cast<int>(threadIdx.x) * 4) {
    BeginPhase(p);
    FindTile(p);
  }

  // Begins the copy of the next group into `stage`. An empty group of copies past the end.
  MINISGL_DEVICE void Copy(const GemvChainKernelParams& p, int stage) {
    if (phase_ < p.num_phases) {
      device::CopyAsync16(ring_ + stage * kThreads * 4, reinterpret_cast<const uint32_t*>(from_),
                          k_ + LaneInput() < num_in_);
      Advance(p);
    }
    device::CopyAsyncCommit();
  }

  // What Copy wrote to `stage`, the oldest. REQUIRES CopyAsyncWait<kStages - 1>.
  MINISGL_DEVICE GemvWords Load(int stage) const {
    return device::LoadShared<4>(ring_ + stage * kThreads * 4);
  }

 private:
  MINISGL_DEVICE void BeginPhase(const GemvChainKernelParams& p) {
    if (phase_ >= p.num_phases) return;
    const Phase& phase = p.phases[phase_];
    const WarpShare share(phase);
    num_in_ = phase.input.num_in;
    run_ = phase.run;
    skipped_ = (phase.num_warps - 1) * phase.run * kGroup;
    first_k_ = share.warp * phase.run * kGroup;
    tile_ = share.first_tile;
    tiles_apart_ = share.tiles_apart;
  }

  // Goes on to the next phase while this warp has no group of the tile.
  MINISGL_DEVICE void FindTile(const GemvChainKernelParams& p) {
    while (phase_ < p.num_phases && (tile_ >= p.phases[phase_].num_tiles || first_k_ >= num_in_)) {
      ++phase_;
      BeginPhase(p);
    }
    if (phase_ >= p.num_phases) return;
    const Phase& phase = p.phases[phase_];
    const int row = RowOfTile<kTileRows>(phase.end, tile_, LaneRow());
    k_ = first_k_;
    left_ = run_;
    from_ = phase.weight + int64_t{row} * num_in_ + k_ + LaneInput();
  }

  MINISGL_DEVICE void Advance(const GemvChainKernelParams& p) {
    int step = kGroup;
    if (--left_ == 0) {
      left_ = run_;
      step += skipped_;
    }
    k_ += step;
    from_ += step;
    if (k_ < num_in_) return;
    tile_ += tiles_apart_;
    FindTile(p);
  }

  const Shared<uint32_t> ring_;
  // What is copied next.
  int phase_ = 0;
  int tile_ = 0, tiles_apart_ = 0;
  int k_ = 0, first_k_ = 0, num_in_ = 0;
  int left_ = 0, run_ = 0, skipped_ = 0;  // groups of the run, and inputs between two runs
  const uint16_t* from_ = nullptr;
};

// This lane's elements of x of a group; zeros past the last token and input.
MINISGL_DEVICE GemvWords LoadChainX(const GemvInput& p, Shared<uint32_t> x, int k) {
  const int at = k + LaneInput();
  if (LaneRow() >= p.num_tokens || at >= p.num_in) return GemvWords{};
  return device::LoadShared<4>(x + (LaneRow() * p.stride + at) / 2);
}

// This thread's element of a tile, as PlaceOfGemv finds it, of the warps that share the tile.
MINISGL_DEVICE GemvPlace PlaceOfChain(const Phase& phase, int tile) {
  const ProductEnd& end = phase.end;
  const bool gated = IsGated(end);
  const int thread = static_cast<int>(threadIdx.x) % (phase.num_warps * kWarpSize);
  const int rows = gated ? kTileRows / 2 : kTileRows, shift = gated ? 2 : 3;
  const int token = thread >> shift, r = thread & (rows - 1), row = tile * rows + r;
  GemvPlace place = {
      .valid = tile < phase.num_tiles && token < phase.input.num_tokens && row < end.width(),
      .row = row,
      .at = token * end.stride + row,
      .partial = token * kTileRows + r,
      .before = 0};
  if (place.valid && end.residual != nullptr) place.before = end.residual[place.at];
  return place;
}

// Writes it. `partial`: of the first of these warps.
template <typename T>
MINISGL_DEVICE void WriteChainPlace(const Phase& phase, const GemvPlace& place,
                                    Shared<float> partial) {
  if (!place.valid) return;
  const ProductEnd& end = phase.end;
  float sum = 0, up = 0;
  for (int warp = 0; warp < phase.num_warps; ++warp) sum += partial[warp * kTile + place.partial];
  if (IsGated(end)) {
    for (int warp = 0; warp < phase.num_warps; ++warp) {
      up += partial[warp * kTile + place.partial + kTileRows / 2];
    }
    up = AddBias(end, up, place.row + end.num_pairs);
  }
  StoreProduct<T>(end, place.at, AddBias(end, sum, place.row), up, place.before);
}

// Returns when all threads of all blocks have come; what they stored before can be read.
MINISGL_DEVICE void MeetBlocks(uint32_t* arrived) {
  __syncthreads();  // every thread has stored its outputs
  if (threadIdx.x == 0) {
    device::ThreadFence();  // blocks that see the count see the outputs
    const uint32_t share = blockIdx.x == 0 ? kAllCame - (gridDim.x - 1) : 1;
    const uint32_t before = device::AtomicAddGlobal(arrived, share);
    while (((device::LoadAcquire(arrived) ^ before) & kAllCame) == 0) {
    }
  }
  __syncthreads();  // every block has come
}

// Grid (multiprocessors), block 512, all at once. Shared memory: the ring, two tiles' sums in turn
// (8 KB), and x. Traffic: 2 * N * K bytes, and x from the second-level cache in each block, for
// each product.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kThreads, 1)
    GemvChainKernel(MINISGL_GRID_CONSTANT GemvChainKernelParams p) {
  SharedArena arena;
  ChainRing ring(p, arena);
  const Shared<float> partial = arena.Take<float>(2 * kWarps * kTile);
  GemvInputMemory memory;
  memory.x = arena.Take<uint32_t>(p.x_words);
  memory.sums = arena.Take<float>(p.num_sums);
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) ring.Copy(p, stage);
  device::GridWait();

  int parity = 0, stage = 0;
#pragma unroll 1
  for (int index = 0; index < p.num_phases; ++index) {
    const Phase& phase = p.phases[index];
    if (index > 0) MeetBlocks(p.arrived);
    if (index + 1 == p.num_phases) device::GridRelease();
    StageGemvInput<T, /*EARLY=*/false>(phase.input, memory);
    const WarpShare share(phase);
    const int block_first = static_cast<int>(blockIdx.x) * (kWarps / phase.num_warps);
#pragma unroll 1
    for (int first = block_first; first < phase.num_tiles; first += share.tiles_apart) {
      const int tile = first + share.first_tile - block_first;
      const GemvPlace place = PlaceOfChain(phase, tile);
      GemvSums<1> sums = {};
      if (tile < phase.num_tiles) {
        int left = phase.run;
#pragma unroll 1
        for (int k = share.warp * phase.run * kGroup; k < phase.input.num_in;) {
          const GemvWords x[1] = {LoadChainX(phase.input, memory.x, k)};
          device::CopyAsyncWait<kStages - 1>();
          MultiplyGemvWords<T>(x, ring.Load(stage), 0, sums);
          ring.Copy(p, stage);
          stage = stage + 1 == kStages ? 0 : stage + 1;
          k += kGroup;
          if (--left == 0) {
            left = phase.run;
            k += (phase.num_warps - 1) * phase.run * kGroup;
          }
        }
      }
      const Shared<float> tile_sums = partial + parity * kWarps * kTile;
      StoreGemvSums<1, 1>(sums, tile_sums);
      __syncthreads();  // all warps' sums are written
      const int first_warp = (tile - first) * phase.num_warps;
      WriteChainPlace<T>(phase, place, tile_sums + first_warp * kTile);
      parity ^= 1;
    }
  }
}

// How the kernel that takes a matrix alone divides K.
void Divide(const LaunchContext& context, const Matrix& weight, Phase* phase) {
  if (GemvTakesRing(context, weight)) {
    phase->num_warps = 8;
    phase->run = weight.num_out >= 4096 ? 1 : 2;
    return;
  }
  phase->num_warps = weight.num_out >= 2048 ? 8 : kWarps;
  const int64_t groups = CeilDiv<int64_t>(weight.num_in, kGroup);
  phase->run = static_cast<int>(std::clamp<int64_t>(CeilDiv<int64_t>(groups, phase->num_warps), 1,
                                                    weight.num_out >= 4096 ? 4 : 8));
}

Phase MakePhase(const LaunchContext& context, const ProductParams& params) {
  const Matrix& weight = *params.linear.weight;
  Phase phase = {.weight = static_cast<const uint16_t*>(weight.storage.get()),
                 .input = MakeGemvInput(params),
                 .end = MakeProductEnd(params)};
  Divide(context, weight, &phase);
  phase.num_tiles = static_cast<int>(phase.end.num_pairs > 0
                                         ? CeilDiv<int64_t>(phase.end.num_pairs, kTileRows / 2)
                                         : CeilDiv<int64_t>(weight.num_out, kTileRows));
  return phase;
}

int WordsOfX(const GemvInput& input) { return input.num_tokens * input.stride / 2; }
int SumsOf(const GemvInput& input) {
  return input.stream == nullptr ? 0 : input.num_tokens * NormWarps(input.num_in);
}

size_t SharedBytes(int x_words, int num_sums) {
  const auto whole = [](int words) { return static_cast<size_t>((words + 3) / 4 * 16); };
  return size_t{kStages} * kThreads * 16 + size_t{2} * kWarps * kTile * sizeof(float) +
         whole(x_words) + whole(num_sums);
}

}  // namespace
}  // namespace gemv_chain

bool ChainTakesNorm(const NormParams& norm) {
  const bool whole = norm.group_width == 0 || norm.group_width == norm.width;
  return norm.kind == NormKind::kRms && norm.x == nullptr && norm.residual != nullptr &&
         norm.weight != nullptr && norm.bias == nullptr && norm.residual_factor == 1 && whole &&
         norm.width % kChunk == 0 && norm.width <= kGemvNormWidthMax &&
         IsAligned16(norm.residual) && IsAligned16(norm.weight);
}

bool ChainTakes(const LaunchContext& context, const ProductParams& params) {
  using namespace gemv_chain;  // NOLINT: this file's own
  const LinearParams& linear = params.linear;
  const Matrix& weight = *linear.weight;
  const GemvInput input = MakeGemvInput(params);
  return weight.quantization == Quantization::kNone && weight.storage != nullptr &&
         linear.num_tokens > 0 && linear.num_tokens <= kTileTokens && weight.num_in % kChunk == 0 &&
         IsAligned16(weight.storage.get()) && IsAligned16(linear.x.data) &&
         (params.norm == nullptr || ChainTakesNorm(*params.norm)) &&
         SharedBytes(WordsOfX(input), SumsOf(input)) <= context.shared_bytes_max;
}

CudaError LaunchGemvChain(const LaunchContext& context, std::span<const ProductParams> products,
                          uint32_t* arrived) {
  using namespace gemv_chain;  // NOLINT: this file's own
  MINISGL_CHECK(!products.empty() && std::ssize(products) <= kChainProductsMax,
                "a chain of {} products", products.size());
  GemvChainKernelParams p = {};
  p.arrived = arrived;
  for (const ProductParams& params : products) {
    MINISGL_CHECK(
        ChainTakes(context, params) && params.linear.x.dtype == products[0].linear.x.dtype,
        "a product of no chain");
    Phase& phase = p.phases[p.num_phases++];
    phase = MakePhase(context, params);
    p.x_words = std::max(p.x_words, WordsOfX(phase.input));
    p.num_sums = std::max(p.num_sums, SumsOf(phase.input));
  }
  const LaunchShape shape = {.grid = {static_cast<unsigned>(context.num_multiprocessors)},
                             .block = {kThreads},
                             .shared_bytes = SharedBytes(p.x_words, p.num_sums),
                             .programmatic = true};
  return DispatchHalf(products[0].linear.x.dtype,
                      [&]<typename T>() { return Launch(context, shape, GemvChainKernel<T>, p); });
}

}  // namespace minisgl::cuda
