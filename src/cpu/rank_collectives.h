// What several ranks in the memory of one process do together: all call the same function at the
// same place of a step.
//
// Each reads and writes the arrays of the others. It throws RankFailed if another rank has failed.
#pragma once

#include <cstdint>

#include "minisgl/base/thread_pool.h"
#include "minisgl/ops.h"

namespace minisgl::cpu {

// AllReduceParams. Every rank sums an equal share of the elements and writes the sums to all ranks,
// so that each sum is computed once.
void SumOverRanks(const HostRank& rank, const AllReduceParams& params, ThreadPool* pool);

// GatherColumnsParams.
void GatherFromRanks(const HostRank& rank, const GatherColumnsParams& params, ThreadPool* pool);

}  // namespace minisgl::cpu
