// The weights of a model, checked against its configuration and packed by the operations that will
// read them.
#pragma once

#include <optional>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/ops.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "model/architectures.h"
#include "model/device_array.h"

namespace minisgl {

struct LayerWeights {
  DeviceArray<float> attention_norm;     // [D]
  Matrix qkv;                            // [(H + 2 HKV) * E, D]
  DeviceArray<float> qkv_bias;           // [(H + 2 HKV) * E]; null where there is none
  DeviceArray<float> query_norm;         // [E]; null where there is none
  DeviceArray<float> key_norm;           // likewise
  Matrix attention_output;               // [D, H * E]
  DeviceArray<float> feed_forward_norm;  // [D]
  Matrix gate_up;                        // [2 I, D]
  Matrix down;                           // [D, I]
};

struct ModelWeights {
  Matrix embedding;  // [V, D]
  std::vector<LayerWeights> layers;
  DeviceArray<float> final_norm;  // [D]
  Matrix head;                    // [V, D]; the embedding's values where the model ties them
};

// Every required tensor is there in the shape that `config` says, and none is there that
// `architecture` does not know. Any fault is kBadInput naming the tensor, what was found and what
// is wanted. Reads headers only.
Status CheckTensors(const ModelConfig& config, const Architecture& architecture,
                    const Checkpoint& checkpoint);

// CheckTensors, then packs. Matrices are converted to `dtype`, norms to f32.
Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const Architecture& architecture,
                                      const Checkpoint& checkpoint, DType dtype, Ops* ops);

// What LoadModelWeights will hold, by `config` alone. Nothing where that is past 2^64.
std::optional<uint64_t> ModelWeightBytes(const ModelConfig& config,
                                         const Architecture& architecture, DType dtype);

}  // namespace minisgl
