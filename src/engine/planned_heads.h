// The heads of attention that a step on a device plans for.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/engine/kv_kind.h"
#include "minisgl/model/model_list.h"
#include "minisgl/model/ranks.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

// The heads of layers with attention, each kind once, and the largest window of layers with them
// (0: none has one). Each has a plan of its own in a step.
struct PlannedHeads {
  AttentionHeads heads;
  int32_t window = 0;
};
std::vector<PlannedHeads> HeadsOfLayers(const ModelConfig& config, KvKind kv_kind);

// The largest step of any model on `rank`, as the device's operations reserve memory for it.
// `num_host_layers`: the target's layers whose experts are on the host.
DeviceLimits DeviceLimitsOf(const ModelList& models, const Rank& rank, const EngineLimits& limits,
                            KvKind kv_kind, int32_t num_host_layers);

}  // namespace minisgl::engine
