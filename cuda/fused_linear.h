// Which parts of a FusedLinear the kernel for few rows computes, and which are separate kernels.
#pragma once

#include "debug_switches.h"
#include "kernels/kernels.h"

namespace minisgl::cuda {

struct FusedParts {
  ProductParams product;
  // Left over, before and behind it; null: none.
  const NormParams* norm = nullptr;
  const ActivateParams* activation = nullptr;
};
FusedParts DivideFusedLinear(const LaunchContext& context, const FusedLinearParams& params,
                             const DebugSwitches& debug);

}  // namespace minisgl::cuda
