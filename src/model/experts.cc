// See experts.h.
#include "model/experts.h"

#include "minisgl/host_experts.h"

namespace minisgl::model {

ActivateParams MakeActivate(const ModelConfig& config, ConstActivationPtr gate_up,
                            ActivationPtr out, int64_t width, int64_t num_rows) {
  return {.gate_up = gate_up,
          .out = out,
          .num_tokens = num_rows,
          .width = width,
          .activation = config.activation,
          .gated = config.gated,
          .limit = static_cast<float>(config.activation_limit),
          .gate_scale = static_cast<float>(config.feed_forward_gate_factor)};
}

void ChooseExperts(const ModelConfig& config, const ExpertWeights& weights, const Workspace& space,
                   ConstActivationPtr x, int64_t num_tokens, Ops* ops) {
  ops->Linear({.x = x,
               .weight = &weights.router,
               .bias = weights.router_bias.data(),
               .out = space.router_logits.data(),
               .num_tokens = num_tokens});
  ops->Route({.logits = space.router_logits.data(),
              .bias = weights.choice_bias.data(),
              .experts = space.experts.data(),
              .shares = space.shares.data(),
              .num_tokens = num_tokens,
              .num_experts = config.experts.num_experts,
              .num_chosen = config.experts.num_chosen,
              .routing = config.experts.routing,
              .expert_scale = weights.expert_scale.data()});
}

void RunExperts(const ModelConfig& config, const ExpertWeights& weights, const Workspace& space,
                ConstActivationPtr x, int64_t num_tokens, Ops* ops) {
  const ExpertsConfig& experts = config.experts;
  ExpertLinearParams params = {.x = x,
                               .weights = &weights.gate_up,
                               .bias = weights.gate_up_bias.data(),
                               .experts = space.experts.data(),
                               .out = space.expert_gate_up.ptr(),
                               .num_tokens = num_tokens,
                               .num_chosen = experts.num_chosen,
                               .x_per_choice = false};
  ops->ExpertLinear(params);
  const int64_t num_rows = num_tokens * experts.num_chosen;
  if (experts.scales_input) {  // as the product of what is read
    ops->CombineExperts({.x = space.expert_gate_up.ptr(),
                         .shares = space.shares.data(),
                         .shared = nullptr,
                         .shared_gate = nullptr,
                         .out = space.expert_gate_up.ptr(),
                         .num_tokens = num_rows,
                         .width = (config.gated ? 2 : 1) * experts.intermediate_size,
                         .num_chosen = 1});
  }
  ops->Activate(MakeActivate(config, space.expert_gate_up.ptr(), space.expert_gated.ptr(),
                             experts.intermediate_size, num_rows));
  params.x = space.expert_gated.ptr();
  params.weights = &weights.down;
  params.bias = weights.down_bias.data();
  params.out = space.expert_out.ptr();
  params.x_per_choice = true;
  ops->ExpertLinear(params);
}

void ExpertSums::Run(size_t layer, const ExpertWeights& weights, ConstActivationPtr x,
                     int64_t num_tokens) {
  HostExpertLayer* const on_host = HostLayer(layer);
  if (on_host == nullptr) return RunExperts(config_, weights, space_, x, num_tokens, ops_);
  const ExpertsConfig& experts = config_.experts;
  ops_->BeginHostExperts(
      {.layer = on_host,
       .x = x,
       .experts = space_.experts.data(),
       .shares = space_.shares.data(),
       .out = space_.expert_out.ptr(),
       .num_tokens = num_tokens,
       .width = experts.latent_size > 0 ? experts.latent_size : config_.hidden_size,
       .num_chosen = experts.num_chosen,
       .num_real = num_real_tokens_});
}

void ExpertSums::Combine(size_t layer, CombineExpertsParams params) {
  const bool on_host = HostLayer(layer) != nullptr;
  if (on_host) ops_->EndHostExperts();
  const bool is_weighted = on_host || config_.experts.scales_input;
  params.x = space_.expert_out.ptr();
  params.shares = (is_weighted ? space_.ones : space_.shares).data();
  params.num_chosen = on_host ? 1 : config_.experts.num_chosen;
  ops_->CombineExperts(params);
}

}  // namespace minisgl::model
