// Entries of architectures that are published as the text model of a multimodal one.
#include "weights/architecture_table.h"
#include "weights/family_keys.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

Architecture Qwen2Vl(const char* name, const char* model_type) {
  return {.name = name,
          .model_type = model_type,
          .max_seq_len = 32768,
          .num_kv_heads = 8,
          .eps = 1e-5,
          .qkv_bias = kAlways,
          .theta = 1e6,
          .windows = Windows::kFromLayer,
          .window = 4096,
          .max_window_layers = 80};
}

// Text models that exist inside of multimodal ones only, and are named by these. Positions of text
// are equal in all sections of their rotary embedding, which is then a plain one.
std::vector<Architecture> InnerFamilies() {
  return {
      Qwen2Vl("Qwen2VLForConditionalGeneration", "qwen2_vl_text"),
      Qwen2Vl("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text"),
      {.name = "Qwen3VLForConditionalGeneration",
       .model_type = "qwen3_vl_text",
       .max_seq_len = 128000,
       .num_kv_heads = 32,
       .head_dim = 128,
       .qk_norm = QkNorm::kHead,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .theta = 500000,
       .rope_sections_mixed = true},
      {.name = "Qwen3VLMoeForConditionalGeneration",
       .model_type = "qwen3_vl_moe_text",
       .max_seq_len = 128000,
       .num_kv_heads = 16,
       .qk_norm = QkNorm::kHead,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .theta = 500000,
       .rope_sections_mixed = true,
       .names = {{Role::kExpertGateUp, "mlp.experts.gate_up_proj"},
                 {Role::kExpertDown, "mlp.experts.down_proj"}},
       .experts_inputs_first = true,
       .read = ReadQwen3VlMoe},
      {.name = "Glm4vForConditionalGeneration",
       .model_type = "glm4v_text",
       .max_seq_len = 32768,
       .num_kv_heads = 2,
       .norm_placement = NormPlacement::kAround,
       .eps = 1e-5,
       .qkv_bias = kAlways,
       .rotary_interleaved = true,
       .rotary_partial = true,
       .names = {{Role::kAttentionPostNorm, "post_self_attn_layernorm.weight"},
                 {Role::kFeedForwardPostNorm, "post_mlp_layernorm.weight"},
                 {Role::kGateUp, "mlp.gate_up_proj.weight"}}},
  };
}

// Norms around each part, of queries and keys without weights, of the embedding; a gate of what
// attention returns.
Architecture MuseGlimmer() {
  return {.name = "MuseGlimmerForConditionalGeneration",
          .model_type = "muse_glimmer_text",
          .max_seq_len = 131072,
          .num_kv_heads = 2,
          .head_dim = 128,
          .norm_placement = NormPlacement::kAround,
          .norm_plus_one = true,
          .eps = 1e-5,
          .qk_norm = QkNorm::kHead,
          .qkv_bias = kAttentionBias,
          .output_bias = kAttentionBias,
          .activation_key = "hidden_activation",
          .windows = Windows::kAllButEach,
          .window = 2048,
          .window_period = 4,
          .names = {{Role::kAttentionPostNorm, "post_attention_layernorm.weight"},
                    {Role::kFeedForwardNorm, "pre_feedforward_layernorm.weight"},
                    {Role::kFeedForwardPostNorm, "post_feedforward_layernorm.weight"}},
          .softcaps = true,
          .read = ReadMuseGlimmer};
}

// Heads of two widths, values that are normalised, factors of layers; per-layer embeddings, keys
// shared by layers or used as values, and experts beside a dense part, as the configuration says.
Architecture Gemma4(const char* name, const char* model_type) {
  return {.name = name,
          .model_type = model_type,
          .max_seq_len = 131072,
          .num_kv_heads = 4,
          .head_dim = 256,
          .tied = true,
          .norm_placement = NormPlacement::kAround,
          .qk_norm = QkNorm::kHead,
          .qkv_bias = kAttentionBias,
          .output_bias = kAttentionBias,
          .activation_key = "hidden_activation",
          .activation = "gelu_pytorch_tanh",
          .theta = 1e6,
          .window_theta = 10000,
          .rope_proportional = true,
          .rope_default = R"({"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
              "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                  "rope_theta": 1000000.0}})",
          .windows = Windows::kAllButEach,
          .window = 512,
          .window_period = 6,
          .names = {{Role::kAttentionPostNorm, "post_attention_layernorm.weight"},
                    {Role::kFeedForwardNorm, "pre_feedforward_layernorm.weight"},
                    {Role::kFeedForwardPostNorm, "post_feedforward_layernorm.weight"},
                    {Role::kRouter, "router.proj.weight"},
                    {Role::kExpertGateUp, "experts.gate_up_proj"},
                    {Role::kExpertDown, "experts.down_proj"}},
          .softcaps = true,
          .experts_prefix = "experts.",
          .read = ReadGemma4};
}

std::vector<Architecture> Gemma4Families() {
  std::vector<Architecture> families = {Gemma4("Gemma4ForCausalLM", "gemma4_text"),
                                        Gemma4("Gemma4UnifiedForCausalLM", "gemma4_unified_text")};
  families[0].has_forms = true;
  families[1].max_seq_len = 262144;
  families[1].window = 1024;
  families[1].read = ReadGemma4Unified;
  return families;
}

// Experts whose shares multiply what they read; queries and keys normalised without weights in the
// layers that rotate them.
Architecture Llama4() {
  return {.name = "Llama4ForCausalLM",
          .model_type = "llama4_text",
          .max_seq_len = 131072,
          .num_kv_heads = 8,
          .head_dim = 128,
          .intermediate_size = 8192,
          .eps = 1e-5,
          .qkv_bias = kAttentionBias,
          .output_bias = kAttentionBias,
          .rotated = Rotated::kListed,
          .rotary_interleaved = true,
          .theta = 500000,
          .names = {{Role::kGate, "feed_forward.gate_proj.weight"},
                    {Role::kUp, "feed_forward.up_proj.weight"},
                    {Role::kDown, "feed_forward.down_proj.weight"},
                    {Role::kRouter, "feed_forward.router.weight"},
                    {Role::kExpertGateUp, "feed_forward.experts.gate_up_proj"},
                    {Role::kExpertDown, "feed_forward.experts.down_proj"},

                    {Role::kSharedGate, "feed_forward.shared_expert.gate_proj.weight"},
                    {Role::kSharedUp, "feed_forward.shared_expert.up_proj.weight"},
                    {Role::kSharedDown, "feed_forward.shared_expert.down_proj.weight"}},
          .experts_inputs_first = true,
          .experts_prefix = "feed_forward.experts.",
          .rename = RenameLlama4,
          .read = ReadLlama4Text};
}

}  // namespace

std::vector<Architecture> MultimodalFamilies() {
  std::vector<Architecture> families = InnerFamilies();
  families.push_back(Llama4());
  families.push_back(MuseGlimmer());
  for (const Architecture& family : Gemma4Families()) families.push_back(family);
  return families;
}

}  // namespace minisgl::weights
