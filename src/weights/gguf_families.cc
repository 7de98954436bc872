// See gguf_families.h.
#include "weights/gguf_families.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weights/config_keys.h"
#include "weights/gguf_family_parts.h"
#include "weights/gguf_rope.h"

namespace minisgl::weights {
namespace {

// --- deepseek2 -----------------------------------------------------------------------------------

constexpr int64_t kSoftmax = 1, kSigmoid = 2;  // of "expert_gating_func"

// The score of files without the key: softmax, except in the first files of GLM-4.7-Flash.
int64_t DefaultGating(GgufMetadata* metadata, const Json& config) {
  const int64_t num_layers = metadata->Int("block_count", kLayersRange);
  const bool is_glm = config.Find("vocab_size")->as_int() == 154880;
  return is_glm && (num_layers == 47 || num_layers == 48) ? kSigmoid : kSoftmax;
}

// Writes the sizes of heads before the matrix that expands keys is multiplied into queries. Newer
// files state them beside the sizes in the cache.
void WriteLatentSizes(GgufMetadata* metadata, Json* config) {
  const bool has_both = metadata->Find("attention.key_length_mla") != nullptr;
  const char* const key_name = has_both ? "attention.key_length_mla" : "attention.key_length";
  const char* const value_name = has_both ? "attention.value_length_mla" : "attention.value_length";
  const int64_t key_length = metadata->Int(key_name, kHeadDimRange);
  const int64_t rank = metadata->Int("attention.kv_lora_rank", kHeadDimRange);
  const int64_t rotated =
      metadata->Int("rope.dimension_count", {2, std::max<int64_t>(key_length - 2, 2)});
  const auto expect = [&](const char* name, int64_t wanted) {
    if (has_both && metadata->Int(name, kWidthRange, wanted) != wanted) {
      metadata->Fail(name, fmt::format("{} is needed, as of a latent", wanted));
    }
  };
  expect("attention.key_length", rank + rotated);
  expect("attention.value_length", rank);
  config->Set("num_attention_heads", metadata->Int("attention.head_count", kHeadsRange));
  config->Set("kv_lora_rank", rank);
  config->Set("qk_rope_head_dim", rotated);
  config->Set("qk_nope_head_dim", key_length - rotated);
  config->Set("v_head_dim", metadata->Int(value_name, kHeadDimRange));
  const auto query_rank = metadata->OptionalInt("attention.q_lora_rank", kWidthRange);
  config->Set("q_lora_rank", query_rank ? Json(*query_rank) : Json());
  const bool has_bias = metadata->Tensor("blk.0.attn_kv_a_mqa.bias") != nullptr;
  config->Set("attention_bias", has_bias);
}

// For YaRN, files state a tenth of mscale_all_dim, which mscale equals.
void WriteLatentRope(GgufMetadata* metadata, Json* config) {
  constexpr const char* kMultiplier = "rope.scaling.yarn_log_multiplier";
  WriteRopeBase(metadata, config);
  WriteRopeScaling(metadata, config);
  Json* const rope = config->Find("rope_scaling");
  if (rope == nullptr || *rope->Find("rope_type") != Json("yarn")) return;
  const Json multiplier = metadata->Number(kMultiplier);
  if (multiplier.is_null()) return metadata->Fail(kMultiplier, "a number is needed with yarn");
  if (!std::isfinite(10 * multiplier.as_double())) {
    return metadata->Fail(kMultiplier, "a smaller number is needed");
  }
  // With the digits of f32.
  const Json scale = *ParseJson(fmt::format("{:.7g}", 10 * multiplier.as_double()));
  rope->Set("mscale", scale).Set("mscale_all_dim", scale);
}

}  // namespace

void WriteDeepseek2(GgufMetadata* metadata, Json* config) {
  constexpr const char* kTemperature = "attention.temperature_scale";  // of Mistral Large 3
  const Json temperature = metadata->Number(kTemperature);
  if (!temperature.is_null() && temperature.as_double() != 0) {
    metadata->Fail(kTemperature, "queries that are scaled by their position are not supported");
  }
  const int64_t gating =
      metadata->Int("expert_gating_func", {kSoftmax, kSigmoid}, DefaultGating(metadata, *config));
  WriteLatentSizes(metadata, config);
  WriteLatentRope(metadata, config);
  WriteRoutedExperts(metadata, config);
  config->Set("first_k_dense_replace",
              metadata->Int("leading_dense_block_count", {0, kLayersRange.max}, 0));
  if (gating == kSigmoid) {
    SetArchitecture("DeepseekV3ForCausalLM", "deepseek_v3", config);
    return;
  }
  const bool has_groups = config->Find("n_group")->as_int() > 1;
  config->Set("topk_method", has_groups ? "group_limited_greedy" : "greedy");
}

// --- nemotron_h ----------------------------------------------------------------------------------

namespace {

// The kinds of layers, from where keys and feed-forward parts are: M, *, - or E.
std::string NemotronLetters(GgufMetadata* metadata, bool has_experts, Json* config) {
  constexpr const char *kKvHeads = "attention.head_count_kv", *kWidth = "feed_forward_length";
  const int64_t num_stored = metadata->Int("block_count", kLayersRange);
  const auto kv_heads = metadata->IntOfLayers(kKvHeads, num_stored, {0, kHeadsRange.max});
  const auto widths = metadata->IntOfLayers(kWidth, num_stored, {0, kWidthRange.max});
  if (!metadata->ok()) return "";
  std::string letters;
  int64_t num_kv_heads = 0, width = 0;
  for (size_t i = 0; i < static_cast<size_t>(config->Find("num_hidden_layers")->as_int()); ++i) {
    letters += kv_heads[i] > 0 ? '*' : widths[i] == 0 ? 'M' : has_experts ? 'E' : '-';
    if (kv_heads[i] > 0 && widths[i] > 0) {
      metadata->Fail(kWidth, fmt::format("0 is needed for layer {}, which has keys", i));
    }
    const auto set = [&](const char* key, int64_t found, int64_t* common) {
      if (found > 0 && *common > 0 && found != *common) {
        metadata->Fail(key, fmt::format("the same number is needed for all layers that have one; "
                                        "layer {} has another",
                                        i));
      }
      if (found > 0) *common = found;
    };
    set(kKvHeads, kv_heads[i], &num_kv_heads);
    set(kWidth, widths[i], &width);
  }
  if (num_kv_heads > 0) config->Set("num_key_value_heads", num_kv_heads);
  if (width > 0) config->Set("intermediate_size", width);
  return letters;
}

}  // namespace

void WriteNemotronH(GgufMetadata* metadata, Json* config) {
  const bool has_experts = metadata->Int("expert_count", {0, kExpertsRange.max}, 0) > 0;
  const std::string letters = NemotronLetters(metadata, has_experts, config);
  if (!metadata->ok()) return;
  config->Set("hybrid_override_pattern", letters);
  // True if the first layer of this kind has a tensor of this name.
  const auto has = [&](char letter, const char* name) {
    const size_t layer = letters.find(letter);
    return layer != std::string::npos &&
           metadata->Tensor(fmt::format("blk.{}.{}", layer, name)) != nullptr;
  };
  config->Set("use_conv_bias", has('M', "ssm_conv1d.bias"));
  config->Set("use_bias", has('M', "ssm_in.bias"));
  config->Set("mlp_bias", has('-', "ffn_down.bias"));
  const int64_t heads = metadata->Int("ssm.time_step_rank", kHeadsRange);
  const int64_t width = metadata->Int("ssm.inner_size", kWidthRange);
  if (width % heads != 0) {
    metadata->Fail("ssm.inner_size", fmt::format("a multiple of {} heads is needed", heads));
  }
  config->Set("conv_kernel", metadata->Int("ssm.conv_kernel", kWidthRange));
  config->Set("ssm_state_size", metadata->Int("ssm.state_size", kHeadDimRange));
  config->Set("n_groups", metadata->Int("ssm.group_count", kHeadsRange));
  config->Set("mamba_num_heads", heads);
  config->Set("mamba_head_dim", width / heads);
  if (!has_experts) return;
  WriteRoutedExperts(metadata, config);
  config->Set("moe_shared_expert_intermediate_size",
              metadata->Int("expert_shared_feed_forward_length", kWidthRange));
  if (const auto latent = metadata->OptionalInt("moe_latent_size", kWidthRange)) {
    config->Set("moe_latent_size", *latent);
  }
}

// --- gemma4 --------------------------------------------------------------------------------------

namespace {

// The share of frequencies that rotate: factors of the others are so large that they do not.
double RotatedShare(GgufMetadata* metadata) {
  constexpr const char* kFactors = "rope_freqs.weight";
  const Json factors = metadata->Vector(kFactors);
  size_t num_rotated = 0, num_ended = 0;
  for (const Json& factor : factors.is_null() ? Json::Array() : factors.as_array()) {
    num_rotated += factor.as_double() == 1 && num_ended == 0;
    num_ended += factor.as_double() >= 1e30;
  }
  const size_t count = num_rotated + num_ended;
  if (count == 0 || count != factors.as_array().size()) {
    metadata->FailWith(
        BadInput("tensor \"{}\": ones, and then 1e30 or more, are needed", kFactors));
    return 1;
  }
  return static_cast<double>(num_rotated) / static_cast<double>(count);
}

void WriteGemma4Ropes(GgufMetadata* metadata, Json* config) {
  const auto rope = [&](const char* base, const char* type) {
    Json settings = Json(Json::Object());
    settings.Set("rope_type", type);
    metadata->Copy(base, "rope_theta", &settings);
    return settings;
  };
  const auto expect = [&](const char* name, const char* head_key) {
    const int64_t head_dim = config->Find(head_key)->as_int();
    if (metadata->Int(name, kHeadDimRange, head_dim) != head_dim) {
      metadata->Fail(name, fmt::format("{} is needed, all of a head", head_dim));
    }
  };
  expect("rope.dimension_count", "global_head_dim");
  expect("rope.dimension_count_swa", "head_dim");
  Json full = rope("rope.freq_base", "proportional");
  full.Set("partial_rotary_factor", RotatedShare(metadata));
  Json ropes = Json(Json::Object());
  ropes.Set("full_attention", std::move(full));
  ropes.Set("sliding_attention", rope("rope.freq_base_swa", "default"));
  config->Set("rope_parameters", std::move(ropes));
}

// Heads of the layers with a window, and of the others.
void WriteGemma4Heads(GgufMetadata* metadata, const std::vector<int64_t>& windows, Json* config) {
  constexpr const char* kKvHeads = "attention.head_count_kv";
  const auto kv_heads = metadata->IntOfLayers(kKvHeads, std::ssize(windows), kHeadsRange);
  int64_t of_kind[2] = {0, 0};  // full, windowed
  int64_t full_layer = -1;
  for (size_t i = 0; i < windows.size(); ++i) {
    int64_t& common = of_kind[windows[i]];
    if (common > 0 && common != kv_heads[i]) {
      metadata->Fail(kKvHeads,
                     "one number for all layers with a window, and one for the others, "
                     "are supported");
    }
    common = kv_heads[i];
    if (windows[i] == 0 && full_layer < 0) full_layer = static_cast<int64_t>(i);
  }
  if (windows.back() != 0) {
    metadata->Fail("attention.sliding_window_pattern",
                   "a last layer without a window is supported");
  }
  if (!metadata->ok()) return;
  const bool keys_as_values =
      metadata->Tensor(fmt::format("blk.{}.attn_v.weight", full_layer)) == nullptr;
  config->Set("num_attention_heads", metadata->Int("attention.head_count", kHeadsRange));
  config->Set("num_key_value_heads", of_kind[1] > 0 ? of_kind[1] : of_kind[0]);
  config->Set("attention_k_eq_v", keys_as_values);
  if (keys_as_values) {
    config->Set("num_global_key_value_heads", of_kind[0]);
  } else if (of_kind[1] > 0 && of_kind[0] != of_kind[1]) {
    metadata->Fail(kKvHeads, "one number for all layers is supported where values are not keys");
  }
  for (const auto& [key, name, of_values] :
       {std::tuple("global_head_dim", "attention.key_length", "attention.value_length"),
        std::tuple("head_dim", "attention.key_length_swa", "attention.value_length_swa")}) {
    const int64_t head_dim = metadata->Int(name, kHeadDimRange);
    config->Set(key, head_dim);
    if (metadata->Int(of_values, kHeadDimRange, head_dim) != head_dim) {
      metadata->Fail(of_values, fmt::format("{} is needed, as of keys", head_dim));
    }
  }
}

// Layers that share keys and values may have feed-forward parts of twice the width.
void WriteGemma4Widths(GgufMetadata* metadata, int64_t num_shared, Json* config) {
  constexpr const char* kWidth = "feed_forward_length";
  const int64_t num_layers = config->Find("num_hidden_layers")->as_int();
  const auto widths = metadata->IntOfLayers(kWidth, num_layers, kWidthRange);
  const bool wide = widths.back() == 2 * widths[0];
  for (int64_t i = 0; i < num_layers; ++i) {
    const int64_t factor = wide && i >= num_layers - num_shared ? 2 : 1;
    if (widths[static_cast<size_t>(i)] == factor * widths[0]) continue;
    metadata->Fail(kWidth, fmt::format("{} is needed for layer {}", factor * widths[0], i));
  }
  config->Set("intermediate_size", widths[0]);
  config->Set("use_double_wide_mlp", wide);
}

}  // namespace

void WriteGemma4(GgufMetadata* metadata, Json* config) {
  const int64_t num_layers = config->Find("num_hidden_layers")->as_int();
  const auto windows =
      metadata->IntOfLayers("attention.sliding_window_pattern", num_layers, {0, 1});
  WriteGemma4Heads(metadata, windows, config);
  if (!metadata->ok()) return;
  WriteGemma4Ropes(metadata, config);
  Json types = Json(Json::Array());
  for (const int64_t windowed : windows) {
    types.Append(windowed != 0 ? "sliding_attention" : "full_attention");
  }
  config->Set("layer_types", std::move(types));
  config->Set("sliding_window", metadata->Int("attention.sliding_window", kWindowRange));
  const int64_t num_shared = metadata->Int("attention.shared_kv_layers", {0, num_layers - 1}, 0);
  config->Set("num_kv_shared_layers", num_shared);
  WriteGemma4Widths(metadata, num_shared, config);
  metadata->Copy("final_logit_softcapping", "final_logit_softcapping", config);
  config->Set("hidden_size_per_layer_input",
              metadata->Int("embedding_length_per_layer_input", {0, kWidthRange.max}, 0));
  if (const GgufTensor* table = metadata->Tensor("per_layer_token_embd.weight")) {
    config->Set("vocab_size_per_layer_input", table->shape[0]);
  }
  const int64_t num_experts = metadata->Int("expert_count", {0, kExpertsRange.max}, 0);
  if (num_experts == 0) return;
  config->Set("enable_moe_block", true).Set("num_experts", num_experts);
  config->Set("top_k_experts", metadata->Int("expert_used_count", {1, num_experts}));
  config->Set("moe_intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
}

}  // namespace minisgl::weights
