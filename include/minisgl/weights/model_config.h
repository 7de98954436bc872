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
#include "minisgl/tensor/dtype.h"

namespace minisgl {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;               // linear, llama3
  double low_freq_factor = 1.0;      // llama3
  double high_freq_factor = 4.0;     // llama3
  int64_t original_max_seq_len = 0;  // llama3

  bool operator==(const RopeConfig&) const = default;
};

struct ModelConfig {
  std::string architecture;   // "LlamaForCausalLM"
  std::string model_type;     // "llama"
  DType dtype = DType::kF32;  // as the file states it (f32 where it does not)
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int64_t max_seq_len = 0;  // max_position_embeddings
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  bool tie_word_embeddings = false;
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  // a number or a list in the file; each < vocab_size
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

// A missing generation_config.json gives the empty value; a bad one is an error.
Result<GenerationConfig> ParseGenerationConfig(const std::string& text, const std::string& file,
                                               int64_t vocab_size);
Result<GenerationConfig> LoadGenerationConfig(const std::string& model_dir, int64_t vocab_size);

}  // namespace minisgl
