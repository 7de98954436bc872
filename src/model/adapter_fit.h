// The modules of a model that an adapter changes: its names against the tensors of the
// architecture.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"

namespace minisgl::model {

// The change of one stored matrix, or of one expert's.
struct FittedChange {
  const AdapterChange* change = nullptr;
  // A parameter of all experts has the matrices of `num_experts`, of which this is one, whose
  // outputs begin at `first_out` of the parameter's. Any other: 0 of 1, from 0 on.
  int64_t expert = 0, num_experts = 1;
  int64_t first_out = 0;
  // Which row of B each output of the matrix has; null: its own.
  std::shared_ptr<const std::vector<int64_t>> rows = nullptr;

  int64_t rank() const { return change->rank / num_experts; }
  // Element `input` of row `k` of A, and B of output `out` of the matrix and rank `k`.
  float A(int64_t k, int64_t input) const {
    return change->a.At((expert * rank() + k) * change->a.shape[1] + input);
  }
  float B(int64_t out, int64_t k) const {
    const int64_t row = rows == nullptr ? out : (*rows)[static_cast<size_t>(out)];
    return change->b.At((first_out + row) * change->rank + k * num_experts + expert);
  }
};

// By layer (-1: outside the layers), role and index of weights::TensorSpec. The output head is
// under kHead, also if it is tied to the embedding.
using FittedKey = std::tuple<int32_t, weights::TensorRole, int32_t>;
using FittedChanges = std::map<FittedKey, FittedChange>;

// The errors of CheckAdapterFits.
Result<FittedChanges> FitAdapter(const ModelConfig& config, const Adapter& adapter);

// Outputs and inputs of the matrix of `spec`, whatever the order of its file; of one expert.
struct MatrixSizes {
  int64_t num_out = 0, num_in = 0;
};
MatrixSizes SizesOf(const ModelConfig& config, const weights::TensorSpec& spec);

}  // namespace minisgl::model
