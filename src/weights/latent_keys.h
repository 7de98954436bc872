// Sizes of latent attention in a configuration.
#pragma once

#include "minisgl/weights/model_config.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

// Reads the number of heads and the sizes of LatentConfig, and sets the sizes of the attention that
// the absorbed form runs. `defaults`: of absent keys.
void ReadLatentSizes(const LatentConfig& defaults, FieldReader* reader, ModelConfig* config);

}  // namespace minisgl::weights
