// Which device a command runs on: CUDA where it is asked for or found, else the CPU.
#pragma once

#include <memory>
#include <string>

#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

struct Device {
  std::unique_ptr<DeviceOps> cuda;  // null: the CPU
  std::string fallback;             // why `auto` did not take CUDA
  bool fallback_is_news = false;    // this machine has an NVIDIA driver, and it did not do
};

// kUnavailable, with the reason, for a device that was asked for and cannot be used. `auto` always
// passes: what keeps it from CUDA becomes Device::fallback. Nothing is loaded; CUDA computes in the
// model's dtype, or in bf16 where that is f32.
Result<Device> ChooseDevice(const EngineOptions& options, const ModelConfig& config);

// The same answer without taking the device.
Status CheckDeviceUsable(const DeviceOption& device);

// `options` with what depends on the device set: the tokens of a step, the share of memory.
EngineOptions WithDeviceDefaults(EngineOptions options, const Device& device);

}  // namespace minisgl::load
