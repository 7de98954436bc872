// The operations on tokens that have pictures, for every implementation on the host. They copy a
// few megabytes at most in a step, so one thread runs them.
#pragma once

#include "minisgl/tower_params.h"

namespace minisgl::cpu {

void PlaceHostRows(const PlaceRowsParams& params);
void MixHostRotary(const MixRotaryParams& params);

}  // namespace minisgl::cpu
