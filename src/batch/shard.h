// Sharding: several runs answer one input file together, each the rows of its shard.
//
// A shard is a contiguous block of rows, because rows with a common prefix usually stand together
// and then share one prefix cache. The outputs, joined in shard order, are in input order. The
// sizes of blocks differ by at most one row.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl::batch {

struct Shard {
  int64_t number = 1;  // 1 to count
  int64_t count = 1;
};

// Returns null if the variable is not set.
using Environment = std::function<const char*(const char*)>;

// Parses "I/N" with I from 1, "auto", or "auto/N". For auto, `environment` provides the numbers:
// rank and size from Open MPI, PMI or Slurm; the index in a Slurm job array, multiplied by the
// ranks of a task; or the index of a Kubernetes job, which needs N. kUsage if they are missing or
// invalid.
Result<Shard> ParseShard(const std::string& text, const Environment& environment);

// Rows [first, end).
struct RowRange {
  int64_t first = 0, end = 0;
};
RowRange RowsOfShard(const Shard& shard, int64_t num_rows);

// "03-of-16": sorts the same by name and by number.
std::string ShardName(const Shard& shard);
// Replaces each %s in `path` by ShardName.
std::string WithShardName(std::string path, const Shard& shard);

}  // namespace minisgl::batch
