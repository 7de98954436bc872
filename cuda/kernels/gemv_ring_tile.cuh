// Matrix times few vectors through a ring of shared memory: the ring, the loads of x and the
// division of a matrix, of both kernels that compute it (gemv_ring.cu, which describes them, and
// gemv_ring_ends.cu).
#pragma once

#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/gemv_far.cuh"
#include "kernels/gemv_input.h"
#include "kernels/gemv_parts.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace gemv_ring {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;
using device::Vec;

inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * kWarpSize;
inline constexpr int kGroup = 32;  // elements of a row that 4 lanes load at once
static_assert(kGemvTokensMax == 16, "tokens are rows of one product");

// The form of a kernel. Tiles have 8 * ROWS8 rows, and a stage of the ring COPIES copies of a lane,
// so a step of K is COPIES / ROWS8 groups: of two, a warp takes whole lines of a row. HINT: a copy
// asks the second-level cache for the whole line.
template <int ROWS8, int COPIES, bool HINT>
struct RingForm {
  static constexpr int kRows8 = ROWS8, kCopies = COPIES, kStages = COPIES == 2 ? 4 : 3;
  static constexpr int kGroups = COPIES / ROWS8;
  static constexpr bool kHint = HINT;
};
// Copies of a stage of gemv_ring.cu's kernels, and with whole lines where tiles have 16 rows.
inline constexpr int kCopies = 2, kLineCopies = 4;

struct GemvRingKernelParams {
  const uint16_t* weight;  // [N, K]
  GemvInput input;
  ProductEnd end;
  int num_tiles;
  GemvNext next;
};

using Words = GemvWords;

// The first element of a step that is this lane's.
template <typename Form>
MINISGL_DEVICE int StepBegin(int step) {
  return step * Form::kGroups * kGroup + static_cast<int>(threadIdx.x) % 4 * 8;
}

// The weights of this lane, step by step.
template <typename Form, EndKind END>
class WeightRing {
  static constexpr int ROWS8 = Form::kRows8, kCopies = Form::kCopies, kStages = Form::kStages;
  static constexpr int kGroups = Form::kGroups;

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
    k_ = StepBegin<Form>(static_cast<int>(threadIdx.x) / kWarpSize);
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      const int row = RowOfTile<8 * ROWS8, END>(
          p.end, tile_, n * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4);
      at_[n] = static_cast<uint32_t>(row) * static_cast<uint32_t>(p.input.num_in) +
               static_cast<uint32_t>(k_);
    }
  }

  MINISGL_DEVICE void CopyStep(const GemvRingKernelParams& p, int stage) {
    constexpr int kAhead = kWarps * kGroups * kGroup;  // from a step to the warp's next
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if constexpr (Form::kHint) {
          device::CopyAsync16Wide(
              ring_ + (stage * kCopies + group * ROWS8 + n) * kThreads * 4,
              reinterpret_cast<const uint32_t*>(p.weight + at_[n] + group * kGroup),
              k_ + group * kGroup < p.input.num_in);
        } else {
          device::CopyAsync16(ring_ + (stage * kCopies + group * ROWS8 + n) * kThreads * 4,
                              reinterpret_cast<const uint32_t*>(p.weight + at_[n] + group * kGroup),
                              k_ + group * kGroup < p.input.num_in);
        }
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
template <typename Form, int TOKENS8>
struct StepInput {
  Words words[Form::kGroups][TOKENS8];
};

// STAGED: x is in shared memory.
template <typename Form, int TOKENS8, bool STAGED>
MINISGL_DEVICE void LoadInput(const GemvInput& p, Shared<uint32_t> staged, int step,
                              StepInput<Form, TOKENS8>& x) {
  const int k = StepBegin<Form>(step);
#pragma unroll
  for (int group = 0; group < Form::kGroups; ++group) {
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

inline constexpr int kBlocksMax = 3;            // of a product on a multiprocessor
inline constexpr size_t kBlockReserved = 1024;  // shared memory that CUDA takes in each block

template <int COPIES>
constexpr size_t RingBytes() {
  return size_t{RingForm<1, COPIES, false>::kStages} * COPIES * kThreads * 16;
}

// Tiles of 8 rows read whole lines in any form. bf16 alone has kernels of this form.
inline bool TakesLines(const LaunchContext& context, int rows8, bool is_bf16) {
  return context.whole_lines && rows8 == 2 && is_bf16;
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
inline double TileShare(int64_t num_tiles, int64_t blocks) {
  return static_cast<double>(num_tiles) / static_cast<double>(CeilDiv(num_tiles, blocks) * blocks);
}

// As many blocks as leave each multiprocessor the fewest rounds of tiles; two or more, so that
// enough is in flight, but no more than there are tiles for, which leaves room for the next kernel.
inline int ChooseBlocks(const LaunchContext& context, int64_t num_tiles, size_t shared_bytes) {
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
inline GemvSplit ChooseSplit(const LaunchContext& context, int64_t num_out, const GemvInput& input,
                             DType dtype) {
  GemvSplit split = {.staged = false,
                     .rows8 = num_out >= 4096 ? 2 : 1,
                     .tokens8 = input.num_tokens <= 8 ? 1 : 2,
                     .shared_bytes = 0,
                     .blocks = 0};
  split.shared_bytes = TakesLines(context, split.rows8, dtype == DType::kBF16)
                           ? RingBytes<kLineCopies>()
                           : RingBytes<kCopies>();
  split.shared_bytes +=
      size_t{2} * kWarps * static_cast<size_t>(64 * split.rows8 * split.tokens8) * sizeof(float);
  split.staged = split.tokens8 == 1 && int64_t{input.num_tokens} * input.num_in <= kGemvStagedMax;
  if (split.staged) split.shared_bytes += GemvInputBytes(input);
  split.blocks =
      ChooseBlocks(context, CeilDiv<int64_t>(num_out, 8 * split.rows8), split.shared_bytes);
  return split;
}

// True if gemv_ring_ends.cu computes the product.
inline bool TakesEnds(const LaunchContext& context, const GemvSplit& split, DType dtype,
                      const FarWeights& far) {
  if (split.rows8 != 2 || dtype != DType::kBF16) return false;
  const bool wants = context.product_ends || context.l2_hint || far.first.bytes > 0;
  return context.whole_lines || (wants && split.staged);
}

// REQUIRES TakesEnds.
CudaError LaunchGemvRingEnds(const LaunchContext& context, const LaunchShape& shape,
                             const GemvSplit& split, const GemvRingKernelParams& product,
                             const FarWeights& far);

}  // namespace gemv_ring
}  // namespace minisgl::cuda
