// See minisgl/model/ranks.h.
#include "minisgl/model/ranks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "minisgl/base/setting.h"
#include "model/rank_cut.h"

namespace minisgl {
namespace {

// Heads that read others in groups can be divided if each rank has whole groups, or a part of one.
std::string WhyHeadsDoNotDivide(const char* heads_are, int64_t num_heads, const char* groups_are,
                                int64_t num_groups, int32_t num_ranks) {
  if (num_heads % num_ranks != 0) return fmt::format("{} {} do not divide", num_heads, heads_are);
  if (num_groups % num_ranks == 0 || num_ranks % num_groups == 0) return "";
  return fmt::format("{} {} do not divide", num_groups, groups_are);
}

// Layers with features for fewer ranks than there are.
std::string WhyFeaturesDoNotDivide(const ModelConfig& config, int32_t num_ranks) {
  const auto narrow = [&](const char* what, int64_t width) {
    return width > 0 && width < num_ranks ? fmt::format("{} has {} features", what, width) : "";
  };
  std::string why = narrow("an expert", config.experts.intermediate_size);
  if (why.empty()) why = narrow("the shared expert", config.experts.shared_intermediate_size);
  if (why.empty()) why = narrow("the vocabulary", config.vocab_size);
  if (why.empty()) why = narrow("a convolution", config.states.conv_width);
  for (const LayerShape& shape : LayerShapes(config)) {
    if (why.empty()) why = narrow("the feed-forward part", shape.intermediate_size);
  }
  return why;
}

std::string WhyStatesDoNotDivide(const ModelConfig& config, int32_t num_ranks) {
  const StateConfig& states = config.states;
  if (!HasStates(config) || states.num_heads == 0) return "";
  return WhyHeadsDoNotDivide("heads of states", states.num_heads, "groups of states",
                             states.num_groups, num_ranks);
}

// Empty if the numbers of heads and features divide.
std::string WhyNot(const ModelConfig& config, int32_t num_ranks) {
  std::string why = WhyStatesDoNotDivide(config, num_ranks);
  for (const LayerShape& shape : LayerShapes(config)) {
    if (!why.empty()) return why;
    why = WhyHeadsDoNotDivide("query heads", shape.num_heads, "KV heads", shape.num_kv_heads,
                              num_ranks);
  }
  return why.empty() ? WhyFeaturesDoNotDivide(config, num_ranks) : why;
}

// The norm of a state's output is over groups of heads, which are whole on a rank, or over all.
std::string WhyStateNormDoesNotDivide(const StateConfig& states, int32_t num_ranks) {
  const int64_t group = states.norm_group, inner = states.inner_width();
  if (group == 0 || group >= inner || inner / num_ranks % group == 0) return "";
  return fmt::format("{} groups of normalised heads of states do not divide",
                     states.inner_width() / states.norm_group);
}

bool Divides(const ModelConfig& config, int32_t num_ranks) {
  return WhyNot(config, num_ranks).empty() &&
         WhyStateNormDoesNotDivide(config.states, num_ranks).empty();
}

}  // namespace

Status CheckRanks(const ModelConfig& config, int32_t num_ranks) {
  MINISGL_CHECK(num_ranks >= 1 && num_ranks <= kRanksMax, "{} ranks", num_ranks);
  if (num_ranks == 1) return Status();
  const std::string given = fmt::format("{} {}", SettingName(Setting::kTensorParallel), num_ranks);
  if (config.qk_norm_bias) {
    return UsageError("{}: queries of {} are normalised as one vector less its mean: one rank",
                      given, config.architecture);
  }
  std::string why = WhyNot(config, num_ranks);
  if (why.empty()) why = WhyStateNormDoesNotDivide(config.states, num_ranks);
  if (why.empty()) return Status();
  std::vector<int32_t> divisors;
  for (int32_t count = 2; count <= kRanksMax; ++count) {
    if (Divides(config, count)) divisors.push_back(count);
  }
  if (divisors.empty()) return UsageError("{}: {}, nor by any other number", given, why);
  return UsageError("{}: {}; {} would do", given, why, fmt::join(divisors, " or "));
}

ModelConfig RankConfig(const ModelConfig& config, const Rank& rank) {
  ModelConfig own = config;
  if (rank.count == 1) return own;
  const auto share_heads = [&](int32_t* count) {
    if (*count > 0) *count = static_cast<int32_t>(model::HeadSpan(*count, rank).count);
  };
  const auto share_features = [&](int64_t* width) {
    if (*width > 0) *width = model::FeatureSpan(config, *width, rank).count;
  };
  share_heads(&own.num_heads);
  share_heads(&own.num_kv_heads);
  share_features(&own.intermediate_size);
  share_features(&own.vocab_size);
  share_features(&own.draft_head.num_ids);
  share_features(&own.experts.intermediate_size);
  share_features(&own.experts.shared_intermediate_size);
  for (LayerConfig& layer : own.layers) {
    share_heads(&layer.num_heads);
    share_heads(&layer.num_kv_heads);
    share_features(&layer.intermediate_size);
  }
  StateConfig& states = own.states;
  share_heads(&states.num_heads);
  share_heads(&states.num_groups);
  if (states.num_heads > 0) {
    states.conv_width = int64_t{2} * states.num_groups * states.key_dim + states.inner_width();
  } else {
    share_features(&states.conv_width);
  }
  return own;
}

}  // namespace minisgl
