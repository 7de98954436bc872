// Latent attention (DeepSeek V2) in its absorbed form: what comes before and after Ops::Attention.
//
// Letters: T tokens, H heads, D hidden size; R rank, RQ query_rank; EN plain_dim, ER rotary_dim and
// EO value_dim of LatentConfig. For a token with hidden features x:
//   key      [rotated(r), c], with [r, c'] = W_latent x and c = norm(c')
//   query h  [rotated(q_r), K_h^T q_n], with [q_r, q_n] of head h = W_query norm(W_down x), or
//            W_query x
//   output h V_h (sum of weights * c)
// The reference has keys K_h c and values V_h c of each head: q_n . K_h c = (K_h^T q_n) . c, and
// V_h is the same for all keys. So one key of ER + R features serves all heads, and its last R are
// the value.
#pragma once

#include <cstdint>

#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace minisgl::model {

// Writes queries and key of each token, before their rotation, to `space.qkv`
// [T, H * (ER + R) + ER + R]. Reads `space.hidden`.
void ComputeLatentQueries(const ModelConfig& config, const LayerWeights& layer,
                          const Workspace& space, int64_t num_tokens, Ops* ops);

// Multiplies what attention returned, `space.attention` [T, H * R], by the heads' matrices of
// values, and returns the result, [T, H * EO].
ConstActivationPtr ExpandLatentValues(const LayerWeights& layer, const Workspace& space,
                                      int64_t num_tokens, Ops* ops);

}  // namespace minisgl::model
