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

// Returns the matrix of `spec`, or expert `index`'s if the tensor has one for each expert.
// kBadInput with the tensor and what was found and needed if a type or a shape does not fit. Reads
// headers, global scales and orders; WeightTensor::CheckNumbers checks the other data.
Result<StoredMatrix> FindMatrix(const ModelConfig& config, const Checkpoint& checkpoint,
                                const TensorSpec& spec, int32_t index);

// Sets dense_matrices to the dense matrices of the checkpoint in `model_dir`. Leaves it unset if
// the checkpoint cannot be opened: loading the weights then reports the error.
void FindDenseMatrices(const std::string& model_dir, QuantizationConfig* config);

// True if `name` says how activations or the KV cache would be quantized: no weight depends on it.
bool IsActivationScale(std::string_view name);

}  // namespace minisgl::weights
