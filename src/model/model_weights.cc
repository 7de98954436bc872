// Checking and packing of a model's tensors; the order is: all checks, then all packing, so that a
// damaged model is refused before any time is spent on it.
#include "model/model_weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/tensor/tensor_view.h"

namespace minisgl {
namespace {

// "model.safetensors: " of the file that holds `name`, or nothing where none does.
Status InFile(const Checkpoint& checkpoint, const std::string& name, const Status& status) {
  const std::string file = checkpoint.FileOf(name);
  return file.empty() ? status : status.WithPrefix(file);
}

Status CheckTensor(const Checkpoint& checkpoint, const TensorSpec& spec, const std::string& name,
                   ShapeChecker* shapes) {
  MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint.Get(name));
  const Status status = spec.is_vector()
                            ? shapes->Check(name, view.shape, {spec.rows})
                            : shapes->Check(name, view.shape, {spec.rows, spec.columns});
  return InFile(checkpoint, name, status);
}

Result<ShapeChecker> BindSymbols(const ModelConfig& config, const Architecture& architecture) {
  ShapeChecker shapes;
  for (const auto& specs : {architecture.model_tensors, architecture.layer_tensors}) {
    for (const TensorSpec& spec : specs) {
      for (const char* symbol : {spec.rows, spec.columns}) {
        if (symbol == nullptr) continue;
        const auto size = SymbolSize(config, symbol);
        if (!size) return BadInput("the configuration's sizes are too large ({})", symbol);
        shapes.Bind(symbol, *size);
      }
    }
  }
  return shapes;
}

Status CheckNoOthers(const ModelConfig& config, const Architecture& architecture,
                     const Checkpoint& checkpoint, const std::set<std::string>& known) {
  for (const std::string& name : checkpoint.Names()) {
    if (known.contains(name)) continue;
    const bool ignored =
        std::any_of(architecture.ignored_suffixes.begin(), architecture.ignored_suffixes.end(),
                    [&](std::string_view suffix) { return name.ends_with(suffix); });
    if (ignored) continue;
    return InFile(checkpoint, name,
                  BadInput("unknown tensor \"{}\"; want only those of {} with {} layers",
                           Visible(name), architecture.name, config.num_layers));
  }
  return Status();
}

// Packs the tensors of one layer, or of the model outside its layers.
class Packer {
 public:
  Packer(const Checkpoint& checkpoint, std::span<const TensorSpec> specs, int32_t layer,
         DType dtype, Ops* ops)
      : checkpoint_(checkpoint), dtype_(dtype), ops_(ops) {
    for (const TensorSpec& spec : specs) {
      names_[static_cast<size_t>(spec.role)] = TensorName(spec, layer);
    }
  }

  // The matrices of `roles`, one below another.
  Result<Matrix> Pack(std::initializer_list<TensorRole> roles) const {
    std::vector<TensorView> parts;
    for (TensorRole role : roles) {
      MINISGL_ASSIGN_OR_RETURN(TensorView view, View(role));
      parts.push_back(std::move(view));
    }
    return ops_->PackMatrix(parts, dtype_);
  }

  Result<Matrix> PackTable(TensorRole role) const {
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, View(role));
    return ops_->PackEmbedding(view, dtype_);
  }

  // The vectors of `roles`, one behind another, as f32. Nothing is made of roles that the
  // architecture does not have.
  Result<DeviceArray<float>> PackVectors(std::initializer_list<TensorRole> roles) const {
    if (names_[static_cast<size_t>(*roles.begin())].empty()) return DeviceArray<float>();
    std::vector<float> values;
    for (TensorRole role : roles) {
      MINISGL_ASSIGN_OR_RETURN(const TensorView view, View(role));
      for (int64_t i = 0; i < view.num_elements(); ++i) values.push_back(view.At(i));
    }
    return Upload<float>(ops_, values);
  }

 private:
  Result<TensorView> View(TensorRole role) const {
    return checkpoint_.Get(names_[static_cast<size_t>(role)]);
  }

  const Checkpoint& checkpoint_;
  DType dtype_;
  Ops* ops_;
  std::array<std::string, kNumTensorRoles> names_;
};

Result<LayerWeights> LoadLayer(const Packer& packer) {
  using Role = TensorRole;
  LayerWeights layer;
  MINISGL_ASSIGN_OR_RETURN(layer.attention_norm, packer.PackVectors({Role::kAttentionNorm}));
  MINISGL_ASSIGN_OR_RETURN(layer.qkv, packer.Pack({Role::kQuery, Role::kKey, Role::kValue}));
  MINISGL_ASSIGN_OR_RETURN(
      layer.qkv_bias, packer.PackVectors({Role::kQueryBias, Role::kKeyBias, Role::kValueBias}));
  MINISGL_ASSIGN_OR_RETURN(layer.query_norm, packer.PackVectors({Role::kQueryNorm}));
  MINISGL_ASSIGN_OR_RETURN(layer.key_norm, packer.PackVectors({Role::kKeyNorm}));
  MINISGL_ASSIGN_OR_RETURN(layer.attention_output, packer.Pack({Role::kAttentionOutput}));
  MINISGL_ASSIGN_OR_RETURN(layer.feed_forward_norm, packer.PackVectors({Role::kFeedForwardNorm}));
  MINISGL_ASSIGN_OR_RETURN(layer.gate_up, packer.Pack({Role::kGate, Role::kUp}));
  MINISGL_ASSIGN_OR_RETURN(layer.down, packer.Pack({Role::kDown}));
  return layer;
}

std::optional<uint64_t> SpecBytes(const ModelConfig& config, const TensorSpec& spec, DType dtype) {
  const auto rows = SymbolSize(config, spec.rows);
  const auto columns = spec.is_vector() ? int64_t{1} : SymbolSize(config, spec.columns);
  if (!rows || !columns) return std::nullopt;
  const uint64_t factors[] = {static_cast<uint64_t>(*rows), static_cast<uint64_t>(*columns),
                              spec.is_vector() ? sizeof(float) : DTypeBytes(dtype)};
  return CheckedProduct(factors);
}

std::optional<uint64_t> SumBytes(const ModelConfig& config, std::span<const TensorSpec> specs,
                                 DType dtype) {
  std::optional<uint64_t> sum = 0;
  for (const TensorSpec& spec : specs) {
    if (!IsRequired(config, spec)) continue;
    const auto bytes = SpecBytes(config, spec, dtype);
    if (bytes && sum) sum = CheckedAdd(*sum, *bytes);
    if (!bytes || !sum) return std::nullopt;
  }
  return sum;
}

}  // namespace

Status CheckTensors(const ModelConfig& config, const Architecture& architecture,
                    const Checkpoint& checkpoint) {
  MINISGL_ASSIGN_OR_RETURN(ShapeChecker shapes, BindSymbols(config, architecture));
  std::set<std::string> known;
  for (const TensorSpec& spec : architecture.model_tensors) {
    const std::string name = TensorName(spec, 0);
    known.insert(name);
    if (!IsRequired(config, spec) && !checkpoint.Has(name)) continue;
    MINISGL_RETURN_IF_ERROR(CheckTensor(checkpoint, spec, name, &shapes));
  }
  // A configuration may claim any number of layers; the first that the files lack ends this.
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const TensorSpec& spec : architecture.layer_tensors) {
      const std::string name = TensorName(spec, layer);
      MINISGL_RETURN_IF_ERROR(CheckTensor(checkpoint, spec, name, &shapes));
      known.insert(name);
    }
  }
  return CheckNoOthers(config, architecture, checkpoint, known);
}

namespace {

// Says how far loading is, in layers and what stands outside them; over when it goes, in whatever
// way loading ended.
class LoadingProgress {
 public:
  explicit LoadingProgress(int32_t num_layers) : total_(int64_t{num_layers} + 1) {
    SayProgress(kWhat, 0, total_);
  }
  ~LoadingProgress() { SayProgress(kWhat, total_, total_); }
  LoadingProgress(const LoadingProgress&) = delete;
  LoadingProgress& operator=(const LoadingProgress&) = delete;

  void Advance() {
    if (++done_ < total_) SayProgress(kWhat, done_, total_);
  }

 private:
  static constexpr std::string_view kWhat = "loading weights";
  const int64_t total_;
  int64_t done_ = 0;
};

}  // namespace

Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const Architecture& architecture,
                                      const Checkpoint& checkpoint, DType dtype, Ops* ops) {
  MINISGL_RETURN_IF_ERROR(CheckTensors(config, architecture, checkpoint));
  using Role = TensorRole;
  ModelWeights weights;
  LoadingProgress progress(config.num_layers);
  const Packer packer(checkpoint, architecture.model_tensors, 0, dtype, ops);
  const Role head = config.tie_word_embeddings ? Role::kEmbedding : Role::kHead;
  MINISGL_ASSIGN_OR_RETURN(weights.head, packer.Pack({head}));
  MINISGL_ASSIGN_OR_RETURN(weights.embedding, packer.PackTable(Role::kEmbedding));
  MINISGL_ASSIGN_OR_RETURN(weights.final_norm, packer.PackVectors({Role::kFinalNorm}));
  progress.Advance();
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const Packer layer_packer(checkpoint, architecture.layer_tensors, i, dtype, ops);
    MINISGL_ASSIGN_OR_RETURN(LayerWeights layer, LoadLayer(layer_packer));
    weights.layers.push_back(std::move(layer));
    progress.Advance();
    Log(LogLevel::kVerbose, fmt::format("loaded layer {} of {}", i + 1, config.num_layers));
  }
  return weights;
}

std::optional<uint64_t> ModelWeightBytes(const ModelConfig& config,
                                         const Architecture& architecture, DType dtype) {
  const auto model = SumBytes(config, architecture.model_tensors, dtype);
  const auto layer = SumBytes(config, architecture.layer_tensors, dtype);
  if (!model || !layer || config.num_layers < 0) return std::nullopt;
  const auto layers = CheckedMul(*layer, static_cast<uint64_t>(config.num_layers));
  return layers ? CheckedAdd(*model, *layers) : std::nullopt;
}

}  // namespace minisgl
