// See gguf_rope.h.
#include "weights/gguf_rope.h"

#include <fmt/core.h>

#include <array>
#include <string>
#include <utility>

#include "weights/config_keys.h"

namespace minisgl::weights {
namespace {

// Factors of rotary frequencies that are stored as tensors: two lists for short and for long
// contexts, or one for both.
void WriteRopeFactors(GgufMetadata* metadata, Json* config) {
  Json longer = metadata->Vector("rope_factors_long.weight");
  Json shorter = metadata->Vector("rope_factors_short.weight");
  Json both = metadata->Vector("rope_freqs.weight");
  Json rope;
  if (!both.is_null()) {
    shorter = both;
    longer = std::move(both);
    rope.Set("attention_factor", 1.0).Set("factor", 1.0);
  }
  if (longer.is_null() != shorter.is_null()) {
    return metadata->FailWith(
        BadInput("has one of \"rope_factors_long.weight\" and \"rope_factors_short.weight\"; the "
                 "model needs both"));
  }
  if (longer.is_null()) return;
  rope.Set("rope_type", "longrope");
  rope.Set("long_factor", std::move(longer)).Set("short_factor", std::move(shorter));
  config->Set("rope_scaling", std::move(rope));
}

}  // namespace

void WriteRopeScaling(GgufMetadata* metadata, Json* config) {
  const bool has_factors = config->Find("rope_scaling") != nullptr;
  std::string type = metadata->Text("rope.scaling.type");
  Json factor = metadata->Number("rope.scaling.factor");
  if (factor.is_null()) factor = metadata->Number("rope.scale_linear");  // of older files
  if (type.empty()) type = "linear";
  if (type == "none") return;
  if (type == "longrope") {
    if (!has_factors) metadata->Fail("rope.scaling.type", "tensors of factors are needed with it");
    return;
  }
  if (type != "linear" && type != "yarn") {
    return metadata->Fail("rope.scaling.type",
                          "\"none\", \"linear\", \"yarn\" and \"longrope\" are supported");
  }
  const bool scales = !factor.is_null() && factor.as_double() != 1 && factor.as_double() != 0;
  if (type == "linear" && !scales) return;
  if (has_factors) {
    return metadata->Fail("rope.scaling.type", "none is supported beside tensors of factors");
  }
  if (factor.is_null()) return metadata->Fail("rope.scaling.factor", "a number is needed");
  Json rope;
  rope.Set("rope_type", type).Set("factor", std::move(factor));
  if (type == "yarn") {
    const Json multiplier = metadata->Number("rope.scaling.attn_factor");
    if (!multiplier.is_null() && multiplier.as_double() != 1) {
      metadata->Fail("rope.scaling.attn_factor", "1 is supported");
    }
    Json factor_of_all = metadata->Number("rope.scaling.yarn_attn_factor");
    if (!factor_of_all.is_null() && factor_of_all.as_double() != 1) {
      rope.Set("attention_factor", std::move(factor_of_all));
    }
    constexpr std::array<std::array<const char*, 2>, 3> kKeys = {{
        {"original_max_position_embeddings", "rope.scaling.original_context_length"},
        {"beta_fast", "rope.scaling.yarn_beta_fast"},
        {"beta_slow", "rope.scaling.yarn_beta_slow"},
    }};
    for (const auto& [key, name] : kKeys) {
      if (Json value = metadata->Number(name); !value.is_null()) rope.Set(key, std::move(value));
    }
  }
  config->Set("rope_scaling", std::move(rope));
}

void WriteRopeBase(GgufMetadata* metadata, Json* config) {
  if (Json theta = metadata->Number("rope.freq_base"); !theta.is_null()) {
    config->Set("rope_theta", std::move(theta));
  }
}

void WriteRope(GgufMetadata* metadata, bool partial, int64_t head_dim, Json* config) {
  WriteRopeBase(metadata, config);
  const int64_t rotated = metadata->Int("rope.dimension_count", {1, kHeadDimRange.max}, head_dim);
  if (partial) {
    config->Set("partial_rotary_factor",
                static_cast<double>(rotated) / static_cast<double>(head_dim));
  } else if (rotated != head_dim) {
    metadata->Fail("rope.dimension_count", fmt::format("{} is needed, all of a head", head_dim));
  }
  WriteRopeFactors(metadata, config);
  WriteRopeScaling(metadata, config);
}

}  // namespace minisgl::weights
