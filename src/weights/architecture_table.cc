// The entries. architecture_table.h has the meanings and defaults of the fields.
#include "weights/architecture_table.h"

#include "weights/family_keys.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

constexpr BiasSwitch kAttentionBias = {"attention_bias"};
constexpr BiasSwitch kMlpBias = {"mlp_bias"};
constexpr BiasSwitch kAlways = {"", true};

const std::vector<NamedRole> kNamesOfPostNorms = {
    {Role::kAttentionPostNorm, "post_attention_layernorm.weight"},
    {Role::kFeedForwardPostNorm, "post_feedforward_layernorm.weight"}};

const std::vector<NamedRole> kNamesOfFourNorms = {
    {Role::kAttentionPostNorm, "post_attention_layernorm.weight"},
    {Role::kFeedForwardNorm, "pre_feedforward_layernorm.weight"},
    {Role::kFeedForwardPostNorm, "post_feedforward_layernorm.weight"}};

// Defaults, biases, windows, and multipliers of llama's own build.
std::vector<Architecture> LlamaFamilies() {
  return {
      {.name = "LlamaForCausalLM",
       .model_type = "llama",
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .feed_forward_bias = kMlpBias},
      {.name = "MistralForCausalLM",
       .model_type = "mistral",
       .max_seq_len = 131072,
       .num_kv_heads = 8,
       .windows = Windows::kEvery,
       .window = 4096},
      {.name = "Ministral3ForCausalLM",
       .model_type = "ministral3",
       .max_seq_len = 262144,
       .num_kv_heads = 8,
       .head_dim = 128,
       .eps = 1e-5,
       .query_scale = true,
       .rope_default = R"({"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
           "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
           "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})",
       .windows = Windows::kEvery},
      {.name = "SmolLM3ForCausalLM",
       .model_type = "smollm3",
       .max_seq_len = 32768,
       .num_kv_heads = 4,
       .tied = true,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .feed_forward_bias = kMlpBias,
       .rotated = Rotated::kListed,
       .theta = 2e6,
       .windows = Windows::kUnrotated},
      {.name = "GraniteForCausalLM",
       .model_type = "granite",
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .feed_forward_bias = kMlpBias,
       .read = ReadGranite},
      {.name = "SeedOssForCausalLM",
       .model_type = "seed_oss",
       .max_seq_len = 524288,
       .num_kv_heads = 8,
       .head_dim = 128,
       .qkv_bias = {"attention_bias", true},
       .output_bias = {"attention_out_bias"},
       .feed_forward_bias = kMlpBias},
      {.name = "Ernie4_5ForCausalLM",
       .model_type = "ernie4_5",
       .old_name = "Ernie4_5_ForCausalLM",
       .max_seq_len = 131072,
       .num_kv_heads = 2,
       .head_dim = 128,
       .tied = true,
       .eps = 1e-5,
       .qkv_bias = {"use_bias"},
       .output_bias = {"use_bias"},
       .feed_forward_bias = {"use_bias"},
       .rotary_interleaved = true,
       .theta = 500000},
  };
}

// Norms of heads, fused projections, a rotary of part of a head.
std::vector<Architecture> QwenAndPhiFamilies() {
  return {
      {.name = "Qwen2ForCausalLM",
       .model_type = "qwen2",
       .max_seq_len = 32768,
       .num_kv_heads = 32,
       .qkv_bias = kAlways,
       .windows = Windows::kFromLayer,
       .window = 4096},
      {.name = "Qwen3ForCausalLM",
       .model_type = "qwen3",
       .max_seq_len = 32768,
       .num_kv_heads = 32,
       .head_dim = 128,
       .qk_norm = QkNorm::kHead,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .windows = Windows::kFromLayer,
       .window = 4096},
      {.name = "HunYuanDenseV1ForCausalLM",
       .model_type = "hunyuan_v1_dense",
       .eps = 1e-5,
       .qk_norm = QkNorm::kHeadAfterRotary,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .rope_alpha = true,
       .names = {{Role::kQueryNorm, "self_attn.query_layernorm.weight"},
                 {Role::kKeyNorm, "self_attn.key_layernorm.weight"}}},
      {.name = "Phi3ForCausalLM",
       .model_type = "phi3",
       .max_seq_len = 4096,
       .eps = 1e-5,
       .rotary_partial = true,
       .original_max_seq_len = 4096,
       .yarn_is_longrope = true,
       .windows = Windows::kEvery,
       .names = {{Role::kQkv, "self_attn.qkv_proj.weight"},
                 {Role::kGateUp, "mlp.gate_up_proj.weight"}}},
      {.name = "Glm4ForCausalLM",
       .model_type = "glm4",
       .max_seq_len = 131072,
       .num_kv_heads = 2,
       .head_dim = 128,
       .norm_placement = NormPlacement::kAround,
       .eps = 1.5625e-7,
       .qkv_bias = {"attention_bias", true},
       .rotary_interleaved = true,
       .rotary_partial = true,
       .rotary_share = 0.5,
       .names = {{Role::kAttentionPostNorm, "post_self_attn_layernorm.weight"},
                 {Role::kFeedForwardPostNorm, "post_mlp_layernorm.weight"},
                 {Role::kGateUp, "mlp.gate_up_proj.weight"}}},
  };
}

// Embeddings are scaled, norms add 1 to their weights, the gate is a GELU.
std::vector<Architecture> GemmaFamilies() {
  return {
      {.name = "GemmaForCausalLM",
       .model_type = "gemma",
       .max_seq_len = 8192,
       .num_kv_heads = 16,
       .head_dim = 256,
       .tied = true,
       .norm_plus_one = true,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .activation = "gelu_pytorch_tanh",
       .gelu_is_tanh = true,
       .read = ReadGemma},
      {.name = "Gemma2ForCausalLM",
       .model_type = "gemma2",
       .max_seq_len = 8192,
       .num_kv_heads = 4,
       .head_dim = 256,
       .tied = true,
       .norm_placement = NormPlacement::kAround,
       .norm_plus_one = true,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .activation_key = "hidden_activation",
       .activation = "gelu_pytorch_tanh",
       .windows = Windows::kAllButEach,
       .window = 4096,
       .window_period = 2,
       .names = kNamesOfFourNorms,
       .softcaps = true,
       .read = ReadGemma2},
      {.name = "Gemma3ForCausalLM",
       .model_type = "gemma3_text",
       .max_seq_len = 131072,
       .num_kv_heads = 4,
       .head_dim = 256,
       .tied = true,
       .norm_placement = NormPlacement::kAround,
       .norm_plus_one = true,
       .qk_norm = QkNorm::kHead,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .activation_key = "hidden_activation",
       .activation = "gelu_pytorch_tanh",
       .theta = 1e6,
       .window_theta = 10000,
       .window_theta_key = "rope_local_base_freq",
       .windows = Windows::kAllButEachKey,
       .window = 4096,
       .window_period = 6,
       .names = kNamesOfFourNorms,
       .softcaps = true,
       .read = ReadGemma3},
  };
}

// Norms after a block instead of before it, parallel blocks, layers without rotary.
std::vector<Architecture> OlmoAndCohereFamilies() {
  return {
      {.name = "Olmo2ForCausalLM",
       .model_type = "olmo2",
       .norm_placement = NormPlacement::kAfter,
       .eps = 1e-5,
       .qk_norm = QkNorm::kWhole,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .names = kNamesOfPostNorms},
      {.name = "Olmo3ForCausalLM",
       .model_type = "olmo3",
       .norm_placement = NormPlacement::kAfter,
       .eps = 1e-5,
       .qk_norm = QkNorm::kWhole,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .theta = 500000,
       .window_theta = 500000,
       .windows = Windows::kAllButEach,
       .window = 4096,
       .window_period = 4,
       .names = kNamesOfPostNorms},
      {.name = "Cohere2ForCausalLM",
       .model_type = "cohere2",
       .max_seq_len = 8192,
       .tied = true,
       .norm_kind = NormKind::kLayer,
       .norm_placement = NormPlacement::kParallel,
       .eps_key = "layer_norm_eps",
       .eps = 1e-5,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .rotated = Rotated::kWindows,
       .rotary_interleaved = true,
       .windows = Windows::kAllButEachKey,
       .window = 4096,
       .window_period = 4,
       .read = ReadCohere2},
      {.name = "Exaone4ForCausalLM",
       .model_type = "exaone4",
       .num_kv_heads = 32,
       .norm_placement = NormPlacement::kAfter,
       .eps = 1e-5,
       .qk_norm = QkNorm::kHead,
       .rotated = Rotated::kWindowsIfAny,
       .windows = Windows::kAllButEachNull,
       .window = 4096,
       .window_period = 4,
       .names = kNamesOfPostNorms},
  };
}

// LayerNorms, with biases.
std::vector<Architecture> LayerNormFamilies() {
  return {
      {.name = "Starcoder2ForCausalLM",
       .model_type = "starcoder2",
       .max_seq_len = 4096,
       .num_kv_heads = 2,
       .tied = true,
       .norm_kind = NormKind::kLayer,
       .norm_bias = true,
       .eps_key = "norm_epsilon",
       .eps = 1e-5,
       .qkv_bias = {"use_bias", true},
       .output_bias = {"use_bias", true},
       .feed_forward_bias = {"use_bias", true},
       .activation = "gelu_pytorch_tanh",
       .gated = false,
       .windows = Windows::kEvery,
       .names = {{Role::kUp, "mlp.c_fc.weight"},
                 {Role::kUpBias, "mlp.c_fc.bias"},
                 {Role::kDown, "mlp.c_proj.weight"},
                 {Role::kDownBias, "mlp.c_proj.bias"}}},
      {.name = "StableLmForCausalLM",
       .model_type = "stablelm",
       .max_seq_len = 4096,
       .num_kv_heads = 32,
       .norm_kind = NormKind::kLayer,
       .norm_bias = true,
       .eps_key = "layer_norm_eps",
       .eps = 1e-5,
       .qkv_bias = {"use_qkv_bias"},
       .rotary_partial = true,
       .rotary_share = 0.25,
       .names = {{Role::kQueryNorm, "self_attn.q_layernorm.norms.{}.weight"},
                 {Role::kKeyNorm, "self_attn.k_layernorm.norms.{}.weight"}},
       .read = ReadStableLm},
      {.name = "NemotronForCausalLM",
       .model_type = "nemotron",
       .max_seq_len = 4096,
       .norm_kind = NormKind::kLayer,
       .norm_bias = true,
       .norm_plus_one = true,
       .eps_key = "norm_eps",
       .eps = 1e-5,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .feed_forward_bias = kMlpBias,
       .activation = "relu2",
       .gated = false,
       .rotary_partial = true,
       .rotary_share = 0.5},
  };
}

std::vector<Architecture> ExpertFamilies() {
  return {
      {.name = "MixtralForCausalLM",
       .model_type = "mixtral",
       .max_seq_len = 131072,
       .num_kv_heads = 8,
       .eps = 1e-5,
       .theta = 1e6,
       .windows = Windows::kEvery,
       .names = {{Role::kRouter, "block_sparse_moe.gate.weight"},
                 {Role::kExpertGate, "block_sparse_moe.experts.{}.w1.weight"},
                 {Role::kExpertUp, "block_sparse_moe.experts.{}.w3.weight"},
                 {Role::kExpertDown, "block_sparse_moe.experts.{}.w2.weight"}},
       .read = ReadMixtral},
      {.name = "Qwen2MoeForCausalLM",
       .model_type = "qwen2_moe",
       .max_seq_len = 32768,
       .num_kv_heads = 16,
       .qkv_bias = {"qkv_bias", true},
       .windows = Windows::kOddUpToLayer,
       .window = 4096,
       .read = ReadQwen2Moe},
      {.name = "Qwen3MoeForCausalLM",
       .model_type = "qwen3_moe",
       .max_seq_len = 32768,
       .num_kv_heads = 4,
       .qk_norm = QkNorm::kHead,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .windows = Windows::kSwitched,
       .window = 4096,
       .read = ReadQwen3Moe},
      {.name = "OlmoeForCausalLM",
       .model_type = "olmoe",
       .max_seq_len = 4096,
       .eps = 1e-5,
       .qk_norm = QkNorm::kWhole,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .read = ReadOlmoe},
      {.name = "GraniteMoeForCausalLM",
       .model_type = "granitemoe",
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .names = {{Role::kRouter, "block_sparse_moe.router.layer.weight"},
                 {Role::kExpertGateUp, "block_sparse_moe.input_linear.weight"},
                 {Role::kExpertDown, "block_sparse_moe.output_linear.weight"}},
       .read = ReadGraniteMoe},
  };
}

// Experts are chosen by sigmoids and a bias.
std::vector<Architecture> SigmoidExpertFamilies() {
  return {
      {.name = "Glm4MoeForCausalLM",
       .model_type = "glm4_moe",
       .max_seq_len = 131072,
       .num_kv_heads = 8,
       .eps = 1e-5,
       .qkv_bias = kAttentionBias,
       .rotary_partial = true,
       .rotary_share = 0.5,
       .names = {{Role::kSharedGate, "mlp.shared_experts.gate_proj.weight"},
                 {Role::kSharedUp, "mlp.shared_experts.up_proj.weight"},
                 {Role::kSharedDown, "mlp.shared_experts.down_proj.weight"}},
       .read = ReadGlm4Moe},
      {.name = "MiniMaxM2ForCausalLM",
       .model_type = "minimax_m2",
       .max_seq_len = 196608,
       .num_kv_heads = 8,
       .head_dim = 128,
       .qk_norm = QkNorm::kWhole,
       .rotary_partial = true,
       .rotary_dim_key = true,
       .theta = 5e6,
       .names = {{Role::kRouter, "block_sparse_moe.gate.weight"},
                 {Role::kChoiceBias, "block_sparse_moe.e_score_correction_bias"},
                 {Role::kExpertGate, "block_sparse_moe.experts.{}.w1.weight"},
                 {Role::kExpertUp, "block_sparse_moe.experts.{}.w3.weight"},
                 {Role::kExpertDown, "block_sparse_moe.experts.{}.w2.weight"}},
       .read = ReadMiniMaxM2},
  };
}

// Attention sinks, biases everywhere, experts in transposed and interleaved tensors.
std::vector<Architecture> GptOssFamily() {
  return {
      {.name = "GptOssForCausalLM",
       .model_type = "gpt_oss",
       .max_seq_len = 131072,
       .num_kv_heads = 8,
       .head_dim = 64,
       .eps = 1e-5,
       .qkv_bias = {"attention_bias", true},
       .output_bias = {"attention_bias", true},
       .feed_forward_bias = kAlways,
       .theta = 150000,
       .rope_default = R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
           "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096})",
       .windows = Windows::kAllButEach,
       .window = 128,
       .window_period = 2,
       .names = {{Role::kRouter, "mlp.router.weight"},
                 {Role::kRouterBias, "mlp.router.bias"},
                 {Role::kExpertGateUp, "mlp.experts.gate_up_proj"},
                 {Role::kExpertGateUpBias, "mlp.experts.gate_up_proj_bias"},
                 {Role::kExpertDown, "mlp.experts.down_proj"},
                 {Role::kExpertDownBias, "mlp.experts.down_proj_bias"}},
       .experts_inputs_first = true,
       .read = ReadGptOss},
  };
}

}  // namespace

const std::vector<Architecture>& Architectures() {
  static const auto& all = *new std::vector<Architecture>([] {
    std::vector<Architecture> entries;
    for (const auto& family :
         {LlamaFamilies(), QwenAndPhiFamilies(), GemmaFamilies(), OlmoAndCohereFamilies(),
          LayerNormFamilies(), ExpertFamilies(), SigmoidExpertFamilies(), GptOssFamily()}) {
      entries.insert(entries.end(), family.begin(), family.end());
    }
    return entries;
  }());
  return all;
}

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture& architecture : Architectures()) {
    if (name == architecture.name || (!name.empty() && name == architecture.old_name)) {
      return &architecture;
    }
  }
  return nullptr;
}

}  // namespace minisgl::weights
