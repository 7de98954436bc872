// Folds an adapter into the weights of a model, tensor by tensor, in f32.
#include <fmt/core.h>

#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/model/adapters.h"
#include "model/adapter_fit.h"
#include "weights/stored_matrix.h"

namespace minisgl::model {
namespace {

using Role = weights::TensorRole;
using weights::TensorSpec;

bool ChangesTable(const FittedChanges& changes) {
  const auto embedding = changes.find({-1, Role::kEmbedding, 0});
  if (changes.contains({-1, Role::kHead, 0})) return true;
  return embedding != changes.end() && (embedding->second.change->is_low_rank() ||
                                        embedding->second.change->weight.data != nullptr);
}

class Merger {
 public:
  Merger(const ModelConfig& config, const Checkpoint& checkpoint, const Adapter& adapter)
      : config_(config), checkpoint_(checkpoint), dir_(Visible(adapter.dir, 400)) {}

  Status Run(const FittedChanges& changes) {
    if (!config_.quantization.empty()) {
      return BadInput(
          "{}: the weights are quantized, into which no adapter is folded; "
          "an adapter beside them gives the same answers",
          dir_);
    }
    const bool unties = config_.tie_word_embeddings && ChangesTable(changes);
    if (unties) MINISGL_RETURN_IF_ERROR(CopyHead(changes));
    for (const auto& [key, fitted] : changes) {
      const auto& [layer, role, index] = key;
      if (unties && role == Role::kHead) {
        const std::string name = weights::HeadNamesOf(config_).head;
        MINISGL_RETURN_IF_ERROR(
            Change({.role = role, .name = name, .dims = {"V", "D"}}, 0, fitted));
        continue;
      }
      const auto specs =
          layer < 0 ? weights::ModelTensors(config_) : weights::LayerTensors(config_, layer);
      const TensorSpec* found = nullptr;
      for (const TensorSpec& spec : specs) {
        if (spec.role != role) continue;
        if (spec.index == index || (found == nullptr && spec.index == 0)) found = &spec;
      }
      MINISGL_CHECK(found != nullptr, "a change of no tensor of layer {}", layer);
      MINISGL_RETURN_IF_ERROR(Change(*found, index, fitted));
    }
    return Status();
  }

  std::unique_ptr<Checkpoint> Take(std::shared_ptr<const Adapter> adapter) {
    std::map<std::string, TensorView> views;
    auto memory = std::make_shared<
        std::pair<std::map<std::string, std::vector<float>>, std::shared_ptr<const Adapter>>>();
    memory->first = std::move(values_);
    memory->second = std::move(adapter);
    for (const auto& [name, values] : memory->first) {
      views[name] = {reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                     shapes_.at(name)};
    }
    return checkpoint_.WithTensors(std::move(views), std::move(memory));
  }

 private:
  // The tensor `name` in f32, in the order of its file.
  Result<std::vector<float>*> ValuesOf(const std::string& name) {
    const auto own = values_.find(name);
    if (own != values_.end()) return &own->second;
    if (checkpoint_.FindMatrix(name) != nullptr) {
      return BadInput(
          "{}: tensor \"{}\" is a matrix of a GGUF file, into which no adapter is "
          "folded; an adapter beside it gives the same answers",
          dir_, Visible(name, 200));
    }
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Get(name));
    std::vector<float>& values = values_[name];
    values.resize(static_cast<size_t>(view.num_elements()));
    for (int64_t i = 0; i < view.num_elements(); ++i) values[static_cast<size_t>(i)] = view.At(i);
    shapes_[name] = view.shape;
    return &values;
  }

  // The head of a tied model, with the embedding's rows of single tokens.
  Status CopyHead(const FittedChanges& changes) {
    const weights::HeadNames names = weights::HeadNamesOf(config_);
    MINISGL_ASSIGN_OR_RETURN(
        const auto stored,
        weights::FindMatrix(config_, checkpoint_,
                            {.role = Role::kEmbedding, .name = names.embedding, .dims = {"V", "D"}},
                            0));
    MINISGL_ASSIGN_OR_RETURN(const std::vector<float>* values, ValuesOf(stored.names[0]));
    values_[names.head] = *values;
    shapes_[names.head] = {stored.weights.num_out(), stored.weights.num_in()};
    const auto embedding = changes.find({-1, Role::kEmbedding, 0});
    if (embedding != changes.end()) SetRows(*embedding->second.change, &values_[names.head]);
    return Status();
  }

  static void SetRows(const AdapterChange& change, std::vector<float>* values) {
    if (change.token_rows.data == nullptr) return;
    const int64_t width = change.token_rows.shape[1];
    for (size_t row = 0; row < change.tokens.size(); ++row) {
      for (int64_t i = 0; i < width; ++i) {
        (*values)[static_cast<size_t>(change.tokens[row] * width + i)] =
            change.token_rows.At(static_cast<int64_t>(row) * width + i);
      }
    }
  }

  Status Change(const TensorSpec& spec, int32_t index, const FittedChange& fitted) {
    const AdapterChange& change = *fitted.change;
    const MatrixSizes sizes = SizesOf(config_, spec);
    std::string name = spec.name;
    if (!values_.contains(name)) {
      MINISGL_ASSIGN_OR_RETURN(const auto stored,
                               weights::FindMatrix(config_, checkpoint_, spec, index));
      name = stored.names[0];
    }
    MINISGL_ASSIGN_OR_RETURN(std::vector<float> * values, ValuesOf(name));
    using enum weights::TensorOrder;
    const bool inputs_first = spec.order == kInputsFirst || spec.order == kInputsFirstInterleaved;
    const int64_t area = sizes.num_out * sizes.num_in;
    const int64_t first = spec.dims.size() == 3 ? index * area : 0;
    const auto at = [&](int64_t out, int64_t in) -> float& {
      const int64_t place = inputs_first ? in * sizes.num_out + out : out * sizes.num_in + in;
      return (*values)[static_cast<size_t>(first + place)];
    };
    if (change.weight.data != nullptr) {
      for (int64_t out = 0; out < sizes.num_out; ++out) {
        for (int64_t in = 0; in < sizes.num_in; ++in) {
          at(out, in) = change.weight.At(out * sizes.num_in + in);
        }
      }
    }
    if (change.is_embedding) {
      AddToEmbedding(change, at);
    } else if (change.is_low_rank()) {
      MINISGL_RETURN_IF_ERROR(AddLowRank(fitted, sizes, at));
    }
    SetRows(change, values);
    return ChangeBias(spec, change);
  }

  template <typename At>
  static void AddToEmbedding(const AdapterChange& change, const At& at) {
    const int64_t width = change.b.shape[0], count = change.a.shape[1];
    for (int64_t id = 0; id < count; ++id) {
      for (int64_t i = 0; i < width; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < change.rank; ++k) {
          sum += double{change.b.At(i * change.rank + k)} * change.a.At(k * count + id);
        }
        at(id, i) += static_cast<float>(change.scale * sum);
      }
    }
  }

  template <typename At>
  Status AddLowRank(const FittedChange& fitted, const MatrixSizes& sizes, const At& at) const {
    const AdapterChange& change = *fitted.change;
    const auto width = static_cast<size_t>(sizes.num_in);
    std::vector<float> a;
    for (int64_t k = 0; k < fitted.rank(); ++k) {
      for (int64_t in = 0; in < sizes.num_in; ++in) a.push_back(fitted.A(k, in));
    }
    std::vector<float> row(width);
    for (int64_t out = 0; out < sizes.num_out; ++out) {
      for (int64_t in = 0; in < sizes.num_in; ++in) row[static_cast<size_t>(in)] = at(out, in);
      for (int64_t k = 0; k < fitted.rank(); ++k) {
        const auto scale = static_cast<float>(change.scale * fitted.B(out, k));
        const float* const from = a.data() + static_cast<size_t>(k) * width;
        for (size_t i = 0; i < width; ++i) row[i] += scale * from[i];
      }
      double factor = 1;
      if (change.magnitude.data != nullptr) {
        double squares = 0;
        for (const float value : row) squares += double{value} * value;
        factor = double{change.magnitude.At(out)} / std::sqrt(squares);
        if (!std::isfinite(factor)) {
          return BadInput(
              "{}: module \"{}\": row {} of the weights is zero, and DoRA divides by "
              "its length",
              dir_, Visible(change.module, 200), out);
        }
      }
      for (int64_t in = 0; in < sizes.num_in; ++in) {
        at(out, in) = static_cast<float>(factor * row[static_cast<size_t>(in)]);
      }
    }
    return Status();
  }

  Status ChangeBias(const TensorSpec& spec, const AdapterChange& change) {
    if (change.bias.data == nullptr && change.b_bias.data == nullptr) return Status();
    std::string name = spec.name;
    constexpr std::string_view kEnd = ".weight";
    name.replace(name.size() - kEnd.size(), kEnd.size(), ".bias");
    if (!checkpoint_.Has(name)) {
      return BadInput(
          "{}: module \"{}\": the model has no bias to which the adapter's is added; "
          "an adapter beside it has one",
          dir_, Visible(change.module, 200));
    }
    MINISGL_ASSIGN_OR_RETURN(std::vector<float> * values, ValuesOf(name));
    for (size_t i = 0; i < values->size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      if (change.bias.data != nullptr) (*values)[i] = change.bias.At(at);
      if (change.b_bias.data != nullptr) {
        (*values)[i] += static_cast<float>(change.scale * change.b_bias.At(at));
      }
    }
    return Status();
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const std::string dir_;
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

}  // namespace
}  // namespace minisgl::model

namespace minisgl {

Result<ModelConfig> MergedConfig(const ModelConfig& config, const Adapter& adapter) {
  MINISGL_ASSIGN_OR_RETURN(const model::FittedChanges changes, model::FitAdapter(config, adapter));
  ModelConfig merged = config;
  if (model::ChangesTable(changes)) merged.tie_word_embeddings = false;
  return merged;
}

Result<MergedModel> MergeAdapter(const ModelConfig& config, const Checkpoint& checkpoint,
                                 std::shared_ptr<const Adapter> adapter) {
  MINISGL_ASSIGN_OR_RETURN(const model::FittedChanges changes, model::FitAdapter(config, *adapter));
  // A configuration that is untied already is that of the result.
  ModelConfig stored = config;
  if (model::ChangesTable(changes) && !checkpoint.Has(weights::HeadNamesOf(config).head)) {
    stored.tie_word_embeddings = true;
  }
  model::Merger merger(stored, checkpoint, *adapter);
  MINISGL_RETURN_IF_ERROR(merger.Run(changes));
  MergedModel merged = {.config = config, .checkpoint = nullptr};
  if (model::ChangesTable(changes)) merged.config.tie_word_embeddings = false;
  merged.checkpoint = merger.Take(std::move(adapter));
  return merged;
}

}  // namespace minisgl
