// The matrices of a checkpoint, dense or quantized (quantization_config.h), as weight tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/tensor/weight_tensor.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"

namespace minisgl::weights {

struct StoredMatrix {
  WeightTensor weights;            // [out, in]
  std::vector<std::string> names;  // of the tensors that hold it
};

// The matrix of `spec`; of a tensor with one for each expert, that of expert `index`. kBadInput
// with the tensor, what was found and what is needed if a type or a shape does not fit. Reads
// headers, and of the data global scales and orders alone; WeightTensor::CheckNumbers checks the
// rest.
Result<StoredMatrix> FindMatrix(const ModelConfig& config, const Checkpoint& checkpoint,
                                const TensorSpec& spec, int32_t index);

// Sets dense_matrices to the dense ones of the checkpoint in `model_dir`. Leaves it if that cannot
// be opened: who loads the weights gets the error.
void FindDenseMatrices(const std::string& model_dir, QuantizationConfig* config);

// True if `name` says how activations or the KV cache would be quantized: no weight depends on it.
bool IsActivationScale(std::string_view name);

}  // namespace minisgl::weights
