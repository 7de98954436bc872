// Attention of towers on the CPU: arranges keys and values once, and divides the queries.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cpu/memory.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/tower_params.h"

namespace minisgl::cpu {

// Memory of the operation, which grows on demand.
struct SegmentScratch {
  FloatBuffer tiles;                 // the arranged keys and values of all heads
  std::vector<FloatBuffer> threads;  // of each thread's item

  uint64_t bytes() const;
};

// May throw std::bad_alloc, as FloatBuffer does.
void RunSegmentAttention(const SegmentAttentionParams& params, const SegmentKernels& kernels,
                         ThreadPool* pool, SegmentScratch* scratch);

}  // namespace minisgl::cpu
