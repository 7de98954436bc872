// The tensors of a GGUF file under the names of a model directory. Each is found by its role.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "minisgl/base/utf8.h"
#include "weights/architectures.h"
#include "weights/gguf_architectures.h"
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

// `shape` without axes of size 1, which files may omit.
Shape Squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

bool IsOfExpert(Role role) {
  return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown;
}

bool IsVector(const TensorSpec& spec) {
  return spec.dims.size() != 2 || spec.role == Role::kExpertDownBias ||
         spec.role == Role::kExpertGateUpBias || spec.role == Role::kChoiceBias;
}

// Where the rows of queries or keys are whose rotated pairs are stored side by side: row
// (head, half, pair) is stored as (head, pair, half).
std::vector<int64_t> RowsOfPairs(int64_t num_rows, int64_t head_dim) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t in_head = row % head_dim, half = in_head / (head_dim / 2);
    rows.push_back(row - in_head + in_head % (head_dim / 2) * 2 + half);
  }
  return rows;
}

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

class TensorFinder {
 public:
  TensorFinder(const GgufHeader& header, std::span<const std::byte> file,
               const GgufArchitecture& entry, const ModelConfig& config)
      : header_(header), file_(file), entry_(entry), config_(config) {
    for (const GgufTensor& tensor : header.tensors) by_name_[tensor.name] = &tensor;
  }

  Status Find(const TensorSpec& spec) {
    if (!names_.insert(spec.name).second) return Status();  // of two roles
    if (spec.role == Role::kExpertGateUpBias) return FindInterleaved(spec);
    MINISGL_ASSIGN_OR_RETURN(const GgufTensor* const tensor, TensorOf(spec, spec.role));
    MINISGL_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(spec));
    MINISGL_RETURN_IF_ERROR(CheckShape(*tensor, shape, IsOfExpert(spec.role)));
    return IsVector(spec) ? AddVector(spec, *tensor, shape) : AddMatrix(spec, *tensor, shape);
  }

  // Fails for a tensor that no part of the model reads.
  Status CheckNoOthers() const {
    for (const GgufTensor& tensor : header_.tensors) {
      const bool known = used_.contains(&tensor) || IsOfDraftingLayer(tensor.name) ||
                         std::count(std::begin(kOfConfig), std::end(kOfConfig), tensor.name) > 0;
      if (known) continue;
      return BadInput("unknown tensor \"{}\"; want only those of {} with {} layers",
                      Visible(tensor.name, 200), entry_.name, config_.num_layers);
    }
    return Status();
  }

  std::vector<GgufModelTensor> Take() { return std::move(found_); }

 private:
  // The tensor of `role` in the layer of `spec`.
  Result<const GgufTensor*> TensorOf(const TensorSpec& spec, Role role) {
    return TensorNamed(spec, GgufNameOf(entry_, role));
  }

  Result<const GgufTensor*> TensorNamed(const TensorSpec& spec, const char* name) {
    MINISGL_CHECK(name != nullptr, "{}: role {} has no name", entry_.name,
                  static_cast<int>(spec.role));
    const std::string full =
        spec.layer < 0 ? std::string(name) : fmt::format("blk.{}.{}", spec.layer, name);
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

  Status CheckShape(const GgufTensor& tensor, Shape shape, bool of_experts) const {
    if (of_experts) shape.insert(shape.begin(), config_.experts.num_experts);
    if (Squeezed(tensor.shape) == Squeezed(shape)) return Status();
    return BadInput("tensor \"{}\": its shape does not fit (found {}); wanted {}",
                    Visible(tensor.name, 200), ShapeToString(tensor.shape), ShapeToString(shape));
  }

  // Where the file has each row of a tensor; empty if they are in order.
  std::vector<int64_t> RowsOf(const TensorSpec& spec, int64_t num_rows) const {
    const Role role = spec.role;
    if (entry_.pairs_side_by_side && (role == Role::kQuery || role == Role::kKey ||
                                      role == Role::kQueryBias || role == Role::kKeyBias)) {
      return RowsOfPairs(num_rows, LayerShapeOf(config_, spec.layer).head_dim);
    }
    const StateConfig& states = config_.states;
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

  Status AddMatrix(const TensorSpec& spec, const GgufTensor& tensor, const Shape& shape) {
    const uint64_t count = IsOfExpert(spec.role) ? config_.experts.num_experts : 1;
    const uint64_t bytes = (tensor.end - tensor.begin) / count;
    const std::byte* const data =
        file_.data() + tensor.begin + bytes * static_cast<uint64_t>(spec.index);
    WeightTensor matrix;
    if (const auto dtype = DenseType(tensor)) {
      matrix = TensorView{data, *dtype, shape};
    } else if (const BlockFormat* format = FindBlockFormat(tensor.type->name)) {
      // The file's innermost axis is checked; axes of one element are not in the model's shape.
      if (shape[1] % format->block_elements != 0) {
        return BadInput("tensor \"{}\": rows of {} elements are no whole blocks of {} ({})",
                        Visible(tensor.name, 200), shape[1], format->block_elements,
                        tensor.type->name);
      }
      matrix = WeightTensor(shape[0], shape[1], format, data).WithCodes();
    } else {
      return BadInput("tensor \"{}\" has elements of type {}, which is not run",
                      Visible(tensor.name, 200), tensor.type->name);
    }
    const bool of_inputs = spec.role == Role::kStateOutput;
    std::vector<int64_t> order = RowsOf(spec, of_inputs ? shape[1] : shape[0]);
    if (!order.empty()) {
      matrix = of_inputs ? matrix.OrderInputs(std::move(order)) : matrix.TakeRows(std::move(order));
    }
    found_.push_back({spec.name, std::move(matrix), {}, nullptr});
    return Status();
  }

  Result<TensorView> ViewOf(const GgufTensor& tensor, const Shape& shape) const {
    const auto dtype = DenseType(tensor);
    if (dtype) return TensorView{file_.data() + tensor.begin, *dtype, shape};
    return BadInput("tensor \"{}\" has elements of type {}; F32, F16 and BF16 are supported there",
                    Visible(tensor.name, 200), tensor.type->name);
  }

  Status AddVector(const TensorSpec& spec, const GgufTensor& tensor, const Shape& shape) {
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, ViewOf(tensor, shape));
    const std::vector<int64_t> order = RowsOf(spec, shape[0]);
    const bool is_rate = entry_.values_by_turns && spec.role == Role::kDecayRate;
    if (order.empty() && !is_rate) {
      found_.push_back({spec.name, std::nullopt, view, nullptr});
      return Status();
    }
    const int64_t width = view.num_elements() / shape[0];
    std::vector<float> values;
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      const int64_t row = order.empty() ? i / width : order[static_cast<size_t>(i / width)];
      const float value = view.At(row * width + i % width);
      values.push_back(is_rate ? std::log(-value) : value);
    }
    AddValues(spec.name, shape, std::move(values));
    return Status();
  }

  // The biases of gates and of what they gate, which a model directory has in turn.
  Status FindInterleaved(const TensorSpec& spec) {
    MINISGL_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(spec));
    const Shape half = {shape[0], shape[1] / 2};
    std::vector<TensorView> parts;
    for (const char* name : {"ffn_gate_exps.bias", "ffn_up_exps.bias"}) {
      MINISGL_ASSIGN_OR_RETURN(const GgufTensor* const tensor, TensorNamed(spec, name));
      MINISGL_RETURN_IF_ERROR(CheckShape(*tensor, half, /*of_experts=*/false));
      MINISGL_ASSIGN_OR_RETURN(TensorView view, ViewOf(*tensor, half));
      parts.push_back(std::move(view));
    }
    std::vector<float> values;
    for (int64_t i = 0; i < parts[0].num_elements(); ++i) {
      for (const TensorView& part : parts) values.push_back(part.At(i));
    }
    AddValues(spec.name, shape, std::move(values));
    return Status();
  }

  void AddValues(const std::string& name, const Shape& shape, std::vector<float> values) {
    const auto memory = std::make_shared<const std::vector<float>>(std::move(values));
    const auto* const data = reinterpret_cast<const std::byte*>(memory->data());
    found_.push_back({name, std::nullopt, {data, DType::kF32, shape}, memory});
  }

  // True for a tensor of the layers after the model's, which draft tokens.
  bool IsOfDraftingLayer(std::string_view name) const {
    constexpr std::string_view kBlock = "blk.";
    if (!name.starts_with(kBlock)) return false;
    name.remove_prefix(kBlock.size());
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    const GgufValue* const count =
        header_.Find(fmt::format("{}.nextn_predict_layers", entry_.name));
    const int64_t drafting = count == nullptr ? 0 : count->AsInt().value_or(0);
    return error == std::errc() && layer >= config_.num_layers &&
           layer < config_.num_layers + drafting;
  }

  const GgufHeader& header_;
  const std::span<const std::byte> file_;
  const GgufArchitecture& entry_;
  const ModelConfig& config_;
  std::map<std::string_view, const GgufTensor*> by_name_;
  std::set<const GgufTensor*> used_;
  std::set<std::string> names_;
  std::vector<GgufModelTensor> found_;
};

int64_t FactorInputs(const BlockFormat& format) {
  return format.codes.steps == nullptr ? 0 : format.block_elements;
}

}  // namespace

QuantizationConfig GgufQuantization(const std::vector<GgufModelTensor>& tensors) {
  QuantizationConfig config;
  config.dense_matrices.emplace();
  for (const GgufModelTensor& tensor : tensors) {
    if (!tensor.matrix) continue;
    if (tensor.matrix->quantized() == nullptr) {
      config.dense_matrices->push_back(tensor.name);
      continue;
    }
    const QuantizedWeights& its = *tensor.matrix->quantized();
    const QuantScheme scheme = {.layout = QuantLayout::kRowBlocks,
                                .bits = its.codes.bits,
                                .group_inputs = its.group_inputs,
                                .has_offsets = tensor.matrix->has_offsets(),
                                .factor_inputs = FactorInputs(*tensor.matrix->blocks())};
    config.scheme_of[tensor.name] = scheme;
    const auto known = std::find(config.schemes.begin(), config.schemes.end(), scheme);
    if (known == config.schemes.end()) config.schemes.push_back(scheme);
  }
  if (config.schemes.empty()) return QuantizationConfig();
  std::sort(config.dense_matrices->begin(), config.dense_matrices->end());
  config.method = config.text = "gguf";
  return config;
}

Result<std::vector<GgufModelTensor>> FindGgufTensors(const GgufHeader& header,
                                                     std::span<const std::byte> file,
                                                     const ModelConfig& config) {
  MINISGL_ASSIGN_OR_RETURN(const GgufArchitecture* const entry, FindGgufArchitecture(header));
  TensorFinder finder(header, file, *entry, config);
  for (const TensorSpec& spec : ModelTensors(config)) MINISGL_RETURN_IF_ERROR(finder.Find(spec));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const TensorSpec& spec : LayerTensors(config, layer)) {
      MINISGL_RETURN_IF_ERROR(finder.Find(spec));
    }
  }
  MINISGL_RETURN_IF_ERROR(finder.CheckNoOthers());
  return finder.Take();
}

}  // namespace minisgl::weights
