// Operations of layers with a state: divides them among threads. Rows, heads and channels are
// independent; the tokens of a row pass through a head one by one.
#pragma once

#include "cpu/kernels/kernels.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/ops_params.h"

namespace minisgl::cpu {

void RunShortConv(const ShortConvParams& params, const StateKernels& kernels, ThreadPool* pool);
void RunRecurrence(const RecurrenceParams& params, const StateKernels& kernels, ThreadPool* pool);

}  // namespace minisgl::cpu
