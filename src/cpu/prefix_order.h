// Rows of a step in an order in which those that begin with the same pages are neighbours, so that
// their query rows can pass over the shared keys together.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/ops_params.h"

namespace minisgl::cpu {

struct PrefixRow {
  int32_t row;
  // Tiles of keys that it shares with the row before it in the order; with any row further up: the
  // least of those in between.
  int64_t shared_tiles;
};

// All rows of the step. Tiles are shared where every page that they lie in is the same one, all
// their keys are older than the step's tokens, and no window cuts them. Time is linear in the
// shared pages, beside sorting the rows.
std::vector<PrefixRow> OrderByPrefix(const AttentionParams& params);

}  // namespace minisgl::cpu
