// config.json and generation_config.json: what the model is, checked.
//
// Both spellings are read: torch_dtype, rope_theta, rope_scaling{type|rope_type} as hub files have
// had them, and dtype, rope_parameters as transformers 5 writes them. What is not supported is an
// error that names its key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/model_kinds.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope, kDynamic };

// One way of rotating queries and keys. Formulas are in src/model/rotary.cc.
struct RopeConfig {
  double theta = 10000.0;
  int32_t dim = 0;  // features of a head that are rotated: even, at most head_dim
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;               // linear, llama3, yarn, dynamic
  double low_freq_factor = 1.0;      // llama3
  double high_freq_factor = 4.0;     // llama3
  double beta_fast = 32.0;           // yarn
  double beta_slow = 1.0;            // yarn
  bool truncate = true;              // yarn: the bounds of the blend are whole numbers
  int64_t original_max_seq_len = 0;  // llama3, yarn, longrope, dynamic
  double attention_factor = 1.0;     // yarn, longrope: cosines and sines are multiplied by it
  std::vector<double> short_factors, long_factors;  // longrope: [dim / 2]

  bool operator==(const RopeConfig&) const = default;
};

// Where the norms of a block stand, f being attention or the feed-forward part.
enum class NormPlacement : uint8_t {
  kBefore,    // x + f(norm(x))
  kAfter,     // x + norm(f(x))
  kAround,    // x + norm(f(norm(x)))
  kParallel,  // n = norm(x): x + attention(n) + feed_forward(n)
};

// What one layer does differently from others.
struct LayerConfig {
  int32_t sliding_window = 0;  // a query sees so many keys, its own the last; 0: all
  int32_t rope = 0;            // of ModelConfig::ropes; -1: queries and keys are not rotated
  bool has_experts = false;

  bool operator==(const LayerConfig&) const = default;
};

// The feed-forward part of layers with experts.
struct ExpertsConfig {
  int32_t num_experts = 0;  // 0: no layer has any
  int32_t num_chosen = 0;
  int64_t intermediate_size = 0;
  int64_t shared_intermediate_size = 0;  // of a part that every token passes; 0: none
  bool shared_gate = false;              // its output is weighed by a sigmoid
  bool share_over_chosen = false;        // shares of the chosen sum to 1
};

struct ModelConfig {
  std::string architecture;   // "LlamaForCausalLM"
  std::string model_type;     // "llama"
  DType dtype = DType::kF32;  // as the file states it (f32 where it does not)
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of layers without experts
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int64_t max_seq_len = 0;  // max_position_embeddings
  bool tie_word_embeddings = false;
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  // a number or a list in the file; each < vocab_size

  NormKind norm_kind = NormKind::kRms;
  double norm_eps = 1e-6;
  bool norm_plus_one = false;  // weights are stored less one
  NormPlacement norm_placement = NormPlacement::kBefore;
  QkNorm qk_norm = QkNorm::kNone;
  bool qkv_bias = false, attention_output_bias = false;
  bool feed_forward_bias = false;  // of all its matrices
  bool norm_bias = false;          // of the norms of hidden_size
  bool attention_sinks = false;
  bool rotary_interleaved = false;  // pairs are (2 i, 2 i + 1) instead of (i, i + dim / 2)
  Activation activation = Activation::kSilu;
  bool gated = true;            // act(gate) * up; else act(up)
  double activation_limit = 0;  // kClampedSwiglu

  double embedding_scale = 1;
  double attention_scale = 0;    // scores are q.k times this; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  // 0: none
  double residual_scale = 1;     // what a block adds is multiplied by it
  double logit_scale = 1;
  double logit_softcap = 0;  // 0: none
  // Queries at position p are multiplied by 1 + beta ln(1 + floor(p / length)); 0: are not.
  double query_scale_beta = 0;
  int64_t query_scale_length = 0;

  std::vector<RopeConfig> ropes;    // at least one where some layer is rotated
  std::vector<LayerConfig> layers;  // [num_layers]
  ExpertsConfig experts;
};

struct GenerationConfig {
  std::vector<TokenId> eos_token_ids;
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::optional<int64_t> max_new_tokens;
};

// `file` is named in errors. Every error is kBadInput with the key, what was found and what is
// supported.
Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& file);
Result<ModelConfig> LoadModelConfig(const std::string& model_dir);
Result<ModelConfig> LoadModelConfigFile(const std::string& path);

// A missing generation_config.json gives the empty value; a bad one is an error.
Result<GenerationConfig> ParseGenerationConfig(const std::string& text, const std::string& file,
                                               int64_t vocab_size);
Result<GenerationConfig> LoadGenerationConfig(const std::string& model_dir, int64_t vocab_size);

}  // namespace minisgl
