// Names the format of a model's weights, for people.
#pragma once

#include <string>

#include "minisgl/weights/model_config.h"

namespace minisgl::cli {

// "bf16", or "compressed-tensors: int4, groups of 32": of the files.
std::string StoredFormat(const ModelConfig& config);

}  // namespace minisgl::cli
