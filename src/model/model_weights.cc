// The weights of a model, part by part, from its packed tensors (tensor_packer.h). All checks come
// before (tensor_check.cc).
#include "model/model_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "minisgl/base/log.h"
#include "minisgl/base/read_ahead.h"
#include "model/loading_progress.h"
#include "model/rank_cut.h"
#include "model/tensor_packer.h"
#include "weights/architectures.h"
#include "weights/distance_kinds.h"

namespace minisgl::model {
namespace {

using Role = weights::TensorRole;

Status LoadLatent(const Packer& packer, LayerWeights* layer) {
  LatentWeights& latent = layer->latent;
  MINISGL_ASSIGN_OR_RETURN(layer->qkv, packer.Pack({Role::kLatent}));
  MINISGL_ASSIGN_OR_RETURN(layer->qkv_bias, packer.PackVectors({Role::kLatentBias}));
  if (packer.Has(Role::kQueryDown)) {
    MINISGL_ASSIGN_OR_RETURN(latent.query_down, packer.Pack({Role::kQueryDown}));
    MINISGL_ASSIGN_OR_RETURN(latent.query_down_bias, packer.PackVectors({Role::kQueryDownBias}));
    MINISGL_ASSIGN_OR_RETURN(latent.query_norm, packer.PackVectors({Role::kQueryDownNorm}));
  }
  MINISGL_ASSIGN_OR_RETURN(latent.query, packer.Pack({Role::kQueryUp, Role::kQuery}));
  MINISGL_ASSIGN_OR_RETURN(latent.norm, packer.PackVectors({Role::kLatentNorm}));
  return packer.PackLatentUp(&latent.absorbed_keys, &latent.values);
}

// The gate of attention, whose rows stand behind those of each head's query.
Status LoadGateInQuery(const Packer& packer, LayerWeights* layer) {
  const LayerShape& shape = packer.shape();
  const Span heads = HeadSpan(shape.num_heads, packer.rank());
  std::vector<int64_t> rows =
      RowsOfParts(shape.num_heads, int64_t{2} * shape.head_dim, shape.head_dim, shape.head_dim);
  rows = TakeSpans(rows, {{heads.first * shape.head_dim, heads.count * shape.head_dim}});
  MINISGL_ASSIGN_OR_RETURN(layer->attention_gate, packer.PackRows(Role::kQuery, rows));
  MINISGL_ASSIGN_OR_RETURN(layer->attention_gate_bias, packer.PackBiasRows(Role::kQueryBias, rows));
  return Status();
}

// Queries, keys and values of an EAGLE-3 head, whose matrices read an embedding and then a state.
Status LoadPairs(const ModelConfig& config, const Packer& packer, LayerWeights* layer) {
  const int64_t width = config.hidden_size;
  const std::initializer_list<Role> roles = {Role::kQuery, Role::kKey, Role::kValue};
  MINISGL_ASSIGN_OR_RETURN(layer->qkv, packer.PackInputs(roles, 0, width));
  MINISGL_ASSIGN_OR_RETURN(layer->state_qkv, packer.PackInputs(roles, width, width));
  MINISGL_ASSIGN_OR_RETURN(
      layer->qkv_bias, packer.PackVectors({Role::kQueryBias, Role::kKeyBias, Role::kValueBias}));
  return Status();
}

Status LoadAttention(const ModelConfig& config, const Packer& packer, LayerWeights* layer) {
  MINISGL_ASSIGN_OR_RETURN(layer->attention_norm,
                           packer.PackNorm(Role::kAttentionNorm, Role::kAttentionNormBias));
  MINISGL_ASSIGN_OR_RETURN(layer->attention_post_norm,
                           packer.PackNorm(Role::kAttentionPostNorm, Role::kAttentionPostNormBias));
  if (packer.Has(Role::kLatent)) {
    MINISGL_RETURN_IF_ERROR(LoadLatent(packer, layer));
  } else if (config.prediction == PredictionLayer::kEagle) {
    MINISGL_RETURN_IF_ERROR(LoadPairs(config, packer, layer));
  } else {
    MINISGL_ASSIGN_OR_RETURN(layer->qkv,
                             packer.Pack({Role::kQkv, Role::kQuery, Role::kKey, Role::kValue}));
    MINISGL_ASSIGN_OR_RETURN(
        layer->qkv_bias, packer.PackVectors({Role::kQueryBias, Role::kKeyBias, Role::kValueBias}));
  }
  MINISGL_ASSIGN_OR_RETURN(layer->query_norm,
                           packer.PackVectors({Role::kQueryNorm}, config.norm_plus_one));
  MINISGL_ASSIGN_OR_RETURN(layer->key_norm,
                           packer.PackVectors({Role::kKeyNorm}, config.norm_plus_one));
  MINISGL_ASSIGN_OR_RETURN(layer->query_norm_bias, packer.PackVectors({Role::kQueryNormBias}));
  MINISGL_ASSIGN_OR_RETURN(layer->key_norm_bias, packer.PackVectors({Role::kKeyNormBias}));
  if (config.qk_norm_plain && (!config.qk_norm_rotated || packer.is_rotated())) {
    const auto query = static_cast<float>(config.query_factor);
    MINISGL_ASSIGN_OR_RETURN(layer->query_norm, packer.Constants(packer.shape().head_dim, query));
    MINISGL_ASSIGN_OR_RETURN(layer->key_norm, packer.Constants(packer.shape().head_dim, 1));
  }
  if (config.gate_in_query) {
    MINISGL_RETURN_IF_ERROR(LoadGateInQuery(packer, layer));
  } else if (config.attention_gate) {
    MINISGL_ASSIGN_OR_RETURN(layer->attention_gate, packer.Pack({Role::kAttentionGate}));
  }
  MINISGL_ASSIGN_OR_RETURN(layer->sinks, packer.PackVectors({Role::kSinks}));
  MINISGL_ASSIGN_OR_RETURN(layer->attention_output, packer.Pack({Role::kAttentionOutput}));
  MINISGL_ASSIGN_OR_RETURN(layer->attention_output_bias,
                           packer.PackVectors({Role::kAttentionOutputBias}));
  return Status();
}

// The products before a recurrence.
Status LoadStateInputs(const ModelConfig& config, Mixer mixer, const Packer& packer,
                       StateWeights* state) {
  const StateConfig& states = config.states;
  if (mixer == Mixer::kDeltaNet && !states.by_group) {
    MINISGL_ASSIGN_OR_RETURN(state->input, packer.Pack({Role::kStateInput, Role::kStateQuery,
                                                        Role::kStateKey, Role::kStateValue}));
    MINISGL_ASSIGN_OR_RETURN(state->gate, packer.Pack({Role::kStateGate}));
    MINISGL_ASSIGN_OR_RETURN(state->scalars,
                             packer.PackUnquantized({Role::kStateDecay, Role::kStateGain}));
    return Status();
  }
  const bool is_delta = mixer == Mixer::kDeltaNet;
  StateParts parts = is_delta ? DeltaPartsByGroup(states) : Mamba2Parts(states);
  const Rank& rank = packer.rank();
  parts.input = TakeSpans(parts.input, StateChannelSpans(config, mixer, rank));
  parts.gate = TakeSpans(parts.gate, StateGateSpans(states, rank));
  parts.scalars =
      TakeSpans(parts.scalars, StateScalarSpans(states, std::ssize(parts.scalars), rank));
  const Role scalars = is_delta ? Role::kStateGainDecay : Role::kStateInput;
  MINISGL_ASSIGN_OR_RETURN(state->input, packer.PackRows(Role::kStateInput, parts.input));
  MINISGL_ASSIGN_OR_RETURN(state->gate, packer.PackRows(Role::kStateInput, parts.gate));
  MINISGL_ASSIGN_OR_RETURN(state->scalars,
                           packer.PackRows(scalars, parts.scalars, /*quantized=*/false));
  MINISGL_ASSIGN_OR_RETURN(state->input_bias,
                           packer.PackBiasRows(Role::kStateInputBias, parts.input));
  MINISGL_ASSIGN_OR_RETURN(state->gate_bias,
                           packer.PackBiasRows(Role::kStateInputBias, parts.gate));
  MINISGL_ASSIGN_OR_RETURN(state->scalars_bias,
                           packer.PackBiasRows(Role::kStateInputBias, parts.scalars));
  return Status();
}

// What a recurrence has besides matrices. The reference divides queries and keys by their length,
//   x / sqrt(sum x^2 + 1e-6),
// which is an RMS norm over N features with weights 1 / sqrt(N) and eps 1e-6 / N; queries are also
// divided by sqrt(N). `config`: of the rank.
Status LoadRecurrence(const StateConfig& config, Mixer mixer, const Packer& packer, Ops* ops,
                      StateWeights* state) {
  MINISGL_ASSIGN_OR_RETURN(std::vector<float> rates, packer.Vector(Role::kDecayRate));
  for (float& rate : rates) rate = static_cast<float>(std::exp(static_cast<double>(rate)));
  MINISGL_ASSIGN_OR_RETURN(state->decay_rate, Upload<float>(ops, rates));
  MINISGL_ASSIGN_OR_RETURN(state->decay_bias, packer.PackVectors({Role::kDecayBias}));
  MINISGL_ASSIGN_OR_RETURN(state->skip, packer.PackVectors({Role::kStateSkip}));
  if (packer.Has(Role::kStateNorm)) {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<float> norm, packer.Vector(Role::kStateNorm));
    std::vector<float> all;  // the same for every head, or stored for all of them
    while (std::ssize(all) < config.inner_width()) all.insert(all.end(), norm.begin(), norm.end());
    MINISGL_ASSIGN_OR_RETURN(state->norm, Upload<float>(ops, all));
  }
  if (mixer != Mixer::kDeltaNet) return Status();
  const auto count = static_cast<size_t>(config.num_groups) * static_cast<size_t>(config.key_dim);
  std::vector<float> lengths(count, 1.0f / static_cast<float>(config.key_dim));
  lengths.resize(2 * count, static_cast<float>(1 / std::sqrt(double{1} * config.key_dim)));
  MINISGL_ASSIGN_OR_RETURN(state->query_key_norm, Upload<float>(ops, lengths));
  return Status();
}

Status LoadStateMixer(const ModelConfig& config, Mixer mixer, const Packer& packer, Ops* ops,
                      LayerWeights* layer) {
  MINISGL_ASSIGN_OR_RETURN(layer->attention_norm,
                           packer.PackNorm(Role::kAttentionNorm, Role::kAttentionNormBias));
  StateWeights& state = layer->state;
  const StateConfig own = RankConfig(config, packer.rank()).states;
  MINISGL_ASSIGN_OR_RETURN(
      state.conv,
      packer.PackTransposed({Role::kConvWeight, Role::kConvQuery, Role::kConvKey, Role::kConvValue},
                            config.states.conv_length, ChannelFactors(own)));
  MINISGL_ASSIGN_OR_RETURN(state.conv_bias, packer.PackVectors({Role::kConvBias}));
  MINISGL_ASSIGN_OR_RETURN(state.output, packer.Pack({Role::kStateOutput}));
  MINISGL_ASSIGN_OR_RETURN(state.output_bias, packer.PackVectors({Role::kStateOutputBias}));
  if (mixer != Mixer::kShortConv) {
    MINISGL_RETURN_IF_ERROR(LoadStateInputs(config, mixer, packer, &state));
    return LoadRecurrence(own, mixer, packer, ops, &state);
  }
  MINISGL_ASSIGN_OR_RETURN(state.input, packer.Pack({Role::kStateInput}));
  MINISGL_ASSIGN_OR_RETURN(state.input_bias, packer.PackVectors({Role::kStateInputBias}));
  return Status();
}

// The products of the experts.
Status LoadProducts(const Packer& packer, ExpertWeights* experts) {
  MINISGL_ASSIGN_OR_RETURN(
      experts->gate_up,
      packer.PackExperts({Role::kExpertGateUp, Role::kExpertGate, Role::kExpertUp}));
  MINISGL_ASSIGN_OR_RETURN(experts->gate_up_bias, packer.PackVectors({Role::kExpertGateUpBias}));
  MINISGL_ASSIGN_OR_RETURN(experts->down, packer.PackExperts({Role::kExpertDown}));
  MINISGL_ASSIGN_OR_RETURN(experts->down_bias, packer.PackVectors({Role::kExpertDownBias}));
  return Status();
}

// `host`: packs the products of the experts, into `host_experts`; null: `packer` does.
Status LoadExperts(const Packer& packer, const Packer* host, ExpertWeights* experts,
                   ExpertWeights* host_experts) {
  MINISGL_ASSIGN_OR_RETURN(experts->router, packer.PackUnquantized({Role::kRouter}));
  MINISGL_ASSIGN_OR_RETURN(experts->router_bias, packer.PackVectors({Role::kRouterBias}));
  MINISGL_ASSIGN_OR_RETURN(experts->choice_bias, packer.PackVectors({Role::kChoiceBias}));
  MINISGL_RETURN_IF_ERROR(host == nullptr ? LoadProducts(packer, experts)
                                          : LoadProducts(*host, host_experts));
  if (packer.Has(Role::kExpertsInput)) {
    MINISGL_ASSIGN_OR_RETURN(experts->latent_input, packer.Pack({Role::kExpertsInput}));
    MINISGL_ASSIGN_OR_RETURN(experts->latent_output, packer.Pack({Role::kExpertsOutput}));
  }
  if (packer.Has(Role::kSharedShare)) {
    MINISGL_ASSIGN_OR_RETURN(experts->shared_share, packer.PackUnquantized({Role::kSharedShare}));
  }
  return Status();
}

// The norms around experts that stand beside a dense part.
Status LoadExpertNorms(const ModelConfig& config, const Packer& packer, ExpertWeights* experts) {
  const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(config.hidden_size)));
  MINISGL_ASSIGN_OR_RETURN(experts->router_norm.weight,
                           packer.PackVectors({Role::kRouterScale}, 0, factor));
  MINISGL_ASSIGN_OR_RETURN(experts->expert_scale, packer.PackVectors({Role::kExpertScale}));
  MINISGL_ASSIGN_OR_RETURN(experts->expert_norm.weight, packer.PackVectors({Role::kExpertNorm}));
  MINISGL_ASSIGN_OR_RETURN(experts->expert_post_norm.weight,
                           packer.PackVectors({Role::kExpertPostNorm}));
  MINISGL_ASSIGN_OR_RETURN(experts->dense_post_norm.weight,
                           packer.PackVectors({Role::kDensePostNorm}));
  return Status();
}

// log(1 + exp(x)), which counts of the numbers in files.
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

Status LoadXielu(const Packer& packer, XieluParams* xielu) {
  MINISGL_ASSIGN_OR_RETURN(const auto positive, packer.Vector(Role::kXieluPositive));
  MINISGL_ASSIGN_OR_RETURN(const auto negative, packer.Vector(Role::kXieluNegative));
  MINISGL_ASSIGN_OR_RETURN(const auto linear, packer.Vector(Role::kXieluLinear));
  MINISGL_ASSIGN_OR_RETURN(const auto min, packer.Vector(Role::kXieluMin));
  *xielu = {static_cast<float>(Softplus(positive[0])),
            static_cast<float>(Softplus(negative[0]) + linear[0]), linear[0], min[0]};
  return Status();
}

// `host`, `host_experts`: see LoadExperts.
Status LoadFeedForward(const ModelConfig& config, const Packer& packer, const Packer* host,
                       LayerWeights* layer, ExpertWeights* host_experts) {
  MINISGL_ASSIGN_OR_RETURN(layer->feed_forward_norm,
                           packer.PackNorm(Role::kFeedForwardNorm, Role::kFeedForwardNormBias));
  MINISGL_ASSIGN_OR_RETURN(
      layer->attention_second_norm,
      packer.PackNorm(Role::kAttentionSecondNorm, Role::kAttentionSecondNormBias));
  MINISGL_ASSIGN_OR_RETURN(
      layer->feed_forward_post_norm,
      packer.PackNorm(Role::kFeedForwardPostNorm, Role::kFeedForwardPostNormBias));
  FeedForwardWeights& dense = layer->feed_forward;
  if (packer.Has(Role::kRouter)) {
    MINISGL_RETURN_IF_ERROR(LoadExperts(packer, host, &layer->experts, host_experts));
  }
  if (packer.Has(Role::kSharedDown)) {
    MINISGL_ASSIGN_OR_RETURN(
        dense.gate_up, packer.Pack({Role::kSharedGateUp, Role::kSharedGate, Role::kSharedUp}));
    MINISGL_ASSIGN_OR_RETURN(dense.down, packer.Pack({Role::kSharedDown}));
  }
  if (config.experts.beside_dense) {
    MINISGL_RETURN_IF_ERROR(LoadExpertNorms(config, packer, &layer->experts));
  }
  if (!packer.Has(Role::kDown)) return Status();
  MINISGL_ASSIGN_OR_RETURN(dense.gate_up, packer.Pack({Role::kGateUp, Role::kGate, Role::kUp}));
  MINISGL_ASSIGN_OR_RETURN(dense.gate_up_bias,
                           packer.PackVectors({Role::kGateBias, Role::kUpBias}));
  MINISGL_ASSIGN_OR_RETURN(dense.down, packer.Pack({Role::kDown}));
  MINISGL_ASSIGN_OR_RETURN(dense.down_bias, packer.PackVectors({Role::kDownBias}));
  return packer.Has(Role::kXieluMin) ? LoadXielu(packer, &dense.xielu) : Status();
}

Status LoadPerLayer(const ModelConfig& config, const Packer& packer, LayerWeights* layer) {
  if (config.per_layer_width > 0) {
    MINISGL_ASSIGN_OR_RETURN(layer->per_layer.gate, packer.Pack({Role::kPerLayerGate}));
    MINISGL_ASSIGN_OR_RETURN(layer->per_layer.output, packer.Pack({Role::kPerLayerOutput}));
    MINISGL_ASSIGN_OR_RETURN(layer->per_layer.norm.weight,
                             packer.PackVectors({Role::kPerLayerNorm}));
  }
  if (config.layer_factors) {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<float> factor, packer.Vector(Role::kLayerFactor));
    layer->factor = factor[0];
  }
  return Status();
}

Status LoadPerLayerTable(const ModelConfig& config, const Packer& packer, Ops* ops,
                         PerLayerTable* table) {
  if (KeepsPerLayerTable(ops->activation_dtype())) {
    MINISGL_ASSIGN_OR_RETURN(table->device_table, packer.PackTable(Role::kPerLayerTable));
  } else {
    MINISGL_ASSIGN_OR_RETURN(table->table, packer.Stored(Role::kPerLayerTable, &table->memory));
  }
  MINISGL_ASSIGN_OR_RETURN(table->projection, packer.Pack({Role::kPerLayerModel}));
  MINISGL_ASSIGN_OR_RETURN(const std::vector<float> norm, packer.Vector(Role::kPerLayerModelNorm));
  std::vector<float> all;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const float weight : norm) all.push_back(weight * std::numbers::sqrt2_v<float> / 2);
  }
  MINISGL_ASSIGN_OR_RETURN(table->norm, Upload<float>(ops, all));
  return Status();
}

// What scores have added for each head of the rank and each distance.
Status LoadDistances(const ModelConfig& config, const Packer& packer, Ops* ops,
                     ModelWeights* weights) {
  if (!config.adds_distances()) return Status();
  const auto heads = HeadSpan(config.num_heads, packer.rank());
  const std::vector<double> slopes = weights::LinearSlopes(config.num_heads);
  std::vector<float> kinds;
  if (!config.linear_distances) {
    MINISGL_ASSIGN_OR_RETURN(kinds, packer.Vector(Role::kDistances));
  }
  std::vector<float> distances;
  for (int64_t head = 0; head < heads.count; ++head) {
    for (int64_t i = 0; i < DistanceStride(config); ++i) {
      const int64_t distance = i - DistanceOrigin(config);
      if (config.linear_distances) {
        const double slope = slopes[static_cast<size_t>(heads.first + head)];
        distances.push_back(static_cast<float>(-slope * std::abs(static_cast<double>(distance))));
      } else {
        const int64_t kind = weights::DistanceKind(distance);
        distances.push_back(kinds[static_cast<size_t>(kind * heads.count + head)]);
      }
    }
  }
  MINISGL_ASSIGN_OR_RETURN(weights->distances, Upload<float>(ops, distances));
  return Status();
}

// The tables beside the embedding of an encoder, and the norm of their sum.
Status LoadPlaces(const ModelConfig& config, const Packer& packer, Ops* ops,
                  ModelWeights* weights) {
  if (packer.Has(Role::kPositions)) {
    MINISGL_ASSIGN_OR_RETURN(weights->positions, packer.PackTable(Role::kPositions));
  }
  if (packer.Has(Role::kTokenTypes)) {
    MINISGL_ASSIGN_OR_RETURN(weights->token_types, packer.PackTable(Role::kTokenTypes));
  }
  MINISGL_ASSIGN_OR_RETURN(weights->input_norm,
                           packer.PackNorm(Role::kEmbeddingNorm, Role::kEmbeddingNormBias));
  return LoadDistances(config, packer, ops, weights);
}

// The norm's vector and the parts of "fc" of a head, for each layer of the target that it reads.
Status LoadDraftHead(const ModelConfig& config, const Packer& packer,
                     PredictionWeights* prediction) {
  const int64_t width = config.draft_head.target_width;
  MINISGL_ASSIGN_OR_RETURN(prediction->state_norm.weight,
                           packer.PackVectors({Role::kPredictionStateNorm}));
  for (size_t part = 0; part < config.draft_head.target_layers.size(); ++part) {
    MINISGL_ASSIGN_OR_RETURN(
        Matrix matrix,
        packer.PackInputs(Role::kPredictionInput, static_cast<int64_t>(part) * width, width));
    prediction->target_inputs.push_back(std::move(matrix));
  }
  if (!packer.Has(Role::kTransitionInput)) return Status();
  MINISGL_ASSIGN_OR_RETURN(prediction->transition_input, packer.PackTable(Role::kTransitionInput));
  MINISGL_ASSIGN_OR_RETURN(prediction->transition_output, packer.Pack({Role::kTransitionOutput}));
  return Status();
}

Status LoadAssistant(const ModelConfig& config, const Packer& packer,
                     PredictionWeights* prediction) {
  const int64_t width = config.draft_head.target_width;
  MINISGL_ASSIGN_OR_RETURN(prediction->embedding_input,
                           packer.PackInputs(Role::kPredictionInput, 0, width));
  MINISGL_ASSIGN_OR_RETURN(prediction->state_input,
                           packer.PackInputs(Role::kPredictionInput, width, width));
  MINISGL_ASSIGN_OR_RETURN(prediction->output, packer.Pack({Role::kPredictionOutput}));
  if (packer.Has(Role::kPredictionClusters)) {
    MINISGL_ASSIGN_OR_RETURN(prediction->clusters, packer.Pack({Role::kPredictionClusters}));
  }
  return Status();
}

Status LoadPrediction(const ModelConfig& config, const Packer& packer,
                      PredictionWeights* prediction) {
  if (config.prediction == PredictionLayer::kAssistant) {
    return LoadAssistant(config, packer, prediction);
  }
  if (config.is_draft_head()) return LoadDraftHead(config, packer, prediction);
  const int64_t width = config.hidden_size;
  MINISGL_ASSIGN_OR_RETURN(
      prediction->embedding_norm.weight,
      packer.PackVectors({Role::kPredictionEmbeddingNorm}, config.norm_plus_one));
  MINISGL_ASSIGN_OR_RETURN(prediction->state_norm.weight,
                           packer.PackVectors({Role::kPredictionStateNorm}, config.norm_plus_one));
  MINISGL_ASSIGN_OR_RETURN(prediction->embedding_input,
                           packer.PackInputs(Role::kPredictionInput, 0, width));
  MINISGL_ASSIGN_OR_RETURN(prediction->state_input,
                           packer.PackInputs(Role::kPredictionInput, width, width));
  return Status();
}

// The embedding and the output head, or `tables` for what is the target's.
Status LoadTables(const ModelConfig& config, const Packer& packer, const DecoderTables* tables,
                  Ops* ops, ModelWeights* weights) {
  if (tables != nullptr) {
    weights->embedding = tables->embedding;
    weights->head = tables->head;
    if (config.draft_head.has_embedding) {
      MINISGL_ASSIGN_OR_RETURN(weights->embedding, packer.PackTable(Role::kEmbedding));
    }
    if (config.draft_head.has_head) {
      MINISGL_ASSIGN_OR_RETURN(weights->head, packer.Pack({Role::kHead}));
    }
    return Status();
  }
  const Role head = config.tie_word_embeddings ? Role::kEmbedding : Role::kHead;
  if (!config.is_encoder) {
    MINISGL_ASSIGN_OR_RETURN(weights->head, packer.Pack({head}));
  }
  MINISGL_ASSIGN_OR_RETURN(weights->embedding, packer.PackTable(Role::kEmbedding));
  MINISGL_RETURN_IF_ERROR(LoadPlaces(config, packer, ops, weights));
  return Status();
}

// Has the files of a model read ahead of their packing, by layers.
class LayersAhead {
 public:
  // The first rank alone reads ahead, since all ranks read the same files.
  LayersAhead(const ModelConfig& config, const Checkpoint& checkpoint, const Rank& rank,
              const Ops& ops)
      : checkpoint_(checkpoint) {
    if (!rank.is_first() || config.is_prediction_layer() || ops.HasPackedWeights()) return;
    thread_.emplace();
    Read(-1);
    Read(0);
  }
  void Read(int32_t layer) {
    if (thread_) thread_->Add(checkpoint_.BytesOfLayer(layer));
  }

 private:
  const Checkpoint& checkpoint_;
  std::optional<ReadAhead> thread_;
};

}  // namespace

Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                      const WeightFormat& format, Ops* ops, const Rank& rank,
                                      const DecoderTables* tables, const HostExpertPacking& host) {
  MINISGL_CHECK((tables != nullptr) == config.is_prediction_layer(),
                "tables of another model for {}", config.architecture);
  MINISGL_RETURN_IF_ERROR(CheckTensors(config, checkpoint, /*logs=*/rank.is_first()));
  ModelWeights weights;
  LayersAhead ahead(config, checkpoint, rank, *ops);
  LoadingProgress progress(config.num_layers, /*reports=*/rank.is_first());
  const Packer packer(config, checkpoint, /*layer=*/-1, rank, TableFormat(format), ops);
  MINISGL_RETURN_IF_ERROR(LoadTables(config, packer, tables, ops, &weights));
  if (config.is_prediction_layer()) {
    const Packer matrices(config, checkpoint, /*layer=*/-1, rank, format, ops);
    MINISGL_RETURN_IF_ERROR(LoadPrediction(config, matrices, &weights.prediction));
    if (!config.copied_head.empty()) {
      const Packer heads(config, checkpoint, /*layer=*/-1, rank, CopiedHeadFormat(format), ops);
      MINISGL_ASSIGN_OR_RETURN(weights.head, heads.Pack({Role::kHead}));
    }
  }
  // The head is linear: its input may be scaled instead of the logits.
  MINISGL_ASSIGN_OR_RETURN(weights.final_norm,
                           packer.PackNorm(Role::kFinalNorm, Role::kFinalNormBias,
                                           static_cast<float>(config.logit_scale)));
  if (config.per_layer_width > 0) {
    const Packer matrices(config, checkpoint, /*layer=*/-1, rank, format, ops);
    MINISGL_RETURN_IF_ERROR(LoadPerLayerTable(config, matrices, ops, &weights.per_layer));
  }
  if (config.embedding_norm) {
    MINISGL_ASSIGN_OR_RETURN(weights.embedding_norm, packer.Constants(config.hidden_size, 1));
  }
  if (config.value_norm) {
    int64_t width = 0;
    for (const LayerShape& shape : LayerShapes(config)) {
      width = std::max(width, int64_t{shape.num_kv_heads} * shape.value_dim);
    }
    MINISGL_ASSIGN_OR_RETURN(weights.value_norm, packer.Constants(width, 1));
  }
  checkpoint.DropPages();
  progress.Advance();
  const std::vector<bool> on_host = HostExpertLayers(config, host.num_layers);
  if (host.num_layers > 0) weights.host_experts.resize(config.layers.size());
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const Packer layer_packer(config, checkpoint, i, rank, format, ops);
    LayerWeights layer;
    ahead.Read(i + 1);
    const Mixer mixer = config.layers[static_cast<size_t>(i)].mixer;
    if (HasAttention(mixer)) {
      MINISGL_RETURN_IF_ERROR(LoadAttention(config, layer_packer, &layer));
    }
    if (HasState(mixer)) {
      MINISGL_RETURN_IF_ERROR(LoadStateMixer(config, mixer, layer_packer, ops, &layer));
    }
    const auto index = static_cast<size_t>(i);
    if (on_host[index]) {
      const Packer host_packer(config, checkpoint, i, rank, host.format, host.ops);
      MINISGL_RETURN_IF_ERROR(LoadFeedForward(config, layer_packer, &host_packer, &layer,
                                              &weights.host_experts[index]));
    } else {
      MINISGL_RETURN_IF_ERROR(LoadFeedForward(config, layer_packer, nullptr, &layer, nullptr));
    }
    MINISGL_RETURN_IF_ERROR(LoadPerLayer(config, layer_packer, &layer));
    weights.layers.push_back(std::move(layer));
    checkpoint.DropPages();
    progress.Advance();
  }
  return weights;
}

}  // namespace minisgl::model
