// Tensors under other names than the architecture gives them, and tensors that are missing.
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::weights {

// The name under which `checkpoint` holds the tensor `name`: that of the output head for the
// embedding if both are one and the head alone is stored; else `name`.
std::string StoredName(const ModelConfig& config, const Checkpoint& checkpoint,
                       const std::string& name);

// The error of the first tensor that the model needs and the index of `checkpoint` names, but no
// file holds. Needs an architecture that is known.
Status CheckNothingAbsent(const ModelConfig& config, const Checkpoint& checkpoint);

// True if `name` says how activations or the KV cache would be quantized: no weight depends on it.
bool IsActivationScale(std::string_view name);

}  // namespace minisgl::weights
