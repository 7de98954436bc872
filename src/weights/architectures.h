// The architectures this program knows: one table of differences. An entry says what the files of a
// family leave unsaid (defaults of config.json), what its configuration switches, and under which
// names its tensors are stored; the decoder itself is written once, from ModelConfig and the roles
// below.
//
// Shapes are written in symbols:
//   V vocabulary, D hidden width, I feed-forward width, E one head, H*E all query heads, HKV*E all
//   key (or value) heads, H heads, HKV key/value heads, (H+2HKV)*E fused q, k, v, 2I fused gate and
//   up, X experts, J an expert's width, 2J fused, S the shared part's width, 1.
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
  kEmbedding,  // once a model
  kFinalNorm,
  kFinalNormBias,
  kHead,           // left out where the embedding serves as the head
  kAttentionNorm,  // once a layer; before attention
  kAttentionNormBias,
  kAttentionPostNorm,  // behind it
  kFeedForwardNorm,
  kFeedForwardNormBias,
  kFeedForwardPostNorm,
  kQkv,  // fused, or apart:
  kQuery,
  kKey,
  kValue,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kQueryNorm,  // [E], [H*E] or, where each head has its own file entry, one role a head
  kKeyNorm,
  kSinks,
  kAttentionOutput,
  kAttentionOutputBias,
  kGateUp,  // fused, or apart:
  kGate,
  kUp,  // the only one where the feed-forward part is not gated
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kRouter,
  kRouterBias,
  kExpertGateUp,  // of one expert, or [X, ...] of all
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertGateUpBias,
  kExpertDownBias,
  kSharedGate,  // matrices of the shared part
  kSharedUp,
  kSharedDown,
  kSharedShare,  // [1, D] whose sigmoid weighs the shared part
};
inline constexpr int kNumTensorRoles = static_cast<int>(TensorRole::kSharedShare) + 1;

// How the rows of a stored tensor stand, where not as the decoder wants them.
enum class TensorOrder : uint8_t {
  kPlain,
  kInputsFirst,             // [in, out] instead of [out, in]
  kInputsFirstInterleaved,  // and out = gate 0, up 0, gate 1, up 1, ...
  kInterleaved,             // a vector gate 0, up 0, ...
};

// One tensor that the files must hold.
struct TensorSpec {
  TensorRole role;
  int32_t index = 0;              // of the expert, or of the head (kHeadOwn); 0 where there is one
  std::string name;               // as stored
  std::vector<std::string> dims;  // symbols
  TensorOrder order = TensorOrder::kPlain;

  bool is_norm() const;  // weights near 1 (or 0 where norm_plus_one): not biases
};

// What every file of `config` must hold outside the layers, and in layer `layer`.
std::vector<TensorSpec> ModelTensors(const ModelConfig& config);
std::vector<TensorSpec> LayerTensors(const ModelConfig& config, int32_t layer);

// Whether a tensor that no spec names is known to be needed by nothing (frequencies that follow
// from the configuration, a head that repeats the embedding).
bool IsIgnorable(const ModelConfig& config, std::string_view name);

// The size that `symbol` stands for; REQUIRES one of the symbols above. Nothing where it is past
// 2^63.
std::optional<int64_t> SymbolSize(const ModelConfig& config, std::string_view symbol);

// Every tensor that the files of a model of `config` must hold. kBadInput for sizes past 2^63.
struct RequiredTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool is_norm = false;
};
Result<std::vector<RequiredTensor>> RequiredTensors(const ModelConfig& config);

// "LlamaForCausalLM, MistralForCausalLM, ...", for messages.
std::string SupportedArchitectures();

}  // namespace minisgl::weights
