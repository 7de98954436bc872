// The operations on rows of tokens that have pictures, for every implementation on the host.
#pragma once

#include <cstdint>

#include "minisgl/ops_params.h"

namespace minisgl::cpu {

// The operation for rows, or tokens, [begin, end).
void PlaceRowsBetween(const PlaceRowsParams& params, int64_t begin, int64_t end);
void MixRotaryBetween(const MixRotaryParams& params, int64_t begin, int64_t end);

}  // namespace minisgl::cpu
