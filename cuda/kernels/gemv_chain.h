// Products of few rows one after another in one kernel (gemv_chain.cu).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace minisgl::cuda {

inline constexpr int kChainProductsMax = 4;

// True if a product may begin with this norm in a chain, and if one may be part of a chain: dense,
// of at most 8 tokens, with rows of whole chunks.
bool ChainTakesNorm(const NormParams& norm);
bool ChainTakes(const LaunchContext& context, const ProductParams& params);

// Computes the products in their order, with the bits of LaunchGemv; each may read what those
// before it write. `arrived`: a word of device memory that is zero before the first chain, and that
// one chain at a time uses. All blocks must run at once: no kernel may run beside a chain that
// waits for the chain's end.
CudaError LaunchGemvChain(const LaunchContext& context, std::span<const ProductParams> products,
                          uint32_t* arrived);

}  // namespace minisgl::cuda
