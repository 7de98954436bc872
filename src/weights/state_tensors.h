// Names and sizes of the tensors of layers with a state.
#pragma once

#include <cstdint>
#include <string_view>

#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"

namespace minisgl::weights {

// The name within a layer of a tensor of `role`, unless the entry of the table has another; null if
// a layer with this mixer has none.
const char* StateNameOf(Mixer mixer, TensorRole role);

// The size of a symbol of architectures.h that is of StateConfig. These sizes were read with upper
// bounds, and no sum or product of them is 2^63 or more. REQUIRES such a symbol.
int64_t StateSize(const StateConfig& states, std::string_view symbol);

}  // namespace minisgl::weights
