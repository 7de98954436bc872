// How many slots of states a model gets, out of the memory for keys and values.
//
// A running request needs StateSlotsPerRequest of them. The others keep states at the ends of
// prefixes.
#pragma once

#include <cstdint>
#include <optional>

#include "minisgl/engine/engine.h"

namespace minisgl::engine {

inline constexpr int32_t kSlotsOfRequest = StateSlotsPerRequest(EngineLimits().max_in_flight);
inline constexpr int32_t kSnapshotsMin = 4;

struct StateSplit {
  int32_t max_running_requests = 0;
  int32_t num_slots = 0;
  uint64_t bytes = 0;  // of the slots
};

// Divides `allowed` bytes, if a slot has `slot_bytes` (0: the model has no states, and gets no
// slots). Slots of running requests take up to half of them: there may be fewer requests than
// `max_running_requests`. Those for prefixes take up to an eighth. Nothing if not even one request
// fits.
std::optional<StateSplit> SplitStates(uint64_t slot_bytes, uint64_t allowed,
                                      int32_t max_running_requests);

}  // namespace minisgl::engine
