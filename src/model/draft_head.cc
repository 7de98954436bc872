// See draft_head.h.
#include "model/draft_head.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl::model {
namespace {

// to = from [T, width]; `width`: a norm without weights copies.
void Copy(ConstActivationPtr from, ActivationPtr to, int64_t num_tokens, int64_t width, Ops* ops) {
  ops->Norm({.x = from,
             .residual = nullptr,
             .weight = nullptr,
             .out = to,
             .num_tokens = num_tokens,
             .width = width,
             .eps = 0});
}

}  // namespace

void KeepEntering(const std::vector<int32_t>& layers, size_t index, int64_t num_tokens,
                  int64_t max_step_tokens, const ModelConfig& config, const Workspace& space,
                  Ops* ops) {
  for (size_t part = 0; part < layers.size(); ++part) {
    if (static_cast<size_t>(layers[part]) != index) continue;
    float* const to =
        space.entering.data() + static_cast<int64_t>(part) * max_step_tokens * config.hidden_size;
    Copy(space.residual.data(), to, num_tokens, config.hidden_size, ops);
  }
}

void MixTargetStates(const ModelConfig& config, const PredictionWeights& weights,
                     const Workspace& space, const StreamNorms& norms,
                     std::span<const float* const> parts, int64_t count, Ops* ops) {
  MINISGL_CHECK(parts.size() == weights.target_inputs.size(), "{} states for a head that reads {}",
                parts.size(), weights.target_inputs.size());
  float* const stream = space.residual.data();
  for (size_t part = 0; part < parts.size(); ++part) {
    const ActivationPtr out = part == 0 ? ActivationPtr(stream) : space.branch.ptr();
    ops->Linear({.x = parts[part],
                 .weight = &weights.target_inputs[part],
                 .bias = nullptr,
                 .out = out,
                 .num_tokens = count});
    if (part > 0) norms.Add(space.branch.ptr(), count, /*scale=*/1);
  }
  if (config.prediction == PredictionLayer::kEagle) return;
  NormParams norm = norms.Params(weights.state_norm, count);
  norm.x = stream;
  norm.out = stream;
  ops->Norm(norm);
}

void PairWithStates(const ModelConfig& config, const ModelWeights& weights, const Workspace& space,
                    const StreamNorms& norms, const ForwardInput& input, Ops* ops) {
  MINISGL_CHECK(input.states_before.data != nullptr, "a pass of a head without states");
  const int64_t num_tokens = input.num_tokens;
  norms.NormTo(weights.layers[0].attention_norm, space.hidden.ptr(), num_tokens);
  NormParams norm = norms.Params(weights.prediction.state_norm, num_tokens);
  norm.x = input.states_before;
  norm.out = space.branch.ptr();
  ops->Norm(norm);
  const bool adds_norm = config.draft_head.adds_norm;
  Copy(adds_norm ? ConstActivationPtr(space.branch.ptr()) : input.states_before,
       space.residual.data(), num_tokens, config.hidden_size, ops);
}

void ReadAsAssistant(const ModelConfig& config, float embedding_scale, int64_t first_id,
                     const ModelWeights& weights, const Workspace& space, const StreamNorms& norms,
                     const ForwardInput& input, Ops* ops) {
  MINISGL_CHECK(input.states_before.data != nullptr, "a pass of {} without states",
                config.architecture);
  const int64_t num_tokens = input.num_tokens;
  ops->Embedding({.ids = input.token_ids,
                  .table = &weights.embedding,
                  .scale = embedding_scale,
                  .out = space.target_embedding.data(),
                  .num_tokens = num_tokens,
                  .first_id = first_id});
  ops->Linear({.x = space.target_embedding.data(),
               .weight = &weights.prediction.embedding_input,
               .bias = nullptr,
               .out = space.residual.data(),
               .num_tokens = num_tokens});
  ops->Linear({.x = input.states_before,
               .weight = &weights.prediction.state_input,
               .bias = nullptr,
               .out = space.branch.ptr(),
               .num_tokens = num_tokens});
  norms.Add(space.branch.ptr(), num_tokens, /*scale=*/1);
}

void AddProductOfStates(const Matrix& weight, const Workspace& space, int64_t num_tokens,
                        Ops* ops) {
  ops->Linear({.x = space.branch.ptr(),
               .weight = &weight,
               .bias = nullptr,
               .out = space.state_qkv.ptr(),
               .num_tokens = num_tokens});
  ops->CombineExperts({.x = space.state_qkv.ptr(),
                       .shares = space.ones.data(),
                       .shared = ConstActivationPtr(space.qkv.ptr()),
                       .shared_gate = nullptr,
                       .out = space.qkv.ptr(),
                       .num_tokens = num_tokens,
                       .width = weight.num_out,
                       .num_chosen = 1});
}

}  // namespace minisgl::model
