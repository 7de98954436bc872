// The tensors of each supported architecture: their roles in the decoder, names in the files, and
// shapes. The decoder is written once, over ModelConfig and these roles.
//
// Shapes are written in symbols:
//   V vocabulary size, D hidden size, 1
//   H query heads, HKV key/value heads, E head_dim, EV value_dim
//   2H*E all query heads with their gates
//   H*E all query heads, HKV*E all key (or value) heads, (H+2HKV)*E fused q, k, v
//   HKV*EV all value heads and H*EV what attention returns, if EV is not E
//   I feed-forward size, 2I fused gate and up
//   X experts, XD latent_size, J size of an expert, 2J fused gate and up, S and 2S of the shared
//   expert
//   R rank and RQ query_rank of latent attention; EN plain_dim, ER rotary_dim and EO value_dim of
//   its stored heads: H*(EN+ER) queries, R+ER a latent and the rotated part of a key, H*(EN+EO)
//   what the latent is expanded to, H*EO values, H*R keys as products with latents
//   P per_layer_width, L*P the width of all layers, VP per_layer_vocab
//   NP num_positions, NT num_token_types
//   VI num_ids, B target_width, DT of all target_layers, CT num_clusters and TR transition_rank of
//   DraftHeadConfig
//   C conv_width, LC conv_length, SH heads, SK all keys, SP value_dim, SV inner_width of
//   StateConfig; 3C, 2SH, C+SV and SV+C+SH for fused products
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/tensor/tensor_view.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::weights {

enum class TensorRole : uint8_t {
  kEmbedding,   // once a model
  kPositions,   // [NP, D] once a model, as the next three
  kTokenTypes,  // [NT, D]
  kDistances,   // [NB, H] once a model
  kEmbeddingNorm,
  kEmbeddingNormBias,
  kFinalNorm,
  kFinalNormBias,
  kHead,           // absent if the embedding is also the head
  kAttentionNorm,  // once a layer; before attention
  kAttentionNormBias,
  kAttentionPostNorm,  // after it
  kAttentionPostNormBias,
  kAttentionSecondNorm,  // after it and what entered the layer
  kAttentionSecondNormBias,
  kFeedForwardNorm,
  kFeedForwardNormBias,
  kFeedForwardPostNorm,
  kFeedForwardPostNormBias,
  kQkv,  // fused, or separate:
  kQuery,
  kKey,
  kValue,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kQueryNorm,  // [E], [H*E], or one tensor for each head
  kKeyNorm,
  kQueryNormBias,
  kKeyNormBias,
  kQueryDown,  // [RQ, D] of latent attention, as the next ones
  kQueryDownBias,
  kQueryDownNorm,
  kQueryUp,  // [H*(EN+ER), RQ]
  kLatent,   // [R+ER, D]
  kLatentBias,
  kLatentNorm,    // [R]
  kLatentUp,      // [H*(EN+EO), R], or its two parts:
  kLatentKeys,    // [H*R, EN] the transposed one of each head
  kLatentValues,  // [H*EO, R]
  kSinks,
  kAttentionOutput,
  kAttentionOutputBias,
  kGateUp,  // fused, or separate:
  kGate,
  kUp,  // the only one if the feed-forward part is not gated
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kRouter,
  kRouterBias,    // of the logits
  kChoiceBias,    // of the scores that experts are chosen by
  kExpertGateUp,  // of one expert, or [X, ...] of all
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertGateUpBias,
  kExpertDownBias,
  kExpertsInput,   // [XD, D]
  kExpertsOutput,  // [D, XD]
  kSharedGateUp,   // [2S, D] of the shared expert, fused, or separate:
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedShare,  // [1, D] gate of the shared expert, through a sigmoid
  kRouterScale,  // [D] weights of the norm before the router, without the factor 1 / sqrt(D)
  kExpertScale,  // [X] factor of each expert's share
  kDensePostNorm,
  kExpertNorm,
  kExpertPostNorm,
  kAttentionGate,
  kLayerFactor,        // [1]
  kXieluPositive,      // [1] of Activation::kXielu before softplus, as the next
  kXieluNegative,      // [1] without the linear part
  kXieluLinear,        // []
  kXieluMin,           // []
  kPerLayerTable,      // [VP, L*P] once a model, as the next two
  kPerLayerModel,      // [L*P, D]
  kPerLayerModelNorm,  // [P]
  kPerLayerGate,       // [P, D]
  kPerLayerOutput,     // [D, P]
  kPerLayerNorm,       // [D]
  // Layers with a state:
  // The product of the convolution's inputs and of all that have no roles of their own: [3C, D]
  // with gates first (kShortConv), [C, D] or by group [C+SV, D] (kDeltaNet), [SV+C+SH, D]: gates,
  // inputs of the convolution, decays (kMamba2).
  kStateInput,
  kStateInputBias,
  // [SK, D], [SK, D] and [SV, D] in place of kStateInput, [SK, 1, LC] ... of kConvWeight
  kStateQuery,
  kStateKey,
  kStateValue,
  kConvQuery,
  kConvKey,
  kConvValue,
  kStateGate,        // [SV, D] of the output's gate
  kStateDecay,       // [SH, D]
  kStateGain,        // [SH, D]
  kStateGainDecay,   // [2SH, D] both, by group
  kConvWeight,       // [C, 1, LC]
  kConvBias,         // [C]
  kDecayRate,        // [SH] logarithm of it
  kDecayBias,        // [SH]
  kStateSkip,        // [SH]
  kStateNorm,        // [SP], or [SV]
  kStateOutput,      // [D, SV]; of a convolution [D, C]
  kStateOutputBias,  // [D]
  // A prediction layer (ModelConfig::prediction) has:
  // [D, 2D] of the embedding and the state before it, in this order; of a head [D, DT]
  kPredictionInput,
  kPredictionEmbeddingNorm,  // [D] of the two
  kPredictionStateNorm,      // [D]
  kPredictionOutput,         // [B, D] of an assistant, as the next
  kPredictionClusters,       // [CT, D]
  kTransitionInput,          // [V, TR] of a head with transitions, as the next
  kTransitionOutput,         // [V, TR]
};
inline constexpr int kNumTensorRoles = static_cast<int>(TensorRole::kTransitionOutput) + 1;

// Layout of a stored tensor, if it differs from the decoder's.
enum class TensorOrder : uint8_t {
  kPlain,
  kInputsFirst,             // [in, out] instead of [out, in]
  kInputsFirstInterleaved,  // and out = gate 0, up 0, gate 1, up 1, ...
  kInterleaved,             // a vector gate 0, up 0, ...
};

// A tensor that the files must have.
struct TensorSpec {
  TensorRole role;
  int32_t index = 0;              // of the expert, or of the head (kHeadOwn); else 0
  std::string name;               // as stored
  std::vector<std::string> dims;  // symbols
  TensorOrder order = TensorOrder::kPlain;
  int32_t layer = -1;  // whose sizes the symbols are; -1: the tensor is in no layer

  bool is_norm() const;  // weights near 1 (near 0 with norm_plus_one); not biases
};

// Which of the tensors that each expert has for itself are listed: all, or the first expert's.
enum class ListedExperts : uint8_t { kAll, kFirst };

// The required tensors of `config` outside the layers, and in layer `layer`.
std::vector<TensorSpec> ModelTensors(const ModelConfig& config);
std::vector<TensorSpec> LayerTensors(const ModelConfig& config, int32_t layer,
                                     ListedExperts experts = ListedExperts::kAll);

// The tensors outside the layers of a configuration with ModelConfig::prediction.
std::vector<TensorSpec> PredictionTensors(const ModelConfig& config);
// The configuration of the prediction layer that files of `target` may hold (prediction_layer.h);
// nullopt if those of its architecture have none that is run.
std::optional<ModelConfig> PredictionConfigOf(const ModelConfig& target);
// Doubles the inputs of queries, keys and values: those of kEagle read an embedding and a state.
void ReadPairs(std::vector<TensorSpec>* layer);

// True for a tensor of a layer that drafts tokens (ModelConfig::num_prediction_layers): one that is
// numbered after the model's layers, or is called "model.mtp_..." or "mtp....".
bool IsOfPredictionLayer(const ModelConfig& config, std::string_view name);

// True for a tensor without a role that is known to be redundant (rotary frequencies, a head equal
// to the embedding), or is of a prediction layer or of another part of a multimodal model.
bool IsIgnorable(const ModelConfig& config, std::string_view name);

// The size of `symbol` in layer `layer` (LayerShapeOf); nullopt if 2^63 or more. REQUIRES one of
// the symbols above.
std::optional<int64_t> SymbolSize(const ModelConfig& config, std::string_view symbol,
                                  int32_t layer = -1);

// Every tensor that the files of `config` must have. kBadInput if a size is 2^63 or more.
struct RequiredTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool is_norm = false;
  TensorRole role = TensorRole::kEmbedding;
};
Result<std::vector<RequiredTensor>> RequiredTensors(const ModelConfig& config);

// The names of the embedding and of the output head, which is not stored if they are tied.
struct HeadNames {
  std::string embedding, head;
};
HeadNames HeadNamesOf(const ModelConfig& config);

// "LlamaForCausalLM, MistralForCausalLM, ...", for messages.
std::string SupportedArchitectures();

}  // namespace minisgl::weights
