// The weights of a model, checked against its configuration and packed by the operations that will
// read them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/ranks.h"
#include "minisgl/ops.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::model {

// Null if the architecture has no such norm, or the norm has no bias. norm_plus_one of ModelConfig
// (and logit_scale, for the final norm) is already applied to the weights.
struct NormWeights {
  DeviceArray<float> weight;  // [D]
  DeviceArray<float> bias;    // [D]
};

// A feed-forward part. If it is not gated, `gate_up` holds `up` only.
struct FeedForwardWeights {
  Matrix gate_up;                   // [2 I, D], or [I, D]
  DeviceArray<float> gate_up_bias;  // [2 I], or [I]; null: none
  Matrix down;                      // [D, I]
  DeviceArray<float> down_bias;     // [D]; null: none
  XieluParams xielu;                // of Activation::kXielu
};

struct ExpertWeights {
  Matrix router;                    // [X, D]
  DeviceArray<float> router_bias;   // [X] of the logits; null: none
  DeviceArray<float> choice_bias;   // [X] of RouteParams; null: none
  ExpertMatrices gate_up;           // [X, 2 J, D]
  DeviceArray<float> gate_up_bias;  // [X, 2 J]; null: none
  ExpertMatrices down;              // [X, D, J]
  DeviceArray<float> down_bias;     // [X, D]; null: none
  Matrix shared_share;              // [1, D] gate of the shared expert; no rows: not gated
  Matrix latent_input;              // [latent_size, D]; no rows: none
  Matrix latent_output;             // [D, latent_size]
  // ExpertsConfig::beside_dense; the norms are of D features:
  DeviceArray<float> expert_scale;  // [X] of RouteParams; null: none
  NormWeights router_norm, expert_norm, expert_post_norm, dense_post_norm;
};

// What a layer adds of its part of the per-layer embeddings.
struct PerLayerWeights {
  Matrix gate;    // [P, D]
  Matrix output;  // [D, P]
  NormWeights norm;
};

// The mixer of a layer with a state (StateConfig).
struct StateWeights {
  Matrix input;                    // [C, D]; of a gated convolution [3 C, D], gates first
  DeviceArray<float> input_bias;   // null: none
  DeviceArray<float> conv;         // [conv_length, C]
  DeviceArray<float> conv_bias;    // [C]; null: none
  Matrix output;                   // [D, inner_width]; of a gated convolution [D, C]
  DeviceArray<float> output_bias;  // [D]; null: none
  // Recurrences of H heads:
  Matrix gate;                        // [inner_width, D]
  DeviceArray<float> gate_bias;       // null: none
  Matrix scalars;                     // [H, D] of decays, or [2 H, D]: decays, then gains
  DeviceArray<float> scalars_bias;    // null: none
  DeviceArray<float> decay_rate;      // [H]
  DeviceArray<float> decay_bias;      // [H]
  DeviceArray<float> skip;            // [H]; null: none
  DeviceArray<float> query_key_norm;  // [2 G N] weights of the norm of each; null: none
  DeviceArray<float> norm;            // [inner_width]; null: none
};

// Latent attention (latent_attention.h). The heads of `query` have their rotated features first.
struct LatentWeights {
  Matrix query_down;                   // [RQ, D]; no rows: queries are products with D features
  DeviceArray<float> query_down_bias;  // [RQ]; null: none
  DeviceArray<float> query_norm;       // [RQ]
  Matrix query;                        // [H * (ER + EN), RQ], or [.., D]
  DeviceArray<float> norm;             // [R] of the latent
  HeadMatrices absorbed_keys;          // [H, R, EN]
  HeadMatrices values;                 // [H, EO, R]
};

struct LayerWeights {
  NormWeights attention_norm, attention_post_norm, attention_second_norm;
  // [H * E + HKV * (E + EV), D], or of q alone; [ER + R, D] of a latent's rotated part and itself
  Matrix qkv;
  Matrix state_qkv;               // of kEagle, [.., D]: qkv reads the embedding alone
  DeviceArray<float> qkv_bias;    // [outputs of qkv]; null: none
  DeviceArray<float> query_norm;  // [E] or [H * E], by QkNorm; null: none
  DeviceArray<float> key_norm;    // [E] or [HKV * E]; null: none
  DeviceArray<float> query_norm_bias, key_norm_bias;  // of their sizes; null: none
  DeviceArray<float> sinks;                           // [H]; null: none
  Matrix attention_output;                            // [D, H * EV]
  DeviceArray<float> attention_output_bias;           // [D]; null: none
  Matrix attention_gate;                              // [H * EV, D]; no rows: none
  LatentWeights latent;                               // if the model has latent attention
  DeviceArray<float> attention_gate_bias;             // [H * EV]; null: none
  NormWeights feed_forward_norm, feed_forward_post_norm;
  FeedForwardWeights feed_forward;  // in a layer with experts: the shared expert, if any
  ExpertWeights experts;            // in a layer with experts
  StateWeights state;               // in a layer without attention
  PerLayerWeights per_layer;        // if the model has per-layer embeddings
  float factor = 1;                 // of the residual stream after the layer
};

// Per-layer embeddings of the whole model.
struct PerLayerTable {
  // [VP, L*P]. The CPU reads rows from the file when they are used, a device has it in its memory.
  std::optional<WeightTensor> table;
  Matrix device_table;
  std::shared_ptr<const void> memory;  // keeps the table
  Matrix projection;                   // [L*P, D]
  DeviceArray<float> norm;             // [L*P] weights of the norm of each P, times 1 / sqrt(2)
};

// True if it is in memory beside the other weights: on a device, whose activations have 16 bits.
inline bool KeepsPerLayerTable(DType activation_dtype) { return activation_dtype != DType::kF32; }

// What a layer or head that drafts reads (ModelConfig::prediction). In a layer for multi-token
// prediction the product of the embedding and that of the state are added.
struct PredictionWeights {
  NormWeights embedding_norm, state_norm;
  Matrix embedding_input, state_input;  // [D, D]
  std::vector<Matrix> target_inputs;    // [D, DT] of a head, for each layer of the target
  Matrix output, clusters;              // [B, D], [CT, D] of an assistant
  // [V, TR] of DraftHeadConfig::transition_rank: a table, and a matrix
  Matrix transition_input, transition_output;
};

struct ModelWeights {
  PredictionWeights prediction;
  Matrix embedding;  // [V, D]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  Matrix head;  // [V, D]; the embedding's values if the model ties them
  PerLayerTable per_layer;
  DeviceArray<float> embedding_norm;  // [D] ones; null: no norm
  // An encoder has tables beside the embedding; no rows: there is no such table.
  Matrix positions;               // [NP, D]
  Matrix token_types;             // [NT, D]
  NormWeights input_norm;         // of the sum of a token's embeddings
  DeviceArray<float> distances;   // [H, DistanceStride]; null: none
  DeviceArray<float> value_norm;  // ones for the widest values of a token; null: no norm
  // [layers] the products alone of experts on the host, in its memory; empty: none are there.
  std::vector<ExpertWeights> host_experts;
};

// Where the experts of the last `num_layers` layers with experts are packed, if not with the rest.
struct HostExpertPacking {
  int32_t num_layers = 0;
  WeightFormat format = {};
  Ops* ops = nullptr;
};
inline HostExpertPacking HostExpertPackingOf(const DecoderOptions& options) {
  return {options.num_host_layers, options.host_format, options.host_ops};
}

// The format of ModelConfig::copied_head.
inline WeightFormat CopiedHeadFormat(const WeightFormat& format) {
  return {format.dtype, Quantization::kInt4};
}

// AttentionParams::distance_origin and distance_stride of `distances`.
inline int64_t DistanceOrigin(const ModelConfig& config) { return config.max_seq_len; }
inline int64_t DistanceStride(const ModelConfig& config) {
  return 2 * DistanceOrigin(config) + AttentionParams::kKeysPast;
}

// Checks that `checkpoint` has every required tensor in the shape given by `config` and no tensor
// unknown to the architecture. kBadInput with the tensor, what was found and what is expected.
// Reads headers only. `logs`: tells which tensors are not used.
Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint, bool logs = true);

// Checks the tensors (CheckTensors), then packs them. Matrices are converted to `format`; the
// embedding table and the output head to TableFormat of it; those of routers and shared gates to
// its dtype without quantization, because they are small and choose the experts. Vectors are
// converted to f32. Of several ranks: the part of `rank` (rank_cut.h); sizes above are then those
// of RankConfig. `tables`: the target's, of the rank, if `config` is that of a prediction layer.
Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                      const WeightFormat& format, Ops* ops, const Rank& rank = {},
                                      const DecoderTables* tables = nullptr,
                                      const HostExpertPacking& host = {});

// Bytes of the result of LoadModelWeights with Ops of activation_dtype, computed from `config`
// alone, not counting the padding of a matrix's last rows; nullopt if 2^64 or more. Without the
// experts of `num_host_layers` layers, which are on the host (HostExpertLayers). An upper bound for
// stored codes; the CPU's of 5 and 6 bits count as 8 bits unless `packs_6_bits` (CpuPacks6Bits).
std::optional<uint64_t> ModelWeightBytes(const ModelConfig& config, const WeightFormat& format,
                                         DType activation_dtype, const Rank& rank = {},
                                         int32_t num_host_layers = 0, bool packs_6_bits = false);
// Bytes of the rank's cuts of these experts on the host in `format`.
std::optional<uint64_t> HostExpertBytes(const ModelConfig& config, const WeightFormat& format,
                                        const Rank& rank, int32_t num_host_layers,
                                        bool packs_6_bits);

}  // namespace minisgl::model
