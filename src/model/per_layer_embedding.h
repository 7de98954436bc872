// The factors of embeddings, and the embeddings that layers have of their own
// (ModelConfig::per_layer_width).
#pragma once

#include <cstddef>
#include <cstdint>

#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace minisgl::model {

// The factor of embeddings that have type `dtype` in memory.
float EmbeddingScale(const ModelConfig& config, DType dtype);

// Writes to space.per_layer what the layers get of their own embeddings, for all of them at once:
//   per_layer = (norm(projection(x) / sqrt(D)) + per_layer_scale * table[id]) / sqrt(2)
// with x the embedding, in space.residual, and a norm of each layer's P features. The scale of the
// projection is in the norm's eps, the factor 1 / sqrt(2) in its weights. Uses space.hidden.
void EmbedForLayers(const ModelConfig& config, const DecoderOptions& options,
                    const PerLayerTable& table, const Workspace& space, const ForwardInput& input,
                    Ops* ops);

// Writes output(act(gate(x)) * per_layer) of layer `index` to space.hidden [T, D], x in it. `next`:
// see LinearParams.
void ApplyPerLayer(const ModelConfig& config, const PerLayerWeights& weights, size_t index,
                   const Workspace& space, int64_t num_tokens, const Matrix* next, Ops* ops);

}  // namespace minisgl::model
