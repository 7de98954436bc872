// config.json. Every key that the decoder depends on is read, with its type and range. A key that
// would change the computation in an unsupported way is rejected unless it has its neutral value.
// Differences between architectures are in architecture_table.cc.
#include "minisgl/weights/model_config.h"

#include <algorithm>
#include <optional>
#include <string>

#include "minisgl/base/file_kind.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "weights/architecture_table.h"
#include "weights/config_keys.h"
#include "weights/encoder_keys.h"
#include "weights/gguf_model.h"
#include "weights/latent_keys.h"
#include "weights/layer_pattern.h"
#include "weights/model_dir.h"
#include "weights/quantization_reader.h"
#include "weights/rope_config.h"
#include "weights/stored_matrix.h"
#include "weights/wrappers.h"

namespace minisgl::weights {
namespace {

constexpr int kConfigDepthMax = 32;

// Rejects options that no architecture of the table supports.
void CheckTopLevelNeutral(FieldReader* reader) {
  CheckNeutral(reader, "clip_qkv", std::nullopt, "only null is supported");
  CheckNeutral(reader, "alibi", Json(false), "only rotary positions (false) are supported");
  CheckNeutral(reader, "use_mup", Json(false), "only false is supported");
  CheckNeutral(reader, "scale_attn_by_inverse_layer_idx", Json(false), "only false is supported");
}

// Rejects options that other architectures support and this one does not.
void CheckUnread(const Architecture& entry, FieldReader* reader) {
  if (!entry.softcaps) {
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      CheckNeutral(reader, key, std::nullopt, "only null is supported for this model_type");
    }
  }
  const BiasSwitch switches[] = {entry.qkv_bias, entry.output_bias, entry.feed_forward_bias,
                                 entry.state_bias};
  for (const std::string key : {"attention_bias", "qkv_bias", "use_qkv_bias", "attention_out_bias",
                                "mlp_bias", "use_bias"}) {
    const bool is_read = std::any_of(std::begin(switches), std::end(switches),
                                     [&](BiasSwitch bias) { return bias.key == key; });
    if (is_read) continue;
    const bool has_qkv = entry.qkv_bias.key.empty() && entry.qkv_bias.fallback &&
                         key != "mlp_bias" && key != "attention_out_bias";
    CheckNeutral(reader, key, Json(has_qkv),
                 has_qkv ? "only true is supported for this model_type"
                         : "only false is supported for this model_type");
  }
}

// The name in `architectures`; "" if there is none. Fails unless there is one at most.
std::string ReadArchitectureName(FieldReader* reader, const std::string& supported) {
  const Json* names = reader->Find("architectures");
  if (names == nullptr) return "";
  if (!names->is_array() || names->as_array().size() != 1 || !names->as_array()[0].is_string()) {
    reader->Fail("architectures", "one name in an array is needed; " + supported);
    return "";
  }
  return names->as_array()[0].as_string();
}

// Reads `architectures`; `model_type` must not contradict it, and replaces it if it is absent. Null
// if the reader has failed.
const Architecture* ReadArchitecture(FieldReader* reader, ModelConfig* config) {
  const std::string supported = fmt::format("supported: {}; the text of models of type {}",
                                            SupportedArchitectures(), SupportedWrappers());
  const std::optional<std::string> model_type = reader->OptionalString("model_type", supported);
  const bool has_names = reader->Find("architectures") != nullptr;
  if (!has_names && !model_type) {
    reader->Fail("architectures", supported);
    return nullptr;
  }
  const std::string name = ReadArchitectureName(reader, supported);
  if (!reader->ok()) return nullptr;
  const Architecture* found = nullptr;
  if (has_names) {
    found = FindArchitecture(name);
    if (found == nullptr) {
      found = FindArchitectureOfBody(name);
      config->lacks_head = found != nullptr;
    }
  } else {
    for (const Architecture& candidate : Architectures()) {
      if (*model_type == candidate.model_type) found = &candidate;
    }
  }
  if (found == nullptr) {
    reader->Fail(has_names ? "architectures" : "model_type", supported);
  } else if (model_type && *model_type != found->model_type) {
    reader->Fail("model_type",
                 fmt::format("\"{}\" is needed for {}", found->model_type, found->name));
  } else {
    config->architecture = found->name;
    config->model_type = found->model_type;
  }
  return reader->ok() ? found : nullptr;
}

// The multimodal model that the configuration is of; null if it is of a text model alone, or of a
// class that is not known. Fails for an unknown one with a text model inside, naming both.
const Wrapper* ReadWrapper(FieldReader* top) {
  const Json* text = top->Find("text_config");
  const std::string supported =
      "types of multimodal models whose text runs: " + SupportedWrappers();
  const std::optional<std::string> model_type = top->OptionalString("model_type", supported);
  const bool has_names = top->Find("architectures") != nullptr;
  const std::string name = ReadArchitectureName(top, supported);
  const Wrapper* wrapper =
      has_names ? FindWrapper(name) : FindWrapperOfType(model_type.value_or(""));
  if (!top->ok()) return nullptr;
  if (wrapper == nullptr) {
    const bool is_known = has_names && FindArchitecture(name) != nullptr;
    if (text == nullptr || !text->is_object() || is_known) return nullptr;
    const Json* inner = text->Find("model_type");
    top->Fail(has_names ? "architectures" : "model_type",
              fmt::format("a multimodal model around {}; {}",
                          inner == nullptr ? "a text model without model_type"
                                           : Visible(inner->Dump(), kQuotedBytesMax),
                          supported));
  } else if (model_type && *model_type != wrapper->model_type) {
    top->Fail("model_type",
              fmt::format("\"{}\" is needed for {}", wrapper->model_type, wrapper->name));
  }
  return wrapper;
}

// The text model that `text` is of; null if the reader of the whole file has failed.
const InnerModel* ReadInner(const Wrapper& wrapper, const Json& text, FieldReader* top) {
  const Json* type = text.Find("model_type");
  if (type == nullptr || type->is_null()) return &wrapper.inner[0];
  for (const InnerModel& inner : wrapper.inner) {
    if (*type == Json(inner.model_type)) return &inner;
  }
  top->FailWith(
      "text_config.model_type", Visible(type->Dump(), kQuotedBytesMax),
      fmt::format("text models that run inside {}: {}", wrapper.name, InnerTypes(wrapper)));
  return nullptr;
}

void ReadDType(FieldReader* reader, ModelConfig* config) {
  constexpr const char* kSupported = "\"bfloat16\", \"float16\" and \"float32\" are supported";
  const char* key = reader->Find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::optional<std::string> name = reader->OptionalString(key, kSupported);
  if (!name) return;
  if (*name == "bfloat16") {
    config->dtype = DType::kBF16;
  } else if (*name == "float16") {
    config->dtype = DType::kF16;
  } else if (*name != "float32") {
    reader->Fail(key, kSupported);
  }
}

std::optional<Activation> ActivationNamed(std::string_view name, const Architecture& entry) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return entry.gelu_is_tanh ? Activation::kGeluTanh : Activation::kGelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  if (name == "relu2") return Activation::kRelu2;
  if (name == "xielu" && entry.has_xielu) return Activation::kXielu;
  return std::nullopt;
}

// Reads the activation from one key; a second one, which older files also have, must not contradict
// it.
void ReadActivation(const Architecture& entry, FieldReader* reader, ModelConfig* config) {
  const std::string supported =
      fmt::format("\"silu\", \"gelu\", \"gelu_pytorch_tanh\", \"gelu_new\" and {} are supported",
                  entry.has_xielu ? "\"relu2\", \"xielu\"" : "\"relu2\"");
  const std::string key = entry.activation_key;
  const std::string name = reader->OptionalString(key, supported).value_or(entry.activation);
  const auto activation = ActivationNamed(name, entry);
  if (!activation) return reader->Fail(key, supported);
  config->activation = *activation;
  const std::string other = key == "hidden_act" ? "hidden_activation" : "hidden_act";
  const auto beside = reader->OptionalString(other, supported);
  if (beside && ActivationNamed(*beside, entry) != activation) {
    reader->Fail(other,
                 fmt::format("the same as {} (\"{}\") is needed, or null", key, Visible(name)));
  }
}

void ReadNorms(const Architecture& entry, FieldReader* reader, ModelConfig* config) {
  config->norm_kind = entry.norm_kind;
  config->norm_placement = entry.norm_placement;
  config->norm_bias = entry.norm_bias;
  config->norm_plus_one = entry.norm_plus_one;
  config->norm_eps = reader->Number(entry.eps_key, kEpsRange, entry.eps);
  config->qk_norm = entry.qk_norm;
}

void ReadBiases(const Architecture& entry, FieldReader* reader, ModelConfig* config) {
  const auto read = [&](BiasSwitch bias) {
    return bias.key.empty() ? bias.fallback : reader->Bool(bias.key, bias.fallback);
  };
  config->qkv_bias = read(entry.qkv_bias);
  config->attention_output_bias = read(entry.output_bias);
  config->feed_forward_bias = read(entry.feed_forward_bias);
}

void ReadHeads(const Architecture& entry, FieldReader* reader, ModelConfig* config) {
  config->num_heads = static_cast<int32_t>(reader->Int("num_attention_heads", kHeadsRange));
  const bool kv_said = reader->Has("num_key_value_heads") || entry.num_kv_heads == 0;
  config->num_kv_heads = static_cast<int32_t>(reader->Int(
      "num_key_value_heads", kHeadsRange, kv_said ? config->num_heads : entry.num_kv_heads));
  if (!reader->ok()) return;
  if (config->num_heads % config->num_kv_heads != 0) {
    return reader->FailWith(
        "num_key_value_heads", fmt::format("{}", config->num_kv_heads),
        fmt::format("a divisor of num_attention_heads ({}) is needed", config->num_heads));
  }
  std::optional<int64_t> head_dim = reader->OptionalInt("head_dim", kHeadDimRange);
  if (!head_dim && entry.head_dim > 0 && !reader->Has("head_dim")) head_dim = entry.head_dim;
  if (!head_dim && config->hidden_size % config->num_heads != 0) {
    return reader->Fail("num_attention_heads",
                        fmt::format("without head_dim a divisor of hidden_size ({}) is needed",
                                    config->hidden_size));
  }
  const int64_t width = head_dim.value_or(config->hidden_size / config->num_heads);
  if (width % 2 != 0 || width > kHeadDimRange.max) {
    return reader->FailWith("head_dim", fmt::format("{}", width),
                            fmt::format("an even number up to {} is supported", kHeadDimRange.max));
  }
  config->head_dim = static_cast<int32_t>(width);
}

// The outer level of a wrapper decides, as it does in the reference.
bool ReadTied(const Architecture& entry, FieldReader* reader) {
  constexpr const char* kKey = "tie_word_embeddings";
  const Json* outer = reader->outer() == nullptr ? nullptr : reader->outer()->Find(kKey);
  const bool is_tied = reader->Bool(kKey, entry.tied);
  return outer != nullptr && outer->is_bool() ? outer->as_bool() : is_tied;
}

void ReadIntermediateSize(const Architecture& entry, FieldReader* reader, ModelConfig* config) {
  const bool other = entry.width_key != nullptr && reader->Find(entry.width_key) != nullptr;
  const char* const key = other ? entry.width_key : "intermediate_size";
  const auto fallback = entry.intermediate_size > 0 ? std::optional(entry.intermediate_size)
                                                    : std::optional<int64_t>();
  config->intermediate_size = reader->Int(key, kWidthRange, fallback);
}

void ReadSizes(const Architecture& entry, FieldReader* reader, ModelConfig* config) {
  config->vocab_size = reader->Int("vocab_size", kVocabRange);
  config->hidden_size = reader->Int("hidden_size", kWidthRange);
  ReadIntermediateSize(entry, reader, config);
  config->num_layers = entry.count_layers != nullptr
                           ? entry.count_layers(reader)
                           : static_cast<int32_t>(reader->Int("num_hidden_layers", kLayersRange));
  config->max_seq_len = reader->Int("max_position_embeddings", kSeqLenRange, entry.max_seq_len);
  if (entry.latent.rank > 0) {
    ReadLatentSizes(entry.latent, reader, config);
  } else {
    ReadHeads(entry, reader, config);
  }
  config->gated = entry.gated;
  config->rotary_interleaved = entry.rotary_interleaved;
  config->tie_word_embeddings = ReadTied(entry, reader);
}

void ReadTokens(FieldReader* reader, ModelConfig* config) {
  // -1: none.
  const auto bos = reader->OptionalInt("bos_token_id", {-1, config->vocab_size - 1});
  if (bos && *bos >= 0) config->bos_token_id = static_cast<TokenId>(*bos);
  config->eos_token_ids = reader->TokenIds("eos_token_id", config->vocab_size);
}

// Reads all keys of a text model. REQUIRES a reader that has not failed.
void ReadTextModel(const Architecture& entry, FieldReader* reader, ModelConfig* config) {
  CheckTopLevelNeutral(reader);
  CheckUnread(entry, reader);
  ReadActivation(entry, reader, config);
  ReadNorms(entry, reader, config);
  ReadBiases(entry, reader, config);
  ReadDType(reader, config);
  ReadQuantization(reader, &config->quantization);
  ReadSizes(entry, reader, config);
  // The readers below compute with sizes, so these must be valid.
  if (reader->ok()) ReadRopes(entry, reader, config);
  if (reader->ok()) ReadLayers(entry, reader, config);
  if (entry.rotated == Rotated::kNone) config->ropes.clear();
  if (!entry.encoder_prefixes.empty()) BecomeEncoder(entry, config);
  if (reader->ok() && entry.read != nullptr) entry.read(reader, config);
  if (reader->ok()) ReadTokens(reader, config);
}

// The text model inside `wrapper`. Settings of the checkpoint and of generation may stand at either
// level.
Result<ModelConfig> ReadInnerConfig(const Wrapper& wrapper, const Json& json,
                                    const std::string& file, FieldReader* top) {
  const Json* stated = top->Find("text_config");
  const bool is_flat = stated == nullptr && wrapper.may_be_flat;
  if (!is_flat && (stated == nullptr || !stated->is_object())) {
    top->Fail("text_config",
              fmt::format("the object of the text model is needed for {}", wrapper.name));
    return top->status();
  }
  Json text = is_flat ? json : *stated;
  const InnerModel* inner = is_flat ? &wrapper.inner[0] : ReadInner(wrapper, text, top);
  if (inner == nullptr) return top->status();
  const Result<Json> defaults = ParseJson(inner->defaults);
  MINISGL_CHECK(defaults.ok(), "the defaults of {} are no JSON", wrapper.name);
  for (const auto& [key, value] : defaults->as_object()) {
    if (text.Find(key) == nullptr) text.Set(key, value);
  }
  const Architecture* entry = FindArchitecture(inner->architecture);
  MINISGL_CHECK(entry != nullptr, "{} holds no entry of the table", wrapper.name);
  if (entry->rename != nullptr) entry->rename(&text);
  FieldReader reader(text, file, is_flat ? "" : "text_config.");
  reader.SetOuter(&json, {"quantization_config", "compression_config", "dtype", "torch_dtype",
                          "tie_word_embeddings", "bos_token_id", "eos_token_id"});
  ModelConfig config;
  config.architecture = entry->name;
  config.model_type = entry->model_type;
  config.wrapper = wrapper.name;
  config.text_prefix = "model.language_model.";
  ReadTextModel(*entry, &reader, &config);
  if (!reader.ok()) return reader.status();
  // The text model's end token is often one of several.
  for (const TokenId id : top->TokenIds("eos_token_id", config.vocab_size)) {
    auto& ids = config.eos_token_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  if (!top->ok()) return top->status();
  return config;
}

Result<ModelConfig> ReadModelConfig(const std::string& text, const std::string& file) {
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file, kConfigDepthMax));
  FieldReader reader(json, file);
  const Wrapper* wrapper = ReadWrapper(&reader);
  if (!reader.ok()) return reader.status();
  if (wrapper != nullptr) return ReadInnerConfig(*wrapper, json, file, &reader);
  ModelConfig config;
  // The first error is returned, so the architecture is read before its details.
  const Architecture* entry = ReadArchitecture(&reader, &config);
  if (entry == nullptr) return reader.status();
  if (entry->rename != nullptr) {
    Json renamed = json;
    entry->rename(&renamed);
    FieldReader fields(renamed, file);
    ReadTextModel(*entry, &fields, &config);
    if (!fields.ok()) return fields.status();
    return config;
  }
  ReadTextModel(*entry, &reader, &config);
  if (!reader.ok()) return reader.status();
  return config;
}

}  // namespace

void CheckNeutral(FieldReader* reader, std::string_view key, const std::optional<Json>& neutral,
                  std::string_view supported) {
  const Json* value = reader->Find(key);
  if (value == nullptr) return;
  const bool holds =
      neutral && (*value == *neutral || (value->is_number() && neutral->is_number() &&
                                         value->as_double() == neutral->as_double()));  // 1 is 1.0
  if (!holds) reader->Fail(key, supported);
}

}  // namespace minisgl::weights

namespace minisgl {

LayerShape LayerShapeOf(const ModelConfig& config, int32_t layer) {
  const auto at = static_cast<size_t>(layer);
  const LayerConfig own =
      layer >= 0 && at < config.layers.size() ? config.layers[at] : LayerConfig();
  const auto or_common = [](auto size, auto common) { return size == 0 ? common : size; };
  LayerShape shape;
  shape.num_heads = or_common(own.num_heads, config.num_heads);
  shape.num_kv_heads = or_common(own.num_kv_heads, config.num_kv_heads);
  shape.head_dim = or_common(own.head_dim, config.head_dim);
  // A head_dim of the layer's own is also the default of its values.
  const int32_t value_dim = own.head_dim == 0 ? config.value_dim : 0;
  shape.value_dim = or_common(or_common(own.value_dim, value_dim), shape.head_dim);
  shape.intermediate_size = or_common(own.intermediate_size, config.intermediate_size);
  shape.values_in_keys = config.latent.rank > 0;
  return shape;
}

std::vector<LayerShape> LayerShapes(const ModelConfig& config) {
  std::vector<LayerShape> shapes;
  for (size_t i = 0; i < std::max<size_t>(1, config.layers.size()); ++i) {
    const LayerShape shape = LayerShapeOf(config, static_cast<int32_t>(i));
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
  return shapes;
}

bool HasUniformAttention(const ModelConfig& config) {
  std::vector<LayerShape> shapes = LayerShapes(config);
  for (LayerShape& shape : shapes) shape.intermediate_size = 0;
  return std::all_of(shapes.begin(), shapes.end(),
                     [&](const LayerShape& shape) { return shape == shapes[0]; }) &&
         std::all_of(config.layers.begin(), config.layers.end(),
                     [](const LayerConfig& layer) { return layer.kv_layer < 0; });
}

bool HasStates(const ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerConfig& layer) { return HasState(layer.mixer); });
}

Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& file) {
  return weights::ReadModelConfig(text, file);
}

Result<std::string> ModelConfigText(const std::string& model_dir) {
  constexpr uint64_t kBytesMax = 16 << 20;
  if (!IsGgufFile(model_dir)) {
    return ReadFile(weights::JoinPath(model_dir, "config.json"), kBytesMax);
  }
  MINISGL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(model_dir));
  Result<std::string> text = weights::GgufConfigText(file.header());
  return text.ok() ? std::move(text) : text.status().WithPrefix(Visible(model_dir, 400));
}

Result<ModelConfig> LoadModelConfig(const std::string& model_dir) {
  if (IsGgufFile(model_dir)) {
    MINISGL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(model_dir));
    return weights::ReadGgufConfig(file.header(), model_dir);
  }
  MINISGL_RETURN_IF_ERROR(weights::CheckModelDir(model_dir));
  if (!weights::IsListed(model_dir, "config.json"))
    return weights::MissingFile(model_dir, "config.json");
  MINISGL_ASSIGN_OR_RETURN(ModelConfig config,
                           LoadModelConfigFile(weights::JoinPath(model_dir, "config.json")));
  constexpr const char* kModelOptFile = "hf_quant_config.json";
  if (config.quantization.empty() && weights::IsListed(model_dir, kModelOptFile)) {
    constexpr uint64_t kBytesMax = 16 << 20;
    const std::string path = weights::JoinPath(model_dir, kModelOptFile);
    MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kBytesMax));
    MINISGL_ASSIGN_OR_RETURN(config.quantization, weights::ParseModelOptFile(text, path));
  }
  if (!config.quantization.empty()) weights::FindDenseMatrices(model_dir, &config.quantization);
  const weights::Architecture* const entry = weights::FindArchitecture(config.architecture);
  if (!config.wrapper.empty() || (entry != nullptr && entry->has_forms)) {
    // Files that cannot be opened are reported where their weights are loaded.
    const auto checkpoint = Checkpoint::Open(model_dir);
    if (checkpoint.ok()) weights::FindStoredForm(**checkpoint, &config);
  }
  if (config.is_encoder) {
    const auto checkpoint = Checkpoint::Open(model_dir);
    if (checkpoint.ok()) weights::FindEncoderNames(**checkpoint, *entry, &config);
    return config;
  }
  const bool may_be_body = config.lacks_head || weights::IsListed(model_dir, "modules.json");
  if (config.wrapper.empty() && may_be_body) {
    const auto checkpoint = Checkpoint::Open(model_dir);
    if (checkpoint.ok()) weights::FindBodyNames(**checkpoint, &config);
  }
  return config;
}

Result<ModelConfig> LoadModelConfigFile(const std::string& path) {
  constexpr uint64_t kBytesMax = 16 << 20;
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kBytesMax));
  Result<ModelConfig> config = ParseModelConfig(text, path);
  if (!config.ok()) return OrFileKind(config.status(), text, path);
  return config;
}

}  // namespace minisgl
