// See vector_pipeline.h.
#include "minisgl/weights/vector_pipeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "minisgl/base/check.h"
#include "minisgl/base/file_kind.h"
#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/weights/checkpoint.h"
#include "weights/field_reader.h"
#include "weights/gguf_metadata.h"
#include "weights/model_dir.h"
#include "weights/stored_values.h"

namespace minisgl::weights {
namespace {

constexpr uint64_t kPipelineBytesMax = 1 << 20;
constexpr int kDepthMax = 16;
constexpr size_t kModulesMax = 16, kPromptsMax = 1024;
constexpr IntRange kTextTokensRange = {1, 1 << 30};
constexpr IntRange kVectorWidthRange = {1, 1 << 16};
constexpr const char* kBuiltModules = "Transformer, Pooling, Dense and Normalize are built";

struct PoolingName {
  const char* key;   // of older files, whose value is true or false
  const char* name;  // of pooling_mode
  Pooling pooling;
};
constexpr PoolingName kPoolings[] = {
    {"pooling_mode_cls_token", "cls", Pooling::kFirst},
    {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast},
    {"pooling_mode_max_tokens", "max", Pooling::kMax},
    {"pooling_mode_mean_tokens", "mean", Pooling::kMean},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::kMeanSqrt},
    {"pooling_mode_weightedmean_tokens", "weightedmean", Pooling::kWeightedMean},
};

Result<Json> ReadJsonAt(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kPipelineBytesMax));
  return ParseJsonObject(text, path, kDepthMax);
}

// Older files say true beside one name each, newer ones the name.
Status ReadPooling(const std::string& path, int64_t width, VectorPipeline* pipeline) {
  MINISGL_ASSIGN_OR_RETURN(const Json json, ReadJsonAt(path));
  FieldReader reader(json, path);
  constexpr const char* kSupported =
      "cls, lasttoken, max, mean, mean_sqrt_len_tokens and "
      "weightedmean are supported, one alone";
  std::optional<Pooling> found;
  if (const auto name = reader.OptionalString("pooling_mode", kSupported)) {
    for (const PoolingName& known : kPoolings) {
      if (*name == known.name) found = known.pooling;
    }
    if (!found) reader.Fail("pooling_mode", kSupported);
  } else {
    for (const PoolingName& known : kPoolings) {
      if (!reader.Bool(known.key, false)) continue;
      if (found) reader.FailWith(known.key, "another pooling as well", kSupported);
      found = known.pooling;
    }
  }
  pipeline->pools_prompt = reader.Bool("include_prompt", true);
  for (const char* const key : {"word_embedding_dimension", "embedding_dimension"}) {
    const auto stated = reader.OptionalInt(key, kVectorWidthRange);
    if (stated && *stated != width) {
      reader.Fail(key, fmt::format("{} is needed, the width of the model's states", width));
    }
  }
  if (reader.ok() && !found) reader.FailWith("pooling_mode", "none", kSupported);
  if (!reader.ok()) return reader.status();
  pipeline->pooling = *found;
  return Status();
}

// A path of Python's classes; the last name is stable.
std::string_view LastName(std::string_view path) { return path.substr(path.rfind('.') + 1); }

Result<DenseModule> ReadDense(const std::string& folder, int64_t width) {
  const std::string path = JoinPath(folder, "config.json");
  MINISGL_ASSIGN_OR_RETURN(const Json json, ReadJsonAt(path));
  FieldReader reader(json, path);
  DenseModule dense;
  dense.in = reader.Int("in_features", kVectorWidthRange);
  dense.out = reader.Int("out_features", kVectorWidthRange);
  constexpr const char* kActivations = "Identity and Tanh are supported";
  const std::string activation =
      reader.OptionalString("activation_function", kActivations).value_or("Tanh");
  dense.has_tanh = LastName(activation) == "Tanh";
  if (!dense.has_tanh && LastName(activation) != "Identity") {
    reader.Fail("activation_function", kActivations);
  }
  const bool has_bias = reader.Bool("bias", true);
  if (reader.ok() && dense.in != width) {
    reader.Fail("in_features", fmt::format("{} is needed, what the module before gives", width));
  }
  if (!reader.ok()) return reader.status();
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
  MINISGL_ASSIGN_OR_RETURN(
      dense.weight, weights::ReadStoredValues(*checkpoint, "linear.weight", {dense.out, dense.in}));
  if (has_bias) {
    MINISGL_ASSIGN_OR_RETURN(dense.bias,
                             weights::ReadStoredValues(*checkpoint, "linear.bias", {dense.out}));
  }
  return dense;
}

struct ModuleEntry {
  std::string type, path;
};

// The path of a module is a folder of the model's: it may not leave that.
Result<std::vector<ModuleEntry>> ReadModules(const std::string& file) {
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kPipelineBytesMax));
  JsonLimits limits;
  limits.depth_max = kDepthMax;
  Result<Json> json = ParseJson(text, limits);
  if (!json.ok()) return json.status().WithPrefix(file);
  if (!json->is_array() || json->as_array().empty() || json->as_array().size() > kModulesMax) {
    return BadInput("{}: an array of 1 to {} modules is needed", file, kModulesMax);
  }
  std::vector<ModuleEntry> modules;
  for (const Json& entry : json->as_array()) {
    const Json* const type = entry.is_object() ? entry.Find("type") : nullptr;
    const Json* const path = entry.is_object() ? entry.Find("path") : nullptr;
    const bool has_path = path != nullptr && path->is_string();
    if (type == nullptr || !type->is_string() || !has_path) {
      return BadInput("{}: module {} needs a type and a path, both strings", file, modules.size());
    }
    const std::string& folder = path->as_string();
    if (folder.find('/') != std::string::npos || folder.starts_with('.')) {
      return BadInput("{}: module {}: found path {}; the name of a folder beside it is needed",
                      file, modules.size(), Visible(folder, kQuotedBytesMax));
    }
    modules.push_back({std::string(LastName(type->as_string())), folder});
  }
  return modules;
}

Status ReadTransformer(const std::string& model_dir, VectorPipeline* pipeline) {
  const std::string name = "sentence_bert_config.json";
  if (!IsListed(model_dir, name)) return Status();
  const std::string path = JoinPath(model_dir, name);
  MINISGL_ASSIGN_OR_RETURN(const Json json, ReadJsonAt(path));
  FieldReader reader(json, path);
  pipeline->max_tokens = reader.OptionalInt("max_seq_length", kTextTokensRange);
  pipeline->lowercases = reader.Bool("do_lower_case", false);
  return reader.status();
}

// The tokenizer's bound, if the model states none. Huge numbers stand for none.
Status ReadTokenizerBound(const std::string& model_dir, VectorPipeline* pipeline) {
  const std::string name = "tokenizer_config.json";
  if (pipeline->max_tokens || !IsListed(model_dir, name)) return Status();
  constexpr uint64_t kBytesMax = 64 << 20;
  const std::string path = JoinPath(model_dir, name);
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kBytesMax));
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, path, 64));
  const Json* const bound = json.Find("model_max_length");
  if (bound == nullptr || !bound->is_number()) return Status();
  const double number = bound->as_double();
  if (number >= 1 && number <= static_cast<double>(kTextTokensRange.max)) {
    pipeline->max_tokens = static_cast<int64_t>(number);
  }
  return Status();
}

Status ReadPrompts(const std::string& model_dir, VectorPipeline* pipeline) {
  const std::string name = "config_sentence_transformers.json";
  if (!IsListed(model_dir, name)) return Status();
  const std::string path = JoinPath(model_dir, name);
  MINISGL_ASSIGN_OR_RETURN(const Json json, ReadJsonAt(path));
  FieldReader reader(json, path);
  pipeline->dimensions = reader.OptionalInt("truncate_dim", kVectorWidthRange);
  if (const Json* const prompts = reader.Find("prompts")) {
    constexpr const char* kSupported = "an object of texts is needed";
    if (!prompts->is_object() || prompts->as_object().size() > kPromptsMax) {
      reader.Fail("prompts", kSupported);
    } else {
      for (const auto& [key, text] : prompts->as_object()) {
        if (text.is_null()) continue;
        if (!text.is_string()) reader.Fail("prompts", kSupported);
        if (text.is_string()) pipeline->prompts.emplace_back(key, text.as_string());
      }
    }
  }
  if (const auto used = reader.OptionalString("default_prompt_name", "a name of prompts")) {
    const std::string* const text = pipeline->FindPrompt(*used);
    if (text == nullptr) reader.Fail("default_prompt_name", "a name of prompts is needed");
    if (text != nullptr) pipeline->default_prompt = *text;
  }
  return reader.status();
}

Status ReadStatedModules(const std::string& model_dir, int64_t hidden_size,
                         VectorPipeline* pipeline) {
  const std::string file = JoinPath(model_dir, "modules.json");
  MINISGL_ASSIGN_OR_RETURN(const std::vector<ModuleEntry> modules, ReadModules(file));
  int64_t width = hidden_size;
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto& [type, path] = modules[i];
    const bool is_known =
        type == "Transformer" || type == "Pooling" || type == "Dense" || type == "Normalize";
    if (!is_known) {
      return BadInput("{}: module {}: found type {}; {}", file, i, Visible(type, kQuotedBytesMax),
                      kBuiltModules);
    }
    const bool in_place = i == 0   ? type == "Transformer" && path.empty()
                          : i == 1 ? type == "Pooling"
                                   : type == "Dense" || type == "Normalize";
    if (!in_place) {
      return BadInput(
          "{}: module {}: found {} in \"{}\"; a Transformer in \"\", a Pooling, and then Dense or "
          "Normalize are supported",
          file, i, type, Visible(path, kQuotedBytesMax));
    }
    const std::string folder = JoinPath(model_dir, path);
    if (type == "Pooling") {
      MINISGL_RETURN_IF_ERROR(ReadPooling(JoinPath(folder, "config.json"), hidden_size, pipeline));
    } else if (type == "Dense") {
      MINISGL_ASSIGN_OR_RETURN(DenseModule dense, ReadDense(folder, width));
      width = dense.out;
      pipeline->modules.push_back({std::move(dense)});
    } else if (type == "Normalize") {
      pipeline->modules.push_back({});
    }
  }
  if (modules.size() < 2) return BadInput("{}: no module Pooling", file);
  return Status();
}

// The pooling that a GGUF file states, by llama.cpp's numbers. Vectors of such files are normalised
// there, unless another form is asked for.
Result<VectorPipeline> ReadGgufPipeline(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  const GgufValue* const architecture = file.header().Find("general.architecture");
  VectorPipeline pipeline;
  if (architecture == nullptr || !architecture->AsString()) return pipeline;
  GgufMetadata metadata(file.header(), std::string(*architecture->AsString()));
  const auto stated = metadata.OptionalInt("pooling_type", {0, 4});
  if (!metadata.ok()) return metadata.status().WithPrefix(Visible(path, 400));
  constexpr Pooling kByNumber[] = {Pooling::kMean, Pooling::kMean, Pooling::kFirst, Pooling::kLast};
  if (!stated || *stated == 0 || *stated == 4) return pipeline;  // 4: a head ranks pairs
  pipeline.is_stated = true;
  pipeline.pooling = kByNumber[*stated];
  pipeline.modules.emplace_back();
  return pipeline;
}

void ApplyDense(const DenseModule& dense, std::vector<float>* state) {
  std::vector<float> out(static_cast<size_t>(dense.out));
  for (size_t row = 0; row < out.size(); ++row) {
    const float* const weight = dense.weight.data() + row * state->size();
    double sum = dense.bias.empty() ? 0 : dense.bias[row];
    for (size_t i = 0; i < state->size(); ++i) sum += double{weight[i]} * (*state)[i];
    out[row] = static_cast<float>(dense.has_tanh ? std::tanh(sum) : sum);
  }
  *state = std::move(out);
}

// A vector of zeros stays.
void Normalize(std::vector<float>* state) {
  double sum = 0;
  for (const float value : *state) sum += double{value} * value;
  const double length = std::max(std::sqrt(sum), 1e-12);
  for (float& value : *state) value = static_cast<float>(value / length);
}

}  // namespace
}  // namespace minisgl::weights

namespace minisgl {

const std::string* VectorPipeline::FindPrompt(const std::string& name) const {
  for (const auto& [known, text] : prompts) {
    if (known == name) return &text;
  }
  return nullptr;
}

Result<VectorPipeline> LoadVectorPipeline(const std::string& model_dir, int64_t hidden_size) {
  VectorPipeline pipeline;
  if (IsGgufFile(model_dir)) return weights::ReadGgufPipeline(model_dir);
  pipeline.is_stated = weights::IsListed(model_dir, "modules.json");
  if (pipeline.is_stated) {
    MINISGL_RETURN_IF_ERROR(weights::ReadStatedModules(model_dir, hidden_size, &pipeline));
  }
  MINISGL_RETURN_IF_ERROR(LoadTextBounds(model_dir, &pipeline));
  return pipeline;
}

bool HasVectorModules(const std::string& model_dir) {
  if (!IsGgufFile(model_dir)) {
    if (!weights::IsListed(model_dir, "modules.json")) return false;
    const auto modules = weights::ReadModules(weights::JoinPath(model_dir, "modules.json"));
    return !modules.ok() ||
           std::any_of(modules->begin(), modules->end(),
                       [](const weights::ModuleEntry& entry) { return entry.type == "Pooling"; });
  }
  const Result<VectorPipeline> pipeline = weights::ReadGgufPipeline(model_dir);
  return pipeline.ok() && pipeline->is_stated;
}

Status LoadTextBounds(const std::string& model_dir, VectorPipeline* pipeline) {
  MINISGL_RETURN_IF_ERROR(weights::ReadTransformer(model_dir, pipeline));
  MINISGL_RETURN_IF_ERROR(weights::ReadTokenizerBound(model_dir, pipeline));
  return weights::ReadPrompts(model_dir, pipeline);
}

std::vector<float> FinishVector(const VectorPipeline& pipeline, std::vector<float> state,
                                std::optional<int64_t> dimensions, bool normalizes) {
  for (const VectorModule& module : pipeline.modules) {
    if (module.dense) {
      MINISGL_CHECK(std::ssize(state) == module.dense->in, "a state of {} elements for {}",
                    state.size(), module.dense->in);
      weights::ApplyDense(*module.dense, &state);
    } else {
      weights::Normalize(&state);
    }
  }
  const bool is_cut = dimensions && *dimensions < std::ssize(state);
  if (is_cut) state.resize(static_cast<size_t>(*dimensions));
  if (normalizes || (is_cut && pipeline.normalizes())) weights::Normalize(&state);
  return state;
}

}  // namespace minisgl
