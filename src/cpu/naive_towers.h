// The oracle's operations of towers, of activations of any dtype.
#pragma once

#include "minisgl/tower_params.h"

namespace minisgl::cpu {

void NaiveSegmentAttention(const SegmentAttentionParams& params);
void NaiveMixRows(const MixRowsParams& params);
void NaiveClamp(const ClampParams& params);

}  // namespace minisgl::cpu
