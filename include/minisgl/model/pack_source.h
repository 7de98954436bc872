// The identity of a model's packed weights, under which they are stored for the next start.
//
// Stands beside the packing (src/model/model_weights.cc): whatever of the configuration decides the
// order or format of packed weights must be part of the key.
#pragma once

#include <optional>
#include <string>

#include "minisgl/ops.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// The source of the weights of `checkpoint`, packed in `format` for `config` and stored in the
// folder `pack_cache`. Its key is a hash of all bytes of the files (computed by `num_threads`
// threads) with what decides their packing; empty if the folder cannot be used, which MakeCpuOps
// reports. nullopt if `pack_cache` is "", or for tensors in memory, which are not worth storing.
std::optional<PackSource> MakePackSource(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const WeightFormat& format, const std::string& pack_cache,
                                         int num_threads);

}  // namespace minisgl
