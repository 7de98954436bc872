// Which kernel computes a product, and which parts of a FusedLinear it runs with it.
#pragma once

#include "debug_switches.h"
#include "kernels/kernels.h"

namespace minisgl::cuda {

enum class ProductKernel : uint8_t { kGemv, kTiles, kLibrary };
// `deterministic`: the library computes all, whose algorithm does not depend on the tokens.
ProductKernel KernelOf(const LinearParams& linear, bool deterministic, const DebugSwitches& debug);
// DeviceOps::AddsInLinear. A matrix that the library computes all the same is added by a norm.
bool KernelsAdd(int64_t num_tokens, bool deterministic, const DebugSwitches& debug);

struct FusedParts {
  ProductKernel kernel = ProductKernel::kLibrary;  // then the rest is not set
  ProductParams product;
  // Left over, before and behind it; null: none.
  const NormParams* norm = nullptr;
  const ActivateParams* activation = nullptr;
};
FusedParts DivideFusedLinear(const FusedLinearParams& params, bool deterministic,
                             const DebugSwitches& debug);

}  // namespace minisgl::cuda
