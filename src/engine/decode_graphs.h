// Graphs of decode steps, one for each of the batch sizes 1, 2, 4 and multiples of 8. A batch runs
// in the smallest graph that holds it, padded with rows that use the dummy page.
//
// Used by the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device_step.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"

namespace minisgl::engine {

// Batch sizes up to and including `max_rows`, ascending. Empty for 0.
std::vector<int32_t> GraphBatchSizes(int32_t max_rows);

class DecodeGraphs {
 public:
  // `adapters`: of steps with rows of adapters.
  DecodeGraphs(DeviceStep* step, DeviceOps* ops, bool adapters = false)
      : step_(step), ops_(ops), adapters_(adapters) {}

  // Captures a graph of `num_rows` rows. REQUIRES more rows than any graph has, and that `padding`
  // and the device are idle. Runs the step once before, so that nothing is initialised during the
  // capture. An error keeps the existing graphs.
  Status Capture(int32_t num_rows, InFlightStep* padding);
  void Clear();

  // The size to which a batch of `num_rows` is padded; 0 if no graph holds it.
  int32_t PaddedRows(int32_t num_rows) const;
  // REQUIRES a nonzero result of PaddedRows.
  void Replay(int32_t padded_rows);

  int32_t max_rows() const { return graphs_.empty() ? 0 : graphs_.back().num_rows; }

 private:
  struct Graph {
    int32_t num_rows;
    std::unique_ptr<DeviceGraph> graph;
  };
  DeviceStep* const step_;
  DeviceOps* const ops_;
  const bool adapters_;
  std::vector<Graph> graphs_;  // ascending
};

}  // namespace minisgl::engine
