// Rotary settings of GGUF files as keys of config.json.
#pragma once

#include <cstdint>

#include "minisgl/base/json.h"
#include "weights/gguf_metadata.h"

namespace minisgl::weights {

// All of them. `partial`: fewer features than `head_dim` may be rotated.
void WriteRope(GgufMetadata* metadata, bool partial, int64_t head_dim, Json* config);

// Parts of that, for a family with settings of its own: rope_theta, and rope_scaling without
// factors that are stored as tensors.
void WriteRopeBase(GgufMetadata* metadata, Json* config);
void WriteRopeScaling(GgufMetadata* metadata, Json* config);

}  // namespace minisgl::weights
