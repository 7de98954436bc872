// See stored_values.h.
#include "weights/stored_values.h"

#include <cstddef>

#include "minisgl/tensor/tensor_view.h"

namespace minisgl::weights {

Result<std::vector<float>> ReadStoredValues(const Checkpoint& checkpoint, const std::string& name,
                                            const std::vector<int64_t>& shape) {
  MINISGL_ASSIGN_OR_RETURN(const TensorView tensor, checkpoint.Get(name));
  if (tensor.shape != shape) {
    return BadInput("{}: tensor {} has shape {}, {} is needed", checkpoint.FileOf(name), name,
                    ShapeToString(tensor.shape), ShapeToString(shape));
  }
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.At(static_cast<int64_t>(i));
  return values;
}

}  // namespace minisgl::weights
