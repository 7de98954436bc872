// A device with host memory and the oracle's operations, which run at once. With it the queue,
// copies and graphs of a device's engine are compared bit for bit with the CPU's engine.
//
// Bytes copied to or stored on the host arrive when the event after them is waited for, so that
// tests notice results read too early. A graph is a list of operations to call again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "minisgl/device_ops.h"

namespace minisgl {

// Planned faults. Numbers count calls from the start; 0: never.
struct HostDeviceFaults {
  int fail_wait = 0;     // the n-th Wait fails, and everything after it
  int fail_capture = 0;  // only the n-th EndCapture fails
  int fail_allocate = 0;
  uint64_t graph_bytes = 0;  // what a captured graph takes
  uint64_t other_bytes = 0;  // what another process takes during the first capture, until the next
  uint64_t load_bytes = 0;   // what the first step takes, as a driver does that loads kernels late
};

// Counters for tests.
struct HostDeviceCounters {
  int replays = 0, captures = 0, runs = 0;  // runs: of PrepareTokens outside graphs
  int64_t live_bytes = 0;
  int allocations = 0, waits = 0;
  int waits_before_others = 0;  // for events behind which operations were queued
  // Operations that ran, in graphs and outside, and those before the first Wait.
  int64_t operations = 0, at_start = 0;
  int64_t host_rows = 0;  // that went through experts on the host, without padding
  int groups = 0;         // of rows with a shared prefix, in the step that ran last
};

std::unique_ptr<DeviceOps> MakeHostDeviceOps(uint64_t total_bytes = uint64_t{1} << 30,
                                             HostDeviceFaults faults = {},
                                             std::shared_ptr<HostDeviceCounters> counters = nullptr,
                                             DType activation_dtype = DType::kF32);

}  // namespace minisgl
