// The oracle's operations of layers with a state (naive_ops.cc).
#pragma once

#include "minisgl/ops_params.h"

namespace minisgl::cpu {

void NaiveShortConv(const ShortConvParams& params);
void NaiveRecurrence(const RecurrenceParams& params);

}  // namespace minisgl::cpu
