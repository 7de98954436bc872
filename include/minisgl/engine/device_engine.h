// The engine of a device with its own memory. Steps are queued and run while the caller plans the
// next one; decode steps, and other steps of few tokens, replay graphs that are captured at the
// start.
//
// Launch and Collect are called from one thread, which may differ from the one that made the
// engine. The engine starts no thread, except one for each further rank. Launch does not wait for
// the device, except as below.
//
// The first fault is the result of its step and of every later step: nothing is launched after it.
// A step that was queued before keeps its own result. A picture that cannot be encoded is no fault:
// only the step that should have had it encoded, and steps that read it, fail.
//
// Launch waits for the device only if a plan has pictures encoded, whose values pass through memory
// of the host that earlier copies may still use, or drafts of clusters, which the host finds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/model_list.h"
#include "minisgl/ops.h"

namespace minisgl {

struct DeviceEngineOptions {
  // Upper bound on the rows of a decode batch that runs as a graph; 0: no such graphs.
  int32_t graph_max_rows = 256;
  // Upper bound on the tokens of any other step whose layers run as a graph; 0: no such graphs.
  int32_t graph_max_tokens = 0;
  // Run steps of padding first, so that no request waits for what happens at the first step.
  bool warms_up = false;
  // The CPU's operations for each rank's experts on the host (MemoryPlan::num_host_layers); empty
  // if none are there.
  std::vector<std::shared_ptr<Ops>> host_ops = {};
};

// Why no device's engine runs `drafter` for `target`; OK if it does. kBadInput.
Status CheckDeviceDrafts(const ModelConfig& drafter, const ModelConfig& target);

// Loads the models for `plan` (PlanMemory with the same `ops`), allocates keys and values, and
// captures graphs. If graphs take more memory than the plan reserves for them, the engine's limits
// have fewer pages than the plan. `ops` moves in.
Result<std::unique_ptr<Engine>> MakeDeviceEngine(const ModelList& models, const ModelFiles& files,
                                                 const MemoryPlan& plan,
                                                 std::unique_ptr<DeviceOps> ops,
                                                 const DeviceEngineOptions& options);
// On several ranks (minisgl/model/ranks.h), whose operations wait for each other: those of
// MakeCudaRanks. REQUIRES a plan for as many. A fault on one device ends all, and its message names
// the device.
Result<std::unique_ptr<Engine>> MakeDeviceEngine(const ModelList& models, const ModelFiles& files,
                                                 const MemoryPlan& plan,
                                                 std::vector<std::unique_ptr<DeviceOps>> ops,
                                                 const DeviceEngineOptions& options);

}  // namespace minisgl
