// Steps of the padding row before the first request: what a device does when something runs for the
// first time (loading kernels, choosing algorithms of products) then falls into the start, and not
// into the time to the first token.
#pragma once

#include <cstdint>

#include "engine/device_step.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"

namespace minisgl::engine {

// Runs a decode step of `decode_rows` rows, steps that extend one row, of sizes for which a device
// may use different kernels, and, if there is a drafter, one that drafts. REQUIRES that `in_flight`
// and the device are idle.
Status WarmUp(int32_t decode_rows, DeviceStep* step, InFlightStep* in_flight, DeviceOps* ops);

}  // namespace minisgl::engine
