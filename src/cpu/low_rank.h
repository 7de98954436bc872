// Products of low rank on the CPU: divides the rows and outputs of groups among threads.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "minisgl/adapter_params.h"
#include "minisgl/base/thread_pool.h"

namespace minisgl::cpu {

// What an operation lists; kept for its memory.
struct LowRankScratch {
  struct Item {
    const LowRankMatrices* matrices = nullptr;
    const LowRankPart* part = nullptr;  // of the second product
    int64_t first_row = 0, num_rows = 0;
    int64_t first = 0, end = 0;  // ranks of the first product, tiles of the second
  };
  std::vector<Item> items;
  std::vector<const float*> x;  // of the rows of all groups, as the others
  std::vector<float*> u, out;

  uint64_t bytes() const;
};

// May throw std::bad_alloc.
void RunLowRank(const LowRankParams& params, const LowRankKernels& kernels, ThreadPool* pool,
                LowRankScratch* scratch);

}  // namespace minisgl::cpu
