// See tower_weights.h. Every function here runs twice: once to count bytes, once to pack.
#include "model/tower_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "model/tower_tensors.h"

namespace minisgl::model {
namespace {

// The stored feature of a head for each of its features in pairs (i, i + E/2), of which the first
// half turns by one coordinate and the second by the other. Empty: they are stored so.
std::vector<int64_t> HeadOrder(TowerRotation rotation, int64_t head_dim) {
  std::vector<int64_t> order;
  const int64_t quarter = head_dim / 4;
  for (int64_t i = 0; i < head_dim; ++i) {
    const int64_t second = i / (2 * quarter), pair = i % (2 * quarter);
    if (rotation == TowerRotation::kPairs) {
      order.push_back(2 * pair + second);
    } else if (rotation == TowerRotation::kHalves) {
      order.push_back(pair / quarter * 2 * quarter + second * quarter + pair % quarter);
    }
  }
  return order;
}

// The rows of the heads of queries (part 0), keys (1) or values (2) in a product that begins with
// `first_row`.
std::vector<int64_t> HeadRows(const TowerConfig& config, int64_t first_row, bool turns) {
  const std::vector<int64_t> order =
      turns ? HeadOrder(config.rotation, config.head_dim) : std::vector<int64_t>();
  if (order.empty() && first_row == 0 && config.names.qkv.empty()) return {};
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < config.attention_width(); ++i) {
    const int64_t in_head = i % config.head_dim;
    const int64_t stored = order.empty() ? in_head : order[static_cast<size_t>(in_head)];
    rows.push_back(first_row + i - in_head + stored);
  }
  return rows;
}

// The order of inputs of a matrix for joined patches [M, M, D], if they are stored [D, M, M].
std::vector<int64_t> JoinedInputs(const TowerConfig& config) {
  std::vector<int64_t> inputs;
  for (int64_t patch = 0; patch < config.unit_patches(); ++patch) {
    for (int64_t d = 0; d < config.hidden_size; ++d) {
      inputs.push_back(d * config.unit_patches() + patch);
    }
  }
  return inputs;
}

class Loader {
 public:
  Loader(const TowerConfig& config, TowerTensors* tensors) : config_(config), tensors_(*tensors) {}

  Status LoadPatches(TowerWeights* weights) {
    TowerMatrixSpec spec = Matrix(config_.names.patch, config_.hidden_size, config_.patch_values(),
                                  config_.patch_bias);
    spec.is_quantized = false;
    MINISGL_ASSIGN_OR_RETURN(weights->patch, tensors_.Pack(spec));
    MINISGL_ASSIGN_OR_RETURN(weights->patch_norm, TowerNormOf(config_.names.patch_norm));
    MINISGL_ASSIGN_OR_RETURN(weights->first_norm, TowerNormOf(config_.names.first_norm));
    MINISGL_ASSIGN_OR_RETURN(weights->last_norm,
                             TowerNormOf(config_.names.last_norm, config_.last_norm_is_layer));
    return LoadPlaces(weights);
  }

  Status LoadLayers(TowerWeights* weights) {
    for (int32_t i = 0; i < config_.num_layers; ++i) {
      TowerLayer layer;
      const std::string prefix = fmt::format("{}{}.", config_.names.layers, i);
      MINISGL_RETURN_IF_ERROR(LoadAttention(prefix, &layer));
      MINISGL_RETURN_IF_ERROR(LoadFeedForward(prefix, &layer));
      weights->layers.push_back(std::move(layer));
    }
    if (!config_.value_norm) return Status();
    MINISGL_ASSIGN_OR_RETURN(weights->value_ones, Ones(config_.attention_width()));
    return Status();
  }

  Result<std::vector<TowerStepWeights>> LoadSteps(const std::vector<TowerStep>& steps) {
    std::vector<TowerStepWeights> loaded;
    int64_t width = config_.hidden_size;
    for (const TowerStep& step : steps) {
      TowerStepWeights weights;
      MINISGL_RETURN_IF_ERROR(LoadStep(step, width, &weights));
      if (step.kind == TowerStepKind::kJoin) width *= config_.unit_patches();
      if (step.kind == TowerStepKind::kLinear) width = step.width;
      loaded.push_back(std::move(weights));
    }
    return loaded;
  }

  Status LoadNewline(TowerWeights* weights) {
    if (config_.names.newline.empty()) return Status();
    MINISGL_ASSIGN_OR_RETURN(weights->newline,
                             tensors_.Vector(config_.names.newline, config_.text_hidden_size));
    return Status();
  }

 private:
  TowerMatrixSpec Matrix(const std::string& name, int64_t num_out, int64_t num_in, bool has_bias) {
    TowerMatrixSpec spec;
    spec.name = tensors_.NameOf(name);
    spec.num_out = num_out;
    spec.num_in = num_in;
    spec.has_bias = has_bias;
    return spec;
  }

  Result<DeviceArray<float>> Ones(int64_t count) {
    const int64_t made = tensors_.counts() ? 0 : count;
    return tensors_.Upload(std::vector<float>(static_cast<size_t>(made), 1.0f), count);
  }

  // A norm of D features of the tower's kind; none without a name.
  Result<TowerNorm> TowerNormOf(const std::string& name, bool is_layer = false) {
    if (name.empty()) return TowerNorm();
    TowerNorm norm;
    norm.kind = is_layer ? NormKind::kLayer : config_.norm;
    norm.eps = static_cast<float>(config_.norm_eps);
    const std::string whole = tensors_.NameOf(name);
    MINISGL_ASSIGN_OR_RETURN(norm.weight, tensors_.Vector(whole + ".weight", config_.hidden_size));
    if (norm.kind == NormKind::kRms) return norm;
    MINISGL_ASSIGN_OR_RETURN(norm.bias, tensors_.Vector(whole + ".bias", config_.hidden_size));
    return norm;
  }

  // The norm of queries or keys: of each head, with the same weights, or of all heads.
  Result<TowerNorm> QueryNormOf(const std::string& prefix, const std::string& name) {
    TowerNorm norm;
    if (name.empty()) return norm;
    norm.eps = static_cast<float>(config_.norm_eps);
    const int64_t width = config_.attention_width();
    const int64_t stored = config_.head_norms ? config_.head_dim : width;
    MINISGL_ASSIGN_OR_RETURN(const auto values,
                             tensors_.Values(tensors_.NameOf(prefix + name) + ".weight", {stored}));
    if (tensors_.counts()) {
      MINISGL_ASSIGN_OR_RETURN(norm.weight, tensors_.Upload({}, width));
      return norm;
    }
    const std::vector<int64_t> rows = HeadRows(config_, 0, /*turns=*/true);
    std::vector<float> all;
    for (int64_t i = 0; i < width; ++i) {
      const int64_t row = rows.empty() ? i : rows[static_cast<size_t>(i)];
      all.push_back(values[static_cast<size_t>(row % stored)]);
    }
    MINISGL_ASSIGN_OR_RETURN(norm.weight, tensors_.Upload(all, width));
    return norm;
  }

  Status LoadPlaces(TowerWeights* weights) {
    if (config_.places == TowerPlaces::kNone) return Status();
    const bool has_class = config_.class_token != TowerClassToken::kNone;
    const int64_t width = config_.hidden_size, patches = NumPlaceRows(config_);
    const int64_t rows = patches + (has_class ? 1 : 0);
    std::vector<int64_t> shape = {rows, width};
    if (config_.places == TowerPlaces::kTwoTables) shape = {2, config_.places_side, width};
    MINISGL_ASSIGN_OR_RETURN(std::vector<float> values,
                             tensors_.Values(tensors_.NameOf(config_.names.places), shape));
    if (has_class) MINISGL_RETURN_IF_ERROR(AddClassToken(&values));
    MINISGL_ASSIGN_OR_RETURN(weights->places, tensors_.Upload(values, rows * width));
    return Status();
  }

  // Moves the row of the class token to the end, and adds the token's embedding to it.
  Status AddClassToken(std::vector<float>* values) {
    const int64_t width = config_.hidden_size;
    MINISGL_ASSIGN_OR_RETURN(const auto token,
                             tensors_.Values(tensors_.NameOf(config_.names.class_token), {width}));
    if (tensors_.counts()) return Status();
    if (config_.class_token == TowerClassToken::kFirst) {
      std::rotate(values->begin(), values->begin() + width, values->end());
    }
    float* const row = values->data() + values->size() - width;
    for (int64_t d = 0; d < width; ++d) row[d] += token[static_cast<size_t>(d)];
    return Status();
  }

  Result<TowerMatrix> PackHeads(const std::string& prefix, const std::string& name, int64_t part) {
    const int64_t width = config_.attention_width();
    const bool is_fused = !config_.names.qkv.empty();
    TowerMatrixSpec spec = Matrix(prefix + (is_fused ? config_.names.qkv : name), width,
                                  config_.hidden_size, config_.qkv_bias);
    spec.stored_rows = is_fused ? 3 * width : width;
    if (!tensors_.counts()) {
      spec.rows = HeadRows(config_, is_fused ? part * width : 0, /*turns=*/part < 2);
    }
    spec.clips = config_.clips;
    return tensors_.Pack(spec);
  }

  Status LoadAttention(const std::string& prefix, TowerLayer* layer) {
    const TowerNames& names = config_.names;
    MINISGL_ASSIGN_OR_RETURN(layer->norm1, TowerNormOf(prefix + names.norm1));
    MINISGL_ASSIGN_OR_RETURN(layer->query, PackHeads(prefix, names.query, 0));
    MINISGL_ASSIGN_OR_RETURN(layer->key, PackHeads(prefix, names.key, 1));
    MINISGL_ASSIGN_OR_RETURN(layer->value, PackHeads(prefix, names.value, 2));
    MINISGL_ASSIGN_OR_RETURN(layer->query_norm, QueryNormOf(prefix, names.query_norm));
    MINISGL_ASSIGN_OR_RETURN(layer->key_norm, QueryNormOf(prefix, names.key_norm));
    MINISGL_ASSIGN_OR_RETURN(layer->output,
                             PackInLayer(prefix + names.output, config_.hidden_size,
                                         config_.attention_width(), config_.output_bias));
    return LoadEnd(prefix, names.post_norm1, names.factor1, &layer->post_norm1, &layer->factor1);
  }

  Status LoadFeedForward(const std::string& prefix, TowerLayer* layer) {
    const TowerNames& names = config_.names;
    const int64_t width = config_.hidden_size, inner = config_.intermediate_size;
    const bool has_bias = config_.feed_forward_bias;
    MINISGL_ASSIGN_OR_RETURN(layer->norm2, TowerNormOf(prefix + names.norm2));
    if (config_.gated) {
      MINISGL_ASSIGN_OR_RETURN(layer->gate,
                               PackInLayer(prefix + names.gate, inner, width, has_bias));
    }
    MINISGL_ASSIGN_OR_RETURN(layer->up, PackInLayer(prefix + names.up, inner, width, has_bias));
    MINISGL_ASSIGN_OR_RETURN(layer->down, PackInLayer(prefix + names.down, width, inner, has_bias));
    return LoadEnd(prefix, names.post_norm2, names.factor2, &layer->post_norm2, &layer->factor2);
  }

  // What a part's output passes before it is added.
  Status LoadEnd(const std::string& prefix, const std::string& norm_name,
                 const std::string& factor_name, TowerNorm* norm, DeviceArray<float>* factor) {
    if (!norm_name.empty()) {
      MINISGL_ASSIGN_OR_RETURN(*norm, TowerNormOf(prefix + norm_name));
    }
    if (factor_name.empty()) return Status();
    MINISGL_ASSIGN_OR_RETURN(
        *factor, tensors_.Vector(tensors_.NameOf(prefix + factor_name), config_.hidden_size));
    return Status();
  }

  Result<TowerMatrix> PackInLayer(const std::string& name, int64_t num_out, int64_t num_in,
                                  bool has_bias) {
    TowerMatrixSpec spec = Matrix(name, num_out, num_in, has_bias);
    spec.clips = config_.clips;
    return tensors_.Pack(spec);
  }

  Status LoadStep(const TowerStep& step, int64_t width, TowerStepWeights* weights) {
    switch (step.kind) {
      case TowerStepKind::kNorm:
        return LoadStepNorm(step, width, &weights->norm);
      case TowerStepKind::kScale:
        return LoadScale(step, width, &weights->norm);
      case TowerStepKind::kLinear: {
        TowerMatrixSpec spec = Matrix(step.name, step.width, width, step.has_bias);
        spec.is_transposed = step.is_transposed;
        if (step.by_channel && !tensors_.counts()) spec.inputs = JoinedInputs(config_);
        MINISGL_ASSIGN_OR_RETURN(weights->matrix, tensors_.Pack(spec));
        return Status();
      }
      case TowerStepKind::kGated:
        return LoadGated(step, width, weights);
      default:
        return Status();
    }
  }

  Status LoadGated(const TowerStep& step, int64_t width, TowerStepWeights* weights) {
    const std::string& name = step.name;
    MINISGL_ASSIGN_OR_RETURN(weights->matrix,
                             PackInLayer(name + "gate_proj", step.width, width, step.has_bias));
    MINISGL_ASSIGN_OR_RETURN(weights->up,
                             PackInLayer(name + "up_proj", step.width, width, step.has_bias));
    MINISGL_ASSIGN_OR_RETURN(weights->down,
                             PackInLayer(name + "down_proj", width, step.width, step.has_bias));
    return Status();
  }

  Status LoadStepNorm(const TowerStep& step, int64_t width, TowerNorm* norm) {
    norm->kind = step.norm;
    norm->eps = static_cast<float>(step.eps);
    if (step.name.empty()) {
      MINISGL_ASSIGN_OR_RETURN(norm->weight, Ones(width));
      return Status();
    }
    const std::string name = tensors_.NameOf(step.name);
    MINISGL_ASSIGN_OR_RETURN(std::vector<float> values, tensors_.Values(name + ".weight", {width}));
    for (float& value : values) value += step.plus_one ? 1.0f : 0.0f;
    MINISGL_ASSIGN_OR_RETURN(norm->weight, tensors_.Upload(values, width));
    if (!step.has_bias) return Status();
    MINISGL_ASSIGN_OR_RETURN(norm->bias, tensors_.Vector(name + ".bias", width));
    return Status();
  }

  // (x - bias) * scale is scale * x - bias * scale.
  Status LoadScale(const TowerStep& step, int64_t width, TowerNorm* norm) {
    const std::string name = tensors_.NameOf(step.name);
    MINISGL_ASSIGN_OR_RETURN(const auto scale, tensors_.Values(name + "_scale", {width}));
    MINISGL_ASSIGN_OR_RETURN(std::vector<float> bias, tensors_.Values(name + "_bias", {width}));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] *= -scale[i];
    MINISGL_ASSIGN_OR_RETURN(norm->weight, tensors_.Upload(scale, width));
    MINISGL_ASSIGN_OR_RETURN(norm->bias, tensors_.Upload(bias, width));
    return Status();
  }

  const TowerConfig& config_;
  TowerTensors& tensors_;
};

Result<TowerWeights> LoadAll(const TowerConfig& config, TowerTensors* tensors) {
  Loader loader(config, tensors);
  TowerWeights weights;
  MINISGL_RETURN_IF_ERROR(loader.LoadPatches(&weights));
  MINISGL_RETURN_IF_ERROR(loader.LoadLayers(&weights));
  MINISGL_ASSIGN_OR_RETURN(weights.steps, loader.LoadSteps(config.steps));
  for (const std::vector<TowerStep>& steps : config.deepstack_steps) {
    MINISGL_ASSIGN_OR_RETURN(auto loaded, loader.LoadSteps(steps));
    weights.deepstack.push_back(std::move(loaded));
  }
  MINISGL_RETURN_IF_ERROR(loader.LoadNewline(&weights));
  return weights;
}

}  // namespace

int64_t NumPlaceRows(const TowerConfig& config) {
  switch (config.places) {
    case TowerPlaces::kNone:
      return 0;
    case TowerPlaces::kTable:
      return int64_t{config.tile_side} * config.tile_side;
    case TowerPlaces::kBilinear:
    case TowerPlaces::kBicubic:
      return int64_t{config.places_side} * config.places_side;
    case TowerPlaces::kTwoTables:
      break;
  }
  return int64_t{2} * config.places_side;
}

Result<TowerWeights> LoadTowerWeights(const TowerConfig& config, const Checkpoint& checkpoint,
                                      const WeightFormat& format, Ops* ops) {
  TowerTensors tensors(config, &checkpoint, format, ops);
  return LoadAll(config, &tensors);
}

Status CheckTowerWeights(const TowerConfig& config, const Checkpoint& checkpoint) {
  TowerTensors tensors(config, &checkpoint, WeightFormat(), nullptr);
  return LoadAll(config, &tensors).status();
}

std::optional<uint64_t> CountTowerWeights(const TowerConfig& config, const WeightFormat& format) {
  TowerTensors tensors(config, nullptr, format, nullptr);
  return LoadAll(config, &tensors).ok() ? tensors.num_bytes() : std::nullopt;
}

}  // namespace minisgl::model
