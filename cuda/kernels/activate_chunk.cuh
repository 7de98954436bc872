// A thread's chunk of an activation (ActivateParams).
#pragma once

#include "kernels/activation.h"
#include "kernels/chunk.h"

namespace minisgl::cuda {

// True if all rows are aligned (chunk.h).
inline bool ActivateIsAligned(const ActivateParams& params) {
  return (params.width | params.up_stride) % kChunk == 0 && IsAligned16(params.gate_up.data) &&
         IsAligned16(params.up.data) && IsAligned16(params.out.data);
}

// Elements [first, first + 8) of this block's token, of which `count` are left. EXACT_GELU: kGelu,
// otherwise one of the others, but not kXielu.
template <typename T, bool EXACT_GELU>
MINISGL_DEVICE void ActivateChunk(const ActivateParams& p, bool aligned, int64_t first,
                                  int64_t count) {
  const T* const gate_row = p.gate_up.as<T>() + blockIdx.x * (p.gated ? 2 : 1) * p.width;
  float gate[kChunk], up[kChunk];
  LoadChunk(gate_row + first, count, aligned, gate);
  if (p.gated) {
    LoadChunk(gate_row + p.width + first, count, aligned, up);
  } else if (p.up.data != nullptr) {
    LoadChunk(p.up.as<T>() + blockIdx.x * p.up_stride + first, count, aligned, up);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) up[i] = 1;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) gate[i] *= p.gate_scale;
  if (p.activation == Activation::kClampedSwiglu) ClampGated(p.limit, p.gated, gate, up);
  if constexpr (EXACT_GELU) {
    ActivateExactGelu(gate);
  } else {
    Activate(p.activation, gate);
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) up[i] *= gate[i];
  StoreChunk(p.out.as<T>() + blockIdx.x * p.width + first, count, aligned, up);
}

}  // namespace minisgl::cuda
