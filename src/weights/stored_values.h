// The values of a small tensor of known shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl::weights {

// Returns the elements of tensor `name` as f32, in the order of the file. kBadInput with the file,
// the tensor and its shape if that is not `shape`; errors of Checkpoint::Get.
Result<std::vector<float>> ReadStoredValues(const Checkpoint& checkpoint, const std::string& name,
                                            const std::vector<int64_t>& shape);

}  // namespace minisgl::weights
