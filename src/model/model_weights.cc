// Packs a model's tensors: finds each by its role, reorders it for the decoder, and passes it to
// the operations. All checks come before (tensor_check.cc).
#include "model/model_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <utility>

#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "model/loading_progress.h"
#include "model/rank_cut.h"
#include "model/tensor_arrangement.h"
#include "weights/architectures.h"
#include "weights/stored_matrix.h"

namespace minisgl::model {
namespace {

using Role = weights::TensorRole;

// Packs the tensors of one layer, or of the model outside its layers.
class Packer {
 public:
  // Packs layer `layer`, or the model outside its layers (-1).
  Packer(const ModelConfig& config, const Checkpoint& checkpoint, int32_t layer, const Rank& rank,
         const WeightFormat& format, Ops* ops)
      : config_(config),
        checkpoint_(checkpoint),
        layer_(layer),
        rank_(rank),
        shape_(LayerShapeOf(config, layer)),
        rotary_dim_(RotaryDim(config, layer)),
        format_(format),
        ops_(ops) {
    auto specs = layer < 0 ? weights::ModelTensors(config) : weights::LayerTensors(config, layer);
    for (weights::TensorSpec& spec : specs)
      specs_.insert_or_assign(std::pair(spec.role, spec.index), std::move(spec));
  }

  const LayerShape& shape() const { return shape_; }
  const Rank& rank() const { return rank_; }
  bool Has(Role role) const { return specs_.contains({role, 0}); }

  // The matrices of `roles`, concatenated; those that the architecture lacks are left out.
  Result<Matrix> Pack(std::initializer_list<Role> roles) const {
    MINISGL_ASSIGN_OR_RETURN(const auto parts, Parts(roles, 0));
    return ops_->PackMatrix(parts, format_);
  }

  // Inputs [first, first + count) of the matrix of `role`.
  Result<Matrix> PackInputs(Role role, int64_t first, int64_t count) const {
    MINISGL_ASSIGN_OR_RETURN(const weights::StoredMatrix all, FindStored(role, 0));
    MINISGL_ASSIGN_OR_RETURN(const auto own, Checked(all, all.weights.TakeInputs(first, count)));
    return ops_->PackMatrix({&own, 1}, format_);
  }

  // The same, never quantized.
  Result<Matrix> PackUnquantized(std::initializer_list<Role> roles) const {
    MINISGL_ASSIGN_OR_RETURN(const auto parts, Parts(roles, 0));
    return ops_->PackMatrix(parts, format_.dtype);
  }

  // The rank's rows of a matrix, and of its bias: null if the architecture has none.
  Result<Matrix> PackRows(Role role, std::vector<int64_t> rows, bool quantized = true) const {
    MINISGL_ASSIGN_OR_RETURN(const weights::StoredMatrix all, FindStored(role, 0));
    MINISGL_ASSIGN_OR_RETURN(const auto own, Checked(all, all.weights.TakeRows(std::move(rows))));
    return ops_->PackMatrix({&own, 1}, quantized ? format_ : WeightFormat(format_.dtype));
  }
  Result<DeviceArray<float>> PackBiasRows(Role role, const std::vector<int64_t>& rows) const {
    if (!Has(role)) return DeviceArray<float>();
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Get(specs_.at({role, 0}).name));
    std::vector<float> values;
    for (const int64_t row : rows) values.push_back(view.At(row));
    return Upload<float>(ops_, values);
  }

  Result<Matrix> PackTable(Role role) const {
    MINISGL_ASSIGN_OR_RETURN(const WeightTensor tensor, GetMatrix(role, 0));
    return ops_->PackEmbedding(
        tensor, role == Role::kEmbedding || role == Role::kPerLayerTable ? format_ : format_.dtype);
  }

  // The matrix as its file holds it, and what keeps its memory.
  Result<WeightTensor> Stored(Role role, std::shared_ptr<const void>* memory) const {
    *memory = checkpoint_.Keep();
    return GetMatrix(role, 0);
  }

  // The vectors of `roles`, concatenated, as f32: (value + plus) * times. Null if the architecture
  // has none of them.
  Result<DeviceArray<float>> PackVectors(std::initializer_list<Role> roles, float plus = 0,
                                         float times = 1) const {
    std::vector<float> values;
    for (const Role role : roles) {
      std::vector<float> own;
      for (int32_t index = 0; specs_.contains({role, index}); ++index) {
        MINISGL_ASSIGN_OR_RETURN(const std::vector<float> vector, GetVector(role, index));
        own.insert(own.end(), vector.begin(), vector.end());
      }
      for (const float value : CutVector(std::move(own), CutOf(role), rank_))
        values.push_back((value + plus) * times);
    }
    if (values.empty()) return DeviceArray<float>();
    return Upload<float>(ops_, values);
  }

  // The values [rows, columns] of `roles`, one below the other, each row times its factor,
  // transposed. `factors`: of the rows that the rank has.
  Result<DeviceArray<float>> PackTransposed(std::initializer_list<Role> roles, int64_t columns,
                                            const std::vector<float>& factors) const {
    std::vector<float> stored;
    for (const Role role : roles) {
      if (!Has(role)) continue;
      MINISGL_ASSIGN_OR_RETURN(std::vector<float> all, GetVector(role, 0));
      const std::vector<float> part = CutVector(std::move(all), CutOf(role), rank_, columns);
      stored.insert(stored.end(), part.begin(), part.end());
    }
    const int64_t rows = std::ssize(stored) / columns;
    std::vector<float> values(stored.size());
    for (int64_t i = 0; i < std::ssize(stored); ++i) {
      values[static_cast<size_t>(i % columns * rows + i / columns)] =
          stored[static_cast<size_t>(i)] * factors[static_cast<size_t>(i / columns)];
    }
    return Upload<float>(ops_, values);
  }

  // Weights of a norm that has none stored.
  Result<DeviceArray<float>> Constants(int64_t count, float value) const {
    return Upload<float>(ops_, std::vector<float>(static_cast<size_t>(count), value));
  }

  Result<std::vector<float>> Vector(Role role) const {
    MINISGL_ASSIGN_OR_RETURN(std::vector<float> all, GetVector(role, 0));
    return CutVector(std::move(all), CutOf(role), rank_);
  }

  Result<NormWeights> PackNorm(Role weight, Role bias, float times = 1) const {
    NormWeights norm;
    const bool is_plain = weight == Role::kFinalNorm && config_.final_norm_is_plain;
    const float plus = config_.norm_plus_one && !is_plain ? 1.0f : 0.0f;
    MINISGL_ASSIGN_OR_RETURN(norm.weight, PackVectors({weight}, plus, times));
    MINISGL_ASSIGN_OR_RETURN(norm.bias, PackVectors({bias}, 0, times));
    return norm;
  }

  // For each expert the matrices of `roles`, concatenated. They are stored separately, or all in
  // one tensor.
  Result<ExpertMatrices> PackExperts(std::initializer_list<Role> roles) const {
    std::vector<std::vector<WeightTensor>> experts;
    for (int32_t expert = 0; expert < config_.experts.num_experts; ++expert) {
      MINISGL_ASSIGN_OR_RETURN(auto parts, Parts(roles, expert));
      experts.push_back(std::move(parts));
    }
    return ops_->PackExperts(experts, format_);
  }

  // What the latent is expanded to: for each head a matrix [EN, R] of keys, and [EO, R] of values.
  // The first is transposed, so that queries are multiplied by it. Both are dense.
  Status PackLatentUp(HeadMatrices* absorbed_keys, HeadMatrices* values) const {
    const LatentConfig& latent = config_.latent;
    std::vector<std::vector<WeightTensor>> of_keys, of_values;
    std::vector<float> expanded;
    if (latent.split) {
      MINISGL_ASSIGN_OR_RETURN(const WeightTensor keys, GetMatrix(Role::kLatentKeys, 0));
      MINISGL_ASSIGN_OR_RETURN(const WeightTensor its_values, GetMatrix(Role::kLatentValues, 0));
      of_keys = MatricesOfHeads(keys, 0, latent.rank, latent.rank);
      of_values = MatricesOfHeads(its_values, 0, latent.value_dim, latent.value_dim);
    } else {
      MINISGL_ASSIGN_OR_RETURN(WeightTensor all, GetMatrix(Role::kLatentUp, 0));
      if (!all.is_dense()) all = ExpandMatrix(all, &expanded);
      const int64_t width = int64_t{latent.plain_dim} + latent.value_dim;
      of_keys = MatricesOfHeads(all, 0, latent.plain_dim, width);
      for (std::vector<WeightTensor>& head : of_keys) head[0] = head[0].Transposed();
      of_values = MatricesOfHeads(all, latent.plain_dim, latent.value_dim, width);
    }
    MINISGL_ASSIGN_OR_RETURN(*absorbed_keys, ops_->PackExperts(of_keys, format_.dtype));
    MINISGL_ASSIGN_OR_RETURN(*values, ops_->PackExperts(of_values, format_.dtype));
    return Status();
  }

 private:
  static int32_t RotaryDim(const ModelConfig& config, int32_t layer) {
    const int32_t rope = layer < 0 ? -1 : config.layers[static_cast<size_t>(layer)].rope;
    return rope < 0 ? 0 : config.ropes[static_cast<size_t>(rope)].dim;
  }

  TensorCut CutOf(Role role) const { return model::CutOf(config_, layer_, role, rank_); }

  Result<std::vector<WeightTensor>> Parts(std::initializer_list<Role> roles, int32_t index) const {
    std::vector<WeightTensor> parts;
    for (const Role role : roles) {
      if (!Has(role)) continue;
      MINISGL_ASSIGN_OR_RETURN(WeightTensor part, GetMatrix(role, index));
      parts.push_back(std::move(part));
    }
    return parts;
  }

  // The rows of queries or keys in the decoder's order; empty if they are stored in it.
  std::vector<int64_t> RowOrder(Role role) const {
    if (config_.latent.rank > 0) return LatentOrder(role);
    if (config_.gate_in_query && (role == Role::kQuery || role == Role::kQueryBias)) {
      return RowsOfParts(shape_.num_heads, int64_t{2} * shape_.head_dim, 0, shape_.head_dim);
    }
    if (!config_.rotary_interleaved || rotary_dim_ == 0) return {};
    if (role == Role::kQuery || role == Role::kQueryBias) {
      return HalvesOfPairs(shape_.num_heads, shape_.head_dim, rotary_dim_);
    }
    if (role == Role::kKey || role == Role::kKeyBias) {
      return HalvesOfPairs(shape_.num_kv_heads, shape_.head_dim, rotary_dim_);
    }
    return {};
  }

  std::vector<int64_t> LatentOrder(Role role) const {
    const LatentConfig& latent = config_.latent;
    const bool interleaved = config_.rotary_interleaved;
    if (role == Role::kQuery || role == Role::kQueryUp) {
      return RotatedFirst(shape_.num_heads, latent.plain_dim, latent.rotary_dim, interleaved);
    }
    if (role == Role::kLatent || role == Role::kLatentBias) {
      return RotatedFirst(1, latent.rank, latent.rotary_dim, interleaved);
    }
    return {};
  }

  // What the rank has of matrix `index` of `role`, or of entry `index` of the tensor with all of
  // them, [out, in].
  Result<WeightTensor> GetMatrix(Role role, int32_t index) const {
    MINISGL_ASSIGN_OR_RETURN(const weights::StoredMatrix stored, FindStored(role, index));
    WeightTensor all = stored.weights;
    std::vector<int64_t> order = RowOrder(role);
    using enum weights::TensorOrder;
    const bool has_pairs = specs_.at({role, 0}).order == kInputsFirstInterleaved;
    if (order.empty() && has_pairs) order = EvensThenOdds(all.num_out());
    if (!order.empty()) all = all.TakeRows(std::move(order));
    return Checked(stored, CutMatrix(all, CutOf(role)));
  }

  // All of it in the order of its file. Its numbers are not checked.
  Result<weights::StoredMatrix> FindStored(Role role, int32_t index) const {
    const auto own = specs_.find({role, index});
    const auto& spec = own != specs_.end() ? own->second : specs_.at({role, 0});
    return weights::FindMatrix(config_, checkpoint_, spec, index);
  }

  // What the rank takes of `stored`, if its numbers are those of weights: each rank reads its own.
  Result<WeightTensor> Checked(const weights::StoredMatrix& stored, WeightTensor taken) const {
    const Status numbers = ops_->CheckNumbers(taken);
    if (numbers.ok()) return taken;
    const std::string& name = stored.names[0];
    return numbers.WithPrefix(fmt::format(
        "{}: tensor \"{}\"", Visible(checkpoint_.FileOf(name), 400), Visible(name, 200)));
  }

  // The values of vector `index` of `role`, in the decoder's order.
  Result<std::vector<float>> GetVector(Role role, int32_t index) const {
    const weights::TensorSpec& spec = specs_.at({role, index});
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Get(spec.name));
    std::vector<int64_t> order = RowOrder(role);
    if (spec.order == weights::TensorOrder::kInterleaved) {
      // gate 0, up 0, ... of all experts, [X, 2 J].
      const int64_t width = view.shape.back();
      for (int64_t first = 0; first < view.num_elements(); first += width) {
        for (const int64_t i : EvensThenOdds(width)) order.push_back(first + i);
      }
    }
    std::vector<float> values;
    const int64_t count = order.empty() ? view.num_elements() : std::ssize(order);
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(view.At(order.empty() ? i : order[static_cast<size_t>(i)]));
      const float value = values.back();
      if (std::isfinite(value) || (!spec.is_norm() && !std::isnan(value))) continue;
      return BadInput("{}: tensor \"{}\": element {} is {}; weights must be finite",
                      Visible(checkpoint_.FileOf(spec.name), 400), Visible(spec.name, 200), i,
                      value);
    }
    return values;
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const int32_t layer_;
  const Rank rank_;
  const LayerShape shape_;
  const int32_t rotary_dim_;
  const WeightFormat format_;
  Ops* const ops_;
  std::map<std::pair<Role, int32_t>, weights::TensorSpec> specs_;
};

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

Status LoadAttention(const ModelConfig& config, const Packer& packer, LayerWeights* layer) {
  MINISGL_ASSIGN_OR_RETURN(layer->attention_norm,
                           packer.PackNorm(Role::kAttentionNorm, Role::kAttentionNormBias));
  MINISGL_ASSIGN_OR_RETURN(layer->attention_post_norm,
                           packer.PackNorm(Role::kAttentionPostNorm, Role::kAttentionPostNormBias));
  if (packer.Has(Role::kLatent)) {
    MINISGL_RETURN_IF_ERROR(LoadLatent(packer, layer));
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
  if (config.qk_norm_plain) {
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

Status LoadExperts(const Packer& packer, ExpertWeights* experts) {
  MINISGL_ASSIGN_OR_RETURN(experts->router, packer.PackUnquantized({Role::kRouter}));
  MINISGL_ASSIGN_OR_RETURN(experts->router_bias, packer.PackVectors({Role::kRouterBias}));
  MINISGL_ASSIGN_OR_RETURN(experts->choice_bias, packer.PackVectors({Role::kChoiceBias}));
  MINISGL_ASSIGN_OR_RETURN(
      experts->gate_up,
      packer.PackExperts({Role::kExpertGateUp, Role::kExpertGate, Role::kExpertUp}));
  MINISGL_ASSIGN_OR_RETURN(experts->gate_up_bias, packer.PackVectors({Role::kExpertGateUpBias}));
  MINISGL_ASSIGN_OR_RETURN(experts->down, packer.PackExperts({Role::kExpertDown}));
  MINISGL_ASSIGN_OR_RETURN(experts->down_bias, packer.PackVectors({Role::kExpertDownBias}));
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

Status LoadFeedForward(const ModelConfig& config, const Packer& packer, LayerWeights* layer) {
  MINISGL_ASSIGN_OR_RETURN(layer->feed_forward_norm,
                           packer.PackNorm(Role::kFeedForwardNorm, Role::kFeedForwardNormBias));
  MINISGL_ASSIGN_OR_RETURN(
      layer->feed_forward_post_norm,
      packer.PackNorm(Role::kFeedForwardPostNorm, Role::kFeedForwardPostNormBias));
  FeedForwardWeights& dense = layer->feed_forward;
  if (packer.Has(Role::kRouter)) {
    MINISGL_RETURN_IF_ERROR(LoadExperts(packer, &layer->experts));
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

// The tables beside the embedding of an encoder, and the norm of their sum.
Status LoadPlaces(const Packer& packer, ModelWeights* weights) {
  if (packer.Has(Role::kPositions)) {
    MINISGL_ASSIGN_OR_RETURN(weights->positions, packer.PackTable(Role::kPositions));
  }
  if (packer.Has(Role::kTokenTypes)) {
    MINISGL_ASSIGN_OR_RETURN(weights->token_types, packer.PackTable(Role::kTokenTypes));
  }
  MINISGL_ASSIGN_OR_RETURN(weights->input_norm,
                           packer.PackNorm(Role::kEmbeddingNorm, Role::kEmbeddingNormBias));
  return Status();
}

Status LoadPrediction(const ModelConfig& config, const Packer& packer,
                      PredictionWeights* prediction) {
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

// The embedding and the output head, or `tables`.
Status LoadTables(const ModelConfig& config, const Packer& packer, const DecoderTables* tables,
                  ModelWeights* weights) {
  if (tables != nullptr) {
    weights->embedding = tables->embedding;
    weights->head = tables->head;
    return Status();
  }
  const Role head = config.tie_word_embeddings ? Role::kEmbedding : Role::kHead;
  if (!config.is_encoder) {
    MINISGL_ASSIGN_OR_RETURN(weights->head, packer.Pack({head}));
  }
  MINISGL_ASSIGN_OR_RETURN(weights->embedding, packer.PackTable(Role::kEmbedding));
  MINISGL_RETURN_IF_ERROR(LoadPlaces(packer, weights));
  return Status();
}

}  // namespace

Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                      const WeightFormat& format, Ops* ops, const Rank& rank,
                                      const DecoderTables* tables) {
  MINISGL_CHECK((tables != nullptr) == config.is_prediction_layer(),
                "tables of another model for {}", config.architecture);
  MINISGL_RETURN_IF_ERROR(CheckTensors(config, checkpoint, /*logs=*/rank.is_first()));
  ModelWeights weights;
  LoadingProgress progress(config.num_layers, /*reports=*/rank.is_first());
  const Packer packer(config, checkpoint, /*layer=*/-1, rank, TableFormat(format), ops);
  MINISGL_RETURN_IF_ERROR(LoadTables(config, packer, tables, &weights));
  if (config.is_prediction_layer()) {
    const Packer matrices(config, checkpoint, /*layer=*/-1, rank, format, ops);
    MINISGL_RETURN_IF_ERROR(LoadPrediction(config, matrices, &weights.prediction));
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
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const Packer layer_packer(config, checkpoint, i, rank, format, ops);
    LayerWeights layer;
    const Mixer mixer = config.layers[static_cast<size_t>(i)].mixer;
    if (HasAttention(mixer)) {
      MINISGL_RETURN_IF_ERROR(LoadAttention(config, layer_packer, &layer));
    }
    if (HasState(mixer)) {
      MINISGL_RETURN_IF_ERROR(LoadStateMixer(config, mixer, layer_packer, ops, &layer));
    }
    MINISGL_RETURN_IF_ERROR(LoadFeedForward(config, layer_packer, &layer));
    MINISGL_RETURN_IF_ERROR(LoadPerLayer(config, layer_packer, &layer));
    weights.layers.push_back(std::move(layer));
    checkpoint.DropPages();
    progress.Advance();
  }
  return weights;
}

}  // namespace minisgl::model
