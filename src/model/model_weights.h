// The weights of a model, checked against its configuration and packed by the operations that will
// read them.
#pragma once

#include <optional>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/ops.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::model {

// Null where the architecture has no such norm, or the norm no bias. What ModelConfig says of them
// (norm_plus_one, for the last one logit_scale) is worked in.
struct NormWeights {
  DeviceArray<float> weight;  // [D]
  DeviceArray<float> bias;    // [D]
};

// A feed-forward part; `up` alone stands in `gate_up` where it is not gated.
struct FeedForwardWeights {
  Matrix gate_up;                   // [2 I, D], or [I, D]
  DeviceArray<float> gate_up_bias;  // null where there is none
  Matrix down;                      // [D, I]
  DeviceArray<float> down_bias;     // likewise
};

struct ExpertWeights {
  Matrix router;                    // [X, D]
  DeviceArray<float> router_bias;   // [X]; null where there is none
  ExpertMatrices gate_up;           // [X, 2 J, D]
  DeviceArray<float> gate_up_bias;  // [X, 2 J]; likewise
  ExpertMatrices down;              // [X, D, J]
  DeviceArray<float> down_bias;     // [X, D]; likewise
  Matrix shared_share;              // [1, D]; of no rows where the shared part counts in full
};

struct LayerWeights {
  NormWeights attention_norm, attention_post_norm;
  Matrix qkv;                                // [(H + 2 HKV) * E, D]
  DeviceArray<float> qkv_bias;               // [(H + 2 HKV) * E]; null where there is none
  DeviceArray<float> query_norm;             // as QkNorm says: [E] or [H * E]; null: none
  DeviceArray<float> key_norm;               // [E] or [HKV * E]
  DeviceArray<float> sinks;                  // [H]; null where there are none
  Matrix attention_output;                   // [D, H * E]
  DeviceArray<float> attention_output_bias;  // [D]; null where there is none
  NormWeights feed_forward_norm, feed_forward_post_norm;
  FeedForwardWeights feed_forward;  // of a layer with experts the shared part, if there is one
  ExpertWeights experts;            // of a layer that has them
};

struct ModelWeights {
  Matrix embedding;  // [V, D]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  Matrix head;  // [V, D]; the embedding's values where the model ties them
};

// Every required tensor is there in the shape that `config` says, and none is there that the
// architecture does not know. Any fault is kBadInput naming the tensor, what was found and what is
// wanted. Reads headers only.
Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint);

// CheckTensors, then packs. Matrices are converted to `format` (the routers' and the weight of the
// shared part to its dtype, unquantized: they are small, and experts are chosen by them), vectors
// to f32.
Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                      const WeightFormat& format, Ops* ops);

// What LoadModelWeights will hold, by `config` alone. Nothing where that is past 2^64. What
// fills up the last rows of a packed matrix is not counted.
std::optional<uint64_t> ModelWeightBytes(const ModelConfig& config, const WeightFormat& format);

}  // namespace minisgl::model
