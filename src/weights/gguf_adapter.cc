// See gguf_adapter.h.
#include "weights/gguf_adapter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/tensor/block_format.h"
#include "minisgl/tensor/weight_tensor.h"
#include "weights/adapter_changes.h"
#include "weights/gguf_architectures.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

constexpr std::string_view kLowRankA = ".lora_a", kLowRankB = ".lora_b", kOfWeight = ".weight";
constexpr std::string_view kTokenTable = "token_embd";

// What keeps the tensors of an adapter.
struct GgufAdapterMemory {
  explicit GgufAdapterMemory(GgufFile opened) : file(std::move(opened)) {}
  GgufFile file;
  std::vector<std::vector<float>> values;
};

struct TensorPair {
  const GgufTensor* a = nullptr;
  const GgufTensor* b = nullptr;
};

class GgufAdapterReader {
 public:
  GgufAdapterReader(std::string file, GgufAdapterMemory* memory)
      : file_(std::move(file)), header_(memory->file.header()), memory_(memory) {}

  Result<std::vector<AdapterChange>> Run() {
    MINISGL_RETURN_IF_ERROR(ReadKeys());
    MINISGL_RETURN_IF_ERROR(Sort());
    std::vector<AdapterChange> changes;
    for (const auto& [module, pair] : pairs_) {
      MINISGL_ASSIGN_OR_RETURN(AdapterChange change, ReadPair(module, pair));
      changes.push_back(std::move(change));
    }
    if (changes.empty()) return BadInput("{}: has no tensor of an adapter", file_);
    return changes;
  }

  const std::string& architecture() const { return architecture_; }

 private:
  std::string Title(const GgufTensor& tensor) const {
    return fmt::format("{}: tensor \"{}\"", file_, Visible(tensor.name, 200));
  }

  std::string TextOf(const char* key) const {
    const GgufValue* const value = header_.Find(key);
    return std::string(value == nullptr ? "" : value->AsString().value_or(""));
  }

  Status ReadKeys() {
    const std::pair<const char*, const char*> wanted[] = {{"general.type", "adapter"},
                                                          {"adapter.type", "lora"}};
    for (const auto& [key, text] : wanted) {
      if (TextOf(key) == text) continue;
      return BadInput("{}: key \"{}\": found \"{}\"; an adapter that is run has \"{}\"", file_, key,
                      Visible(TextOf(key), 100), text);
    }
    const auto entry = FindGgufArchitecture(header_);
    if (!entry.ok()) return entry.status().WithPrefix(file_);
    architecture_ = (*entry)->name;
    constexpr const char* kTokens = "adapter.alora.invocation_tokens";
    const GgufValue* const tokens = header_.Find(kTokens);
    if (tokens != nullptr && tokens->count() > 0) {
      return BadInput("{}: key \"{}\": adapters that begin at tokens are not supported", file_,
                      kTokens);
    }
    constexpr const char* kAlpha = "adapter.lora.alpha";
    const GgufValue* const alpha = header_.Find(kAlpha);
    if (alpha == nullptr) return Status();
    alpha_ = alpha->AsDouble().value_or(NAN);
    if (std::isfinite(alpha_)) return Status();
    return BadInput("{}: key \"{}\": a finite number is needed", file_, kAlpha);
  }

  Status Sort() {
    for (const GgufTensor& tensor : header_.tensors) {
      std::string_view name = tensor.name;
      const bool is_a = name.ends_with(kLowRankA);
      if (is_a || name.ends_with(kLowRankB)) name.remove_suffix(kLowRankA.size());
      if (name.size() == tensor.name.size() || !name.ends_with(kOfWeight)) {
        return BadInput(
            "{} is of no adapter that is run: names are those of the model's tensors, with "
            "\".lora_a\" or \".lora_b\" behind",
            Title(tensor));
      }
      name.remove_suffix(kOfWeight.size());
      TensorPair& pair = pairs_[std::string(name)];
      (is_a ? pair.a : pair.b) = &tensor;
    }
    return Status();
  }

  Result<AdapterChange> ReadPair(const std::string& module, const TensorPair& pair) {
    if (pair.a == nullptr || pair.b == nullptr) {
      return BadInput("{} has no \"{}\" beside it", Title(pair.a == nullptr ? *pair.b : *pair.a),
                      pair.a == nullptr ? kLowRankA : kLowRankB);
    }
    AdapterChange change;
    change.module = module;
    change.is_embedding = module == kTokenTable;
    const size_t num_axes = pair.a->shape.size();
    const bool fits = (num_axes == 2 || (num_axes == 3 && !change.is_embedding)) &&
                      pair.b->shape.size() == num_axes &&
                      (num_axes == 2 || pair.a->shape[0] == pair.b->shape[0]);
    const int64_t rank = fits ? pair.b->shape.back() : 0;
    const size_t axis_of_rank = change.is_embedding ? num_axes - 1 : num_axes - 2;
    if (!fits || rank <= 0 || pair.a->shape[axis_of_rank] != rank) {
      return BadInput("{} has shape {}, and \"{}\" beside it {}: their ranks do not agree",
                      Title(*pair.a), ShapeToString(pair.a->shape), kLowRankB,
                      ShapeToString(pair.b->shape));
    }
    change.scale = alpha_ == 0 ? 1 : alpha_ / static_cast<double>(rank);
    change.rank = rank;
    MINISGL_ASSIGN_OR_RETURN(change.a, Read(*pair.a));
    MINISGL_ASSIGN_OR_RETURN(change.b, Read(*pair.b));
    if (change.is_embedding) {  // [V, rank] in the file
      const TensorView stored = change.a;
      change.a = Reordered({rank, stored.shape[0]},
                           [&](int64_t k, int64_t id) { return stored.At(id * rank + k); });
    }
    if (num_axes == 3) TurnExperts(rank, &change);
    return change;
  }

  // From [experts, rank, in] and [experts, out, rank] to the order of AdapterChange.
  void TurnExperts(int64_t rank, AdapterChange* change) {
    const int64_t experts = change->a.shape[0], num_out = change->b.shape[1];
    change->rank_of_expert = rank;
    change->rank = rank * experts;
    change->a.shape = {experts * rank, change->a.shape[2]};
    const TensorView stored = change->b;
    change->b = Reordered({num_out, rank * experts}, [&](int64_t out, int64_t column) {
      const int64_t k = column / experts, expert = column % experts;
      return stored.At((expert * num_out + out) * rank + k);
    });
  }

  template <typename Value>
  TensorView Reordered(const std::vector<int64_t>& shape, const Value& value) {
    std::vector<float> values;
    for (int64_t row = 0; row < shape[0]; ++row) {
      for (int64_t column = 0; column < shape[1]; ++column) values.push_back(value(row, column));
    }
    return Kept(std::move(values), shape);
  }

  TensorView Kept(std::vector<float> values, const std::vector<int64_t>& shape) {
    memory_->values.push_back(std::move(values));
    const auto* const data = reinterpret_cast<const std::byte*>(memory_->values.back().data());
    return {data, DType::kF32, shape};
  }

  // Quantized elements are expanded.
  Result<TensorView> Read(const GgufTensor& tensor) {
    TensorView view = {tensor.data.data(), DType::kF32, tensor.shape};
    const std::string_view type = tensor.type->name;
    if (type == "F16") view.dtype = DType::kF16;
    if (type == "BF16") view.dtype = DType::kBF16;
    if (type != "F32" && type != "F16" && type != "BF16") {
      const BlockFormat* const format = FindBlockFormat(type);
      if (format == nullptr || format->codes.has_e4m3_steps) {
        return BadInput("{} has elements of type {}, which an adapter's are not read as",
                        Title(tensor), type);
      }
      const int64_t width = tensor.shape.back();
      const auto count = static_cast<int64_t>(tensor.num_elements());
      std::vector<float> values(static_cast<size_t>(count));
      const WeightTensor rows(count / width, width, format, tensor.data.data());
      for (int64_t row = 0; row < rows.num_out(); ++row) {
        rows.ReadRow(row, values.data() + row * width);
      }
      view = Kept(std::move(values), tensor.shape);
    }
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      if (std::isfinite(view.At(i))) continue;
      return BadInput("{}: element {} is {}; weights must be finite", Title(tensor), i, view.At(i));
    }
    return view;
  }

  const std::string file_;
  const GgufHeader& header_;
  GgufAdapterMemory* const memory_;
  std::string architecture_;
  double alpha_ = 0;
  std::map<std::string, TensorPair> pairs_;
};

}  // namespace

Result<std::shared_ptr<const Adapter>> LoadGgufAdapter(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
  auto memory = std::make_shared<GgufAdapterMemory>(std::move(file));
  auto adapter = std::make_shared<Adapter>();
  GgufAdapterReader reader(Visible(path, 400), memory.get());
  MINISGL_ASSIGN_OR_RETURN(adapter->changes, reader.Run());
  adapter->dir = path;
  adapter->gguf_architecture = reader.architecture();
  adapter->hash = HashOfChanges(adapter->changes);
  adapter->num_bytes = BytesOfChanges(adapter->changes);
  adapter->memory = std::move(memory);
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

std::string GgufModuleOf(std::string_view architecture, const TensorSpec& spec) {
  const GgufArchitecture* const entry = GgufArchitectureNamed(architecture);
  const char* const name = entry == nullptr ? nullptr : GgufNameOf(*entry, spec.role);
  if (name == nullptr || !std::string_view(name).ends_with(kOfWeight)) return "";
  const std::string_view stem =
      std::string_view(name).substr(0, std::string_view(name).size() - kOfWeight.size());
  return spec.layer < 0 ? std::string(stem) : fmt::format("blk.{}.{}", spec.layer, stem);
}

std::optional<std::vector<int64_t>> GgufRowsOf(std::string_view architecture,
                                               const ModelConfig& config, const TensorSpec& spec,
                                               int64_t num_rows) {
  const GgufArchitecture* const entry = GgufArchitectureNamed(architecture);
  if (entry == nullptr) return std::nullopt;
  const StateConfig& states = config.states;
  const bool by_turns = entry->values_by_turns && states.num_heads != states.num_groups;
  switch (spec.role) {
    case Role::kQuery:
    case Role::kKey:
      if (!entry->pairs_side_by_side) return std::vector<int64_t>();
      return RowsOfPairs(num_rows, LayerShapeOf(config, spec.layer).head_dim);
    case Role::kLatentUp:  // stored as two tensors, turned
      return std::nullopt;
    case Role::kStateInput:
    case Role::kStateGate:
    case Role::kStateOutput:
    case Role::kStateGain:
    case Role::kStateDecay:
    case Role::kStateGainDecay:
      if (by_turns) return std::nullopt;
      return std::vector<int64_t>();
    default:
      return std::vector<int64_t>();
  }
}

}  // namespace minisgl::weights
