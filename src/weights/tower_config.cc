// Reads the tower of a configuration: finds its family, and lets the family's reader (the table in
// tower_families.cc) read the keys. See minisgl/weights/tower_config.h.
#include "minisgl/weights/tower_config.h"

#include <fmt/core.h>

#include <utility>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/quantization_reader.h"
#include "weights/tower_families.h"
#include "weights/wrappers.h"

namespace minisgl {
namespace weights {
namespace {

constexpr const char* kConfigFile = "config.json";

std::string TextOf(const Json& object, std::string_view key) {
  const Json* const value = object.is_object() ? object.Find(key) : nullptr;
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

// The model_type; where only the class is named, that of the class.
std::string ModelTypeOf(const Json& config) {
  const std::string type = TextOf(config, "model_type");
  if (!type.empty()) return type;
  const Json* const names = config.Find("architectures");
  if (names == nullptr || !names->is_array() || names->as_array().empty()) return "";
  const Json& first = names->as_array()[0];
  const Wrapper* const wrapper = first.is_string() ? FindWrapper(first.as_string()) : nullptr;
  return wrapper == nullptr ? "" : wrapper->model_type;
}

void ReadTowerDType(const TowerKeys& keys, TowerConfig* config) {
  for (FieldReader* reader : {keys.model, keys.vision}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      const auto name =
          reader->OptionalString(key, "\"bfloat16\", \"float16\" and \"float32\" are supported");
      if (!name) continue;
      config->dtype = *name == "bfloat16"  ? DType::kBF16
                      : *name == "float16" ? DType::kF16
                                           : DType::kF32;
      return;
    }
  }
}

// Files may leave out a hidden size of the text that is its class's default.
int64_t TextHiddenSize(const std::string& model_type, FieldReader* text) {
  std::optional<int64_t> absent;
  if (const Wrapper* const wrapper = FindWrapperOfType(model_type)) {
    const auto inner_type = text->OptionalString("model_type", "a name is supported");
    for (const InnerModel& inner : wrapper->inner) {
      if (inner_type && *inner_type != inner.model_type) continue;
      const auto defaults = ParseJson(inner.defaults);
      const Json* const size = defaults.ok() ? defaults->Find("hidden_size") : nullptr;
      if (size != nullptr && size->is_int()) absent = size->as_int();
      break;
    }
  }
  return text->Int("hidden_size", kTowerWidthRange, absent);
}

// Reads `config` with readers that stand beside each other; returns the first error.
Status ReadFamily(const TowerFamily& family, const Json& config, const Json& vision_json,
                  TowerConfig* tower) {
  FieldReader model(config, kConfigFile), vision(vision_json, kConfigFile, "vision_config.");
  const Json* const text_json = config.Find("text_config");
  const bool has_text = text_json != nullptr && text_json->is_object();
  FieldReader text(has_text ? *text_json : config, kConfigFile, has_text ? "text_config." : "");
  const TowerKeys keys = {&vision, &model, &text};
  tower->name = family.model_type;
  tower->text_hidden_size = static_cast<int32_t>(TextHiddenSize(family.model_type, &text));
  ReadTowerDType(keys, tower);
  ReadQuantization(&model, &tower->quantization);
  if (text.ok() && model.ok() && vision.ok()) family.read(keys, tower);
  for (const FieldReader* reader : {&text, &model, &vision}) {
    if (!reader->ok()) return reader->status();
  }
  constexpr int64_t kJoinedMax = int64_t{1} << 22;
  if (tower->hidden_size * tower->unit_patches() > kJoinedMax) {
    return BadInput("config.json: a tower of {} features in units of {} patches is too large",
                    tower->hidden_size, tower->unit_patches());
  }
  tower->num_deepstack = static_cast<int32_t>(tower->deepstack_layers.size());
  return Status();
}

}  // namespace
}  // namespace weights

Result<std::optional<TowerConfig>> ReadTowerConfig(const Json& config) {
  if (!config.is_object()) return BadInput("config.json: an object is needed");
  const Json* const vision = config.Find("vision_config");
  if (vision == nullptr || vision->is_null()) return std::optional<TowerConfig>();
  if (!vision->is_object()) {
    return BadInput("config.json: key \"vision_config\": found {}; an object or null is supported",
                    Visible(vision->Dump(), weights::kQuotedBytesMax));
  }
  const std::string model_type = weights::ModelTypeOf(config);
  const std::string vision_type = weights::TextOf(*vision, "model_type");
  const weights::TowerFamily* const family = weights::FindTowerFamily(model_type, vision_type);
  if (family == nullptr) {
    const bool is_known = weights::HasTowerFamily(model_type);
    return MakeStatus(
        StatusCode::kUnavailable, "this program has no tower for pictures of {} models{}",
        Visible(model_type.empty() ? "unnamed" : model_type, 200),
        is_known ? fmt::format(" with \"{}\" in vision_config", Visible(vision_type, 200))
                 : std::string());
  }
  TowerConfig tower;
  MINISGL_RETURN_IF_ERROR(weights::ReadFamily(*family, config, *vision, &tower));
  return std::optional<TowerConfig>(std::move(tower));
}

}  // namespace minisgl
