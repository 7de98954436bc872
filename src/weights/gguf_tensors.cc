// The tensors of a GGUF file under the names of a model directory. Each is found by its role.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "minisgl/base/utf8.h"
#include "weights/architectures.h"
#include "weights/gguf_architectures.h"
#include "weights/gguf_family_parts.h"
#include "weights/gguf_model.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;
using Shape = std::vector<int64_t>;

// Tensors that the configuration has taken its numbers from.
constexpr std::string_view kOfConfig[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                          "rope_factors_short.weight"};

std::optional<DType> DenseType(const GgufTensor& tensor) {
  const std::string_view name = tensor.type->name;
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return std::nullopt;
}

// The largest weight of a block whose scales are of type e4m3: 448 * 6, rounded up.
constexpr float kE4M3BlockMax = 4096;

// `shape` without axes of size 1, which files may omit.
Shape Squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// "tensor "NAME"", with the file of a model that has several.
std::string Named(const GgufHeader& header, const GgufTensor& tensor) {
  return fmt::format("tensor \"{}\"{}", Visible(tensor.name, 200),
                     header.num_parts > 1 ? fmt::format(" of part {}", tensor.part + 1) : "");
}

bool IsOfExpert(Role role) {
  return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown;
}

bool IsVector(const TensorSpec& spec) {
  return spec.dims.size() != 2 || spec.role == Role::kExpertDownBias ||
         spec.role == Role::kExpertGateUpBias || spec.role == Role::kChoiceBias;
}

// The tensor with the gate and up matrices of all experts, one after the other for each expert.
constexpr const char* kGateUpOfExperts = "ffn_gate_up_exps.weight";

// Where the rows of heads that are stored by turns are, from row `first` on: row (group, turn,
// element) is stored as (turn, group, element).
std::vector<int64_t> RowsByTurns(int64_t num_rows, int64_t first, int64_t width,
                                 int64_t num_groups) {
  std::vector<int64_t> rows;
  const int64_t turns = (num_rows - first) / width / num_groups;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t at = row - first, head = at / width;
    const int64_t stored = (head % turns * num_groups + head / turns) * width + at % width;
    rows.push_back(at < 0 ? row : first + stored);
  }
  return rows;
}

// Where the rows of gains or of decays are: for each group of `width` heads, gains and then decays.
std::vector<int64_t> RowsOfHalves(int64_t num_rows, int64_t width, bool second) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    rows.push_back(row / width * 2 * width + (second ? width : 0) + row % width);
  }
  return rows;
}

// The key of the metadata that has the numbers of an xIELU; null for other roles.
const char* KeyOfXielu(Role role) {
  switch (role) {
    case Role::kXieluPositive:
      return "xielu.alpha_p";
    case Role::kXieluNegative:
      return "xielu.alpha_n";
    case Role::kXieluLinear:
      return "xielu.beta";
    case Role::kXieluMin:
      return "xielu.eps";
    default:
      return nullptr;
  }
}

// The name that a tensor of a prediction layer has in its block, if no other layer has it; null for
// other roles.
const char* NameInPrediction(Role role) {
  switch (role) {
    case Role::kPredictionInput:
      return "nextn.eh_proj.weight";
    case Role::kPredictionEmbeddingNorm:
      return "nextn.enorm.weight";
    case Role::kPredictionStateNorm:
      return "nextn.hnorm.weight";
    case Role::kFinalNorm:
      return "nextn.shared_head_norm.weight";
    default:
      return nullptr;
  }
}

class TensorFinder {
 public:
  // `first_block`: the block of the configuration's first layer; a prediction layer has all of its
  // tensors there.
  TensorFinder(const GgufHeader& header, const GgufArchitecture& entry, const ModelConfig& config,
               int32_t first_block = 0)
      : header_(header), entry_(entry), config_(config), first_block_(first_block) {
    for (const GgufTensor& tensor : header.tensors) by_name_[tensor.name] = &tensor;
  }

  Status Find(const TensorSpec& spec) {
    if (const GgufModelTensor* const first = FirstExpertOf(spec)) {
      AddExpert(spec, *first);
      return Status();
    }
    if (!names_.insert(spec.name).second) return Status();  // of two roles
    if (spec.role == Role::kExpertGateUpBias) return FindInterleaved(spec);
    if (const char* key = KeyOfXielu(spec.role)) return FindNumber(spec, key);
    MINISGL_ASSIGN_OR_RETURN(const GgufTensor* const tensor, TensorOf(spec));
    MINISGL_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(spec));
    MINISGL_RETURN_IF_ERROR(CheckShape(*tensor, ShapeInFile(spec, shape)));
    return IsVector(spec) ? AddVector(spec, *tensor, shape) : AddMatrix(spec, *tensor, shape);
  }

  // Finds the head that an encoder may have, of two products. Each is read as it is loaded: it is
  // small.
  Status FindHead() {
    if (!config_.is_encoder) return Status();
    constexpr std::pair<const char*, const char*> kProducts[] = {
        {"cls", "classifier.dense"}, {"cls.output", "classifier.out_proj"}};
    for (const auto& [stored, name] : kProducts) {
      for (const char* const part : {".weight", ".bias"}) {
        const auto found = by_name_.find(std::string(stored) + part);
        if (found == by_name_.end()) continue;
        used_.insert(found->second);
        MINISGL_RETURN_IF_ERROR(AddOfHead(*found->second, std::string(name) + part));
      }
    }
    return Status();
  }

  // Fails for a tensor that no part of the model reads.
  Status CheckNoOthers() const {
    for (const GgufTensor& tensor : header_.tensors) {
      const bool known = used_.contains(&tensor) || IsOfDraftingLayer(tensor.name) ||
                         IsOfSharedKeys(tensor.name) || IsPlainNorm(tensor.name) ||
                         std::count(std::begin(kOfConfig), std::end(kOfConfig), tensor.name) > 0;
      if (known) continue;
      return BadInput("unknown {}; want only those of {} with {} layers", Named(header_, tensor),
                      entry_.name, config_.num_layers);
    }
    return Status();
  }

  std::vector<GgufModelTensor> Take() { return std::move(found_); }

 private:
  Result<const GgufTensor*> TensorOf(const TensorSpec& spec) {
    const char* const name = config_.is_prediction_layer() && spec.layer < 0
                                 ? NameInPrediction(spec.role)
                                 : GgufNameOf(entry_, spec.role);
    MINISGL_CHECK(name != nullptr, "{}: role {} has no name", entry_.name,
                  static_cast<int>(spec.role));
    return TensorNamed(spec, IsFused(spec) ? kGateUpOfExperts : name);
  }

  std::string FullName(const TensorSpec& spec, const char* name) const {
    if (spec.layer < 0 && !config_.is_prediction_layer()) return name;
    return fmt::format("blk.{}.{}", first_block_ + std::max(spec.layer, 0), name);
  }

  // True if `spec` is half of the tensor with experts' gate and up matrices.
  bool IsFused(const TensorSpec& spec) const {
    return (spec.role == Role::kExpertGate || spec.role == Role::kExpertUp) &&
           by_name_.contains(FullName(spec, kGateUpOfExperts));
  }

  Result<const GgufTensor*> TensorNamed(const TensorSpec& spec, const char* name) {
    const std::string full = FullName(spec, name);
    const auto found = by_name_.find(full);
    if (found == by_name_.end()) return BadInput("has no tensor \"{}\"; the model needs it", full);
    used_.insert(found->second);
    return found->second;
  }

  Result<Shape> ShapeOf(const TensorSpec& spec) const {
    Shape shape;
    for (const std::string& symbol : spec.dims) {
      const auto size = SymbolSize(config_, symbol, spec.layer);
      if (!size) return BadInput("the configuration's sizes are too large ({})", symbol);
      shape.push_back(*size);
    }
    return shape;
  }

  // The axes that a file has for a tensor of `shape`: more where it is of experts, heads or groups.
  Shape ShapeInFile(const TensorSpec& spec, Shape shape) const {
    const auto cut = [&](int64_t parts) {
      shape[0] /= parts;
      shape.insert(shape.begin(), parts);
    };
    if (IsFused(spec)) shape[0] *= 2;
    if (IsOfExpert(spec.role)) shape.insert(shape.begin(), config_.experts.num_experts);
    if (spec.role == Role::kLatentKeys || spec.role == Role::kLatentValues) cut(config_.num_heads);
    if (spec.role == Role::kStateNorm && config_.states.norm_group > 0) {
      cut(shape[0] / config_.states.norm_group);
    }
    if (IsGainOrDecay(spec)) shape[0] *= 2;
    if (IsNormOfHead(spec)) {
      const LayerShape sizes = LayerShapeOf(config_, spec.layer);
      shape.insert(shape.begin(),
                   spec.role == Role::kQueryNorm ? sizes.num_heads : sizes.num_kv_heads);
    }
    return shape;
  }

  // True if `spec` is half of a tensor with gains and decays, those of a group of heads together.
  bool IsGainOrDecay(const TensorSpec& spec) const {
    return (spec.role == Role::kStateGain || spec.role == Role::kStateDecay) &&
           std::string_view(GgufNameOf(entry_, spec.role)) ==
               GgufNameOf(entry_, Role::kStateGainDecay);
  }

  // True if `spec` is a row of a tensor with the norms of all heads.
  bool IsNormOfHead(const TensorSpec& spec) const {
    return config_.qk_norm == QkNorm::kHeadOwn &&
           (spec.role == Role::kQueryNorm || spec.role == Role::kKeyNorm);
  }

  Status CheckShape(const GgufTensor& tensor, const Shape& shape) const {
    if (Squeezed(tensor.shape) == Squeezed(shape)) return Status();
    return BadInput("{}: its shape does not fit (found {}); wanted {}", Named(header_, tensor),
                    ShapeToString(tensor.shape), ShapeToString(shape));
  }

  // Where the file has each row of a tensor; empty if they are in order.
  std::vector<int64_t> RowsOf(const TensorSpec& spec, int64_t num_rows) const {
    const Role role = spec.role;
    if (entry_.pairs_side_by_side && (role == Role::kQuery || role == Role::kKey ||
                                      role == Role::kQueryBias || role == Role::kKeyBias)) {
      return RowsOfPairs(num_rows, LayerShapeOf(config_, spec.layer).head_dim);
    }
    const StateConfig& states = config_.states;
    if (IsGainOrDecay(spec)) {
      return RowsOfHalves(num_rows, states.num_heads / states.num_groups,
                          spec.role == Role::kStateDecay);
    }
    if (!entry_.values_by_turns || states.num_heads == states.num_groups) return {};
    switch (role) {
      case Role::kStateInput:
      case Role::kConvWeight:
        return RowsByTurns(num_rows, num_rows - states.inner_width(), states.value_dim,
                           states.num_groups);
      case Role::kStateGate:
      case Role::kStateOutput:  // its inputs
        return RowsByTurns(num_rows, 0, states.value_dim, states.num_groups);
      case Role::kStateGain:
      case Role::kStateDecay:
      case Role::kDecayRate:
      case Role::kDecayBias:
        return RowsByTurns(num_rows, 0, 1, states.num_groups);
      default:
        return {};
    }
  }

  // The experts of a layer share a tensor, and what is checked for the first holds for all: a large
  // mixture has tens of thousands. Returns the first expert's matrix, or null if `spec` is of the
  // first or of none, or if each has a factor of its own.
  const GgufModelTensor* FirstExpertOf(const TensorSpec& spec) const {
    if (!IsOfExpert(spec.role) || spec.index == 0) return nullptr;
    const auto known = first_experts_.find(spec.role);
    if (known == first_experts_.end() || known->second.layer != spec.layer) return nullptr;
    const GgufModelTensor& first = found_[known->second.index];
    const BlockFormat* const format = first.matrix->blocks();
    return format == nullptr || !format->codes.has_e4m3_steps ? &first : nullptr;
  }

  void AddExpert(const TensorSpec& spec, const GgufModelTensor& first) {
    const uint64_t num_bytes = first_experts_.at(spec.role).num_bytes;
    const auto distance = static_cast<int64_t>(num_bytes) * spec.index;
    WeightTensor matrix = first.matrix->Following(distance);
    found_.push_back({spec.name, std::move(matrix), {}, nullptr, first.part});
  }

  Status AddMatrix(const TensorSpec& spec, const GgufTensor& tensor, const Shape& shape) {
    const uint64_t count = IsOfExpert(spec.role) ? config_.experts.num_experts : 1;
    const uint64_t bytes = (tensor.end - tensor.begin) / count;
    if (IsOfExpert(spec.role)) first_experts_[spec.role] = {spec.layer, found_.size(), bytes};
    const std::byte* data = tensor.data.data() + bytes * static_cast<uint64_t>(spec.index);
    if (IsFused(spec) && spec.role == Role::kExpertUp) data += bytes / 2;
    const int64_t num_stored = shape[0] * (IsGainOrDecay(spec) ? 2 : 1);
    WeightTensor matrix;
    if (const auto dtype = DenseType(tensor)) {
      matrix = TensorView{data, *dtype, {num_stored, shape[1]}};
    } else if (const BlockFormat* format = FindBlockFormat(tensor.type->name)) {
      // The file's innermost axis is checked; axes of one element are not in the model's shape.
      if (shape[1] % format->block_elements != 0) {
        return BadInput("{}: rows of {} elements are no whole blocks of {} ({})",
                        Named(header_, tensor), shape[1], format->block_elements,
                        tensor.type->name);
      }
      MINISGL_ASSIGN_OR_RETURN(const float factor, FactorOf(spec, tensor, *format));
      matrix = WeightTensor(num_stored, shape[1], format, data).WithCodes(factor);
    } else {
      return BadInput("{} has elements of type {}, which is not run", Named(header_, tensor),
                      tensor.type->name);
    }
    const bool of_inputs = spec.role == Role::kStateOutput;
    std::vector<int64_t> order = RowsOf(spec, of_inputs ? shape[1] : shape[0]);
    if (!order.empty()) {
      matrix = of_inputs ? matrix.OrderInputs(std::move(order)) : matrix.TakeRows(std::move(order));
    }
    found_.push_back({spec.name, std::move(matrix), {}, nullptr, tensor.part});
    return Status();
  }

  // Takes a product or a bias of a head under `name`. Files omit an axis of one label.
  Status AddOfHead(const GgufTensor& tensor, const std::string& name) {
    const bool is_product = name.ends_with(".weight");
    Shape shape = tensor.shape;
    if (is_product && shape.size() == 1) shape.insert(shape.begin(), 1);
    if (shape.size() != (is_product ? 2 : 1)) {
      return BadInput("{}: its shape does not fit (found {})", Named(header_, tensor),
                      ShapeToString(tensor.shape));
    }
    const BlockFormat* const format = FindBlockFormat(tensor.type->name);
    if (!is_product || DenseType(tensor) || format == nullptr) {
      MINISGL_ASSIGN_OR_RETURN(TensorView view, ViewOf(tensor, shape));
      found_.push_back({name, std::nullopt, view, nullptr, tensor.part});
      return Status();
    }
    if (shape[1] % format->block_elements != 0) {
      return BadInput("{}: rows of {} elements are no whole blocks of {}", Named(header_, tensor),
                      shape[1], format->block_elements);
    }
    const WeightTensor matrix(shape[0], shape[1], format, tensor.data.data());
    std::vector<float> values(tensor.num_elements());
    for (int64_t row = 0; row < shape[0]; ++row) {
      matrix.ReadRow(row, values.data() + row * shape[1]);
    }
    AddValues(name, shape, tensor.part, std::move(values));
    return Status();
  }

  // The factor of a matrix whose scales are of type e4m3: a tensor beside it has one for all, or
  // one for each expert; 1 if there is none. A scale of its inputs has no effect here.
  Result<float> FactorOf(const TensorSpec& spec, const GgufTensor& tensor,
                         const BlockFormat& format) {
    constexpr std::string_view kWeight = "weight";
    if (!format.codes.has_e4m3_steps || !tensor.name.ends_with(kWeight)) return 1.0f;
    const std::string stem = tensor.name.substr(0, tensor.name.size() - kWeight.size());
    const auto input_scale = by_name_.find(stem + "input_scale");
    if (input_scale != by_name_.end()) used_.insert(input_scale->second);
    const auto scale = by_name_.find(stem + "scale");
    if (scale == by_name_.end() || IsOfRole(stem + "scale", spec.layer)) return 1.0f;
    used_.insert(scale->second);
    const int64_t count = IsOfExpert(spec.role) ? config_.experts.num_experts : 1;
    MINISGL_RETURN_IF_ERROR(CheckShape(*scale->second, {count}));
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, ViewOf(*scale->second, {count}));
    for (int64_t index = 0; spec.index == 0 && index < count; ++index) {
      const float factor = view.At(index);
      if (std::isfinite(factor * kE4M3BlockMax)) continue;
      return BadInput("{}: element {} is {}; weights must be finite",
                      Named(header_, *scale->second), index, factor);
    }
    return view.At(IsOfExpert(spec.role) ? spec.index : 0);
  }

  // True if the model reads the tensor `name` of a layer for itself.
  bool IsOfRole(const std::string& name, int64_t layer) const {
    return std::any_of(entry_.names.begin(), entry_.names.end(), [&](const NamedRole& named) {
      return name == fmt::format("blk.{}.{}", layer, named.name);
    });
  }

  Result<TensorView> ViewOf(const GgufTensor& tensor, const Shape& shape) const {
    const auto dtype = DenseType(tensor);
    if (dtype) return TensorView{tensor.data.data(), *dtype, shape};
    return BadInput("{} has elements of type {}; F32, F16 and BF16 are supported there",
                    Named(header_, tensor), tensor.type->name);
  }

  Status AddVector(const TensorSpec& spec, const GgufTensor& tensor, const Shape& shape) {
    MINISGL_ASSIGN_OR_RETURN(TensorView view, ViewOf(tensor, shape));
    if (IsNormOfHead(spec))
      view.data += spec.index * view.num_elements() * static_cast<int64_t>(DTypeBytes(view.dtype));
    const std::vector<int64_t> order = RowsOf(spec, shape[0]);
    const bool is_power = entry_.decays_as_powers && spec.role == Role::kDecayRate;
    if (order.empty() && !is_power) {
      found_.push_back({spec.name, std::nullopt, view, nullptr, tensor.part});
      return Status();
    }
    const int64_t width = view.num_elements() / shape[0];
    std::vector<float> values;
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      const int64_t row = order.empty() ? i / width : order[static_cast<size_t>(i / width)];
      const float value = view.At(row * width + i % width);
      if (is_power && !(value < 0)) {
        return BadInput("{}: numbers below 0 are needed (found {} at {})", Named(header_, tensor),
                        value, i);
      }
      values.push_back(is_power ? std::log(-value) : value);
    }
    AddValues(spec.name, shape, tensor.part, std::move(values));
    return Status();
  }

  // Takes a number of the layer from the list under `key` of the metadata.
  Status FindNumber(const TensorSpec& spec, const char* key) {
    const auto num_layers = static_cast<size_t>(config_.num_layers);
    std::vector<double>& numbers = lists_[key];
    if (const GgufValue* const list = header_.Find(key); numbers.empty() && list != nullptr) {
      for (const GgufValue& one : list->Elements(num_layers + 1)) {
        numbers.push_back(one.AsDouble().value_or(NAN));
      }
    }
    const auto layer = static_cast<size_t>(spec.layer);
    if (numbers.size() != num_layers || !std::isfinite(numbers[layer])) {
      return BadInput("key \"{}\": a list of {} numbers, one for each layer, is needed", key,
                      num_layers);
    }
    MINISGL_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(spec));
    AddValues(spec.name, shape, 0, {static_cast<float>(numbers[layer])});
    return Status();
  }

  // Finds the biases of gate and up, whose elements a model directory has in turn.
  Status FindInterleaved(const TensorSpec& spec) {
    MINISGL_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(spec));
    const Shape half = {shape[0], shape[1] / 2};
    std::vector<TensorView> halves;
    size_t part = 0;
    for (const char* name : {"ffn_gate_exps.bias", "ffn_up_exps.bias"}) {
      MINISGL_ASSIGN_OR_RETURN(const GgufTensor* const tensor, TensorNamed(spec, name));
      MINISGL_RETURN_IF_ERROR(CheckShape(*tensor, half));
      MINISGL_ASSIGN_OR_RETURN(TensorView view, ViewOf(*tensor, half));
      halves.push_back(std::move(view));
      part = tensor->part;
    }
    std::vector<float> values;
    for (int64_t i = 0; i < halves[0].num_elements(); ++i) {
      for (const TensorView& one : halves) values.push_back(one.At(i));
    }
    AddValues(spec.name, shape, part, std::move(values));
    return Status();
  }

  void AddValues(const std::string& name, const Shape& shape, size_t part,
                 std::vector<float> values) {
    const auto memory = std::make_shared<const std::vector<float>>(std::move(values));
    const auto* const data = reinterpret_cast<const std::byte*>(memory->data());
    found_.push_back({name, std::nullopt, {data, DType::kF32, shape}, memory, part});
  }

  // True for keys and values of a layer that reads another layer's.
  bool IsOfSharedKeys(std::string_view name) const {
    const auto [layer, rest] = GgufLayerOf(name);
    if (layer < 0 || layer >= config_.num_layers) return false;
    if (config_.layers[static_cast<size_t>(layer)].kv_layer < 0) return false;
    return rest == "attn_k.weight" || rest == "attn_v.weight" || rest == "attn_k_norm.weight";
  }

  // True for the norm of queries or keys of a model whose norms have no weights: the configuration
  // has taken the number of the first layer's, which all must equal.
  bool IsPlainNorm(std::string_view name) const {
    if (!config_.qk_norm_plain) return false;
    const auto [layer, rest] = GgufLayerOf(name);
    if (layer < 0 || layer >= config_.num_layers) return false;
    if (rest != "attn_q_norm.weight" && rest != "attn_k_norm.weight") return false;
    const auto first = by_name_.find(fmt::format("blk.0.{}", rest));
    const auto its = by_name_.find(name);
    return first != by_name_.end() && its != by_name_.end() &&
           std::ranges::equal(first->second->data, its->second->data);
  }

  // True for a tensor of the layers after the model's, which draft tokens.
  bool IsOfDraftingLayer(std::string_view name) const {
    const int64_t layer = GgufLayerOf(name).first;
    const GgufValue* const count =
        header_.Find(fmt::format("{}.nextn_predict_layers", entry_.name));
    const int64_t drafting = count == nullptr ? 0 : count->AsInt().value_or(0);
    return layer >= config_.num_layers && layer < config_.num_layers + drafting;
  }

  const GgufHeader& header_;
  const GgufArchitecture& entry_;
  const ModelConfig& config_;
  const int32_t first_block_;
  std::map<std::string_view, const GgufTensor*> by_name_;
  std::map<std::string_view, std::vector<double>> lists_;  // of the metadata
  std::set<const GgufTensor*> used_;
  std::set<std::string> names_;
  std::vector<GgufModelTensor> found_;
  // Where the last tensor of experts of each role has its first expert's matrix in found_.
  struct FirstExpert {
    int32_t layer;
    size_t index;
    uint64_t num_bytes;  // of an expert
  };
  std::map<Role, FirstExpert> first_experts_;
};

Status FindAll(const ModelConfig& config, ListedExperts experts, TensorFinder* finder) {
  for (const TensorSpec& spec : ModelTensors(config)) MINISGL_RETURN_IF_ERROR(finder->Find(spec));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const TensorSpec& spec : LayerTensors(config, layer, experts)) {
      MINISGL_RETURN_IF_ERROR(finder->Find(spec));
    }
  }
  return Status();
}

// Adds the tensors of the block after the model's if it is a prediction layer: whole, or none.
void AddPredictionLayer(const GgufHeader& header, const GgufArchitecture& entry,
                        const ModelConfig& target, ListedExperts experts,
                        std::vector<GgufModelTensor>* tensors) {
  const std::optional<ModelConfig> config = PredictionConfigOf(target);
  if (!config) return;
  TensorFinder finder(header, entry, *config, target.num_layers);
  if (!FindAll(*config, experts, &finder).ok()) return;
  for (GgufModelTensor& tensor : finder.Take()) tensors->push_back(std::move(tensor));
}

}  // namespace

Result<std::vector<GgufModelTensor>> FindGgufTensors(const GgufHeader& header,
                                                     const ModelConfig& config,
                                                     ListedExperts experts) {
  MINISGL_ASSIGN_OR_RETURN(const GgufArchitecture* const entry, FindGgufArchitecture(header));
  TensorFinder finder(header, *entry, config);
  MINISGL_RETURN_IF_ERROR(FindAll(config, experts, &finder));
  MINISGL_RETURN_IF_ERROR(finder.FindHead());
  MINISGL_RETURN_IF_ERROR(finder.CheckNoOthers());
  std::vector<GgufModelTensor> tensors = finder.Take();
  AddPredictionLayer(header, *entry, config, experts, &tensors);
  return tensors;
}

}  // namespace minisgl::weights
