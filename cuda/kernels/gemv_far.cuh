// Weights that a product fetches into the second-level cache for products behind the attention that
// follows it: while attention of few rows runs, memory is idle. The lines are to stay there until
// they are read (evict last).
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/kernels.h"

namespace minisgl::cuda {

struct FarPiece {
  const uint8_t* begin = nullptr;
  int bytes = 0;  // a multiple of 16; 0: nothing
};

// One matrix, and the beginnings of the gates and of what they multiply of another.
struct FarWeights {
  FarPiece first, second, third;
};

inline constexpr int kFarBytes = 2048;  // that a thread asks for at once

MINISGL_DEVICE void FetchFarPiece(const FarPiece& piece) {
  const int blocks = static_cast<int>(gridDim.x);
  const int stride = blocks * static_cast<int>(blockDim.x) * kFarBytes;
  for (int at = (static_cast<int>(threadIdx.x) * blocks + static_cast<int>(blockIdx.x)) * kFarBytes;
       at < piece.bytes; at += stride) {
    device::PrefetchL2Last(piece.begin + at,
                           static_cast<uint32_t>(min(kFarBytes, piece.bytes - at)));
  }
}

// Blocks take pieces in turn.
MINISGL_DEVICE void FetchFar(const FarWeights& far) {
  FetchFarPiece(far.first);
  FetchFarPiece(far.second);
  FetchFarPiece(far.third);
}

// What a product with this hint fetches; nothing unless the context asks for it.
FarWeights FarOf(const LaunchContext& context, const LinearParams& linear);

}  // namespace minisgl::cuda
