// Which norms and additions of a layer belong to one product, so that Ops::FusedLinear can run them
// with it.
#pragma once

#include <cstddef>

#include "minisgl/weights/model_config.h"
#include "model/model_weights.h"

namespace minisgl::model {

struct LayerFusion {
  // Only the product of queries, keys and values reads the norm's result.
  bool attention_norm = false;
  // The output of attention is added to the residual stream as it is.
  bool attention_addition = false;
  // The same of the feed-forward part.
  bool feed_forward_norm = false;
  bool feed_forward_addition = false;
};

LayerFusion FusionOf(const ModelConfig& config, const LayerWeights& layer, size_t index);

}  // namespace minisgl::model
