// The lengths of the offline throughput benchmark of nano-vllm, which other engines publish figures
// of: 256 prompts, inputs and outputs of 100 to 1,024 tokens each.
#pragma once

#include <span>

#include "bench/bench_limits.h"

namespace minisgl::bench {

// In their order; prompts sum up to 142,827 tokens, outputs to 133,966.
std::span<const Lengths> NanoLengths();

}  // namespace minisgl::bench
