// See fused_linear.h.
#include "fused_linear.h"

namespace minisgl::cuda {
namespace {

// By the number of tokens alone.
ProductKernel KernelFor(int64_t num_tokens, bool deterministic, const DebugSwitches& debug) {
  if (deterministic) return ProductKernel::kLibrary;
  if (num_tokens <= kGemvTokensMax) {
    return debug.no_gemv ? ProductKernel::kLibrary : ProductKernel::kGemv;
  }
  const bool tiles = num_tokens <= kTileLinearTokensMax && !debug.no_tiles;
  return tiles ? ProductKernel::kTiles : ProductKernel::kLibrary;
}

}  // namespace

ProductKernel KernelOf(const LinearParams& linear, bool deterministic, const DebugSwitches& debug) {
  const ProductKernel kernel = KernelFor(linear.num_tokens, deterministic, debug);
  const bool takes = kernel != ProductKernel::kTiles || TileLinearTakes(linear);
  return takes ? kernel : ProductKernel::kLibrary;
}

bool KernelsAdd(int64_t num_tokens, bool deterministic, const DebugSwitches& debug) {
  return !debug.no_fused_add &&
         KernelFor(num_tokens, deterministic, debug) != ProductKernel::kLibrary;
}

FusedParts DivideFusedLinear(const FusedLinearParams& params, bool deterministic,
                             const DebugSwitches& debug) {
  FusedParts parts;
  parts.kernel = KernelOf(params.linear, deterministic, debug);
  if (parts.kernel == ProductKernel::kLibrary) return parts;
  parts.product.linear = params.linear;
  parts.product.residual = params.residual;
  parts.product.residual_scale = params.residual_scale;
  const bool takes_norm = params.norm != nullptr && parts.kernel == ProductKernel::kGemv &&
                          !debug.no_fused_norm && GemvTakesNorm(*params.norm);
  (takes_norm ? parts.product.norm : parts.norm) = params.norm;
  const bool takes_activation = params.activation != nullptr && !debug.no_fused_activation &&
                                ProductTakesActivation(*params.activation);
  (takes_activation ? parts.product.activation : parts.activation) = params.activation;
  return parts;
}

}  // namespace minisgl::cuda
