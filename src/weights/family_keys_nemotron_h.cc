// Keys of Nemotron-H, whose layers are one part each. Their kinds stand in a string of letters, or
// in a list of words.
#include <optional>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/expert_keys.h"
#include "weights/family_keys.h"
#include "weights/layer_pattern.h"

namespace minisgl::weights {
namespace {

constexpr const char* kPatternKey = "hybrid_override_pattern";
constexpr const char* kTypesKey = "layers_block_type";

// The kinds of layers as letters; fails without any. Words of transformers 5 and older ones.
std::string LayerLetters(FieldReader* reader) {
  const Json* types = reader->Find(kTypesKey);
  if (types == nullptr) {
    constexpr const char* kSupported = "a string of M, *, - and E is supported";
    const std::string letters = reader->OptionalString(kPatternKey, kSupported).value_or("");
    if (letters.empty() || letters.find_first_not_of("M*-E") != std::string::npos) {
      reader->Fail(kPatternKey, kSupported);
    }
    return letters;
  }
  constexpr const char* kSupported =
      "an array of \"linear_attention\", \"full_attention\", \"mlp\" and \"moe\" is supported";
  std::string letters;
  if (!types->is_array() || types->as_array().empty()) reader->Fail(kTypesKey, kSupported);
  if (!reader->ok()) return letters;
  for (const Json& type : types->as_array()) {
    if (type == Json("linear_attention") || type == Json("mamba")) {
      letters += 'M';
    } else if (type == Json("full_attention") || type == Json("attention")) {
      letters += '*';
    } else if (type == Json("mlp")) {
      letters += '-';
    } else if (type == Json("moe")) {
      letters += 'E';
    } else {
      reader->FailWith(kTypesKey, Visible(type.Dump(), kQuotedBytesMax), kSupported);
      return letters;
    }
  }
  return letters;
}

void ReadStates(FieldReader* reader, ModelConfig* config) {
  constexpr IntRange kConvLengthRange = {2, kConvLengthMax}, kDimRange = {1, 1 << 12};
  StateConfig& states = config->states;
  // Older files have names of Mamba's own.
  const auto name = [&](const char* key, const char* older) {
    return reader->Find(older) != nullptr ? older : key;
  };
  const auto read = [&](const char* key, IntRange range, int64_t fallback) {
    return static_cast<int32_t>(reader->Int(key, range, fallback));
  };
  const char* const groups_key = name("n_groups", "mamba_n_groups");
  states.conv_length = read(name("conv_kernel", "mamba_d_conv"), kConvLengthRange, 4);
  states.num_heads = read("mamba_num_heads", kHeadsRange, 128);
  states.value_dim = read("mamba_head_dim", kDimRange, 64);
  states.num_groups = read(groups_key, kHeadsRange, 8);
  states.key_dim = read("ssm_state_size", kDimRange, 128);
  states.conv_bias = reader->Bool(name("use_conv_bias", "mamba_conv_bias"), true);
  states.input_bias = states.output_bias = reader->Bool("use_bias", false);
  if (!reader->ok()) return;
  if (states.num_heads % states.num_groups != 0) {
    return reader->FailWith(
        groups_key, fmt::format("{}", states.num_groups),
        fmt::format("a divisor of mamba_num_heads ({}) is needed", states.num_heads));
  }
  states.conv_width = states.inner_width() + int64_t{2} * states.num_groups * states.key_dim;
  if (!kWidthRange.Holds(states.conv_width)) {
    return reader->FailWith("mamba_num_heads", fmt::format("{}", states.num_heads),
                            fmt::format("up to {} channels are supported", kWidthRange.max));
  }
  states.gate_before_norm = true;
  states.norm_group = states.inner_width() / states.num_groups;
  states.norm_eps = config->norm_eps;
  CheckNeutral(reader, "mamba_hidden_act", Json("silu"), "only \"silu\" is supported");
  ReadStepLimit(reader, name("time_step_limit", "mamba_dt_limit"), &states);
}

void ReadRoutedExperts(FieldReader* reader, ModelConfig* config) {
  constexpr IntRange kSharedRange = {1, 1};
  ReadExperts(reader, 8, 2, config, "n_routed_experts");
  ExpertsConfig& experts = config->experts;
  experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 7688);
  experts.shared_intermediate_size =
      reader->Int("moe_shared_expert_intermediate_size", kWidthRange, 7688) *
      reader->Int("n_shared_experts", kSharedRange, 1);
  experts.latent_size = reader->OptionalInt("moe_latent_size", kWidthRange).value_or(0);
  experts.choice_bias = true;
  experts.routing.score = RouteScore::kSigmoid;
  experts.routing.best_of_group = 2;
  experts.routing.sum_eps = 1e-20f;
  experts.routing.renormalize = reader->Bool("norm_topk_prob", true);
  experts.routing.factor =
      static_cast<float>(reader->Number("routed_scaling_factor", kPositiveRange, 1));
  ReadExpertGroups(reader, &experts);
  if (config->feed_forward_bias) {
    reader->FailWith("mlp_bias", "true", "only false is supported for a model with experts");
  }
}

}  // namespace

int32_t CountNemotronHLayers(FieldReader* reader) {
  const auto count = static_cast<int64_t>(LayerLetters(reader).size());
  if (reader->ok() && !kLayersRange.Holds(count)) {
    reader->Fail(reader->Find(kTypesKey) != nullptr ? kTypesKey : kPatternKey,
                 fmt::format("up to {} layers are supported", kLayersRange.max));
  }
  return static_cast<int32_t>(count);
}

void ReadNemotronH(FieldReader* reader, ModelConfig* config) {
  const std::string letters = LayerLetters(reader);
  config->text_prefix = "backbone.";
  if (letters.find('E') != std::string::npos) ReadRoutedExperts(reader, config);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    layer.rope = -1;
    layer.has_experts = letters[i] == 'E';
    layer.has_feed_forward = letters[i] == '-' || letters[i] == 'E';
    layer.mixer = letters[i] == 'M'   ? Mixer::kMamba2
                  : letters[i] == '*' ? Mixer::kAttention
                                      : Mixer::kNone;
  }
  if (letters.find('*') == std::string::npos) {
    reader->Fail(reader->Find(kTypesKey) != nullptr ? kTypesKey : kPatternKey,
                 "models with at least one layer with attention are supported");
  }
  if (reader->ok() && HasStates(*config)) ReadStates(reader, config);
  config->num_prediction_layers =
      static_cast<int32_t>(reader->Int("num_nextn_predict_layers", {0, 64}, 0));
}

}  // namespace minisgl::weights
