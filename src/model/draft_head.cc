// See draft_head.h.
#include "model/draft_head.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl::model {
namespace {

// residual = states [T, D]. `ids`: of the tokens.
void TakeAsStream(ConstActivationPtr states, const int32_t* ids, const Matrix& embedding,
                  const Workspace& space, const StreamNorms& norms, int64_t num_tokens, Ops* ops) {
  float* const stream = space.residual.data();
  // The embeddings times 0, which an addition of another type of element needs.
  ops->Embedding({.ids = ids,
                  .table = &embedding,
                  .scale = 0,
                  .out = stream,
                  .num_tokens = num_tokens,
                  .first_id = 0});
  norms.Add(states, num_tokens, /*scale=*/1);
}

}  // namespace

void KeepEntering(const std::vector<int32_t>& layers, size_t index, int64_t num_tokens,
                  int64_t max_step_tokens, const ModelConfig& config, const Workspace& space,
                  const StreamNorms& norms) {
  for (size_t part = 0; part < layers.size(); ++part) {
    if (static_cast<size_t>(layers[part]) != index) continue;
    const int64_t first = static_cast<int64_t>(part) * max_step_tokens * config.hidden_size;
    norms.NormTo(NormWeights(), space.entering.ptr().At(first), num_tokens);
  }
}

void MixTargetStates(const ModelConfig& config, const PredictionWeights& weights,
                     const Workspace& space, const StreamNorms& norms,
                     std::span<const ConstActivationPtr> parts, int64_t count, Ops* ops) {
  MINISGL_CHECK(parts.size() == weights.target_inputs.size(), "{} states for a head that reads {}",
                parts.size(), weights.target_inputs.size());
  for (size_t part = 0; part < parts.size(); ++part) {
    const ActivationPtr out = part == 0 ? ActivationPtr(space.residual.data()) : space.branch.ptr();
    ops->Linear({.x = parts[part],
                 .weight = &weights.target_inputs[part],
                 .bias = nullptr,
                 .out = out,
                 .num_tokens = count});
    if (part > 0) norms.Add(space.branch.ptr(), count, /*scale=*/1);
  }
  const bool is_normed = config.prediction != PredictionLayer::kEagle;
  norms.NormTo(is_normed ? weights.state_norm : NormWeights(), space.hidden.ptr(), count);
}

void AddTransitions(const ModelConfig& config, const PredictionWeights& weights,
                    const Workspace& space, const int32_t* ids, int64_t count, float* logits,
                    Ops* ops) {
  const int64_t rank = config.draft_head.transition_rank;
  const int64_t vocab_size = weights.transition_output.num_out;
  for (int64_t first = 0; first < count; first += kTransitionRows) {
    const int64_t rows = std::min(kTransitionRows, count - first);
    ops->Embedding({.ids = ids + first,
                    .table = &weights.transition_input,
                    .scale = 1,
                    .out = space.transition_floats.data(),
                    .num_tokens = rows});
    ops->Norm({.x = nullptr,  // as activations
               .residual = space.transition_floats.data(),
               .weight = nullptr,
               .out = space.transition_states.ptr(),
               .num_tokens = rows,
               .width = rank});
    ops->Linear({.x = space.transition_states.ptr(),
                 .weight = &weights.transition_output,
                 .bias = nullptr,
                 .out = space.transition_logits.data(),
                 .num_tokens = rows});
    ops->PlaceRows({.x = space.transition_logits.data(),
                    .x_stride = vocab_size,
                    .out = logits + first * vocab_size,
                    .out_stride = vocab_size,
                    .num_rows = static_cast<int32_t>(rows),
                    .width = vocab_size,
                    .adds = true});
  }
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
  TakeAsStream(adds_norm ? ConstActivationPtr(space.branch.ptr()) : input.states_before,
               input.token_ids, weights.embedding, space, norms, num_tokens, ops);
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
  ops->Norm({.x = nullptr,  // copies
             .residual = space.target_embedding.data(),
             .weight = nullptr,
             .out = space.embedding_input.ptr(),
             .num_tokens = num_tokens,
             .width = config.draft_head.target_width,
             .eps = 0});
  ops->Linear({.x = space.embedding_input.ptr(),
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
