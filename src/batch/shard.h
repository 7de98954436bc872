// One of several runs that answer an input file together: which rows are its own.
//
// Rows are dealt out in blocks: rows that share a prefix mostly stand together, and stay in one
// prefix cache; and the outputs joined in the order of the shards are in the order of the input.
// Every block is as long as any other, or one row longer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl::batch {

struct Shard {
  int64_t number = 1;  // from 1 to count
  int64_t count = 1;
};

// Null where the variable is not set.
using Environment = std::function<const char*(const char*)>;

// `text` is "I/N" with I from 1, "auto", or "auto/N". For auto `environment` says it: Open MPI's,
// PMI's or Slurm's rank and size; a Slurm array's place, which counts for whole groups of ranks; or
// the index of a Kubernetes job, which needs N. kUsage where it does not.
Result<Shard> ParseShard(const std::string& text, const Environment& environment);

// Rows [first, end) of `num_rows`.
struct RowRange {
  int64_t first = 0, end = 0;
};
RowRange RowsOfShard(const Shard& shard, int64_t num_rows);

// "03-of-16": sorts by name as by number.
std::string ShardName(const Shard& shard);
// `path` with the name in place of each %s.
std::string WithShardName(std::string path, const Shard& shard);

}  // namespace minisgl::batch
