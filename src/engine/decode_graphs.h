// Graphs of decode steps, one for each batch size of a list: 1, 2, 4, then multiples of 8. A batch
// runs in the smallest that holds it, padded with rows of the dummy.
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

// Batch sizes up to `max_rows`, ascending; the last is max_rows itself. Empty for 0.
std::vector<int32_t> GraphBatchSizes(int32_t max_rows);

class DecodeGraphs {
 public:
  DecodeGraphs(DeviceStep* step, DeviceOps* ops) : step_(step), ops_(ops) {}

  // Captures a graph of `num_rows` rows, larger than any before. The same rows run once before, so
  // that nothing is prepared while capturing. An error leaves the graphs that there are.
  Status Capture(int32_t num_rows);
  void Clear();

  // The size that a batch of `num_rows` is padded to; 0 where no graph holds it.
  int32_t PaddedRows(int32_t num_rows) const;
  // REQUIRES padded_rows of PaddedRows.
  void Replay(int32_t padded_rows);

  int32_t max_rows() const { return graphs_.empty() ? 0 : graphs_.back().num_rows; }

 private:
  struct Graph {
    int32_t num_rows;
    std::unique_ptr<DeviceGraph> graph;
  };
  DeviceStep* const step_;
  DeviceOps* const ops_;
  std::vector<Graph> graphs_;  // ascending
};

}  // namespace minisgl::engine
