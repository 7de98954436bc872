// Keys of families that have layers with a state.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/expert_keys.h"
#include "weights/family_keys.h"
#include "weights/layer_pattern.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kConvLengthRange = {2, kConvLengthMax};
constexpr IntRange kStateDimRange = {1, 1 << 12};

// Keys and values are planned for at least one layer.
void CheckHasAttention(FieldReader* reader, const char* key, const ModelConfig& config) {
  const bool has_attention =
      std::any_of(config.layers.begin(), config.layers.end(),
                  [](const LayerConfig& layer) { return HasAttention(layer.mixer); });
  if (!has_attention) {
    reader->FailWith(key, "no layer with attention", "models with at least one are supported");
  }
}

// The layers with attention by their numbers, if layer_types does not give them: all by default.
void ReadAttentionIndices(FieldReader* reader, const char* key, Mixer others, ModelConfig* config) {
  const Json* list = reader->Find(key);
  if (list == nullptr || reader->Find("layer_types") != nullptr) return;
  constexpr const char* kSupported = "an array of layer numbers is supported";
  if (!list->is_array()) return reader->Fail(key, kSupported);
  std::vector<bool> has_attention(config->layers.size());
  for (const Json& layer : list->as_array()) {
    if (!layer.is_int() || !kLayerRange.Holds(layer.as_int())) {
      return reader->FailWith(key, Visible(layer.Dump(), kQuotedBytesMax), kSupported);
    }
    const auto at = static_cast<size_t>(layer.as_int());
    if (at < has_attention.size()) has_attention[at] = true;
  }
  for (size_t i = 0; i < has_attention.size(); ++i) {
    if (!has_attention[i]) SetStateMixer(others, &config->layers[i]);
  }
}

void ReadGatedConvolutions(FieldReader* reader, ModelConfig* config) {
  ReadAttentionIndices(reader, "full_attn_idxs", Mixer::kShortConv, config);
  StateConfig& states = config->states;
  states.conv_length = static_cast<int32_t>(reader->Int("conv_L_cache", kConvLengthRange, 3));
  states.conv_width = config->hidden_size;
  states.conv_bias = reader->Bool("conv_bias", false);
  states.input_bias = states.output_bias = states.conv_bias;
  config->tie_word_embeddings = reader->Bool("tie_embedding", config->tie_word_embeddings);
  CheckHasAttention(reader, reader->Find("layer_types") ? "layer_types" : "full_attn_idxs",
                    *config);
}

// Attention in each interval-th layer, if layer_types does not say it.
void ReadAttentionInterval(FieldReader* reader, Mixer others, ModelConfig* config) {
  constexpr IntRange kIntervalRange = {1, 1 << 20};
  const int64_t interval = reader->Int("full_attention_interval", kIntervalRange, 4);
  if (reader->Find("layer_types") != nullptr) return;
  for (size_t i = 0; i < config->layers.size(); ++i) {
    if ((static_cast<int64_t>(i) + 1) % interval != 0) SetStateMixer(others, &config->layers[i]);
  }
}

// Checks that the number of heads, under `key_of_heads`, is a multiple of the number of groups.
void CheckGroups(FieldReader* reader, const char* key_of_heads, const StateConfig& states) {
  if (states.num_heads % states.num_groups != 0) {
    return reader->FailWith(key_of_heads, fmt::format("{}", states.num_heads),
                            fmt::format("a multiple of {} is needed", states.num_groups));
  }
  if (!kWidthRange.Holds(states.conv_width)) {
    reader->FailWith(key_of_heads, fmt::format("{}", states.num_heads),
                     fmt::format("heads of up to {} channels together are supported ({})",
                                 kWidthRange.max, states.conv_width));
  }
}

// Sizes under the names of Qwen and OLMo. `fallback`: of absent keys.
void ReadDeltaSizes(FieldReader* reader, const StateConfig& fallback, ModelConfig* config) {
  StateConfig& states = config->states;
  const auto read = [&](const char* key, IntRange range, int64_t otherwise) {
    return static_cast<int32_t>(reader->Int(key, range, otherwise));
  };
  states.conv_length = read("linear_conv_kernel_dim", kConvLengthRange, 4);
  states.num_groups = read("linear_num_key_heads", kHeadsRange, fallback.num_groups);
  states.num_heads = read("linear_num_value_heads", kHeadsRange, fallback.num_heads);
  // OLMo's keys have three quarters of the hidden size together, its values twice that.
  const int64_t keys = config->hidden_size * 3 / 4 / std::max(1, states.num_groups);
  states.key_dim =
      read("linear_key_head_dim", kStateDimRange, fallback.key_dim > 0 ? fallback.key_dim : keys);
  states.value_dim = read("linear_value_head_dim", kStateDimRange,
                          fallback.value_dim > 0 ? fallback.value_dim : 2 * states.key_dim);
  if (!reader->ok()) return;
  if (!kStateDimRange.Holds(states.key_dim) || !kStateDimRange.Holds(states.value_dim)) {
    return reader->FailWith(
        "linear_key_head_dim", fmt::format("{}", states.key_dim),
        fmt::format("heads of 1 to {} keys and values are supported", kStateDimRange.max));
  }
  states.conv_width = int64_t{2} * states.num_groups * states.key_dim + states.inner_width();
  states.norm_group = states.value_dim;
  states.norm_eps = config->norm_eps;
  CheckGroups(reader, "linear_num_value_heads", states);
  CheckNeutral(reader, "hidden_act", Json("silu"), "\"silu\" is supported for this model_type");
}

void ReadDeltaNet(FieldReader* reader, ModelConfig* config) {
  ReadAttentionInterval(reader, Mixer::kDeltaNet, config);
  const StateConfig fallback = {
      .num_heads = 32, .num_groups = 16, .key_dim = 128, .value_dim = 128};
  ReadDeltaSizes(reader, fallback, config);
  config->attention_gate = true;
  config->gate_in_query = true;
  CheckNeutral(reader, "attn_output_gate", Json(true), "only true is supported");
  CheckHasAttention(reader, reader->Find("layer_types") ? "layer_types" : "full_attention_interval",
                    *config);
}

// Experts with a gated shared one beside them.
void ReadSharedExperts(FieldReader* reader, int64_t num_experts, int64_t num_chosen,
                       ModelConfig* config) {
  ReadExperts(reader, num_experts, num_chosen, config);
  ExpertsConfig& experts = config->experts;
  experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 512);
  experts.shared_intermediate_size =
      reader->Int("shared_expert_intermediate_size", kWidthRange, 512);
  experts.shared_gate = true;
  experts.routing.renormalize = true;
}

// Sizes under the names of Granite, Bamba and Falcon-H1.
void ReadMamba2(FieldReader* reader, ModelConfig* config) {
  constexpr IntRange kExpandRange = {1, 64};
  StateConfig& states = config->states;
  const auto read = [&](const char* key, IntRange range, int64_t fallback) {
    return static_cast<int32_t>(reader->Int(key, range, fallback));
  };
  states.conv_length = read("mamba_d_conv", kConvLengthRange, 4);
  states.num_heads = read("mamba_n_heads", kHeadsRange, 128);
  states.num_groups = read("mamba_n_groups", kHeadsRange, 1);
  states.key_dim = read("mamba_d_state", kStateDimRange, 256);
  const int64_t expanded = config->hidden_size * reader->Int("mamba_expand", kExpandRange, 2);
  const int64_t inner = reader->OptionalInt("mamba_d_ssm", kWidthRange).value_or(expanded);
  const Json* const dim = reader->Find("mamba_d_head");
  const int64_t own = dim == nullptr || *dim == Json("auto")
                          ? inner / states.num_heads
                          : reader->Int("mamba_d_head", kStateDimRange);
  if (!reader->ok()) return;
  if (own * states.num_heads != inner || !kStateDimRange.Holds(own)) {
    return reader->FailWith(
        "mamba_n_heads", fmt::format("{} heads of {}", states.num_heads, own),
        fmt::format(
            "heads (mamba_d_head, up to {}) of mamba_expand times hidden_size or mamba_d_ssm ({}) "
            "together are needed",
            kStateDimRange.max, inner));
  }
  states.value_dim = static_cast<int32_t>(own);
  states.conv_width = inner + int64_t{2} * states.num_groups * states.key_dim;
  states.conv_bias = reader->Bool("mamba_conv_bias", true);
  states.input_bias = states.output_bias = reader->Bool("mamba_proj_bias", false);
  states.gate_before_norm = true;
  states.norm_group = inner / states.num_groups;
  states.norm_eps = config->norm_eps;
  ReadStepLimit(reader, "time_step_limit", &states);
  CheckGroups(reader, "mamba_n_heads", states);
  CheckNeutral(reader, "hidden_act", Json("silu"), "\"silu\" is supported for this model_type");
}

}  // namespace

void ReadStepLimit(FieldReader* reader, const char* key, StateConfig* states) {
  const Json* limit = reader->Find(key);
  if (limit == nullptr) return;
  // transformers 5 writes {"__float__": "Infinity"}.
  const auto is_infinite = [](const Json& value) {
    return value.is_object() && value.Find("__float__") != nullptr &&
           *value.Find("__float__") == Json("Infinity");
  };
  const bool is_pair = limit->is_array() && limit->as_array().size() == 2 &&
                       limit->as_array()[0].is_number() &&
                       (limit->as_array()[1].is_number() || is_infinite(limit->as_array()[1]));
  const double least = is_pair ? limit->as_array()[0].as_double() : 0;
  const double most = !is_pair                            ? 0
                      : is_infinite(limit->as_array()[1]) ? states->step_max
                                                          : limit->as_array()[1].as_double();
  if (!is_pair || least < 0 || most <= 0 || least > most) {
    return reader->FailWith(key, Visible(limit->Dump(), kQuotedBytesMax),
                            "two numbers in ascending order are supported");
  }
  states->step_min = std::min(least, states->step_max);
  states->step_max = std::min(most, states->step_max);
}

void ReadGraniteMoeHybrid(FieldReader* reader, ModelConfig* config) {
  constexpr IntRange kLocalExpertsRange = {0, kExpertsRange.max};
  ReadGranite(reader, config);
  const std::string position =
      reader->OptionalString("position_embedding_type", "\"rope\" and \"nope\" are supported")
          .value_or("nope");
  if (position != "rope" && position != "nope") {
    reader->Fail("position_embedding_type", "\"rope\" and \"nope\" are supported");
  }
  for (LayerConfig& layer : config->layers) {
    if (position == "nope") layer.rope = -1;
  }
  if (reader->Find("layer_types") == nullptr) {
    return reader->Fail("layer_types", "an array with a word for each layer is needed");
  }
  CheckHasAttention(reader, "layer_types", *config);
  if (HasStates(*config)) ReadMamba2(reader, config);
  const int64_t shared = reader->Int("shared_intermediate_size", kWidthRange, 1024);
  if (reader->Int("num_local_experts", kLocalExpertsRange, 8) == 0) {
    config->intermediate_size = shared;
    return;
  }
  ReadExperts(reader, 8, 2, config);
  config->experts.shared_intermediate_size = shared;
  config->experts.routing.renormalize = true;
}

void ReadBamba(FieldReader* reader, ModelConfig* config) {
  constexpr const char* kLayersKey = "attn_layer_indices";
  if (reader->Find(kLayersKey) == nullptr) {
    return reader->Fail(kLayersKey, "the numbers of the layers with attention are needed");
  }
  ReadAttentionIndices(reader, kLayersKey, Mixer::kMamba2, config);
  CheckHasAttention(reader, kLayersKey, *config);
  if (reader->ok()) ReadMamba2(reader, config);
}

void ReadQwen3Next(FieldReader* reader, ModelConfig* config) {
  ReadDeltaNet(reader, config);
  if (!reader->ok()) return;
  config->states.by_group = true;
  ReadSharedExperts(reader, 512, 10, config);
  ReadDenseLayers(reader, config);
  config->experts.routing.renormalize = reader->Bool("norm_topk_prob", true);
}

void ReadQwen3_5(FieldReader* reader, ModelConfig* config) { ReadDeltaNet(reader, config); }

void ReadQwen3_5Moe(FieldReader* reader, ModelConfig* config) {
  ReadDeltaNet(reader, config);
  if (reader->ok()) ReadSharedExperts(reader, 256, 8, config);
}

namespace {

// `count` numbers of `key`; ones if it is absent.
std::vector<double> ReadFactors(FieldReader* reader, const char* key, size_t count) {
  std::vector<double> factors(count, 1);
  const Json* list = reader->Find(key);
  if (list == nullptr) return factors;
  bool holds = list->is_array() && list->as_array().size() == count;
  for (size_t i = 0; holds && i < count; ++i) {
    const Json& value = list->as_array()[i];
    holds = value.is_number() && kPositiveRange.Holds(value.as_double());
    if (holds) factors[i] = value.as_double();
  }
  if (!holds) reader->Fail(key, fmt::format("an array of {} positive numbers is supported", count));
  return factors;
}

}  // namespace

// Neighbouring multipliers are multiplied into one factor, at the place that costs least: the
// scores, the addition to the residual stream, a convolution's weights.
void ReadFalconH1(FieldReader* reader, ModelConfig* config) {
  const auto read = [&](const char* key) { return reader->Number(key, kPositiveRange, 1); };
  for (LayerConfig& layer : config->layers) layer.mixer = Mixer::kAttentionAndMamba2;
  if (!reader->Has("mamba_d_ssm")) {
    reader->Fail("mamba_d_ssm", "the number of channels, or null, is needed");
  }
  ReadMamba2(reader, config);
  if (!reader->ok()) return;
  StateConfig& states = config->states;
  CheckNeutral(reader, "mamba_proj_bias", Json(false), "only false is supported");
  states.output_bias = reader->Bool("projectors_bias", false);
  states.gate_before_norm = !reader->Bool("mamba_norm_before_gate", true);
  if (!reader->Bool("mamba_rms_norm", false)) states.norm_group = 0;

  config->embedding_scale = read("embedding_multiplier");
  config->logit_scale = read("lm_head_multiplier");
  const double input = read("attention_in_multiplier");
  config->attention_scale =
      read("key_multiplier") * input * input / std::sqrt(static_cast<double>(config->head_dim));
  config->attention_output_factor = read("attention_out_multiplier") * input;
  config->state_output_factor = read("ssm_out_multiplier");
  const std::vector<double> feed_forward = ReadFactors(reader, "mlp_multipliers", 2);
  config->feed_forward_gate_factor = feed_forward[0];
  config->residual_scale = feed_forward[1];
  const double state_input = read("ssm_in_multiplier");
  const std::vector<double> parts = ReadFactors(reader, "ssm_multipliers", 5);
  states.gate_factor = state_input * parts[0];
  states.value_factor = state_input * parts[1];
  states.key_factor = state_input * parts[2];
  states.query_factor = state_input * parts[3];
  states.decay_factor = state_input * parts[4];
}

void ReadOlmoHybrid(FieldReader* reader, ModelConfig* config) {
  constexpr int64_t kInterval = 4;
  const bool has_types = reader->Find("layer_types") != nullptr;
  for (int64_t i = 0; i < config->num_layers && !has_types; ++i) {
    // A model of fewer layers has attention in its last one.
    const bool is_last = config->num_layers < kInterval && i + 1 == config->num_layers;
    if ((i + 1) % kInterval == 0 || is_last) continue;
    SetStateMixer(Mixer::kDeltaNet, &config->layers[static_cast<size_t>(i)]);
  }
  const StateConfig fallback = {.num_heads = config->num_heads, .num_groups = config->num_heads};
  ReadDeltaSizes(reader, fallback, config);
  StateConfig& states = config->states;
  states.separate = true;
  states.norm_eps = 1e-5;  // the reference's, whatever rms_norm_eps is
  states.gain_factor = reader->Bool("linear_allow_neg_eigval", true) ? 2 : 1;
  config->norms_before_states = true;
  // Without a base there is no rotary embedding.
  bool has_base = reader->Find("rope_theta") != nullptr;
  if (const Json* rope = reader->Find("rope_parameters"); rope != nullptr && rope->is_object()) {
    const Json* base = rope->Find("rope_theta");
    has_base = has_base || (base != nullptr && !base->is_null());
  }
  for (LayerConfig& layer : config->layers) {
    if (!has_base) layer.rope = -1;
  }
  CheckHasAttention(reader, has_types ? "layer_types" : "num_hidden_layers", *config);
}

void ReadLfm2(FieldReader* reader, ModelConfig* config) {
  ReadGatedConvolutions(reader, config);
  const bool adjusts = reader->Bool("block_auto_adjust_ff_dim", true);
  const double multiplier = reader->Number("block_ffn_dim_multiplier", kPositiveRange, 1);
  const int64_t multiple = reader->Int("block_multiple_of", kWidthRange, 256);
  if (!reader->ok() || !adjusts) return;
  const auto scaled =
      static_cast<int64_t>(multiplier * static_cast<double>(2 * config->intermediate_size / 3));
  config->intermediate_size = (scaled + multiple - 1) / multiple * multiple;
  if (!kWidthRange.Holds(config->intermediate_size)) {
    reader->FailWith(
        "block_ffn_dim_multiplier", fmt::format("{}", multiplier),
        fmt::format("an adjusted intermediate_size up to {} is supported", kWidthRange.max));
  }
}

void ReadLfm2Moe(FieldReader* reader, ModelConfig* config) {
  ReadGatedConvolutions(reader, config);
  ReadExperts(reader, 32, 4, config);
  const int64_t num_dense = reader->Int("num_dense_layers", kLayerRange, 2);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    config->layers[i].has_experts = static_cast<int64_t>(i) >= num_dense;
  }
  ExpertsConfig& experts = config->experts;
  experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 1792);
  experts.choice_bias = reader->Bool("use_expert_bias", true);
  experts.routing.score = RouteScore::kSigmoid;
  experts.routing.renormalize = reader->Bool("norm_topk_prob", true);
  experts.routing.sum_eps = 1e-6f;
  experts.routing.factor =
      static_cast<float>(reader->Number("routed_scaling_factor", kPositiveRange, 1));
}

}  // namespace minisgl::weights
