// Keys of models with latent attention (LatentConfig).
#include "weights/latent_keys.h"

#include <cmath>

#include "weights/config_keys.h"
#include "weights/expert_keys.h"
#include "weights/family_keys.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kRankRange = {1, 1 << 16};
constexpr IntRange kSharedRange = {1, 1 << 8};

// Scores have the scale of whole queries and keys. REQUIRES rotary settings that were read.
void SetScale(ModelConfig* config) {
  const LatentConfig& latent = config->latent;
  const auto width = static_cast<double>(latent.plain_dim + latent.rotary_dim);
  config->attention_scale = config->ropes[0].score_factor / std::sqrt(width);
}

}  // namespace

void ReadLatentSizes(const LatentConfig& defaults, FieldReader* reader, ModelConfig* config) {
  const auto read = [&](const char* key, IntRange range, int32_t fallback) {
    return static_cast<int32_t>(reader->Int(key, range, fallback));
  };
  LatentConfig& latent = config->latent;
  config->num_heads = static_cast<int32_t>(reader->Int("num_attention_heads", kHeadsRange));
  latent.rank = read("kv_lora_rank", kHeadDimRange, defaults.rank);
  latent.plain_dim = read("qk_nope_head_dim", kHeadDimRange, defaults.plain_dim);
  latent.rotary_dim = read("qk_rope_head_dim", kHeadDimRange, defaults.rotary_dim);
  latent.value_dim = read("v_head_dim", kHeadDimRange, defaults.value_dim);
  const bool has_query_rank = !reader->Has("q_lora_rank") || reader->Find("q_lora_rank") != nullptr;
  if (has_query_rank) latent.query_rank = read("q_lora_rank", kRankRange, defaults.query_rank);
  const auto num_kv_heads = reader->OptionalInt("num_key_value_heads", kHeadsRange);
  if (!reader->ok()) return;
  if (num_kv_heads && *num_kv_heads != config->num_heads) {
    return reader->Fail(
        "num_key_value_heads",
        fmt::format("num_attention_heads ({}) is needed for this model_type", config->num_heads));
  }
  if (latent.rotary_dim % 2 != 0) {
    return reader->Fail("qk_rope_head_dim", "an even number is supported");
  }
  config->num_kv_heads = 1;
  config->head_dim = latent.rotary_dim + latent.rank;
  config->value_dim = latent.rank;
}

void ReadDeepseekV2(FieldReader* reader, ModelConfig* config) {
  SetScale(config);
  CheckNeutral(reader, "rope_interleave", Json(true), "only true is supported");
  CheckNeutral(reader, "moe_layer_freq", Json(1), "only 1 is supported");
  CheckNeutral(reader, "scoring_func", Json("softmax"), "only \"softmax\" is supported");
  CheckNeutral(reader, "norm_topk_prob", Json(false), "only false is supported");
  if (reader->Find("num_experts_per_tok") == nullptr) {
    return reader->Fail("num_experts_per_tok", "a number is needed");
  }
  ReadExperts(reader, 64, 1, config, "n_routed_experts");
  const int64_t num_dense = reader->Int("first_k_dense_replace", kLayerRange, 0);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    config->layers[i].has_experts = static_cast<int64_t>(i) >= num_dense;
  }
  ExpertsConfig& experts = config->experts;
  experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 1407);
  experts.shared_intermediate_size =
      experts.intermediate_size * reader->Int("n_shared_experts", kSharedRange, 2);
  experts.routing.factor =
      static_cast<float>(reader->Number("routed_scaling_factor", kPositiveRange, 1));
  constexpr const char* kMethods = "\"greedy\" and \"group_limited_greedy\" are supported";
  const std::string method = reader->OptionalString("topk_method", kMethods).value_or("greedy");
  if (method == "group_limited_greedy") {
    ReadExpertGroups(reader, &experts);
  } else if (method != "greedy") {
    reader->Fail("topk_method", kMethods);
  }
}

void ReadDeepseekV3(FieldReader* reader, ModelConfig* config) {
  SetScale(config);
  config->rotary_interleaved = reader->Bool("rope_interleave", true);
  CheckNeutral(reader, "moe_layer_freq", Json(1), "only 1 is supported");
  CheckNeutral(reader, "scoring_func", Json("sigmoid"), "only \"sigmoid\" is supported");
  CheckNeutral(reader, "topk_method", Json("noaux_tc"), "only \"noaux_tc\" is supported");
  ReadExperts(reader, 256, 8, config, "n_routed_experts");
  config->experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 2048);
  ReadBiasedSigmoids(reader,
                     {.factor = 2.5,
                      .shared_key = "n_shared_experts",
                      .num_dense = 3,
                      .num_groups = 8,
                      .num_chosen_groups = 4},
                     config);
}

void ReadGlm4MoeLite(FieldReader* reader, ModelConfig* config) {
  SetScale(config);
  config->rotary_interleaved = reader->Bool("rope_interleave", true);
  CheckNeutral(reader, "topk_method", Json("noaux_tc"), "only \"noaux_tc\" is supported");
  ReadExperts(reader, 64, 4, config, "n_routed_experts");
  config->experts.intermediate_size = reader->Int("moe_intermediate_size", kWidthRange, 1536);
  ReadBiasedSigmoids(reader, {.factor = 1.8, .shared_key = "n_shared_experts"}, config);
  ReadMlpLayerTypes(reader, config);
}

}  // namespace minisgl::weights
