// Integer ids shared by all rooms.
#pragma once

#include <cstdint>

namespace minisgl {

using TokenId = int32_t;       // of the model's vocabulary
using PageId = int32_t;        // of the KV pool: [0, num_pages)
using WindowPageId = int32_t;  // of the window pages: [0, num_window_pages)
using StateSlot = int32_t;     // of the state slots: [0, num_state_slots)
using StepId = uint64_t;       // of a launched batch, counting from 1

// A sequence before its first token: its states are all zero.
inline constexpr StateSlot kZeroState = -1;

}  // namespace minisgl
