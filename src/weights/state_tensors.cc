// See state_tensors.h.
#include "weights/state_tensors.h"

#include <span>

#include "minisgl/base/check.h"
#include "weights/architecture_table.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

constexpr NamedRole kConvNames[] = {
    {Role::kStateInput, "conv.in_proj.weight"},   {Role::kStateInputBias, "conv.in_proj.bias"},
    {Role::kConvWeight, "conv.conv.weight"},      {Role::kConvBias, "conv.conv.bias"},
    {Role::kStateOutput, "conv.out_proj.weight"}, {Role::kStateOutputBias, "conv.out_proj.bias"},
};
constexpr NamedRole kDeltaNames[] = {
    {Role::kStateInput, "linear_attn.in_proj_qkv.weight"},
    {Role::kStateQuery, "linear_attn.q_proj.weight"},
    {Role::kStateKey, "linear_attn.k_proj.weight"},
    {Role::kStateValue, "linear_attn.v_proj.weight"},
    {Role::kConvQuery, "linear_attn.q_conv1d.weight"},
    {Role::kConvKey, "linear_attn.k_conv1d.weight"},
    {Role::kConvValue, "linear_attn.v_conv1d.weight"},
    {Role::kStateGate, "linear_attn.in_proj_z.weight"},
    {Role::kStateGain, "linear_attn.in_proj_b.weight"},
    {Role::kStateDecay, "linear_attn.in_proj_a.weight"},
    {Role::kStateGainDecay, "linear_attn.in_proj_ba.weight"},
    {Role::kConvWeight, "linear_attn.conv1d.weight"},
    {Role::kDecayRate, "linear_attn.A_log"},
    {Role::kDecayBias, "linear_attn.dt_bias"},
    {Role::kStateNorm, "linear_attn.norm.weight"},
    {Role::kStateOutput, "linear_attn.out_proj.weight"},
};
constexpr NamedRole kMamba2Names[] = {
    {Role::kStateInput, "mamba.in_proj.weight"},
    {Role::kStateInputBias, "mamba.in_proj.bias"},
    {Role::kConvWeight, "mamba.conv1d.weight"},
    {Role::kConvBias, "mamba.conv1d.bias"},
    {Role::kDecayRate, "mamba.A_log"},
    {Role::kDecayBias, "mamba.dt_bias"},
    {Role::kStateSkip, "mamba.D"},
    {Role::kStateNorm, "mamba.norm.weight"},
    {Role::kStateOutput, "mamba.out_proj.weight"},
    {Role::kStateOutputBias, "mamba.out_proj.bias"},
};

std::span<const NamedRole> NamesOf(Mixer mixer) {
  switch (mixer) {
    case Mixer::kShortConv:
      return kConvNames;
    case Mixer::kDeltaNet:
      return kDeltaNames;
    case Mixer::kMamba2:
    case Mixer::kAttentionAndMamba2:
      return kMamba2Names;
    case Mixer::kAttention:
    case Mixer::kNone:
      break;
  }
  return {};
}

}  // namespace

const char* StateNameOf(Mixer mixer, TensorRole role) {
  for (const NamedRole& named : NamesOf(mixer)) {
    if (named.role == role) return named.name;
  }
  return nullptr;
}

int64_t StateSize(const StateConfig& states, std::string_view symbol) {
  if (symbol == "C") return states.conv_width;
  if (symbol == "3C") return 3 * states.conv_width;
  if (symbol == "LC") return states.conv_length;
  if (symbol == "SH") return states.num_heads;
  if (symbol == "2SH") return int64_t{2} * states.num_heads;
  if (symbol == "SK") return int64_t{states.num_groups} * states.key_dim;
  if (symbol == "SP") return states.value_dim;
  if (symbol == "SV") return states.inner_width();
  if (symbol == "C+SV") return states.conv_width + states.inner_width();
  MINISGL_CHECK(symbol == "SV+C+SH", "a tensor of an unknown size {}", symbol);
  return states.inner_width() + states.conv_width + states.num_heads;
}

}  // namespace minisgl::weights
