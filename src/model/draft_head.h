// What a decoder does as a head that drafts from states of its target (DraftHeadConfig), and as the
// target of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "model/model_weights.h"
#include "model/stream_norms.h"
#include "model/workspace.h"

namespace minisgl::model {

// Copies the residual stream [T, D] to space.entering, if `layers` has layer `index`. The copies of
// all of `layers` stand one behind the other, each with room for max_step_tokens.
void KeepEntering(const std::vector<int32_t>& layers, size_t index, int64_t num_tokens,
                  int64_t max_step_tokens, const ModelConfig& config, const Workspace& space,
                  const StreamNorms& norms);

// Writes c (DraftHeadConfig) to space.hidden [count, D], of kBlock its norm. `parts`: of each layer
// the states [count, target_width] that enter it. Overwrites the residual stream.
void MixTargetStates(const ModelConfig& config, const PredictionWeights& weights,
                     const Workspace& space, const StreamNorms& norms,
                     std::span<const ConstActivationPtr> parts, int64_t count, Ops* ops);

// kEagle: the embeddings are in space.residual. Leaves norm(embedding) in space.hidden, norm(g) in
// space.branch, and in space.residual what attention's output is added to. g: input.states_before.
void PairWithStates(const ModelConfig& config, const ModelWeights& weights, const Workspace& space,
                    const StreamNorms& norms, const ForwardInput& input, Ops* ops);

// kAssistant: writes x to space.residual, of the step's ids and of input.states_before.
void ReadAsAssistant(const ModelConfig& config, float embedding_scale, int64_t first_id,
                     const ModelWeights& weights, const Workspace& space, const StreamNorms& norms,
                     const ForwardInput& input, Ops* ops);

// Decoder::AddTransitions.
void AddTransitions(const ModelConfig& config, const PredictionWeights& weights,
                    const Workspace& space, const int32_t* ids, int64_t count, float* logits,
                    Ops* ops);

// kEagle: adds to space.qkv the product of norm(g) in space.branch.
void AddProductOfStates(const Matrix& weight, const Workspace& space, int64_t num_tokens, Ops* ops);

}  // namespace minisgl::model
