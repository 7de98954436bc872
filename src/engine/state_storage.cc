// See state_storage.h.
#include "engine/state_storage.h"

#include <utility>

#include "minisgl/base/checked_math.h"

namespace minisgl::engine {

Result<StateStorage> StateStorage::Make(const ModelConfig& config, int32_t num_slots, Ops* ops) {
  StateStorage storage;
  if (!HasStates(config)) return storage;
  const auto slots = static_cast<uint64_t>(num_slots);
  const auto take = [&](int64_t floats, float** array) -> Status {
    if (floats == 0) return Status();
    MINISGL_ASSIGN_OR_RETURN(auto memory,
                             DeviceArray<float>::Make(ops, {slots, static_cast<uint64_t>(floats)}));
    *array = memory.data();
    storage.num_slot_floats_ += floats;
    storage.memory_.push_back(std::move(memory));
    return Status();
  };
  storage.num_conv_floats_ = StateConvFloats(config.states);
  storage.num_matrix_floats_ = StateMatrixFloats(config.states);
  for (const LayerConfig& layer : config.layers) {
    StateLayer state;
    if (HasState(layer.mixer)) {
      MINISGL_RETURN_IF_ERROR(take(storage.num_conv_floats_, &state.conv));
      MINISGL_RETURN_IF_ERROR(take(storage.num_matrix_floats_, &state.matrices));
    }
    storage.layers_.push_back(state);
  }
  return storage;
}

std::optional<uint64_t> StateBytesPerSlot(const ModelConfig& config) {
  uint64_t num_layers = 0;
  for (const LayerConfig& layer : config.layers) {
    num_layers += HasState(layer.mixer) ? 1 : 0;
  }
  const auto floats = CheckedAdd(static_cast<uint64_t>(StateConvFloats(config.states)),
                                 static_cast<uint64_t>(StateMatrixFloats(config.states)));
  const auto all = floats ? CheckedMul(*floats, num_layers) : std::nullopt;
  return all ? CheckedMul(*all, sizeof(float)) : std::nullopt;
}

}  // namespace minisgl::engine
