// See rank_cut.h. Letters of shapes are those of weights/architectures.h.
#include "model/rank_cut.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "minisgl/tensor/weight_format.h"

namespace minisgl::model {
namespace {

using Axis = TensorCut::Axis;
using Role = weights::TensorRole;

// Heads of a layer that a rank has, in features of `width` each.
Span InFeatures(const Span& heads, int64_t width) {
  return {heads.first * width, heads.count * width};
}

TensorCut Outputs(std::vector<Span> spans) { return {Axis::kOutputs, std::move(spans)}; }
TensorCut Inputs(const Span& span) { return {Axis::kInputs, {span}}; }

// Gate and up, one below the other, of `width` each.
std::vector<Span> Twice(const Span& span, int64_t width) {
  return {span, {width + span.first, span.count}};
}

// The same for each of `count` parts of `width`.
std::vector<Span> Repeated(const std::vector<Span>& spans, int64_t width, int64_t count) {
  std::vector<Span> all;
  for (int64_t part = 0; part < count; ++part) {
    for (const Span& span : spans) all.push_back({part * width + span.first, span.count});
  }
  return all;
}

TensorCut CutOfAttention(const ModelConfig& config, const LayerShape& shape, Role role,
                         const Rank& rank) {
  const LatentConfig& latent = config.latent;
  const bool is_latent = latent.rank > 0;
  // Weights of norms are those of each head, or the same for all.
  const bool has_own_norms = config.qk_norm == QkNorm::kHeadOwn || config.qk_norm == QkNorm::kWhole;
  const Span heads = HeadSpan(shape.num_heads, rank), kv_heads = HeadSpan(shape.num_kv_heads, rank);
  const int64_t queries = int64_t{shape.num_heads} * shape.head_dim;
  const int64_t keys = int64_t{shape.num_kv_heads} * shape.head_dim;
  const Span of_keys = InFeatures(kv_heads, shape.head_dim);
  switch (role) {
    case Role::kQuery:
    case Role::kQueryUp:
    case Role::kQueryBias:
      return Outputs({InFeatures(
          heads, is_latent ? int64_t{latent.plain_dim} + latent.rotary_dim : shape.head_dim)});
    case Role::kKey:
    case Role::kKeyBias:
      return Outputs({of_keys});
    case Role::kValue:
    case Role::kValueBias:
      return Outputs({InFeatures(kv_heads, shape.value_dim)});
    case Role::kQkv:  // values are as wide as keys
      return Outputs({InFeatures(heads, shape.head_dim),
                      {queries + of_keys.first, of_keys.count},
                      {queries + keys + of_keys.first, of_keys.count}});
    case Role::kQueryNorm:
      if (!has_own_norms) return {};
      return Outputs({InFeatures(heads, shape.head_dim)});
    case Role::kKeyNorm:
      if (!has_own_norms) return {};
      return Outputs({of_keys});
    case Role::kLatentUp:
      return Outputs({InFeatures(heads, int64_t{latent.plain_dim} + latent.value_dim)});
    case Role::kSinks:
      return Outputs({heads});
    case Role::kAttentionGate:
      return Outputs({InFeatures(heads, shape.value_dim)});
    case Role::kAttentionOutput:
      return Inputs(InFeatures(heads, is_latent ? latent.value_dim : shape.value_dim));
    default:
      return {};
  }
}

TensorCut CutOfFeedForward(const ModelConfig& config, const LayerShape& shape, Role role,
                           const Rank& rank) {
  const ExpertsConfig& experts = config.experts;
  const auto span_of = [&](int64_t width) { return FeatureSpan(config, width, rank); };
  switch (role) {
    case Role::kGate:
    case Role::kUp:
    case Role::kGateBias:
    case Role::kUpBias:
      return Outputs({span_of(shape.intermediate_size)});
    case Role::kGateUp:
      return Outputs(Twice(span_of(shape.intermediate_size), shape.intermediate_size));
    case Role::kDown:
      return Inputs(span_of(shape.intermediate_size));
    case Role::kExpertGate:
    case Role::kExpertUp:
      return Outputs({span_of(experts.intermediate_size)});
    case Role::kExpertGateUp:
      return Outputs(Twice(span_of(experts.intermediate_size), experts.intermediate_size));
    case Role::kExpertGateUpBias:  // of all experts
      return Outputs(Repeated(Twice(span_of(experts.intermediate_size), experts.intermediate_size),
                              2 * experts.intermediate_size, experts.num_experts));
    case Role::kExpertDown:
      return Inputs(span_of(experts.intermediate_size));
    case Role::kSharedGate:
    case Role::kSharedUp:
      return Outputs({span_of(experts.shared_intermediate_size)});
    case Role::kSharedGateUp:
      return Outputs(
          Twice(span_of(experts.shared_intermediate_size), experts.shared_intermediate_size));
    case Role::kSharedDown:
      return Inputs(span_of(experts.shared_intermediate_size));
    default:
      return {};
  }
}

TensorCut CutOfState(const ModelConfig& config, Mixer mixer, Role role, const Rank& rank) {
  const StateConfig& states = config.states;
  const bool is_conv = mixer == Mixer::kShortConv;
  const Span heads = HeadSpan(states.num_heads, rank);
  const std::vector<Span> channels = StateChannelSpans(config, mixer, rank);
  switch (role) {
    case Role::kStateInput:
    case Role::kStateInputBias:  // of a gated convolution: its two gates, then its inputs
      return Outputs(Repeated(channels, states.conv_width, is_conv ? 3 : 1));
    case Role::kConvWeight:
    case Role::kConvBias:
      return Outputs(channels);
    case Role::kStateQuery:
    case Role::kStateKey:
    case Role::kConvQuery:
    case Role::kConvKey:
      return Outputs({InFeatures(HeadSpan(states.num_groups, rank), states.key_dim)});
    case Role::kStateValue:
    case Role::kConvValue:
    case Role::kStateGate:
      return Outputs({InFeatures(heads, states.value_dim)});
    case Role::kStateGainDecay:  // as StateParts::scalars
      return Outputs(StateScalarSpans(states, int64_t{2} * states.num_heads, rank));
    case Role::kStateDecay:
    case Role::kStateGain:
    case Role::kDecayRate:
    case Role::kDecayBias:
    case Role::kStateSkip:
      return Outputs({heads});
    case Role::kStateNorm:  // the same for every head, or of all heads
      if (mixer == Mixer::kDeltaNet) return {};
      return Outputs({InFeatures(heads, states.value_dim)});
    case Role::kStateOutput:
      return Inputs(is_conv ? channels[0] : InFeatures(heads, states.value_dim));
    default:
      return {};
  }
}

// What the bounds of features are multiples of, if that leaves a part for each rank.
int64_t FeatureUnit(const ModelConfig& config, int64_t width, int32_t num_ranks) {
  int64_t group = 1;
  for (const QuantScheme& scheme : config.quantization.schemes) {
    group = std::max(group, GroupOfCodes(scheme));
  }
  for (const int64_t unit : {std::lcm(group, kQuantBlock), group, kQuantBlock}) {
    if (width % unit == 0 && width / unit >= num_ranks) return unit;
  }
  return 1;
}

}  // namespace

WeightTensor CutMatrix(const WeightTensor& matrix, const TensorCut& cut) {
  switch (cut.axis) {
    case Axis::kOutputs:
      if (cut.spans.size() > 1) return matrix.TakeRows(Numbers(cut.spans));
      return matrix.TakeOutputs(cut.spans[0].first, cut.spans[0].count);
    case Axis::kInputs:
      return matrix.TakeInputs(cut.spans[0].first, cut.spans[0].count);
    default:
      return matrix;
  }
}

std::vector<float> CutVector(std::vector<float> all, const TensorCut& cut, const Rank& rank,
                             int64_t columns) {
  if (cut.axis == Axis::kFirstRank && !rank.is_first()) return {};
  if (cut.axis != Axis::kOutputs || all.empty()) return all;
  std::vector<float> own;
  for (const Span& span : cut.spans) {
    const auto first = all.begin() + span.first * columns;
    own.insert(own.end(), first, first + span.count * columns);
  }
  return own;
}

Span HeadSpan(int64_t num_heads, const Rank& rank) {
  const int64_t first = num_heads * rank.index / rank.count;
  return {first, std::max<int64_t>(1, num_heads / rank.count)};
}

int64_t GroupOfCodes(const QuantScheme& scheme) {
  return std::max(scheme.group_inputs, scheme.factor_inputs);
}

Span FeatureSpan(const ModelConfig& config, int64_t width, const Rank& rank) {
  const int64_t unit = FeatureUnit(config, width, rank.count), units = width / unit;
  const int64_t first = units * rank.index / rank.count;
  const int64_t end = units * (rank.index + 1) / rank.count;
  return {first * unit, (end - first) * unit};
}

std::vector<int64_t> FeatureBounds(const ModelConfig& config, int64_t width, int32_t num_ranks) {
  std::vector<int64_t> bounds = {0};
  for (int32_t index = 0; index < num_ranks; ++index) {
    bounds.push_back(bounds.back() + FeatureSpan(config, width, {index, num_ranks}).count);
  }
  return bounds;
}

std::vector<int64_t> Numbers(const std::vector<Span>& spans) {
  std::vector<int64_t> numbers;
  for (const Span& span : spans) {
    for (int64_t i = 0; i < span.count; ++i) numbers.push_back(span.first + i);
  }
  return numbers;
}

std::vector<Span> StateChannelSpans(const ModelConfig& config, Mixer mixer, const Rank& rank) {
  const StateConfig& states = config.states;
  if (mixer == Mixer::kShortConv) return {FeatureSpan(config, states.conv_width, rank)};
  const Span keys = InFeatures(HeadSpan(states.num_groups, rank), states.key_dim);
  const Span values = InFeatures(HeadSpan(states.num_heads, rank), states.value_dim);
  const int64_t all_keys = int64_t{states.num_groups} * states.key_dim;
  if (mixer == Mixer::kDeltaNet) {  // queries, keys, values
    return {keys, {all_keys + keys.first, keys.count}, {2 * all_keys + values.first, values.count}};
  }
  const int64_t inner = states.inner_width();  // values, keys, queries
  return {values, {inner + keys.first, keys.count}, {inner + all_keys + keys.first, keys.count}};
}

std::vector<int64_t> TakeSpans(const std::vector<int64_t>& rows, const std::vector<Span>& spans) {
  std::vector<int64_t> taken;
  for (const int64_t at : Numbers(spans)) taken.push_back(rows[static_cast<size_t>(at)]);
  return taken;
}

std::vector<Span> StateGateSpans(const StateConfig& states, const Rank& rank) {
  return {InFeatures(HeadSpan(states.num_heads, rank), states.value_dim)};
}

std::vector<Span> StateScalarSpans(const StateConfig& states, int64_t num_scalars,
                                   const Rank& rank) {
  return Repeated({HeadSpan(states.num_heads, rank)}, states.num_heads,
                  num_scalars / states.num_heads);
}

TensorCut CutOf(const ModelConfig& config, int32_t layer, Role role, const Rank& rank) {
  if (rank.count == 1) return {};
  switch (role) {
    case Role::kEmbedding:
      if (config.draft_head.has_embedding) {
        return Outputs({FeatureSpan(config, config.draft_head.num_ids, rank)});
      }
      return Outputs({FeatureSpan(config, config.vocab_size, rank)});
    case Role::kHead:
      return Outputs({FeatureSpan(config, config.vocab_size, rank)});
    case Role::kDistances:  // of each kind one for each head
      return Outputs(
          Repeated({HeadSpan(config.num_heads, rank)}, config.num_heads, config.num_distances));
    case Role::kAttentionOutputBias:
    case Role::kDownBias:
    case Role::kExpertDownBias:
    case Role::kStateOutputBias:
      return {Axis::kFirstRank, {}};
    default:
      break;
  }
  if (layer < 0) return {};
  const LayerShape shape = LayerShapeOf(config, layer);
  TensorCut cut = CutOfAttention(config, shape, role, rank);
  if (cut.axis == Axis::kWhole) cut = CutOfFeedForward(config, shape, role, rank);
  const Mixer mixer = config.layers[static_cast<size_t>(layer)].mixer;
  if (cut.axis == Axis::kWhole && HasState(mixer)) cut = CutOfState(config, mixer, role, rank);
  return cut;
}

}  // namespace minisgl::model
