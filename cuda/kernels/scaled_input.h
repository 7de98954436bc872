// Inputs of a product that are rounded to e4m3: where their codes and scales stand
// (scaled_input.cu), for MatmulLibrary::ScaledMatmul.
//
// The rule, for a token, or for each 128 neighbouring inputs of it (InputRounding): with x rounded
// to the activations' type, and `most` the largest |x|, but at least 2^-100, the scale is
// most / 448 and a code x * (448 / most), each quotient and product rounded once to f32 and the
// code then to e4m3, to nearest even. With a fixed scale s a code is x * (1 / s), and the largest
// number stands for larger ones. The code of NaN is NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_api.h"
#include "kernels/coded_rows.h"
#include "kernels/launch.h"
#include "minisgl/ops_params.h"
#include "minisgl/tensor/code_kinds.h"

namespace minisgl::cuda {

struct ScaledInput {
  InputRounding rounding = InputRounding::kToken;  // not kNone
  float fixed_scale = 1;                           // of kTensor
  int32_t num_in = 0;                              // K
  int32_t num_lines = 0;                           // of a row of the matrix
  CodeOrder order;                                 // of the matrix; of kGroups: neighbours
  uint8_t* codes = nullptr;                        // [RowsOfScaled, 64 * lines]
  // kToken, kTensor: [T]. kGroups: scales of the first T / 4 * 4 tokens [ceil(K / 128), T / 4 * 4];
  // then, unless these are all, of the last tokens, filled with zeros: [ceil(K / 128), 4].
  float* scales = nullptr;
};

// Tokens with codes: of kGroups a multiple of 4.
inline int64_t RowsOfScaled(InputRounding rounding, int64_t num_tokens) {
  return rounding == InputRounding::kGroups
             ? (num_tokens + kBlocksMatmulUnit - 1) / kBlocksMatmulUnit * kBlocksMatmulUnit
             : num_tokens;
}

// Rounds x [T, K].
CudaError LaunchScaleInput(const LaunchContext& context, const ScaledInput& input,
                           ConstActivationPtr x, int64_t num_tokens);
// True if a norm can round what it writes: over whole tokens, one after another.
bool NormTakesScaling(const NormParams& norm);
// A norm with the bits of LaunchNorm, and its output rounded, which is not written.
CudaError LaunchScaledNorm(const LaunchContext& context, const ScaledInput& input,
                           const NormParams& norm);
// The same of an activation, whose output is also written. Not kXielu.
CudaError LaunchScaledActivate(const LaunchContext& context, const ScaledInput& input,
                               const ActivateParams& params);

}  // namespace minisgl::cuda
