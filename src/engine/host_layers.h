// What a memory plan says of experts in the host's memory, beside a device
// (ModelEngineOptions::num_host_layers).
#pragma once

#include <cstdint>

#include "engine/memory_needs.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/model_list.h"

namespace minisgl::engine {

// kUsage if `options` ask for experts on the host where there are none, or beside what excludes
// them: several ranks, adapters of experts.
Status CheckHostLayers(const ModelList& models, const PlanOptions& options);

// Fills in what the plan has on the host. kOutOfMemory if `host_bytes` are too few.
Status PlanHostLayers(const ModelList& models, const PlanOptions& options, uint64_t host_bytes,
                      MemoryPlan* plan);

}  // namespace minisgl::engine
