// Keys of families that have layers with a state.
#include <algorithm>
#include <iterator>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/expert_keys.h"
#include "weights/family_keys.h"
#include "weights/layer_pattern.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kConvLengthRange = {2, kConvLengthMax};

// Keys and values are planned for at least one layer.
void CheckHasAttention(FieldReader* reader, const char* key, const ModelConfig& config) {
  const bool has_attention =
      std::any_of(config.layers.begin(), config.layers.end(),
                  [](const LayerConfig& layer) { return layer.mixer == Mixer::kAttention; });
  if (!has_attention) {
    reader->FailWith(key, "no layer with attention", "models with at least one are supported");
  }
}

// The layers with attention by their numbers, if layer_types does not give them: all by default.
void ReadAttentionIndices(FieldReader* reader, Mixer others, ModelConfig* config) {
  constexpr const char* kKey = "full_attn_idxs";
  const Json* list = reader->Find(kKey);
  if (list == nullptr || reader->Find("layer_types") != nullptr) return;
  constexpr const char* kSupported = "an array of layer numbers is supported";
  if (!list->is_array()) return reader->Fail(kKey, kSupported);
  std::vector<bool> has_attention(config->layers.size());
  for (const Json& layer : list->as_array()) {
    if (!layer.is_int() || !kLayerRange.Holds(layer.as_int())) {
      return reader->FailWith(kKey, Visible(layer.Dump(), kQuotedBytesMax), kSupported);
    }
    const auto at = static_cast<size_t>(layer.as_int());
    if (at < has_attention.size()) has_attention[at] = true;
  }
  for (size_t i = 0; i < has_attention.size(); ++i) {
    if (!has_attention[i]) SetStateMixer(others, &config->layers[i]);
  }
}

void ReadGatedConvolutions(FieldReader* reader, ModelConfig* config) {
  ReadAttentionIndices(reader, Mixer::kShortConv, config);
  StateConfig& states = config->states;
  states.conv_length = static_cast<int32_t>(reader->Int("conv_L_cache", kConvLengthRange, 3));
  states.conv_width = config->hidden_size;
  states.conv_bias = reader->Bool("conv_bias", false);
  states.input_bias = states.output_bias = states.conv_bias;
  config->tie_word_embeddings = reader->Bool("tie_embedding", config->tie_word_embeddings);
  CheckHasAttention(reader, reader->Find("layer_types") ? "layer_types" : "full_attn_idxs",
                    *config);
}

}  // namespace

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
