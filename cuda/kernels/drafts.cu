// The kernels of a model that drafts: the states that it keeps of a step, and the ids of the tokens
// that a head with a vocabulary of its own has chosen. These kernels move a few KB; chains of
// dependent loads take their time.
#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::GridRelease;
using device::GridWait;

constexpr int kDraftThreads = 128;

struct KeepKernelParams {
  void* states;
  const KeptState* items;
  const int32_t* num_accepted;
  int64_t words;  // of a state
};

// Grid (items, words of a state / 128 threads), block 128. WORD is 4 bytes, of which a thread moves
// four, if rows are multiples of 16 bytes, and else 2 bytes. Traffic: 24 bytes and twice the state
// for each item.
template <typename WORD>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kDraftThreads, 1) KeepStatesKernel(KeepKernelParams p) {
  GridRelease();
  GridWait();
  constexpr int kVec = sizeof(WORD) == 4 ? 4 : 1;
  const KeptState item = p.items[blockIdx.x];
  const int32_t accepted = item.row < 0 ? item.least : p.num_accepted[item.row];
  if (accepted < item.least || accepted > item.most) return;  // the whole block
  const int64_t word = (int64_t{blockIdx.y} * kDraftThreads + threadIdx.x) * kVec;
  if (word >= p.words) return;
  WORD* const states = static_cast<WORD*>(p.states);
  device::StoreVec(
      states + item.to * p.words + word,
      device::LoadVec<kVec>(static_cast<const WORD*>(states + item.from * p.words + word)));
}

// Grid (tokens / 128), block 128. Traffic: 28 bytes for each token.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kDraftThreads, 1) MapTokensKernel(MapTokensParams p) {
  GridRelease();
  GridWait();
  const int i = static_cast<int>(blockIdx.x) * kDraftThreads + static_cast<int>(threadIdx.x);
  if (i >= p.num_tokens) return;
  const DeviceToken token = p.tokens[i];
  if (token.outcome != static_cast<int32_t>(RowResult::Outcome::kToken)) return;
  p.tokens[i].token = p.ids[token.token];
}

LaunchShape KeepShape(int32_t num_items, int64_t num_pieces) {
  return {.grid = {static_cast<unsigned>(num_items),
                   static_cast<unsigned>(CeilDiv<int64_t>(num_pieces, kDraftThreads))},
          .block = {kDraftThreads},
          .programmatic = true};
}

}  // namespace

CudaError LaunchKeepStates(const LaunchContext& context, const KeepStatesParams& params) {
  const int64_t row_bytes = params.width * static_cast<int64_t>(DTypeBytes(params.states.dtype));
  KeepKernelParams p = {.states = params.states.data,
                        .items = params.items,
                        .num_accepted = params.num_accepted,
                        .words = 0};
  if (row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(p.states) % 16 == 0) {
    p.words = row_bytes / 4;
    return Launch(context, KeepShape(params.num_items, row_bytes / 16), KeepStatesKernel<uint32_t>,
                  p);
  }
  p.words = row_bytes / 2;
  return Launch(context, KeepShape(params.num_items, p.words), KeepStatesKernel<uint16_t>, p);
}

CudaError LaunchMapTokens(const LaunchContext& context, const MapTokensParams& params) {
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(params.num_tokens, kDraftThreads))},
      .block = {kDraftThreads},
      .programmatic = true};
  return Launch(context, shape, MapTokensKernel, params);
}

}  // namespace minisgl::cuda
