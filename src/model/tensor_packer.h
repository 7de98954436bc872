// Packs a model's tensors: finds each by its role, reorders it for the decoder, and passes it to
// the operations. Errors name the file and the tensor. The tensors were checked before
// (tensor_check.cc).
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/base/utf8.h"
#include "minisgl/device_array.h"
#include "minisgl/model/ranks.h"
#include "minisgl/ops.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "model/model_weights.h"
#include "model/rank_cut.h"
#include "model/tensor_arrangement.h"
#include "weights/architectures.h"
#include "weights/stored_matrix.h"

namespace minisgl::model {

// Packs the tensors of one layer, or of the model outside its layers.
class Packer {
 public:
  using Role = weights::TensorRole;

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
  bool is_rotated() const { return rotary_dim_ > 0; }
  const Rank& rank() const { return rank_; }
  bool Has(Role role) const { return specs_.contains({role, 0}); }

  // The tensor of `role`, or of its entry `index`; null if the architecture has none.
  const weights::TensorSpec* Find(Role role, int32_t index) const {
    const auto own = specs_.find({role, index});
    const auto found = own != specs_.end() ? own : specs_.find({role, 0});
    return found == specs_.end() ? nullptr : &found->second;
  }
  // All of its matrix in the order of its file.
  Result<WeightTensor> Whole(Role role, int32_t index) const {
    MINISGL_ASSIGN_OR_RETURN(const weights::StoredMatrix stored, FindStored(role, index));
    return stored.weights;
  }
  // The stored outputs of a matrix [num_out, num_in] of `role` that the rank has, in the decoder's
  // order; and its stored inputs.
  std::vector<int64_t> OutputsOf(Role role, int64_t num_out) const {
    std::vector<int64_t> rows = RowOrder(role);
    const weights::TensorSpec* const spec = Find(role, 0);
    const bool has_pairs =
        spec != nullptr && spec->order == weights::TensorOrder::kInputsFirstInterleaved;
    if (rows.empty()) rows = has_pairs ? EvensThenOdds(num_out) : Numbers({{0, num_out}});
    const TensorCut cut = CutOf(role);
    return cut.axis == TensorCut::Axis::kOutputs ? TakeSpans(rows, cut.spans) : rows;
  }
  Span InputsOf(Role role, int64_t num_in) const {
    const TensorCut cut = CutOf(role);
    return cut.axis == TensorCut::Axis::kInputs ? cut.spans[0] : Span{0, num_in};
  }

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

  // The same of the matrices of `roles`, concatenated, of which the rank has some rows.
  Result<Matrix> PackInputs(std::initializer_list<Role> roles, int64_t first, int64_t count) const {
    MINISGL_ASSIGN_OR_RETURN(auto parts, Parts(roles, 0));
    for (WeightTensor& part : parts) part = part.TakeInputs(first, count);
    return ops_->PackMatrix(parts, format_);
  }

  // The same as Pack, never quantized.
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
    if (config_.up_before_gate && role == Role::kGateUp) {
      const int64_t width = shape_.intermediate_size;
      return Numbers({{width, width}, {0, width}});
    }
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

}  // namespace minisgl::model
