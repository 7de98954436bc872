// What a pass begins with: the embeddings of its tokens, in the residual stream.
#pragma once

#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"
#include "model/model_weights.h"
#include "model/rank_sums.h"
#include "model/stream_norms.h"
#include "model/workspace.h"

namespace minisgl::model {

struct InputEmbedding {
  const ModelConfig& config;  // of the rank
  const DecoderOptions& options;
  const ModelWeights& weights;
  const Workspace& space;
  const StreamNorms& norms;
  Ops* ops;
  int64_t first_id = 0;  // of the rank's ids
};

// Writes the embeddings of ids, and what else the architecture makes of them: those of positions
// and types are added, pictures take their places, the whole is normalised. In a model whose norms
// follow sums (NormPlacement::kAfterSum) `hidden` has it, too.
void EmbedTokens(const InputEmbedding& embedding, const ForwardInput& input, RankSums* sums);

}  // namespace minisgl::model
