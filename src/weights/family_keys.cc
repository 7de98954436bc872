// Keys that only one family has, in the order of the table. Differences that a field of the table
// expresses are not read here.
#include "weights/family_keys.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/expert_keys.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kStepRange = {1, 1 << 20};

void SetGemmaEmbeddingScale(ModelConfig* config) {
  config->embedding_scale = std::sqrt(static_cast<double>(config->hidden_size));
  config->rounds_embedding_scales = true;
}

void ReadQueryScalar(FieldReader* reader, ModelConfig* config) {
  const double scalar = reader->Number("query_pre_attn_scalar", kPositiveRange, 256);
  config->attention_scale = 1 / std::sqrt(scalar);
}

// Reads a key that null turns off and whose absence means `fallback`.
double ReadSoftcap(FieldReader* reader, const char* key, double fallback) {
  return reader->Number(key, kPositiveRange, reader->Has(key) ? 0 : fallback);
}

void CheckDerivedHeadDim(FieldReader* reader, const ModelConfig& config) {
  const int64_t derived = config.hidden_size / config.num_heads;
  if (config.head_dim == derived) return;
  reader->Fail("head_dim", fmt::format("hidden_size / num_attention_heads ({}) is supported for "
                                       "this model_type",
                                       derived));
}

}  // namespace

void ReadDenseLayers(FieldReader* reader, ModelConfig* config) {
  const int64_t step = reader->Int("decoder_sparse_step", kStepRange, 1);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    config->layers[i].has_experts = (static_cast<int64_t>(i) + 1) % step == 0;
  }
  const Json* dense = reader->Find("mlp_only_layers");
  if (dense == nullptr) return;
  constexpr const char* kSupported = "an array of layer numbers is supported";
  if (!dense->is_array()) return reader->Fail("mlp_only_layers", kSupported);
  for (const Json& layer : dense->as_array()) {
    if (!layer.is_int() || !kLayerRange.Holds(layer.as_int())) {
      return reader->FailWith("mlp_only_layers", Visible(layer.Dump(), 60), kSupported);
    }
    const auto at = static_cast<size_t>(layer.as_int());
    if (at < config->layers.size()) config->layers[at].has_experts = false;
  }
}

void ReadGemma(FieldReader* reader, ModelConfig* config) {
  SetGemmaEmbeddingScale(config);
  if (config->model_type == "gemma3_text" && config->wrapper.empty()) return;
  CheckNeutral(reader, "use_bidirectional_attention", Json(false), "only false is supported");
}

void ReadGemma2(FieldReader* reader, ModelConfig* config) {
  ReadGemma(reader, config);
  ReadQueryScalar(reader, config);
  config->attention_softcap = ReadSoftcap(reader, "attn_logit_softcapping", 50);
  config->logit_softcap = ReadSoftcap(reader, "final_logit_softcapping", 30);
}

void ReadGemma3(FieldReader* reader, ModelConfig* config) {
  ReadGemma(reader, config);
  ReadQueryScalar(reader, config);
  CheckNeutral(reader, "attn_logit_softcapping", std::nullopt, "only null is supported");
  config->logit_softcap = ReadSoftcap(reader, "final_logit_softcapping", 0);
  if (config->wrapper.empty()) {
    config->attends_both_ways = reader->Bool("use_bidirectional_attention", false);
    // The files give the width of both sides together, which is one for all layers.
    for (LayerConfig& layer : config->layers) {
      if (!config->attends_both_ways || layer.sliding_window == 0) continue;
      layer.sliding_window = layer.sliding_window / 2 + 1;
    }
    return;
  }
  // The reference's multimodal class does not apply it.
  config->logit_softcap = 0;
  config->picture_attention = PictureAttention::kAllLayers;
}

namespace {

// Sizes of layers without a window.
struct GlobalSizes {
  int64_t head_dim = 0;
  std::optional<int64_t> num_kv_heads;  // nullopt: as in other layers
};

// Reads per_layer_config, which transformers 5 writes: the sizes that differ, by the number of a
// layer. All layers without a window must agree, because they have one rotary embedding.
GlobalSizes ReadPerLayerConfig(FieldReader* reader, const ModelConfig& config) {
  constexpr const char* kKey = "per_layer_config";
  std::optional<GlobalSizes> found;
  std::optional<FieldReader> all = reader->Object(kKey);
  for (int64_t i = 0; all && i < config.num_layers; ++i) {
    const std::string number = fmt::format("{}", i);
    GlobalSizes sizes = {config.head_dim, std::nullopt};
    if (std::optional<FieldReader> own = all->Object(number)) {
      sizes.head_dim = own->Int("head_dim", kHeadDimRange, config.head_dim);
      sizes.num_kv_heads = own->OptionalInt("num_key_value_heads", kHeadsRange);
      all->Absorb(*own);
    }
    const bool is_common = sizes.head_dim == config.head_dim &&
                           sizes.num_kv_heads.value_or(config.num_kv_heads) == config.num_kv_heads;
    if (config.layers[static_cast<size_t>(i)].sliding_window > 0) {
      if (!is_common) all->Fail(number, "sizes of layers with a window may not differ");
      continue;
    }
    if (found && (found->head_dim != sizes.head_dim || found->num_kv_heads != sizes.num_kv_heads)) {
      all->Fail(number, "the same sizes are needed for all layers without a window");
    }
    found = sizes;
  }
  if (all) reader->Absorb(*all);
  return found.value_or(GlobalSizes{config.head_dim, std::nullopt});
}

// Layers without a window have heads of another width, and may have fewer of keys, which are also
// their values. The last layer is one of them, whatever layer_types says.
void ReadGemma4Attention(FieldReader* reader, ModelConfig* config) {
  const bool keys_as_values = reader->Bool("attention_k_eq_v", false);
  config->layers.back().sliding_window = 0;
  config->layers.back().rope = 0;
  GlobalSizes sizes;
  const bool by_layer = reader->Find("per_layer_config") != nullptr;
  if (by_layer) {
    sizes = ReadPerLayerConfig(reader, *config);
  } else {
    sizes.head_dim = reader->Int("global_head_dim", kHeadDimRange, 512);
    const auto kv_heads = reader->OptionalInt("num_global_key_value_heads", kHeadsRange);
    if (keys_as_values) sizes.num_kv_heads = kv_heads;
  }
  if (!reader->ok()) return;
  const char* const head_key = by_layer ? "per_layer_config" : "global_head_dim";
  if (sizes.head_dim % 2 != 0) return reader->Fail(head_key, "an even head_dim is supported");
  if (sizes.num_kv_heads && config->num_heads % *sizes.num_kv_heads != 0) {
    return reader->Fail(
        by_layer ? head_key : "num_global_key_value_heads",
        fmt::format("a divisor of num_attention_heads ({}) is needed", config->num_heads));
  }
  config->ropes[0].dim = static_cast<int32_t>(sizes.head_dim);
  for (LayerConfig& layer : config->layers) {
    if (layer.sliding_window > 0) continue;
    layer.head_dim = static_cast<int32_t>(sizes.head_dim);
    layer.keys_as_values = keys_as_values;
    layer.num_kv_heads = static_cast<int32_t>(sizes.num_kv_heads.value_or(0));
  }
  config->value_norm = true;
  config->attention_scale = 1;
}

// The last layers read the keys and values of the last layer before them of their kind.
void ReadGemma4Sharing(FieldReader* reader, ModelConfig* config) {
  const int64_t num_layers = config->num_layers;
  const int64_t num_shared = reader->Int("num_kv_shared_layers", {0, num_layers - 1}, 0);
  const bool wide = reader->Bool("use_double_wide_mlp", false);
  if (!reader->ok()) return;
  const int64_t first = num_layers - num_shared;
  for (int64_t i = first; i < num_layers; ++i) {
    LayerConfig& layer = config->layers[static_cast<size_t>(i)];
    int64_t source = first - 1;
    while (source >= 0 &&
           config->layers[static_cast<size_t>(source)].sliding_window != layer.sliding_window) {
      --source;
    }
    if (source < 0) {
      return reader->Fail("num_kv_shared_layers",
                          "a layer of each kind (layer_types) before those that share is needed");
    }
    layer.kv_layer = static_cast<int32_t>(source);
    if (wide) layer.intermediate_size = 2 * config->intermediate_size;
  }
}

void ReadGemma4Experts(FieldReader* reader, ModelConfig* config) {
  if (!reader->Bool("enable_moe_block", false)) return;
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    if (reader->Find(key) == nullptr) {
      return reader->Fail(key, "a number is needed where enable_moe_block is true");
    }
  }
  ReadExperts(reader, 1, 1, config, "num_experts", "top_k_experts");
  ExpertsConfig& experts = config->experts;
  experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange);
  experts.beside_dense = true;
  experts.routing.renormalize = true;
}

void ReadPerLayerEmbeddings(FieldReader* reader, ModelConfig* config) {
  constexpr IntRange kPerLayerRange = {0, 1 << 16};
  const bool is_null = reader->Has("hidden_size_per_layer_input") &&
                       reader->Find("hidden_size_per_layer_input") == nullptr;
  const int64_t width = reader->Int("hidden_size_per_layer_input", kPerLayerRange, 256);
  if (width == 0 || is_null) return;
  config->per_layer_width = static_cast<int32_t>(width);
  config->per_layer_scale = std::sqrt(static_cast<double>(width));
  config->per_layer_vocab = reader->Int("vocab_size_per_layer_input", kVocabRange, 262144);
  if (config->per_layer_vocab < config->vocab_size) {
    reader->FailWith("vocab_size_per_layer_input", fmt::format("{}", config->per_layer_vocab),
                     fmt::format("at least vocab_size ({}) is needed", config->vocab_size));
  }
  config->per_layer_picture_id =
      static_cast<TokenId>(reader->Int("pad_token_id", {0, config->per_layer_vocab - 1}, 0));
}

void ReadGemma4Common(FieldReader* reader, ModelConfig* config) {
  SetGemmaEmbeddingScale(config);
  const Json* bidirectional = reader->Find("use_bidirectional_attention");
  if (bidirectional != nullptr && *bidirectional != Json("vision")) {
    reader->Fail("use_bidirectional_attention", "only null and \"vision\" are supported");
  }
  if (bidirectional != nullptr) config->picture_attention = PictureAttention::kWindowLayers;
  CheckNeutral(reader, "attn_logit_softcapping", std::nullopt, "only null is supported");
  config->logit_softcap = ReadSoftcap(reader, "final_logit_softcapping", 0);
  config->layer_factors = true;
  ReadGemma4Attention(reader, config);
  if (reader->ok()) ReadGemma4Sharing(reader, config);
}

}  // namespace

void ReadGemma4(FieldReader* reader, ModelConfig* config) {
  ReadGemma4Common(reader, config);
  if (reader->ok()) ReadGemma4Experts(reader, config);
  if (reader->ok()) ReadPerLayerEmbeddings(reader, config);
}

void ReadGemma4Unified(FieldReader* reader, ModelConfig* config) {
  ReadGemma4Common(reader, config);
  CheckNeutral(reader, "enable_moe_block", Json(false), "only false is supported");
  CheckNeutral(reader, "hidden_size_per_layer_input", Json(0), "only 0 is supported");
}

namespace {

// The layers whose rotary base is 0 are not rotated; all others have one base. By default those are
// each fourth from the last, and have no window.
void ReadGlimmerLayers(FieldReader* reader, ModelConfig* config) {
  const auto num_layers = static_cast<int64_t>(config->layers.size());
  const auto width = static_cast<int32_t>(reader->Int("sliding_window", kWindowRange, 2048));
  const Json* bases = reader->Find("layer_rope_theta");
  const bool has_list =
      bases != nullptr && bases->is_array() && std::ssize(bases->as_array()) == num_layers;
  if (bases != nullptr && !has_list) {
    return reader->Fail("layer_rope_theta",
                        fmt::format("an array of {} numbers is needed", num_layers));
  }
  for (int64_t i = 0; i < num_layers; ++i) {
    LayerConfig& layer = config->layers[static_cast<size_t>(i)];
    const bool is_fourth = (num_layers - 1 - i) % 4 == 0;
    if (reader->Find("layer_types") == nullptr) layer.sliding_window = is_fourth ? 0 : width;
    layer.rope = is_fourth ? -1 : 0;
    if (!has_list) continue;
    const Json& base = bases->as_array()[static_cast<size_t>(i)];
    const double value = base.is_number() ? base.as_double() : -1;
    layer.rope = value == 0 ? -1 : 0;
    if (value != 0 && value != config->ropes[0].theta) {
      return reader->FailWith(
          "layer_rope_theta", Visible(base.Dump(), 60),
          fmt::format("0 and rope_theta ({}) are supported", config->ropes[0].theta));
    }
  }
}

}  // namespace

void ReadMuseGlimmer(FieldReader* reader, ModelConfig* config) {
  ReadGlimmerLayers(reader, config);
  CheckNeutral(reader, "attn_logit_softcapping", std::nullopt, "only null is supported");
  config->logit_softcap = ReadSoftcap(reader, "final_logit_softcapping", 20);
  config->logit_scale = reader->Number("output_multiplier", kPositiveRange, 0.19611613513818404);
  config->query_factor = reader->Number("qk_scale_factor", kPositiveRange, 3.87);
  config->post_norm_eps = reader->Number("post_norm_eps", kEpsRange, 1e-8);
  config->qk_norm_plain = true;
  config->embedding_norm = true;
  config->attention_gate = true;
  config->final_norm_is_plain = true;
}

void ReadGranite(FieldReader* reader, ModelConfig* config) {
  config->embedding_scale = reader->Number("embedding_multiplier", kPositiveRange, 1);
  config->attention_scale = reader->Number("attention_multiplier", kPositiveRange, 1);
  config->residual_scale = reader->Number("residual_multiplier", kPositiveRange, 1);
  config->logit_scale = 1 / reader->Number("logits_scaling", kPositiveRange, 1);
}

void ReadCohere2(FieldReader* reader, ModelConfig* config) {
  CheckDerivedHeadDim(reader, *config);
  config->logit_scale = reader->Number("logit_scale", kPositiveRange, 0.0625);
  CheckNeutral(reader, "use_qk_norm", Json(false), "only false is supported");
  CheckNeutral(reader, "use_gated_activation", Json(true), "only true is supported");
  CheckNeutral(reader, "use_parallel_block", Json(true), "only true is supported");
}

namespace {

// The kinds of layers of first_k_dense_replace first ones, dense and with windows of a period of
// their own, and of others, if no lists say them.
void ReadCohere2Layers(FieldReader* reader, ModelConfig* config) {
  const int64_t num_dense = reader->Int("first_k_dense_replace", kLayerRange, 0);
  const int64_t dense_period = reader->Int("prefix_dense_sliding_window_pattern", kStepRange, 1);
  const int64_t period = reader->Int("sliding_window_pattern", kStepRange, 4);
  const auto window = reader->OptionalInt("sliding_window", kWindowRange);
  const int32_t width =
      static_cast<int32_t>(window.value_or(reader->Has("sliding_window") ? 0 : 4096));
  for (int64_t i = 0; i < std::ssize(config->layers); ++i) {
    LayerConfig& layer = config->layers[static_cast<size_t>(i)];
    layer.has_experts = i >= num_dense;
    if (reader->Find("layer_types") != nullptr) continue;
    const bool by_period =
        i < num_dense ? (i + 1) % dense_period == 0 : (i - num_dense + 1) % period == 0;
    const bool is_full = width == 0 || by_period;
    layer.sliding_window = is_full ? 0 : width;
    layer.rope = is_full ? -1 : 0;
  }
  ReadMlpLayerTypes(reader, config);
  for (LayerConfig& layer : config->layers) {
    if (!layer.has_experts && dense_period == 1) layer.rope = 0;
  }
}

}  // namespace

void ReadCohere2Moe(FieldReader* reader, ModelConfig* config) {
  config->logit_scale = reader->Number("logit_scale", kPositiveRange, 0.0625);
  CheckNeutral(reader, "use_qk_norm", Json(false), "only false is supported");
  CheckNeutral(reader, "use_gated_activation", Json(true), "only true is supported");
  CheckNeutral(reader, "use_parallel_block", Json(true), "only true is supported");
  if (reader->Find("rms_norm_eps") != nullptr) {
    config->norm_kind = NormKind::kRms;
    config->norm_eps = reader->Number("rms_norm_eps", kEpsRange);
  }
  ReadExperts(reader, 8, 2, config);
  ReadCohere2Layers(reader, config);
  ExpertsConfig& experts = config->experts;
  constexpr const char* kScores = "\"softmax\" and \"sigmoid\" are supported";
  const std::string score =
      reader->OptionalString("expert_selection_fn", kScores).value_or("softmax");
  if (score != "softmax" && score != "sigmoid") reader->Fail("expert_selection_fn", kScores);
  experts.routing.renormalize = reader->Bool("norm_topk_prob", true) || score == "softmax";
  if (score == "sigmoid") experts.routing.score = RouteScore::kSigmoid;
  experts.shared_intermediate_size =
      experts.intermediate_size * reader->Int("num_shared_experts", {0, 1 << 8}, 0);
  constexpr const char* kStrategies = "\"average\" and \"sum\" are supported";
  const std::string strategy =
      reader->OptionalString("shared_expert_combination_strategy", kStrategies).value_or("average");
  if (strategy != "average" && strategy != "sum") {
    reader->Fail("shared_expert_combination_strategy", kStrategies);
  }
  if (experts.shared_intermediate_size > 0 && strategy == "average") {
    experts.routing.factor = 0.5f;
    experts.shared_half = true;
  }
  const bool has_dense = std::any_of(config->layers.begin(), config->layers.end(),
                                     [](const LayerConfig& layer) { return !layer.has_experts; });
  if (has_dense) {
    config->intermediate_size = reader->Int("prefix_dense_intermediate_size", kWidthRange);
  }
}

void ReadApertus(FieldReader* reader, ModelConfig* config) {
  static_cast<void>(config);
  CheckNeutral(reader, "qk_norm", Json(true), "only true is supported");
  CheckNeutral(reader, "post_norm", Json(false), "only false is supported");
}

void ReadStableLm(FieldReader* reader, ModelConfig* config) {
  CheckDerivedHeadDim(reader, *config);
  if (reader->Bool("use_parallel_residual", false)) {
    config->norm_placement = NormPlacement::kParallel;
  }
  if (!reader->Bool("qk_layernorm", false)) return;
  config->qk_norm = QkNorm::kHeadOwn;
  if (config->num_heads > kPartsMax / config->num_layers) {
    reader->Fail("qk_layernorm",
                 fmt::format("up to {} heads in all layers together are supported", kPartsMax));
  }
}

void ReadMixtral(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 8, 2, config);
  config->experts.routing.renormalize = true;
}

void ReadQwen2Moe(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 60, 4, config);
  ReadDenseLayers(reader, config);
  ExpertsConfig& experts = config->experts;
  experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 1408);
  experts.shared_intermediate_size =
      reader->Int("shared_expert_intermediate_size", kWidthRange, 5632);
  experts.shared_gate = true;
  experts.routing.renormalize = reader->Bool("norm_topk_prob", false);
}

void ReadQwen3Moe(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 128, 8, config);
  ReadDenseLayers(reader, config);
  config->experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 768);
  config->experts.routing.renormalize = reader->Bool("norm_topk_prob", false);
}

void ReadQwen3VlMoe(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 60, 4, config);
  ReadDenseLayers(reader, config);
  config->experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 1408);
  config->experts.routing.renormalize = true;
  CheckNeutral(reader, "norm_topk_prob", Json(true), "only true is supported");
}

void ReadOlmoe(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 64, 8, config);
  config->experts.routing.renormalize = reader->Bool("norm_topk_prob", false);
}

void ReadGraniteMoe(FieldReader* reader, ModelConfig* config) {
  ReadGranite(reader, config);
  ReadExperts(reader, 8, 2, config);
  config->experts.routing.renormalize = true;
}

namespace {

// Fails unless `key` is absent, `value`, or a list of it for each layer.
void CheckSameInLayers(FieldReader* reader, const char* key, int64_t value,
                       const ModelConfig& config) {
  const Json* found = reader->Find(key);
  if (found == nullptr || *found == Json(value)) return;
  const Json all(Json::Array(static_cast<size_t>(config.num_layers), Json(value)));
  if (*found == all) return;
  reader->Fail(key, fmt::format("{} for each layer is supported", value));
}

// The number of `key`, or the first of a list that has one for each layer.
Json FirstOf(FieldReader* reader, const char* key, int64_t fallback) {
  const Json* found = reader->Find(key);
  if (found == nullptr) return fallback;
  return found->is_array() && !found->as_array().empty() ? found->as_array()[0] : *found;
}

}  // namespace

void ReadGlm4Moe(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 128, 8, config, "n_routed_experts");
  config->experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 1408);
  ReadBiasedSigmoids(reader, {.shared_key = "n_shared_experts"}, config);
  if (reader->Bool("use_qk_norm", false)) config->qk_norm = QkNorm::kHead;
}

void ReadExaoneMoe(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 64, 8, config);
  config->experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 1024);
  ReadBiasedSigmoids(reader, {.factor = 2.5, .shared_key = "num_shared_experts"}, config);
  ReadMlpLayerTypes(reader, config);
}

// The hub's configurations state sizes for each layer that the reference states once.
void ReadHunYuanMoe(FieldReader* reader, ModelConfig* config) {
  const Json num_chosen = FirstOf(reader, "moe_topk", 1);
  if (!num_chosen.is_int() || num_chosen.as_int() < 1 || num_chosen.as_int() > kExpertsRange.max) {
    return reader->Fail("moe_topk", "a number of experts, or one for each layer, is supported");
  }
  ReadExperts(reader, 1, num_chosen.as_int(), config, "num_experts", nullptr);
  if (!reader->ok()) return;
  CheckSameInLayers(reader, "moe_topk", config->experts.num_chosen, *config);
  CheckSameInLayers(reader, "moe_intermediate_size", config->intermediate_size, *config);
  CheckSameInLayers(reader, "num_shared_expert", 1, *config);
  CheckNeutral(reader, "moe_layer_num_skipped", Json(0), "only 0 is supported");
  CheckNeutral(reader, "use_cla", Json(false), "only false is supported");
  config->experts.shared_intermediate_size = config->intermediate_size;
  config->experts.routing.renormalize = true;
}

// The name under which a configuration has a number that may have either; both must agree.
const char* NameOf(FieldReader* reader, const char* name, const char* alias) {
  const auto number = reader->OptionalInt(name, kExpertsRange);
  const auto other = reader->OptionalInt(alias, kExpertsRange);
  if (number && other && *number != *other) {
    reader->Fail(alias, fmt::format("the same number as {} is needed, or neither", name));
  }
  return other && !number ? alias : name;
}

void ReadErnie4_5Moe(FieldReader* reader, ModelConfig* config) {
  constexpr IntRange kSharedRange = {0, 1 << 8}, kEndRange = {-1, kLayerRange.max};
  ReadExperts(reader, 64, 6, config, NameOf(reader, "moe_num_experts", "num_experts"),
              NameOf(reader, "moe_k", "num_experts_per_tok"));
  const int64_t start = reader->Int("moe_layer_start_index", kLayerRange, 1);
  const int64_t end = reader->Int("moe_layer_end_index", kEndRange, -1);  // -1: the last layer
  const int64_t interval = reader->Int("moe_layer_interval", kStepRange, 1);
  for (int64_t i = 0; i < std::ssize(config->layers); ++i) {
    config->layers[static_cast<size_t>(i)].has_experts =
        (i + 1) % interval == 0 && i >= start && (end < 0 || i <= end);
  }
  ExpertsConfig& experts = config->experts;
  experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 1536);
  experts.shared_intermediate_size =
      experts.intermediate_size * reader->Int("moe_num_shared_experts", kSharedRange, 2);
  experts.choice_bias = true;
  experts.routing.renormalize = true;
  experts.routing.sum_min = static_cast<float>(reader->Number("moe_norm_min", {0, 1}, 1e-12));
  config->num_prediction_layers =
      static_cast<int32_t>(reader->Int("num_nextn_predict_layers", kPredictionLayersRange, 0));
}

void ReadMiniMaxM2(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 256, 8, config);
  ExpertsConfig& experts = config->experts;
  experts.choice_bias = true;
  experts.routing.score = RouteScore::kSigmoid;
  experts.routing.renormalize = true;
  CheckNeutral(reader, "scoring_func", Json("sigmoid"), "only \"sigmoid\" is supported");
  CheckNeutral(reader, "use_routing_bias", Json(true), "only true is supported");
  CheckNeutral(reader, "use_qk_norm", Json(true), "only true is supported");
  CheckNeutral(reader, "qk_norm_type", Json("per_layer"), "only \"per_layer\" is supported");
  CheckNeutral(reader, "shared_intermediate_size", Json(0), "only 0 is supported");
  const Json full(Json::Array(static_cast<size_t>(config->num_layers), Json(1)));
  CheckNeutral(reader, "attn_type_list", full,
               "only 1 (full attention) for each layer is supported");
  config->num_prediction_layers =
      static_cast<int32_t>(reader->Int("num_mtp_modules", kPredictionLayersRange, 0));
}

void ReadGptOss(FieldReader* reader, ModelConfig* config) {
  ReadExperts(reader, 128, 4, config);
  config->experts.routing.renormalize = true;
  config->attention_sinks = true;
  CheckNeutral(reader, "hidden_act", Json("silu"), "\"silu\" is supported for this model_type");
  CheckNeutral(reader, "swiglu_alpha", Json(1.702), "only 1.702 is supported");
  config->activation = Activation::kClampedSwiglu;
  config->activation_limit = reader->Number("swiglu_limit", kPositiveRange, 7);
}

}  // namespace minisgl::weights
