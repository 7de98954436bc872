// What a step on a device has beside its rows for prompts that become vectors: which keys the
// tokens of whole texts see (WholeTexts), and the states that are pooled. These reach the host with
// the step's results and are pooled there, as on the CPU (PooledPrompts). Steps without such
// prompts have nothing of it. Its memory belongs to the step, as that of InFlightStep does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/device_array.h"
#include "minisgl/engine/engine.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::engine {

// The tokens of a plan whose states a span needs.
struct StatesWanted {
  int32_t token = 0;
  int32_t count = 0;
  int32_t num_skipped = 0;  // of them, which the vector leaves out
};
StatesWanted StatesOf(const PoolingSpan& span);
// Returns the tokens of all spans, one behind the other.
std::vector<int32_t> TokensWanted(const PlanExtras& extras);

struct StepTexts {
  int32_t num_whole = 0;   // T if texts attend both ways, else 0
  bool has_types = false;  // some text is one of two
  int32_t num_wanted = 0;  // tokens whose states are pooled
  // Offsets of i32 arrays, 16-byte aligned.
  size_t key_ends = 0, window_key_ends = 0;  // [num_whole]
  size_t types = 0;                          // [num_whole] if has_types
  size_t wanted = 0;                         // [num_wanted] of the step
  size_t end = 0;
  std::shared_ptr<void> host;  // the arrays
  DeviceArray<std::byte> device;
  size_t bytes = 0;              // size of both
  std::shared_ptr<void> states;  // [num_wanted, D] of the activations' type
  DeviceArray<std::byte> device_states;
  size_t states_bytes = 0;  // size of both
};

// Bytes on the device of all steps in flight, for a model that gives vectors alone. Others take
// what their steps need, which is little unless all states of prompts are pooled. nullopt if it
// exceeds what a machine can hold.
std::optional<uint64_t> StepTextBytes(const EngineLimits& limits, int64_t hidden_size, DType dtype);

}  // namespace minisgl::engine
