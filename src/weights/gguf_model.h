// A GGUF file as a model: its metadata as a configuration, its tensors under the names that a
// model directory has for them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/tensor/tensor_view.h"
#include "minisgl/tensor/weight_tensor.h"
#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"

namespace minisgl::weights {

// The text of the config.json that says the same as the metadata. Errors name the key, without the
// file's name.
Result<std::string> GgufConfigText(const GgufHeader& header);

// The configuration; `path` is the file's name in errors.
Result<ModelConfig> ReadGgufConfig(const GgufHeader& header, const std::string& path);

// A tensor of a model directory, as the file holds it.
struct GgufModelTensor {
  std::string name;
  std::optional<WeightTensor> matrix;  // of a matrix, whatever its type
  TensorView view;                     // of other tensors
  std::shared_ptr<const void> memory;  // of a view that is not one of the file's bytes
  size_t part = 0;                     // which of the model's files has it
};

// All tensors that the model needs, and no others. kBadInput for one that is missing, has another
// shape or a type that is not read, and for one that the model has no use for; with kFirst, too.
Result<std::vector<GgufModelTensor>> FindGgufTensors(const GgufHeader& header,
                                                     const ModelConfig& config,
                                                     ListedExperts experts = ListedExperts::kAll);

// Which of `tensors`, of kFirst, engines may keep as codes and scales; empty if none has them.
QuantizationConfig GgufQuantization(const std::vector<GgufModelTensor>& tensors);

}  // namespace minisgl::weights
