// The identity of a model's packed weights, under which they are stored for the next start.
//
// Whatever of a configuration decides the order or format of packed weights is part of the key
// (ListedModel::PackKey).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "minisgl/model/model_list.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/weight_format.h"

namespace minisgl {

// The source of the weights of `models`, whose files are `files`, packed in `formats` (one for
// each model) and stored in the folder `pack_cache`. Its key is a hash of all bytes of the files
// (computed by `num_threads` threads) with what decides their packing; empty if the folder cannot
// be used, which MakeCpuOps reports. nullopt if `pack_cache` is "", or for tensors in memory, which
// are not worth storing.
std::optional<PackSource> MakePackSource(const ModelList& models, const ModelFiles& files,
                                         std::span<const WeightFormat> formats,
                                         const std::string& pack_cache, int num_threads);

}  // namespace minisgl
