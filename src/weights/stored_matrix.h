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

// Returns the matrix [num_out, num_in] whose tensors' names are `base` and an ending, if they are
// codes in one of the ways of `config`; nullopt if they are not. Errors as above. REQUIRES sizes of
// at most 2^40.
Result<std::optional<StoredMatrix>> FindCodes(const QuantizationConfig& config,
                                              const Checkpoint& checkpoint, const std::string& base,
                                              int64_t num_out, int64_t num_in);

// Sets `matrices` to those of the checkpoint in `model_dir`, of which only the dense ones are
// listed. Leaves it unset if the checkpoint cannot be opened: loading the weights then reports the
// error.
void FindDenseMatrices(const std::string& model_dir, QuantizationConfig* config);

}  // namespace minisgl::weights
