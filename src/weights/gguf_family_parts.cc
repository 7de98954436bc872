// See gguf_family_parts.h.
#include "weights/gguf_family_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <system_error>

#include "weights/config_keys.h"

namespace minisgl::weights {
namespace {

// A share's factor; files without one, or with 0, mean 1.
Json WeightsScale(GgufMetadata* metadata) {
  Json scale = metadata->Number("expert_weights_scale");
  return scale.is_null() || scale.as_double() == 0 ? Json(1) : scale;
}

// The width of a recurrence's heads, which ssm.time_step_rank counts.
int64_t HeadWidth(GgufMetadata* metadata) {
  const int64_t heads = metadata->Int("ssm.time_step_rank", kHeadsRange);
  const int64_t width = metadata->Int("ssm.inner_size", kWidthRange);
  if (width % heads != 0) {
    metadata->Fail("ssm.inner_size", fmt::format("a multiple of {} heads is needed", heads));
  }
  return width / heads;
}

}  // namespace

void SetArchitecture(const char* name, const char* model_type, Json* config) {
  config->Set("architectures", Json(Json::Array{Json(name)}));
  config->Set("model_type", model_type);
}

void WriteWindows(GgufMetadata* metadata, int64_t period, Json* config) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const int64_t num_layers = config->Find("num_hidden_layers")->as_int();
  const int64_t width = metadata->Int("attention.sliding_window", {0, kWindowRange.max});
  const GgufValue* const pattern = metadata->Find(kPattern);
  std::vector<int64_t> has_window;
  if (pattern != nullptr && pattern->type() == GgufType::kArray) {
    const bool is_short = pattern->count() == static_cast<uint64_t>(num_layers);
    const int64_t count = is_short ? num_layers : metadata->Int("block_count", kLayersRange);
    has_window = metadata->IntOfLayers(kPattern, count, {0, 1});
    has_window.resize(static_cast<size_t>(num_layers));
  } else {
    period = metadata->Int(kPattern, kLayersRange, period);
    for (int64_t i = 0; i < num_layers; ++i) has_window.push_back((i + 1) % period != 0);
  }
  Json types = Json(Json::Array());
  for (const int64_t windowed : has_window) {
    types.Append(width > 0 && windowed != 0 ? "sliding_attention" : "full_attention");
  }
  config->Set("layer_types", std::move(types));
  config->Set("sliding_window", width > 0 ? Json(width) : Json());
}

int64_t WidthOf(GgufMetadata* metadata, const char* name, const char* tensor) {
  std::optional<int64_t> fallback;
  const GgufTensor* const found = metadata->Tensor(tensor);
  if (found != nullptr && found->shape.size() >= 2 && metadata->Find(name) == nullptr) {
    fallback = found->shape[found->shape.size() - 2];
  }
  return metadata->Int(name, kWidthRange, fallback);
}

std::pair<int64_t, std::string_view> GgufLayerOf(std::string_view tensor) {
  constexpr std::string_view kBlock = "blk.";
  if (!tensor.starts_with(kBlock)) return {-1, tensor};
  const std::string_view name = tensor.substr(kBlock.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return {-1, name};
  return {layer, name.substr(static_cast<size_t>(end - name.data()) + 1)};
}

std::vector<bool> LayersWith(const GgufMetadata& metadata, const Json& config,
                             std::string_view name) {
  std::vector<bool> has(static_cast<size_t>(config.Find("num_hidden_layers")->as_int()));
  for (const GgufTensor& tensor : metadata.header().tensors) {
    const auto [layer, rest] = GgufLayerOf(tensor.name);
    if (rest == name && layer >= 0 && layer < std::ssize(has)) {
      has[static_cast<size_t>(layer)] = true;
    }
  }
  return has;
}

bool AnyLayerHas(const GgufMetadata& metadata, const Json& config, std::string_view name) {
  const std::vector<bool> has = LayersWith(metadata, config, name);
  return std::find(has.begin(), has.end(), true) != has.end();
}

void WriteExperts(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  config->Set("num_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
  config->Set("moe_intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
}

void WriteLocalExperts(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  config->Set("num_local_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
}

void WriteRoutedExperts(GgufMetadata* metadata, Json* config) {
  const int64_t count = metadata->Int("expert_count", kExpertsRange);
  config->Set("n_routed_experts", count);
  config->Set("num_experts_per_tok", metadata->Int("expert_used_count", {1, count}));
  config->Set("moe_intermediate_size", metadata->Int("expert_feed_forward_length", kWidthRange));
  config->Set("n_shared_experts", metadata->Int("expert_shared_count", kExpertsRange));
  config->Set("norm_topk_prob", metadata->Bool("expert_weights_norm", false));
  config->Set("routed_scaling_factor", WeightsScale(metadata));
  config->Set("n_group", metadata->Int("expert_group_count", kExpertsRange, 1));
  config->Set("topk_group", metadata->Int("expert_group_used_count", kExpertsRange, 1));
}

// If the file does not say which layers are recurrent, all are but every fourth.
void WriteDeltaNet(GgufMetadata* metadata, Json* config) {
  constexpr const char* kRecurrent = "attention.recurrent_layers";
  if (metadata->Find(kRecurrent) != nullptr) {
    std::vector<int64_t> recurrent =
        metadata->IntOfLayers(kRecurrent, metadata->Int("block_count", kLayersRange), {0, 1});
    recurrent.resize(static_cast<size_t>(config->Find("num_hidden_layers")->as_int()));
    Json types = Json(Json::Array());
    for (const int64_t one : recurrent) {
      types.Append(one != 0 ? "linear_attention" : "full_attention");
    }
    config->Set("layer_types", std::move(types));
  } else {
    config->Set("full_attention_interval",
                metadata->Int("full_attention_interval", kLayersRange, 4));
  }
  const int64_t width = HeadWidth(metadata);
  config->Set("linear_conv_kernel_dim", metadata->Int("ssm.conv_kernel", kWidthRange));
  config->Set("linear_key_head_dim", metadata->Int("ssm.state_size", kHeadDimRange));
  config->Set("linear_num_key_heads", metadata->Int("ssm.group_count", kHeadsRange));
  config->Set("linear_num_value_heads", metadata->Int("ssm.time_step_rank", kHeadsRange));
  config->Set("linear_value_head_dim", width);
}

void WriteMamba2(GgufMetadata* metadata, Json* config) {
  const auto has = [&](const char* name) { return AnyLayerHas(*metadata, *config, name); };
  const int64_t width = HeadWidth(metadata);
  config->Set("mamba_d_conv", metadata->Int("ssm.conv_kernel", kWidthRange));
  config->Set("mamba_d_state", metadata->Int("ssm.state_size", kHeadDimRange));
  config->Set("mamba_n_groups", metadata->Int("ssm.group_count", kHeadsRange));
  config->Set("mamba_n_heads", metadata->Int("ssm.time_step_rank", kHeadsRange));
  config->Set("mamba_d_ssm", metadata->Int("ssm.inner_size", kWidthRange));
  config->Set("mamba_d_head", width);
  config->Set("mamba_conv_bias", has("ssm_conv1d.bias"));
  config->Set("mamba_proj_bias", has("ssm_in.bias"));
}

}  // namespace minisgl::weights
