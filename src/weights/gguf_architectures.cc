// See gguf_architectures.h.
#include "weights/gguf_architectures.h"

#include <fmt/core.h>

#include <utility>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/gguf_families.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

// Tensors that no entry names otherwise.
constexpr NamedRole kGgufNames[] = {
    {Role::kEmbedding, "token_embd.weight"},
    {Role::kFinalNorm, "output_norm.weight"},
    {Role::kHead, "output.weight"},
    {Role::kAttentionNorm, "attn_norm.weight"},
    {Role::kAttentionPostNorm, "post_attention_norm.weight"},
    {Role::kFeedForwardNorm, "ffn_norm.weight"},
    {Role::kFeedForwardPostNorm, "post_ffw_norm.weight"},
    {Role::kQkv, "attn_qkv.weight"},
    {Role::kQuery, "attn_q.weight"},
    {Role::kKey, "attn_k.weight"},
    {Role::kValue, "attn_v.weight"},
    {Role::kQueryBias, "attn_q.bias"},
    {Role::kKeyBias, "attn_k.bias"},
    {Role::kValueBias, "attn_v.bias"},
    {Role::kQueryNorm, "attn_q_norm.weight"},
    {Role::kKeyNorm, "attn_k_norm.weight"},
    {Role::kSinks, "attn_sinks.weight"},
    {Role::kAttentionOutput, "attn_output.weight"},
    {Role::kAttentionOutputBias, "attn_output.bias"},
    {Role::kGateUp, "ffn_up.weight"},
    {Role::kGate, "ffn_gate.weight"},
    {Role::kUp, "ffn_up.weight"},
    {Role::kDown, "ffn_down.weight"},
    {Role::kGateBias, "ffn_gate.bias"},
    {Role::kUpBias, "ffn_up.bias"},
    {Role::kDownBias, "ffn_down.bias"},
    {Role::kRouter, "ffn_gate_inp.weight"},
    {Role::kRouterBias, "ffn_gate_inp.bias"},
    {Role::kExpertGate, "ffn_gate_exps.weight"},
    {Role::kExpertUp, "ffn_up_exps.weight"},
    {Role::kExpertDown, "ffn_down_exps.weight"},
    {Role::kExpertDownBias, "ffn_down_exps.bias"},
    {Role::kChoiceBias, "exp_probs_b.bias"},
    {Role::kSharedGate, "ffn_gate_shexp.weight"},
    {Role::kSharedUp, "ffn_up_shexp.weight"},
    {Role::kSharedDown, "ffn_down_shexp.weight"},
};

// Windows in all layers but the last of each `period`, unless the file says which.
void WriteWindows(GgufMetadata* metadata, int64_t period, Json* config) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const int64_t num_layers = metadata->Int("block_count", kLayersRange);
  const int64_t width = metadata->Int("attention.sliding_window", {0, kWindowRange.max});
  const GgufValue* const pattern = metadata->Find(kPattern);
  std::vector<int64_t> has_window;
  if (pattern != nullptr && pattern->type() == GgufType::kArray) {
    has_window = metadata->IntOfLayers(kPattern, num_layers, {0, 1});
  } else {
    period = metadata->Int(kPattern, kLayersRange, period);
    for (int64_t i = 0; i < num_layers; ++i) has_window.push_back((i + 1) % period != 0);
  }
  Json types = Json(Json::Array());
  for (const int64_t windowed : has_window) {
    types.Append(width > 0 && windowed != 0 ? "sliding_attention" : "full_attention");
  }
  config->Set("layer_types", std::move(types));
  if (width > 0) config->Set("sliding_window", width);
}

void WriteExperts(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  config->Set("num_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
  config->Set("moe_intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
}

// With experts it is Mixtral.
void WriteLlama(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", {0, kExpertsRange.max}, 0);
  if (count == 0) return;
  config->Set("architectures", Json(Json::Array{Json("MixtralForCausalLM")}));
  config->Set("model_type", "mixtral");
  config->Set("num_local_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
}

void WriteQwen3Moe(GgufMetadata* metadata, Json* config) {
  WriteExperts(metadata, config);
  config->Set("norm_topk_prob", true);
}

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

// A window of 0 stands for none.
void WritePhi3(GgufMetadata* metadata, Json* config) {
  const int64_t width = metadata->Int("attention.sliding_window", {0, kWindowRange.max}, 0);
  if (width > 0) config->Set("sliding_window", width);
  metadata->Copy("rope.scaling.original_context_length", "original_max_position_embeddings",
                 config);
}

void WriteGranite(GgufMetadata* metadata, Json* config) {
  metadata->Copy("embedding_scale", "embedding_multiplier", config);
  metadata->Copy("residual_scale", "residual_multiplier", config);
  metadata->Copy("attention.scale", "attention_multiplier", config);
  metadata->Copy("logit_scale", "logits_scaling", config);
}

// With windows it is OLMo 3.
void WriteOlmo2(GgufMetadata* metadata, Json* config) {
  if (metadata->Int("attention.sliding_window", {0, kWindowRange.max}, 0) == 0) return;
  config->Set("architectures", Json(Json::Array{Json("Olmo3ForCausalLM")}));
  config->Set("model_type", "olmo3");
  WriteWindows(metadata, 4, config);
}

void WriteGptOss(GgufMetadata* metadata, Json* config) {
  WriteWindows(metadata, 2, config);
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  config->Set("num_local_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
  config->Set("intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
  if (Json* rope = config->Find("rope_scaling"); rope != nullptr) rope->Set("truncate", false);
}

// Layers without keys are convolutions.
void WriteLfm2(GgufMetadata* metadata, Json* config) {
  const int64_t num_layers = metadata->Int("block_count", kLayersRange);
  int64_t num_kv_heads = 1;
  Json types = Json(Json::Array());
  for (const int64_t heads :
       metadata->IntOfLayers("attention.head_count_kv", num_layers, {0, kHeadsRange.max})) {
    if (heads > 0) num_kv_heads = heads;
    types.Append(heads > 0 ? "full_attention" : "conv");
  }
  config->Set("num_key_value_heads", num_kv_heads);
  config->Set("layer_types", std::move(types));
  config->Set("block_auto_adjust_ff_dim", false);
  config->Set("conv_L_cache", metadata->Int("shortconv.l_cache", kWidthRange));
  metadata->Copy("attention.layer_norm_rms_epsilon", "norm_eps", config);
  config->Set("tie_embedding", *config->Find("tie_word_embeddings"));
  const bool has_bias = metadata->Tensor("blk.0.shortconv.conv.bias") != nullptr;
  config->Set("conv_bias", has_bias);
}

// If the file does not say which layers are recurrent, all are but every fourth.
void WriteQwen35(GgufMetadata* metadata, Json* config) {
  const int64_t num_layers = config->Find("num_hidden_layers")->as_int();
  if (metadata->Find("attention.recurrent_layers") != nullptr) {
    const int64_t num_stored = metadata->Int("block_count", kLayersRange);
    std::vector<int64_t> recurrent =
        metadata->IntOfLayers("attention.recurrent_layers", num_stored, {0, 1});
    recurrent.resize(static_cast<size_t>(num_layers));
    Json types = Json(Json::Array());
    for (const int64_t one : recurrent) {
      types.Append(one != 0 ? "linear_attention" : "full_attention");
    }
    config->Set("layer_types", std::move(types));
  } else {
    config->Set("full_attention_interval",
                metadata->Int("full_attention_interval", kLayersRange, 4));
  }
  const int64_t heads = metadata->Int("ssm.time_step_rank", kHeadsRange);
  const int64_t width = metadata->Int("ssm.inner_size", kWidthRange);
  if (width % heads != 0) {
    metadata->Fail("ssm.inner_size", fmt::format("a multiple of {} heads is needed", heads));
  }
  config->Set("linear_conv_kernel_dim", metadata->Int("ssm.conv_kernel", kWidthRange));
  config->Set("linear_key_head_dim", metadata->Int("ssm.state_size", kHeadDimRange));
  config->Set("linear_num_key_heads", metadata->Int("ssm.group_count", kHeadsRange));
  config->Set("linear_num_value_heads", heads);
  config->Set("linear_value_head_dim", width / heads);
}

// With experts it has another name, and that is all.
GgufArchitecture NemotronH(const char* name) {
  return {.name = name,
          .architecture = "NemotronHForCausalLM",
          .decays_as_powers = true,
          .feed_forward_by_layer = true,
          .names = {{Role::kFeedForwardNorm, "attn_norm.weight"},
                    {Role::kExpertsInput, "ffn_latent_down.weight"},
                    {Role::kExpertsOutput, "ffn_latent_up.weight"},
                    {Role::kStateInput, "ssm_in.weight"},
                    {Role::kStateInputBias, "ssm_in.bias"},
                    {Role::kConvWeight, "ssm_conv1d.weight"},
                    {Role::kConvBias, "ssm_conv1d.bias"},
                    {Role::kDecayRate, "ssm_a"},
                    {Role::kDecayBias, "ssm_dt.bias"},
                    {Role::kStateSkip, "ssm_d"},
                    {Role::kStateNorm, "ssm_norm.weight"},
                    {Role::kStateOutput, "ssm_out.weight"},
                    {Role::kStateOutputBias, "ssm_out.bias"}},
          .write = WriteNemotronH};
}

// Families whose tensors have names of their own.
std::vector<GgufArchitecture> FamiliesWithOwnNames() {
  return {
      {.name = "lfm2",
       .architecture = "Lfm2ForCausalLM",
       .names = {{Role::kFinalNorm, "token_embd_norm.weight"},
                 {Role::kStateInput, "shortconv.in_proj.weight"},
                 {Role::kStateInputBias, "shortconv.in_proj.bias"},
                 {Role::kConvWeight, "shortconv.conv.weight"},
                 {Role::kConvBias, "shortconv.conv.bias"},
                 {Role::kStateOutput, "shortconv.out_proj.weight"},
                 {Role::kStateOutputBias, "shortconv.out_proj.bias"}},
       .write = WriteLfm2},
      {.name = "qwen35",
       .architecture = "Qwen3_5ForCausalLM",
       .norms_with_one = true,
       .partial_rotary = true,
       .values_by_turns = true,
       .decays_as_powers = true,
       .names = {{Role::kFeedForwardNorm, "post_attention_norm.weight"},
                 {Role::kStateInput, "attn_qkv.weight"},
                 {Role::kStateGate, "attn_gate.weight"},
                 {Role::kStateGain, "ssm_beta.weight"},
                 {Role::kStateDecay, "ssm_alpha.weight"},
                 {Role::kConvWeight, "ssm_conv1d.weight"},
                 {Role::kDecayRate, "ssm_a"},
                 {Role::kDecayBias, "ssm_dt.bias"},
                 {Role::kStateNorm, "ssm_norm.weight"},
                 {Role::kStateOutput, "ssm_out.weight"}},
       .write = WriteQwen35},
      {.name = "deepseek2",
       .architecture = "DeepseekV2ForCausalLM",
       .own_attention = true,
       .names = {{Role::kQueryDown, "attn_q_a.weight"},
                 {Role::kQueryDownBias, "attn_q_a.bias"},
                 {Role::kQueryDownNorm, "attn_q_a_norm.weight"},
                 {Role::kQueryUp, "attn_q_b.weight"},
                 {Role::kLatent, "attn_kv_a_mqa.weight"},
                 {Role::kLatentBias, "attn_kv_a_mqa.bias"},
                 {Role::kLatentNorm, "attn_kv_a_norm.weight"},
                 {Role::kLatentUp, "attn_kv_b.weight"},
                 {Role::kLatentKeys, "attn_k_b.weight"},
                 {Role::kLatentValues, "attn_v_b.weight"}},
       .write = WriteDeepseek2},
      {.name = "gemma4",
       .architecture = "Gemma4ForCausalLM",
       .feed_forward_by_layer = true,
       .own_attention = true,
       .names = {{Role::kRouterScale, "ffn_gate_inp.scale"},
                 {Role::kExpertScale, "ffn_down_exps.scale"},
                 {Role::kDensePostNorm, "post_ffw_norm_1.weight"},
                 {Role::kExpertNorm, "pre_ffw_norm_2.weight"},
                 {Role::kExpertPostNorm, "post_ffw_norm_2.weight"},
                 {Role::kLayerFactor, "layer_output_scale.weight"},
                 {Role::kPerLayerTable, "per_layer_token_embd.weight"},
                 {Role::kPerLayerModel, "per_layer_model_proj.weight"},
                 {Role::kPerLayerModelNorm, "per_layer_proj_norm.weight"},
                 {Role::kPerLayerGate, "inp_gate.weight"},
                 {Role::kPerLayerOutput, "proj.weight"},
                 {Role::kPerLayerNorm, "post_norm.weight"}},
       .write = WriteGemma4},
  };
}

std::vector<GgufArchitecture> FamiliesLikeLlama() {
  return {
      {.name = "llama",
       .architecture = "LlamaForCausalLM",
       .pairs_side_by_side = true,
       .write = WriteLlama},
      {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
      {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
      {.name = "qwen3moe", .architecture = "Qwen3MoeForCausalLM", .write = WriteQwen3Moe},
      {.name = "gemma", .architecture = "GemmaForCausalLM", .norms_with_one = true},
      {.name = "gemma2",
       .architecture = "Gemma2ForCausalLM",
       .norms_with_one = true,
       .write = WriteGemma2},
      {.name = "gemma3",
       .architecture = "Gemma3ForCausalLM",
       .norms_with_one = true,
       .write = WriteGemma3},
      {.name = "phi3",
       .architecture = "Phi3ForCausalLM",
       .partial_rotary = true,
       .write = WritePhi3},
      {.name = "granite",
       .architecture = "GraniteForCausalLM",
       .pairs_side_by_side = true,
       .write = WriteGranite},
      {.name = "olmo2", .architecture = "Olmo2ForCausalLM", .write = WriteOlmo2},
      {.name = "glm4", .architecture = "Glm4ForCausalLM", .partial_rotary = true},
      {.name = "gpt-oss",
       .architecture = "GptOssForCausalLM",
       .names = {{Role::kFeedForwardNorm, "post_attention_norm.weight"}},
       .write = WriteGptOss},
  };
}

const std::vector<GgufArchitecture>& Entries() {
  static const auto& entries = *[] {
    auto* const all = new std::vector<GgufArchitecture>(FamiliesLikeLlama());
    for (GgufArchitecture& entry : FamiliesWithOwnNames()) all->push_back(std::move(entry));
    for (const char* name : {"nemotron_h", "nemotron_h_moe"}) all->push_back(NemotronH(name));
    return all;
  }();
  return entries;
}

}  // namespace

std::string GgufArchitectureNames() {
  std::string names;
  for (const GgufArchitecture& entry : Entries()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  return names;
}

Result<const GgufArchitecture*> FindGgufArchitecture(const GgufHeader& header) {
  const GgufValue* const value = header.Find("general.architecture");
  const auto name = value != nullptr ? value->AsString() : std::nullopt;
  if (!name) return BadInput("key \"general.architecture\" is missing; it names the model's kind");
  for (const GgufArchitecture& entry : Entries()) {
    if (*name == entry.name) return &entry;
  }
  return BadInput("GGUF files of architecture \"{}\" are not run; supported: {}",
                  Visible(*name, 100), GgufArchitectureNames());
}

const char* GgufNameOf(const GgufArchitecture& entry, TensorRole role) {
  for (const NamedRole& named : entry.names) {
    if (named.role == role) return named.name;
  }
  for (const NamedRole& named : kGgufNames) {
    if (named.role == role) return named.name;
  }
  return nullptr;
}

}  // namespace minisgl::weights
