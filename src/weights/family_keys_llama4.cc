// Keys of Llama 4's text.
#include <algorithm>
#include <string_view>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/expert_keys.h"
#include "weights/family_keys.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kLayerSteps = {1, 1 << 20};

// The layers with experts, by a list of their numbers or each of so many.
void ReadExpertLayers(FieldReader* reader, ModelConfig* config) {
  const int64_t step = reader->Int("interleave_moe_layer_step", kLayerSteps, 1);
  const Json* const listed = reader->Find("moe_layers");
  if (listed == nullptr) {
    for (int64_t i = 0; i < config->num_layers; ++i) {
      config->layers[static_cast<size_t>(i)].has_experts = (i + 1) % step == 0;
    }
    return;
  }
  constexpr const char* kSupported = "an array of layer numbers is supported";
  if (!listed->is_array()) return reader->Fail("moe_layers", kSupported);
  for (LayerConfig& layer : config->layers) layer.has_experts = false;
  for (const Json& layer : listed->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= config->num_layers) {
      return reader->FailWith("moe_layers", Visible(layer.Dump(), 60), kSupported);
    }
    config->layers[static_cast<size_t>(layer.as_int())].has_experts = true;
  }
}

// Layers without rotary scale their queries by position.
void ReadQueryScales(FieldReader* reader, ModelConfig* config) {
  // Files have a number in the place of a truth value.
  const Json* const tuned = reader->Find("attn_temperature_tuning");
  const bool is_tuned =
      tuned == nullptr || (tuned->is_int() ? tuned->as_int() != 0 : *tuned == Json(true));
  const auto length = static_cast<int64_t>(reader->Number("floor_scale", {1, 1e9}, 8192));
  const double beta = reader->Number("attn_scale", kPositiveRange, 0.1);
  if (!is_tuned) return;
  config->query_scale_beta = beta;
  config->query_scale_length = length;
  config->query_scale_first = 1;
  config->query_scale_unrotated = true;
}

}  // namespace

// Types of layers say which of them attend to chunks. An empty list of layers without rotary means
// the usual ones.
void RenameLlama4(Json* config) {
  if (const Json* const types = config->Find("layer_types");
      types != nullptr && types->is_array()) {
    const auto is_known = [](const Json& type) {
      return type == Json("chunked_attention") || type == Json("full_attention");
    };
    if (std::ranges::all_of(types->as_array(), is_known)) config->Set("layer_types", nullptr);
  }
  const Json* const listed = config->Find("no_rope_layers");
  if (listed != nullptr && listed->is_array() && listed->as_array().empty()) {
    config->Set("no_rope_layers", nullptr);
  }
}

void ReadLlama4Text(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 16, 1, config);
  ReadExpertLayers(reader, config);
  ReadQueryScales(reader, config);
  ExpertsConfig& experts = config->experts;
  experts.intermediate_size = config->intermediate_size;
  experts.shared_intermediate_size = config->intermediate_size;
  experts.scales_input = true;
  experts.routing.score = RouteScore::kSigmoid;
  config->intermediate_size = reader->Int("intermediate_size_mlp", kWidthRange, 16384);
  if (reader->Bool("use_qk_norm", true)) {
    config->qk_norm = QkNorm::kHeadAfterRotary;
    config->qk_norm_plain = config->qk_norm_rotated = true;
  }
  // Layers with rotary attend to the chunk that a token is in, which is all there is up to its end.
  const int64_t chunk = reader->Int("attention_chunk_size", kSeqLenRange, 8192);
  config->max_seq_len = std::min(config->max_seq_len, chunk);
}

}  // namespace minisgl::weights
