// A device whose memory is the host's and whose operations are the oracle's, run at once: what the
// engine of a device does with its queue, its copies and its graphs can be held bit for bit against
// the CPU's engine.
//
// A copy to the host arrives when the event behind it is waited for, so that results read too early
// show. Graphs are the operations themselves, called again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "minisgl/device_ops.h"

namespace minisgl {

// Faults to come. Counts are of calls from the start; 0: never.
struct HostDeviceFaults {
  int fail_wait = 0;     // the n-th Wait fails, and so does all after it
  int fail_capture = 0;  // the n-th EndCapture fails, alone
  int fail_allocate = 0;
  uint64_t graph_bytes = 0;  // what a captured graph takes
};

// What a test may look at.
struct HostDeviceCounters {
  int replays = 0, captures = 0, runs = 0;  // runs: of PrepareTokens outside graphs
  int64_t live_bytes = 0;
  int allocations = 0, waits = 0;
  int groups = 0;  // of rows with a shared prefix, in the step that ran last
};

std::unique_ptr<DeviceOps> MakeHostDeviceOps(uint64_t total_bytes = uint64_t{1} << 30,
                                             HostDeviceFaults faults = {},
                                             std::shared_ptr<HostDeviceCounters> counters = nullptr,
                                             DType activation_dtype = DType::kF32);

}  // namespace minisgl
