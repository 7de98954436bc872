// Packs a model's tensors: finds each by its role, reorders it for the decoder, and passes it to
// the operations. All checks come before (tensor_check.cc).
#include "model/model_weights.h"

#include <map>
#include <string>
#include <utility>

#include "minisgl/base/log.h"
#include "model/tensor_arrangement.h"
#include "weights/architectures.h"

namespace minisgl::model {
namespace {

using Role = weights::TensorRole;

// Packs the tensors of one layer, or of the model outside its layers.
class Packer {
 public:
  // `rotary_dim`: of the layer.
  Packer(const ModelConfig& config, const Checkpoint& checkpoint,
         std::vector<weights::TensorSpec> specs, int32_t rotary_dim, const WeightFormat& format,
         Ops* ops)
      : config_(config),
        checkpoint_(checkpoint),
        rotary_dim_(rotary_dim),
        format_(format),
        ops_(ops) {
    for (weights::TensorSpec& spec : specs) {
      const auto key = std::pair(spec.role, spec.index);
      specs_[key] = std::move(spec);
    }
  }

  bool Has(Role role) const { return specs_.contains({role, 0}); }

  // The matrices of `roles`, concatenated; those that the architecture lacks are left out.
  Result<Matrix> Pack(std::initializer_list<Role> roles) const {
    MINISGL_ASSIGN_OR_RETURN(const auto parts, Parts(roles, 0));
    return ops_->PackMatrix(Views(parts), format_);
  }

  // A matrix that is never quantized.
  Result<Matrix> PackUnquantized(Role role) const {
    MINISGL_ASSIGN_OR_RETURN(const ArrangedTensor tensor, Get(role, 0));
    return ops_->PackMatrix({&tensor.view, 1}, format_.dtype);
  }

  Result<Matrix> PackTable(Role role) const {
    MINISGL_ASSIGN_OR_RETURN(const ArrangedTensor tensor, Get(role, 0));
    return ops_->PackEmbedding(tensor.view, format_);
  }

  // The vectors of `roles`, concatenated, as f32: (value + plus) * times. Null if the architecture
  // has none of them.
  Result<DeviceArray<float>> PackVectors(std::initializer_list<Role> roles, float plus = 0,
                                         float times = 1) const {
    std::vector<float> values;
    for (const Role role : roles) {
      for (int32_t index = 0; specs_.contains({role, index}); ++index) {
        MINISGL_ASSIGN_OR_RETURN(const ArrangedTensor tensor, Get(role, index));
        const int64_t count = tensor.view.num_elements();
        for (int64_t i = 0; i < count; ++i) values.push_back((tensor.view.At(i) + plus) * times);
      }
    }
    if (values.empty()) return DeviceArray<float>();
    return Upload<float>(ops_, values);
  }

  Result<NormWeights> PackNorm(Role weight, Role bias, float times = 1) const {
    NormWeights norm;
    MINISGL_ASSIGN_OR_RETURN(norm.weight,
                             PackVectors({weight}, config_.norm_plus_one ? 1.0f : 0.0f, times));
    MINISGL_ASSIGN_OR_RETURN(norm.bias, PackVectors({bias}, 0, times));
    return norm;
  }

  // For each expert the matrices of `roles`, concatenated. They are stored separately, or all in
  // one tensor.
  Result<ExpertMatrices> PackExperts(std::initializer_list<Role> roles) const {
    const auto count = config_.experts.num_experts;
    std::vector<std::vector<ArrangedTensor>> kept;  // while their views are in use
    std::vector<std::vector<TensorView>> experts;
    for (int32_t expert = 0; expert < count; ++expert) {
      MINISGL_ASSIGN_OR_RETURN(auto parts, Parts(roles, expert));
      experts.push_back(Views(parts));
      kept.push_back(std::move(parts));
    }
    return ops_->PackExperts(experts, format_);
  }

 private:
  static std::vector<TensorView> Views(const std::vector<ArrangedTensor>& tensors) {
    std::vector<TensorView> views;
    for (const ArrangedTensor& tensor : tensors) views.push_back(tensor.view);
    return views;
  }

  Result<std::vector<ArrangedTensor>> Parts(std::initializer_list<Role> roles,
                                            int32_t index) const {
    std::vector<ArrangedTensor> parts;
    for (const Role role : roles) {
      if (!Has(role)) continue;
      MINISGL_ASSIGN_OR_RETURN(ArrangedTensor part, Get(role, index));
      parts.push_back(std::move(part));
    }
    return parts;
  }

  // Tensor `index` of `role`, or entry `index` of the tensor with all of them.
  Result<ArrangedTensor> Get(Role role, int32_t index) const {
    const auto own = specs_.find({role, index});
    const weights::TensorSpec& spec = own != specs_.end() ? own->second : specs_.at({role, 0});
    MINISGL_ASSIGN_OR_RETURN(TensorView view, checkpoint_.Get(spec.name));
    const bool of_experts = role == Role::kExpertGateUp || role == Role::kExpertGate ||
                            role == Role::kExpertUp || role == Role::kExpertDown;
    if (of_experts && view.shape.size() == 3) view = Slice(view, index);
    return Arrange(spec, std::move(view));
  }

  Result<ArrangedTensor> Arrange(const weights::TensorSpec& spec, TensorView view) const {
    if (config_.rotary_interleaved && rotary_dim_ > 0) {
      if (spec.role == Role::kQuery || spec.role == Role::kQueryBias) {
        return TakeRows(view, HalvesOfPairs(config_.num_heads, config_.head_dim, rotary_dim_));
      }
      if (spec.role == Role::kKey || spec.role == Role::kKeyBias) {
        return TakeRows(view, HalvesOfPairs(config_.num_kv_heads, config_.head_dim, rotary_dim_));
      }
    }
    switch (spec.order) {
      case weights::TensorOrder::kPlain:
        break;
      case weights::TensorOrder::kInputsFirst:
        return Transposed(view);
      case weights::TensorOrder::kInputsFirstInterleaved: {
        MINISGL_ASSIGN_OR_RETURN(const ArrangedTensor turned, Transposed(view));
        return TakeRows(turned.view, EvensThenOdds(turned.view.shape[0]));
      }
      case weights::TensorOrder::kInterleaved:
        return TakeInterleaved(view);
    }
    return ArrangedTensor{std::move(view), nullptr};
  }

  // Vectors gate 0, up 0, ... of all experts, [X, 2 J].
  static Result<ArrangedTensor> TakeInterleaved(const TensorView& view) {
    const int64_t width = view.shape.back();
    std::vector<int64_t> order;
    for (int64_t first = 0; first < view.num_elements(); first += width) {
      for (const int64_t i : EvensThenOdds(width)) order.push_back(first + i);
    }
    return TakeRows({view.data, view.dtype, {view.num_elements()}}, order);
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const int32_t rotary_dim_;
  const WeightFormat format_;
  Ops* const ops_;
  std::map<std::pair<Role, int32_t>, weights::TensorSpec> specs_;
};

Status LoadAttention(const ModelConfig& config, const Packer& packer, LayerWeights* layer) {
  MINISGL_ASSIGN_OR_RETURN(layer->attention_norm,
                           packer.PackNorm(Role::kAttentionNorm, Role::kAttentionNormBias));
  MINISGL_ASSIGN_OR_RETURN(layer->attention_post_norm.weight,
                           packer.PackVectors({Role::kAttentionPostNorm}, config.norm_plus_one));
  MINISGL_ASSIGN_OR_RETURN(layer->qkv,
                           packer.Pack({Role::kQkv, Role::kQuery, Role::kKey, Role::kValue}));
  MINISGL_ASSIGN_OR_RETURN(
      layer->qkv_bias, packer.PackVectors({Role::kQueryBias, Role::kKeyBias, Role::kValueBias}));
  MINISGL_ASSIGN_OR_RETURN(layer->query_norm,
                           packer.PackVectors({Role::kQueryNorm}, config.norm_plus_one));
  MINISGL_ASSIGN_OR_RETURN(layer->key_norm,
                           packer.PackVectors({Role::kKeyNorm}, config.norm_plus_one));
  MINISGL_ASSIGN_OR_RETURN(layer->sinks, packer.PackVectors({Role::kSinks}));
  MINISGL_ASSIGN_OR_RETURN(layer->attention_output, packer.Pack({Role::kAttentionOutput}));
  MINISGL_ASSIGN_OR_RETURN(layer->attention_output_bias,
                           packer.PackVectors({Role::kAttentionOutputBias}));
  return Status();
}

Status LoadExperts(const Packer& packer, ExpertWeights* experts) {
  MINISGL_ASSIGN_OR_RETURN(experts->router, packer.PackUnquantized(Role::kRouter));
  MINISGL_ASSIGN_OR_RETURN(experts->router_bias, packer.PackVectors({Role::kRouterBias}));
  MINISGL_ASSIGN_OR_RETURN(
      experts->gate_up,
      packer.PackExperts({Role::kExpertGateUp, Role::kExpertGate, Role::kExpertUp}));
  MINISGL_ASSIGN_OR_RETURN(experts->gate_up_bias, packer.PackVectors({Role::kExpertGateUpBias}));
  MINISGL_ASSIGN_OR_RETURN(experts->down, packer.PackExperts({Role::kExpertDown}));
  MINISGL_ASSIGN_OR_RETURN(experts->down_bias, packer.PackVectors({Role::kExpertDownBias}));
  if (packer.Has(Role::kSharedShare)) {
    MINISGL_ASSIGN_OR_RETURN(experts->shared_share, packer.PackUnquantized(Role::kSharedShare));
  }
  return Status();
}

Status LoadFeedForward(const ModelConfig& config, const Packer& packer, LayerWeights* layer) {
  MINISGL_ASSIGN_OR_RETURN(layer->feed_forward_norm,
                           packer.PackNorm(Role::kFeedForwardNorm, Role::kFeedForwardNormBias));
  MINISGL_ASSIGN_OR_RETURN(layer->feed_forward_post_norm.weight,
                           packer.PackVectors({Role::kFeedForwardPostNorm}, config.norm_plus_one));
  FeedForwardWeights& dense = layer->feed_forward;
  if (packer.Has(Role::kRouter)) {
    MINISGL_RETURN_IF_ERROR(LoadExperts(packer, &layer->experts));
    if (!packer.Has(Role::kSharedDown)) return Status();
    MINISGL_ASSIGN_OR_RETURN(dense.gate_up, packer.Pack({Role::kSharedGate, Role::kSharedUp}));
    MINISGL_ASSIGN_OR_RETURN(dense.down, packer.Pack({Role::kSharedDown}));
    return Status();
  }
  MINISGL_ASSIGN_OR_RETURN(dense.gate_up, packer.Pack({Role::kGateUp, Role::kGate, Role::kUp}));
  MINISGL_ASSIGN_OR_RETURN(dense.gate_up_bias,
                           packer.PackVectors({Role::kGateBias, Role::kUpBias}));
  MINISGL_ASSIGN_OR_RETURN(dense.down, packer.Pack({Role::kDown}));
  MINISGL_ASSIGN_OR_RETURN(dense.down_bias, packer.PackVectors({Role::kDownBias}));
  return Status();
}

// Reports the progress of loading, in layers and the part outside of them. Its destructor reports
// the end, also after a failure.
class LoadingProgress {
 public:
  explicit LoadingProgress(int32_t num_layers) : total_(int64_t{num_layers} + 1) {
    ReportProgress(kWhat, 0, total_);
  }
  ~LoadingProgress() { ReportProgress(kWhat, total_, total_); }
  LoadingProgress(const LoadingProgress&) = delete;
  LoadingProgress& operator=(const LoadingProgress&) = delete;

  void Advance() {
    if (++done_ < total_) ReportProgress(kWhat, done_, total_);
  }

 private:
  static constexpr std::string_view kWhat = "loading weights";
  const int64_t total_;
  int64_t done_ = 0;
};

int32_t RotaryDim(const ModelConfig& config, const LayerConfig& layer) {
  return layer.rope < 0 ? 0 : config.ropes[static_cast<size_t>(layer.rope)].dim;
}

}  // namespace

Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                      const WeightFormat& format, Ops* ops) {
  MINISGL_RETURN_IF_ERROR(CheckTensors(config, checkpoint));
  ModelWeights weights;
  LoadingProgress progress(config.num_layers);
  const Packer packer(config, checkpoint, weights::ModelTensors(config), 0, format, ops);
  const Role head = config.tie_word_embeddings ? Role::kEmbedding : Role::kHead;
  MINISGL_ASSIGN_OR_RETURN(weights.head, packer.Pack({head}));
  MINISGL_ASSIGN_OR_RETURN(weights.embedding, packer.PackTable(Role::kEmbedding));
  // The head is linear: its input may be scaled instead of the logits.
  MINISGL_ASSIGN_OR_RETURN(weights.final_norm,
                           packer.PackNorm(Role::kFinalNorm, Role::kFinalNormBias,
                                           static_cast<float>(config.logit_scale)));
  progress.Advance();
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const int32_t rotary_dim = RotaryDim(config, config.layers[static_cast<size_t>(i)]);
    const Packer layer_packer(config, checkpoint, weights::LayerTensors(config, i), rotary_dim,
                              format, ops);
    LayerWeights layer;
    MINISGL_RETURN_IF_ERROR(LoadAttention(config, layer_packer, &layer));
    MINISGL_RETURN_IF_ERROR(LoadFeedForward(config, layer_packer, &layer));
    weights.layers.push_back(std::move(layer));
    progress.Advance();
    Log(LogLevel::kVerbose, fmt::format("loaded layer {} of {}", i + 1, config.num_layers));
  }
  return weights;
}

}  // namespace minisgl::model
