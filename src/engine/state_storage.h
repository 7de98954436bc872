// The states of every layer that has one: num_slots slots a layer, zeroed on first touch. Unused
// slots cost only address space.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"
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

  // Bytes of a slot in all layers; 0 for a model without states.
  int64_t slot_bytes() const { return num_slot_floats_ * static_cast<int64_t>(sizeof(float)); }
  // Calls visit(floats, num_bytes) for the pieces of a slot, which together are its state: layer by
  // layer the convolution's inputs, then the matrices.
  template <typename Visit>
  void ForEachPiece(StateSlot slot, const Visit& visit) const {
    const auto piece = [&](float* array, int64_t num_floats) {
      if (array != nullptr) visit(array + slot * num_floats, num_floats * sizeof(float));
    };
    for (const StateLayer& layer : layers_) {
      piece(layer.conv, num_conv_floats_);
      piece(layer.matrices, num_matrix_floats_);
    }
  }

 private:
  std::vector<DeviceArray<float>> memory_;
  std::vector<StateLayer> layers_;
  // Floats of a slot in one layer that has a state, and of a whole slot.
  int64_t num_conv_floats_ = 0, num_matrix_floats_ = 0, num_slot_floats_ = 0;
};

// Bytes of a slot in all layers; 0 for a model without states. Nothing if that exceeds 2^64.
std::optional<uint64_t> StateBytesPerSlot(const ModelConfig& config);

}  // namespace minisgl::engine
