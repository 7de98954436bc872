// Graphs of the layers of steps of few tokens: prompts, rows that decode beside them, and drafts to
// be verified. A graph serves every step that is padded to its number of tokens: what differs
// between such steps is read from device memory. Sampling follows without a graph, because the
// output head is padded too much otherwise: a step has anything from no place to one a token.
//
// Kinds. A launch that finds no work costs about a microsecond in each layer, so steps of few
// tokens have graphs with and without decode rows. Steps of many have graphs for either size of
// attention's tiles, of which the choice is part of a launch.
//
// Used by the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device_step.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

// Upper bound on the tokens of a step that runs as a graph, of which `wanted` is one.
int32_t LayerGraphTokensMax(int32_t wanted, const EngineLimits& limits);

// Numbers of tokens up to and including `max_tokens`, ascending: multiples of 8 to 64, of 16 to
// 128, of 32 to 256, then of 64. (Products compute tiles of at least 64 tokens, so that padding
// costs them little.) Empty for 0.
std::vector<int32_t> LayerGraphSizes(int32_t max_tokens);

// The shapes of all graphs for at most `max_tokens` tokens in at most `max_rows` rows, of which
// one may be padding. In ascending order of their tokens; places are not set.
std::vector<StepShape> LayerGraphShapes(int32_t max_tokens, int32_t max_rows);

class LayerGraphs {
 public:
  // `adapters`: of steps with rows of adapters.
  LayerGraphs(DeviceStep* step, DeviceOps* ops, bool adapters = false)
      : step_(step), ops_(ops), adapters_(adapters) {}

  // Captures a graph of `shape`. Runs the layers once before, so that nothing is initialised during
  // the capture. An error keeps the existing graphs. REQUIRES a shape of LayerGraphShapes, no
  // fewer tokens than any graph has, and at most max_seq_len.
  Status Capture(const StepShape& shape, InFlightStep* padding);
  void Clear() { graphs_.clear(); }

  // The shape of the graph for a step of `shape` (DeviceStep::ShapeOf); null if there is none.
  const StepShape* Find(const StepShape& shape) const;
  // REQUIRES a result of Find.
  void Replay(const StepShape& shape);

  int32_t max_tokens() const { return graphs_.empty() ? 0 : graphs_.back().shape.num_tokens; }

 private:
  struct Graph {
    StepShape shape;
    std::unique_ptr<DeviceGraph> graph;
  };
  DeviceStep* const step_;
  DeviceOps* const ops_;
  const bool adapters_;
  std::vector<Graph> graphs_;  // in ascending order of their tokens
};

}  // namespace minisgl::engine
