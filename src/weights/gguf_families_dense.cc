// Families with one dense feed-forward part in each layer.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "weights/config_keys.h"
#include "weights/gguf_families.h"
#include "weights/gguf_family_parts.h"

namespace minisgl::weights {

void WriteLlama(GgufMetadata* metadata, Json* config) {
  if (metadata->Int("expert_count", {0, kExpertsRange.max}, 0) == 0) return;
  SetArchitecture("MixtralForCausalLM", "mixtral", config);
  WriteLocalExperts(metadata, config);
}

// Files state the settings of Ministral 3 only. Mistral Small 3.1 has none and no window.
void WriteMistral3(GgufMetadata* metadata, Json* config) {
  config->Set("sliding_window", Json());
  const Json beta = metadata->Number("attention.temperature_scale");
  Json multiplier = metadata->Number("rope.scaling.yarn_log_multiplier");
  if (beta.is_null() && multiplier.is_null()) return;
  SetArchitecture("Ministral3ForCausalLM", "ministral3", config);
  Json* const rope = config->Find("rope_scaling");
  if (rope == nullptr || *rope->Find("rope_type") != Json("yarn")) {
    return metadata->Fail("rope.scaling.type",
                          "\"yarn\" is needed where queries are scaled by their position");
  }
  if (!beta.is_null()) rope->Set("llama_4_scaling_beta", beta);
  if (multiplier.is_null() || multiplier.as_double() == 0) return;
  rope->Set("mscale", 1.0).Set("mscale_all_dim", std::move(multiplier));
}

void WriteGranite(GgufMetadata* metadata, Json* config) {
  metadata->Copy("embedding_scale", "embedding_multiplier", config);
  metadata->Copy("residual_scale", "residual_multiplier", config);
  metadata->Copy("attention.scale", "attention_multiplier", config);
  metadata->Copy("logit_scale", "logits_scaling", config);
}

// The rows of its table are the types of an encoder's tokens.
void WriteBert(GgufMetadata* metadata, Json* config) {
  const GgufTensor* const types = metadata->Tensor("token_types.weight");
  if (types == nullptr || types->shape.empty() || types->shape.size() > 2) {
    return metadata->FailWith(BadInput("has no matrix \"token_types.weight\"; the model needs it"));
  }
  config->Set("type_vocab_size", types->shape.size() == 1 ? int64_t{1} : types->shape[0]);
  const GgufValue* const labels = metadata->Find("classifier.output_labels");
  if (labels == nullptr) return;
  constexpr uint64_t kLabelsMax = 1 << 16;
  Json names = Json(Json::Object());
  for (const GgufValue& label : labels->Elements(kLabelsMax)) {
    const std::string number = std::to_string(names.as_object().size());
    names.Set(number, Json(std::string(label.AsString().value_or("LABEL_" + number))));
  }
  config->Set("id2label", std::move(names));
}

void WriteJinaBert(GgufMetadata* metadata, Json* config) {
  WriteBert(metadata, config);
  config->Set("position_embedding_type", "alibi");
}

// A window of 0 stands for none.
void WritePhi3(GgufMetadata* metadata, Json* config) {
  const int64_t width = metadata->Int("attention.sliding_window", {0, kWindowRange.max}, 0);
  if (width > 0) config->Set("sliding_window", width);
  metadata->Copy("rope.scaling.original_context_length", "original_max_position_embeddings",
                 config);
}

namespace {

// Files do not state the divisor of scores. It is the square root of a head's width, but of hidden
// size / heads in models with `large_layers` layers.
void WriteQueryScalar(GgufMetadata* metadata, int64_t large_layers, Json* config) {
  const Json *head = config->Find("head_dim"), *layers = config->Find("num_hidden_layers");
  int64_t scalar = head->as_int();
  if (layers->as_int() == large_layers) {
    scalar = metadata->Int("embedding_length", kWidthRange) /
             metadata->Int("attention.head_count", kHeadsRange);
  }
  config->Set("query_pre_attn_scalar", scalar);
}

}  // namespace

void WriteGemma2(GgufMetadata* metadata, Json* config) {
  WriteWindows(metadata, 2, config);
  WriteQueryScalar(metadata, 46, config);
  metadata->Copy("attn_logit_softcapping", "attn_logit_softcapping", config);
  metadata->Copy("final_logit_softcapping", "final_logit_softcapping", config);
}

void WriteGemma3(GgufMetadata* metadata, Json* config) {
  WriteWindows(metadata, 6, config);
  WriteQueryScalar(metadata, 62, config);
  metadata->Copy("final_logit_softcapping", "final_logit_softcapping", config);
  metadata->Copy("rope.freq_base_swa", "rope_local_base_freq", config);
}

namespace {

// The number that all weights of the norm of `kind` are; each layer has the same norm
// (TensorFinder).
double WeightOfNorm(GgufMetadata* metadata, const char* kind) {
  const std::string name = fmt::format("blk.0.attn_{}_norm.weight", kind);
  const Json weights = metadata->Vector(name);
  const Json::Array all = weights.is_null() ? Json::Array() : weights.as_array();
  const bool are_equal = !all.empty() && std::all_of(all.begin(), all.end(), [&](const Json& one) {
    return std::abs(one.as_double()) < 1e30 && one.as_double() == all[0].as_double();
  });
  if (!are_equal) {
    metadata->FailWith(BadInput("tensor \"{}\": one number throughout is needed", name));
    return 1;
  }
  return all[0].as_double();
}

}  // namespace

// Weights of norms are the factor of queries, and 1 of keys.
void WriteMuseGlimmer(GgufMetadata* metadata, Json* config) {
  WriteWindows(metadata, 4, config);
  config->Set("qk_scale_factor", WeightOfNorm(metadata, "q") * WeightOfNorm(metadata, "k"));
  Json bases = Json(Json::Array());
  const Json base = config->Find("rope_theta") != nullptr ? *config->Find("rope_theta") : Json();
  for (const Json& type : config->Find("layer_types")->as_array()) {
    bases.Append(type == Json("sliding_attention") ? base : Json(0));
  }
  config->Set("layer_rope_theta", std::move(bases));
  metadata->Copy("logit_scale", "output_multiplier", config);
  Json softcap = metadata->Number("final_logit_softcapping");
  if (!softcap.is_null() && softcap.as_double() == 0) softcap = Json();
  config->Set("final_logit_softcapping", std::move(softcap));
}

void WriteOlmo2(GgufMetadata* metadata, Json* config) {
  if (metadata->Int("attention.sliding_window", {0, kWindowRange.max}, 0) == 0) return;
  SetArchitecture("Olmo3ForCausalLM", "olmo3", config);
  WriteWindows(metadata, 4, config);
}

// Older files of the model with 64 layers do not state its windows.
void WriteExaone4(GgufMetadata* metadata, Json* config) {
  const bool has_window = metadata->Find("attention.sliding_window") != nullptr;
  const bool is_large = config->Find("num_hidden_layers")->as_int() == 64;
  if (!has_window && !is_large) {
    config->Set("sliding_window", Json());
  } else if (!has_window) {
    config->Set("sliding_window", 4096).Set("sliding_window_pattern", 4);
  } else {
    WriteWindows(metadata, 4, config);
  }
}

void WriteCohere2(GgufMetadata* metadata, Json* config) {
  WriteWindows(metadata, 4, config);
  metadata->Copy("logit_scale", "logit_scale", config);
}

// Parts are parallel where the second has no norm of its own.
void WriteStableLm(GgufMetadata* metadata, Json* config) {
  const auto has = [&](const char* name) { return metadata->Tensor(name) != nullptr; };
  config->Set("use_parallel_residual", !has("blk.0.ffn_norm.weight"));
  config->Set("qk_layernorm", has("blk.0.attn_q_norm.weight"));
}

// Files do not state a window.
void WriteStarcoder2(GgufMetadata* metadata, Json* config) {
  static_cast<void>(metadata);
  config->Set("sliding_window", Json());
}

}  // namespace minisgl::weights
