// From the share of its own rate that a chat keeps beside a batch, the tokens of other requests
// that a step beside it has room for.
//
// A step of one row takes as long as its weights are read. Each token of another request adds the
// time of its products, as if more bytes were read, and the weights of experts that no other row
// reads. The sum is an estimate from counts alone, on the safe side: nothing is timed, so that the
// same model has the same schedule in each run on a machine.
#pragma once

#include <cstdint>

#include "minisgl/engine/model_engine.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

struct RoomBesideChat {
  int64_t room = 0;            // SchedulerOptions::room_beside_chat
  int64_t keys_per_token = 0;  // likewise
  int64_t long_step_tokens = 0;
};

// `share` of the rate, below 1; 0: others are not bounded. `is_device`: the engine is a GPU's.
RoomBesideChat RoomForShare(double share, const ModelConfig& config, const MemoryPlan& plan,
                            bool is_device);

}  // namespace minisgl::load
