// See fused_linear.h.
#include "fused_linear.h"

namespace minisgl::cuda {

FusedParts DivideFusedLinear(const LaunchContext& context, const FusedLinearParams& params,
                             const DebugSwitches& debug) {
  FusedParts parts;
  parts.product.linear = params.linear;
  parts.product.residual = params.residual;
  parts.product.residual_scale = params.residual_scale;
  const bool takes_norm = params.norm != nullptr && !debug.no_fused_norm &&
                          GemvTakesNorm(context, *params.linear.weight, *params.norm);
  (takes_norm ? parts.product.norm : parts.norm) = params.norm;
  const bool takes_activation = params.activation != nullptr && !debug.no_fused_activation &&
                                ProductTakesActivation(*params.activation);
  (takes_activation ? parts.product.activation : parts.activation) = params.activation;
  return parts;
}

}  // namespace minisgl::cuda
