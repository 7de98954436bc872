// How a model will run: the device, the options that depend on it, and the memory plan.
#pragma once

#include <memory>
#include <string>

#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

// CUDA if it is asked for or found, else the CPU.
struct Device {
  std::unique_ptr<DeviceOps> cuda;  // null: the CPU
  std::string fallback;             // why `auto` did not choose CUDA
  bool fallback_is_news = false;    // this machine has an NVIDIA driver, but it cannot be used
};

// Opens the device and loads nothing. kUnavailable, with the reason, if the device that the options
// name cannot be used. `auto` always succeeds: the reason against CUDA becomes Device::fallback.
// CUDA computes in the model's dtype, or in bf16 if that is f32.
Result<Device> ChooseDevice(const EngineOptions& options, const ModelConfig& config);

// Returns the same error without opening the device.
Status CheckDeviceUsable(const DeviceOption& device);

// Returns `options` with the defaults that depend on the device: tokens of a step, share of memory.
EngineOptions WithDeviceDefaults(EngineOptions options, const Device& device);

struct EngineSetup {
  Device device;          // moved from once the engine is started
  EngineOptions options;  // with the defaults of the device
  MemoryPlan plan;
};
// Chooses all of it for a model, once; loads nothing.
Result<EngineSetup> ResolveEngine(const EngineOptions& options, const ModelConfig& config);

// Threads that compute on the CPU: --threads, or the usable cores.
int NumThreads(const EngineOptions& options);

}  // namespace minisgl::load
