// The states of every layer that has one: num_slots slots a layer, zeroed on first touch. Unused
// slots cost only address space.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

class StateStorage {
 public:
  // Nothing is allocated for a model without states.
  static Result<StateStorage> Make(const ModelConfig& config, int32_t num_slots, Ops* ops);

  // [layers]; empty for a model without states.
  std::span<const StateLayer> layers() const { return layers_; }

 private:
  std::vector<DeviceArray<float>> memory_;
  std::vector<StateLayer> layers_;
};

// Bytes of a slot in all layers; 0 for a model without states. Nothing if that exceeds 2^64.
std::optional<uint64_t> StateBytesPerSlot(const ModelConfig& config);

}  // namespace minisgl::engine
