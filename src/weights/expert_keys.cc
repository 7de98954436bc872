#include "weights/expert_keys.h"

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"

namespace minisgl::weights {

void ReadExperts(FieldReader* reader, int64_t num_experts, int64_t num_chosen, ModelConfig* config,
                 const char* key, const char* chosen_key) {
  ExpertsConfig& experts = config->experts;
  const auto local = reader->OptionalInt("num_local_experts", kExpertsRange);
  const auto plain = reader->OptionalInt(key, kExpertsRange);
  if (local && plain && *local != *plain) {
    reader->Fail(key, "the same number as num_local_experts is needed, or neither");
  }
  if (!plain) key = "num_local_experts";
  num_experts = plain ? *plain : local.value_or(num_experts);
  if (num_experts > kPartsMax / config->num_layers) {
    reader->FailWith(
        key, fmt::format("{}", num_experts),
        fmt::format("up to {} experts in all layers together are supported", kPartsMax));
  }
  experts.num_experts = static_cast<int32_t>(num_experts);
  if (chosen_key != nullptr) {
    num_chosen = reader->Int(chosen_key, {1, kExpertsRange.max}, num_chosen);
  }
  experts.num_chosen = static_cast<int32_t>(num_chosen);
  if (experts.num_chosen > experts.num_experts) {
    reader->FailWith(chosen_key == nullptr ? key : chosen_key,
                     fmt::format("{}", experts.num_chosen),
                     fmt::format("up to the number of experts ({}) is supported for each token",
                                 experts.num_experts));
  }
  experts.intermediate_size = config->intermediate_size;
  for (LayerConfig& layer : config->layers) layer.has_experts = true;
}

void ReadExpertGroups(FieldReader* reader, ExpertsConfig* experts, int64_t num_groups,
                      int64_t num_chosen_groups) {
  const int32_t count = experts->num_experts;
  Routing& routing = experts->routing;
  const auto groups = static_cast<int32_t>(reader->Int("n_group", kExpertsRange, num_groups));
  const auto chosen =
      static_cast<int32_t>(reader->Int("topk_group", kExpertsRange, num_chosen_groups));
  if (!reader->ok()) return;
  if (count % groups != 0 || count / groups < routing.best_of_group) {
    return reader->FailWith(
        "n_group", fmt::format("{}", groups),
        fmt::format("a divisor of the number of experts ({}) is needed, with groups of at least {}",
                    count, routing.best_of_group));
  }
  if (chosen > groups || experts->num_chosen > chosen * (count / groups)) {
    return reader->FailWith(
        "topk_group", fmt::format("{}", chosen),
        fmt::format("up to n_group ({}) is supported, with at least num_experts_per_tok ({}) "
                    "experts in these groups",
                    groups, experts->num_chosen));
  }
  routing.num_groups = groups;
  routing.num_chosen_groups = chosen;
}

void ReadBiasedSigmoids(FieldReader* reader, const SigmoidDefaults& defaults, ModelConfig* config) {
  const IntRange shared_range = {defaults.shared_min, 1 << 8};
  const int64_t num_dense = reader->Int("first_k_dense_replace", kLayerRange, defaults.num_dense);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    config->layers[i].has_experts = static_cast<int64_t>(i) >= num_dense;
  }
  ExpertsConfig& experts = config->experts;
  experts.shared_intermediate_size =
      experts.intermediate_size * reader->Int(defaults.shared_key, shared_range, 1);
  experts.choice_bias = true;
  experts.routing.score = RouteScore::kSigmoid;
  experts.routing.best_of_group = 2;
  experts.routing.sum_eps = 1e-20f;
  experts.routing.renormalize = reader->Bool("norm_topk_prob", true);
  experts.routing.factor =
      static_cast<float>(reader->Number("routed_scaling_factor", kPositiveRange, defaults.factor));
  ReadExpertGroups(reader, &experts, defaults.num_groups, defaults.num_chosen_groups);
  config->num_prediction_layers =
      static_cast<int32_t>(reader->Int("num_nextn_predict_layers", kPredictionLayersRange, 0));
}

void ReadMlpLayerTypes(FieldReader* reader, ModelConfig* config) {
  const Json* types = reader->Find("mlp_layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || types->as_array().size() != config->layers.size()) {
    return reader->Fail("mlp_layer_types",
                        fmt::format("an array of {} strings is needed", config->num_layers));
  }
  for (size_t i = 0; i < config->layers.size(); ++i) {
    const Json& type = types->as_array()[i];
    config->layers[i].has_experts = type == Json("sparse");
    if (type != Json("sparse") && type != Json("dense")) {
      return reader->FailWith("mlp_layer_types", Visible(type.Dump(), 60),
                              "\"dense\" and \"sparse\" are supported");
    }
  }
}

}  // namespace minisgl::weights
