// Entries of architectures with layers that have a state.
#include "weights/architecture_table.h"
#include "weights/family_keys.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

// Short convolutions between gates; attention in some layers.
Architecture Lfm2(const char* name, const char* model_type) {
  return {.name = name,
          .model_type = model_type,
          .max_seq_len = 128000,
          .num_kv_heads = 8,
          .tied = true,
          .eps_key = "norm_eps",
          .eps = 1e-5,
          .qk_norm = QkNorm::kHead,
          .theta = 1e6,
          .state_mixer = Mixer::kShortConv,
          .state_type = "conv",
          .names = {{Role::kFinalNorm, "model.embedding_norm.weight"},
                    {Role::kAttentionNorm, "operator_norm.weight"},
                    {Role::kFeedForwardNorm, "ffn_norm.weight"},
                    {Role::kQueryNorm, "self_attn.q_layernorm.weight"},
                    {Role::kKeyNorm, "self_attn.k_layernorm.weight"},
                    {Role::kAttentionOutput, "self_attn.out_proj.weight"},
                    {Role::kGate, "feed_forward.w1.weight"},
                    {Role::kUp, "feed_forward.w3.weight"},
                    {Role::kDown, "feed_forward.w2.weight"},
                    {Role::kRouter, "feed_forward.gate.weight"},
                    {Role::kChoiceBias, "feed_forward.expert_bias"},
                    {Role::kExpertGate, "feed_forward.experts.{}.w1.weight"},
                    {Role::kExpertUp, "feed_forward.experts.{}.w3.weight"},
                    {Role::kExpertDown, "feed_forward.experts.{}.w2.weight"}}};
}

std::vector<Architecture> Lfm2Families() {
  std::vector<Architecture> families = {Lfm2("Lfm2ForCausalLM", "lfm2"),
                                        Lfm2("Lfm2MoeForCausalLM", "lfm2_moe")};
  families[0].intermediate_size = 12288;
  families[0].width_key = "block_ff_dim";
  families[0].read = ReadLfm2;
  families[1].read = ReadLfm2Moe;
  return families;
}

// The gated delta rule; in each fourth layer attention with a gate for each head and a rotary of a
// quarter of the head.
Architecture DeltaNet(const char* name, const char* model_type, int64_t num_kv_heads) {
  return {.name = name,
          .model_type = model_type,
          .max_seq_len = 32768,
          .num_kv_heads = num_kv_heads,
          .head_dim = 256,
          .norm_plus_one = true,
          .qk_norm = QkNorm::kHead,
          .qkv_bias = kAttentionBias,
          .output_bias = kAttentionBias,
          .rotary_partial = true,
          .rotary_share = 0.25,
          .state_mixer = Mixer::kDeltaNet,
          .state_type = "linear_attention"};
}

std::vector<Architecture> DeltaNetFamilies() {
  std::vector<Architecture> families = {DeltaNet("Qwen3NextForCausalLM", "qwen3_next", 2),
                                        DeltaNet("Qwen3_5ForCausalLM", "qwen3_5_text", 4),
                                        DeltaNet("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", 2)};
  families[0].intermediate_size = 5632;
  families[0].names = {{Role::kStateInput, "linear_attn.in_proj_qkvz.weight"}};
  families[0].read = ReadQwen3Next;
  families[1].read = ReadQwen3_5;
  families[2].intermediate_size = 512;  // no layer has a dense part
  families[2].names = {{Role::kExpertGateUp, "mlp.experts.gate_up_proj"},
                       {Role::kExpertDown, "mlp.experts.down_proj"}};
  families[1].has_forms = families[2].has_forms = true;
  families[1].rope_sections_mixed = families[2].rope_sections_mixed = true;
  families[2].read = ReadQwen3_5Moe;
  return families;
}

// The gated delta rule with gains up to 2; attention with norms after each part in some layers.
Architecture OlmoHybrid() {
  return {.name = "OlmoHybridForCausalLM",
          .model_type = "olmo_hybrid",
          .max_seq_len = 65536,
          .norm_placement = NormPlacement::kAfter,
          .qk_norm = QkNorm::kWhole,
          .qkv_bias = kAttentionBias,
          .output_bias = kAttentionBias,
          .state_mixer = Mixer::kDeltaNet,
          .state_type = "linear_attention",
          .names = {{Role::kAttentionNorm, "attention_layer_norm.weight"},
                    {Role::kFeedForwardNorm, "feedforward_layer_norm.weight"},
                    {Role::kAttentionPostNorm, "post_attention_layernorm.weight"},
                    {Role::kFeedForwardPostNorm, "post_feedforward_layernorm.weight"},
                    {Role::kStateGate, "linear_attn.g_proj.weight"},
                    {Role::kStateDecay, "linear_attn.a_proj.weight"},
                    {Role::kStateGain, "linear_attn.b_proj.weight"},
                    {Role::kStateNorm, "linear_attn.o_norm.weight"},
                    {Role::kStateOutput, "linear_attn.o_proj.weight"}},
          .read = ReadOlmoHybrid};
}

// Selective state spaces; attention in some layers.
std::vector<Architecture> Mamba2Families() {
  return {
      {.name = "GraniteMoeHybridForCausalLM",
       .model_type = "granitemoehybrid",
       .intermediate_size = 11008,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .state_mixer = Mixer::kMamba2,
       .state_type = "mamba",
       .full_type = "attention",
       .names = {{Role::kGateUp, "shared_mlp.input_linear.weight"},
                 {Role::kDown, "shared_mlp.output_linear.weight"},
                 {Role::kRouter, "block_sparse_moe.router.layer.weight"},
                 {Role::kExpertGateUp, "block_sparse_moe.input_linear.weight"},
                 {Role::kExpertDown, "block_sparse_moe.output_linear.weight"},
                 {Role::kSharedGateUp, "shared_mlp.input_linear.weight"},
                 {Role::kSharedDown, "shared_mlp.output_linear.weight"}},
       .has_forms = true,
       .experts_prefix = "block_sparse_moe.experts.",
       .read = ReadGraniteMoeHybrid},
      {.name = "BambaForCausalLM",
       .model_type = "bamba",
       .max_seq_len = 262144,
       .num_kv_heads = 8,
       .eps = 1e-5,
       .qkv_bias = kAttentionBias,
       .output_bias = kAttentionBias,
       .feed_forward_bias = {"mlp_bias"},
       .rotary_partial = true,
       .rotary_share = 0.5,
       .state_mixer = Mixer::kMamba2,
       .state_type = "mamba",
       .full_type = "attention",
       .names = {{Role::kFinalNorm, "model.final_layernorm.weight"},
                 {Role::kFeedForwardNorm, "pre_ff_layernorm.weight"},
                 {Role::kGate, "feed_forward.gate_proj.weight"},
                 {Role::kUp, "feed_forward.up_proj.weight"},
                 {Role::kDown, "feed_forward.down_proj.weight"},
                 {Role::kGateBias, "feed_forward.gate_proj.bias"},
                 {Role::kUpBias, "feed_forward.up_proj.bias"},
                 {Role::kDownBias, "feed_forward.down_proj.bias"}},
       .read = ReadBamba},
  };
}

// Attention and a selective state space side by side in each layer, with multipliers.
Architecture FalconH1() {
  return {.name = "FalconH1ForCausalLM",
          .model_type = "falcon_h1",
          .max_seq_len = 8192,
          .num_kv_heads = 8,
          .eps = 1e-5,
          .feed_forward_bias = {"mlp_bias"},
          .state_mixer = Mixer::kAttentionAndMamba2,
          .state_type = "hybrid",
          .names = {{Role::kFinalNorm, "model.final_layernorm.weight"},
                    {Role::kFeedForwardNorm, "pre_ff_layernorm.weight"},
                    {Role::kGate, "feed_forward.gate_proj.weight"},
                    {Role::kUp, "feed_forward.up_proj.weight"},
                    {Role::kDown, "feed_forward.down_proj.weight"},
                    {Role::kGateBias, "feed_forward.gate_proj.bias"},
                    {Role::kUpBias, "feed_forward.up_proj.bias"},
                    {Role::kDownBias, "feed_forward.down_proj.bias"}},
          .read = ReadFalconH1};
}

// Each layer is one part alone: a selective state space, attention without rotary, or a
// feed-forward part without a gate.
Architecture NemotronH() {
  return {.name = "NemotronHForCausalLM",
          .model_type = "nemotron_h",
          .max_seq_len = 4096,
          .num_kv_heads = 8,
          .head_dim = 128,
          .intermediate_size = 21504,
          .eps_key = "layer_norm_epsilon",
          .eps = 1e-5,
          .feed_forward_bias = {"mlp_bias"},
          .state_bias = {"use_bias"},
          .activation_key = "mlp_hidden_act",
          .activation = "relu2",
          .gated = false,
          .state_mixer = Mixer::kMamba2,
          .state_type = "mamba",
          .full_type = "attention",
          .names = {{Role::kEmbedding, "model.embeddings.weight"},
                    {Role::kFinalNorm, "model.norm_f.weight"},
                    {Role::kAttentionNorm, "norm.weight"},
                    {Role::kFeedForwardNorm, "norm.weight"},
                    {Role::kQuery, "mixer.q_proj.weight"},
                    {Role::kKey, "mixer.k_proj.weight"},
                    {Role::kValue, "mixer.v_proj.weight"},
                    {Role::kAttentionOutput, "mixer.o_proj.weight"},
                    {Role::kUp, "mixer.up_proj.weight"},
                    {Role::kUpBias, "mixer.up_proj.bias"},
                    {Role::kDown, "mixer.down_proj.weight"},
                    {Role::kDownBias, "mixer.down_proj.bias"},
                    {Role::kRouter, "mixer.gate.weight"},
                    {Role::kChoiceBias, "mixer.gate.e_score_correction_bias"},
                    {Role::kExpertUp, "mixer.experts.{}.up_proj.weight"},
                    {Role::kExpertDown, "mixer.experts.{}.down_proj.weight"},
                    {Role::kSharedUp, "mixer.shared_experts.up_proj.weight"},
                    {Role::kSharedDown, "mixer.shared_experts.down_proj.weight"},
                    {Role::kExpertsInput, "mixer.fc1_latent_proj.weight"},
                    {Role::kExpertsOutput, "mixer.fc2_latent_proj.weight"},
                    {Role::kStateInput, "mixer.in_proj.weight"},
                    {Role::kStateInputBias, "mixer.in_proj.bias"},
                    {Role::kConvWeight, "mixer.conv1d.weight"},
                    {Role::kConvBias, "mixer.conv1d.bias"},
                    {Role::kDecayRate, "mixer.A_log"},
                    {Role::kDecayBias, "mixer.dt_bias"},
                    {Role::kStateSkip, "mixer.D"},
                    {Role::kStateNorm, "mixer.norm.weight"},
                    {Role::kStateOutput, "mixer.out_proj.weight"},
                    {Role::kStateOutputBias, "mixer.out_proj.bias"}},
          .count_layers = CountNemotronHLayers,
          .read = ReadNemotronH};
}

}  // namespace

std::vector<Architecture> StateFamilies() {
  std::vector<Architecture> families = Lfm2Families();
  for (const Architecture& family : DeltaNetFamilies()) families.push_back(family);
  for (const Architecture& family : Mamba2Families()) families.push_back(family);
  families.push_back(NemotronH());
  families.push_back(OlmoHybrid());
  families.push_back(FalconH1());
  return families;
}

}  // namespace minisgl::weights
