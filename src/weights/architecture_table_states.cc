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

}  // namespace

std::vector<Architecture> StateFamilies() { return Lfm2Families(); }

}  // namespace minisgl::weights
