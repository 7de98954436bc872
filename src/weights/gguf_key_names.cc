// See gguf_key_names.h.
#include "weights/gguf_key_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::weights {
namespace {

// Keys of config.json and what files say in their place: a name of the metadata, or a tensor.
constexpr std::pair<std::string_view, std::string_view> kNamesOfKeys[] = {
    {"attention_multiplier", "attention.scale"},
    {"block_ff_dim", "feed_forward_length"},
    {"conv_L_cache", "shortconv.l_cache"},
    {"conv_kernel", "ssm.conv_kernel"},
    {"embedding_multiplier", "embedding_scale"},
    {"first_k_dense_replace", "leading_dense_block_count"},
    {"global_head_dim", "attention.key_length"},
    {"head_dim", "attention.key_length"},
    {"hidden_size", "embedding_length"},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input"},
    {"intermediate_size", "feed_forward_length"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon"},
    {"layer_types", "attention.sliding_window_pattern"},
    {"layer_norm_eps", "attention.layer_norm_epsilon"},
    {"linear_conv_kernel_dim", "ssm.conv_kernel"},
    {"linear_key_head_dim", "ssm.state_size"},
    {"linear_num_key_heads", "ssm.group_count"},
    {"linear_num_value_heads", "ssm.time_step_rank"},
    {"linear_value_head_dim", "ssm.inner_size"},
    {"logits_scaling", "logit_scale"},
    {"mamba_d_conv", "ssm.conv_kernel"},
    {"mamba_d_head", "ssm.inner_size"},
    {"mamba_d_ssm", "ssm.inner_size"},
    {"mamba_d_state", "ssm.state_size"},
    {"mamba_head_dim", "ssm.inner_size"},
    {"mamba_n_groups", "ssm.group_count"},
    {"mamba_n_heads", "ssm.time_step_rank"},
    {"mamba_num_heads", "ssm.time_step_rank"},
    {"max_position_embeddings", "context_length"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"moe_k", "expert_used_count"},
    {"moe_layer_interval", "interleave_moe_layer_step"},
    {"moe_layer_start_index", "leading_dense_block_count"},
    {"moe_num_experts", "expert_count"},
    {"moe_num_shared_experts", "expert_shared_count"},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {"moe_topk", "expert_used_count"},
    {"n_group", "expert_group_count"},
    {"n_groups", "ssm.group_count"},
    {"n_routed_experts", "expert_count"},
    {"n_shared_experts", "expert_shared_count"},
    {"norm_eps", "attention.layer_norm_rms_epsilon"},
    {"norm_epsilon", "attention.layer_norm_epsilon"},
    {"norm_topk_prob", "expert_weights_norm"},
    {"num_attention_heads", "attention.head_count"},
    {"num_dense_layers", "leading_dense_block_count"},
    {"num_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"num_global_key_value_heads", "attention.head_count_kv"},
    {"num_hidden_layers", "block_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"num_kv_shared_layers", "attention.shared_kv_layers"},
    {"num_local_experts", "expert_count"},
    {"num_shared_expert", "expert_shared_count"},
    {"num_shared_experts", "expert_shared_count"},
    {"original_max_position_embeddings", "rope.scaling.original_context_length"},
    {"output_multiplier", "logit_scale"},
    {"partial_rotary_factor", "rope.dimension_count"},
    {"prefix_dense_intermediate_size", "feed_forward_length"},
    {"q_lora_rank", "attention.q_lora_rank"},
    {"qk_nope_head_dim", "attention.key_length_mla"},
    {"qk_rope_head_dim", "rope.dimension_count"},
    {"residual_multiplier", "residual_scale"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"rope_local_base_freq", "rope.freq_base_swa"},
    {"rope_parameters.full_attention.rope_theta", "rope.freq_base"},
    {"rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa"},
    {"rope_scaling.beta_fast", "rope.scaling.yarn_beta_fast"},
    {"rope_scaling.beta_slow", "rope.scaling.yarn_beta_slow"},
    {"rope_scaling.factor", "rope.scaling.factor"},
    {"rope_scaling.attention_factor", "rope.scaling.yarn_attn_factor"},
    {"rope_scaling.llama_4_scaling_beta", "attention.temperature_scale"},
    {"rope_scaling.long_factor", "rope_freqs.weight or rope_factors_long.weight"},
    {"rope_scaling.mscale", "rope.scaling.yarn_log_multiplier"},
    {"rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length"},
    {"rope_scaling.short_factor", "rope_freqs.weight or rope_factors_short.weight"},
    {"rope_theta", "rope.freq_base"},
    {"routed_scaling_factor", "expert_weights_scale"},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {"shared_intermediate_size", "expert_shared_feed_forward_length"},
    {"sliding_window", "attention.sliding_window"},
    {"ssm_state_size", "ssm.state_size"},
    {"top_k_experts", "expert_used_count"},
    {"topk_group", "expert_group_used_count"},
    {"v_head_dim", "attention.value_length_mla"},
    {"vocab_size_per_layer_input", "per_layer_token_embd.weight"},
};

}  // namespace

Status InMetadataTerms(const Status& error, const std::string& path, const char* architecture) {
  const std::string& message = error.message();
  const auto is_of_key = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  };
  const std::string prefix = Visible(path, 400);
  size_t at = message.starts_with(prefix) ? prefix.size() : 0;
  std::string text = message.substr(0, at);
  while (at < message.size()) {
    size_t end = at;
    while (end < message.size() && is_of_key(message[end])) ++end;
    const std::string_view word =
        std::string_view(message).substr(at, std::max<size_t>(end - at, 1));
    const auto* const found = std::find_if(std::begin(kNamesOfKeys), std::end(kNamesOfKeys),
                                           [&](const auto& pair) { return pair.first == word; });
    if (found == std::end(kNamesOfKeys)) {
      text += word;
    } else if (found->second.find(".weight") != std::string_view::npos) {
      text += found->second;
    } else {
      text += fmt::format("{}.{}", architecture, found->second);
    }
    at += word.size();
  }
  return Status(error.code(), text);
}

}  // namespace minisgl::weights
