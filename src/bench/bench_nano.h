// Lengths of the offline throughput benchmark of nano-vllm, for which other engines publish
// figures: 256 prompts, inputs and outputs of 100 to 1,024 tokens each.
#pragma once

#include <span>

#include "bench/bench_limits.h"

namespace minisgl::bench {

// In their original order. Prompts total 142,827 tokens, outputs 133,966.
std::span<const Lengths> NanoLengths();

}  // namespace minisgl::bench
