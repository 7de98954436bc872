// See prediction_input.h.
#include "model/prediction_input.h"

#include "minisgl/base/check.h"

namespace minisgl::model {

void MixStatesBefore(const ModelConfig& config, const PredictionWeights& weights,
                     const Workspace& space, const StreamNorms& norms, const ForwardInput& input,
                     Ops* ops) {
  MINISGL_CHECK(input.states_before.data != nullptr, "a pass of {} without states",
                config.architecture);
  const int64_t num_tokens = input.num_tokens;
  float* const stream = space.residual.data();
  const ActivationPtr hidden = space.hidden.ptr();
  norms.NormTo(weights.embedding_norm, hidden, num_tokens);
  ops->Linear({.x = hidden,
               .weight = &weights.embedding_input,
               .bias = nullptr,
               .out = stream,
               .num_tokens = num_tokens,
               .next = &weights.state_input});
  NormParams norm = norms.Params(weights.state_norm, num_tokens);
  norm.x = input.states_before;
  norm.out = hidden;
  ops->Norm(norm);
  ops->Linear({.x = hidden,
               .weight = &weights.state_input,
               .bias = nullptr,
               .out = space.branch.ptr(),
               .num_tokens = num_tokens});
  norms.Add(space.branch.ptr(), num_tokens, /*scale=*/1);
}

}  // namespace minisgl::model
