// The engine of a device with memory of its own: steps are queued and run while the caller plans
// the next one; decode steps replay graphs captured at the start.
//
// Launch and Collect are called from one thread, which need not be the one that made the engine; no
// thread is started. Launch never waits for
// the device. The first fault is the result of the step that met it and of every later one: nothing
// is launched after it. A step that was queued before keeps its own result.
#pragma once

#include <cstdint>
#include <memory>

#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

struct DeviceEngineOptions {
  // The largest decode batch that a graph is captured for; 0: no graphs.
  int32_t graph_max_rows = 256;
};

// Loads the model for `plan` (PlanMemory with the same `ops`), captures graphs, takes keys and
// values. The engine's limits may have fewer pages than the plan, where graphs took more memory
// than was kept for them. `ops` moves in.
Result<std::unique_ptr<Engine>> MakeDeviceEngine(const ModelConfig& config,
                                                 const Checkpoint& checkpoint,
                                                 const MemoryPlan& plan,
                                                 std::unique_ptr<DeviceOps> ops,
                                                 const DeviceEngineOptions& options);

}  // namespace minisgl
