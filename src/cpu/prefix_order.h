// Orders the rows of a step so that rows that begin with the same pages are neighbours. Their query
// rows can then pass over the shared keys together.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/ops_params.h"

namespace minisgl::cpu {

struct PrefixRow {
  int32_t row;
  // Tiles of keys that it shares with the previous row in the order. With an earlier row it shares
  // the minimum over the rows in between.
  int64_t shared_tiles;
};

// Returns all rows of the step. A tile is shared if all its pages are the same, all its keys are
// older than the step's tokens, and no window cuts it. Takes time linear in the number of shared
// pages, plus the sorting of rows.
std::vector<PrefixRow> OrderByPrefix(const AttentionParams& params);

}  // namespace minisgl::cpu
