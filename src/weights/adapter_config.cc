// See adapter_config.h.
#include "weights/adapter_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "minisgl/base/json.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "weights/field_reader.h"

namespace minisgl::weights {
namespace {

constexpr int kAdapterDepthMax = 16;
constexpr int64_t kAdapterRankMax = 1 << 20;
constexpr size_t kModuleNamesMax = 1 << 20;
constexpr IntRange kAdapterRankRange = {1, kAdapterRankMax};
constexpr NumberRange kAlphaRange = {-1e9, 1e9};

// Keys whose value must be null, false, 0 or empty, and what they ask for.
struct Refused {
  const char* key;
  const char* what;
};
constexpr Refused kRefused[] = {
    {"alora_invocation_tokens", "an adapter that works from certain tokens on (aLoRA)"},
    {"layer_replication", "layers of the base that are repeated"},
    {"use_qalora", "QA-LoRA"},
    {"use_bdlora", "block-diagonal LoRA"},
    {"arrow_config", "routing between adapters (Arrow)"},
    {"kasa_config", "KaSA"},
    {"monteclora_config", "MonteCLoRA"},
    {"velora_config", "VeLoRA"},
};

// Keys that are read elsewhere, or that training alone reads.
constexpr const char* kKnown[] = {"peft_type",
                                  "r",
                                  "lora_alpha",
                                  "use_rslora",
                                  "use_dora",
                                  "rank_pattern",
                                  "alpha_pattern",
                                  "target_modules",
                                  "target_parameters",
                                  "modules_to_save",
                                  "trainable_token_indices",
                                  "bias",
                                  "lora_bias",
                                  "base_model_name_or_path",
                                  "ensure_weight_tying",
                                  "init_lora_weights",
                                  "layers_to_transform",
                                  "layers_pattern",
                                  "exclude_modules",
                                  "fan_in_fan_out",
                                  "lora_dropout",
                                  "inference_mode",
                                  "loftq_config",
                                  "eva_config",
                                  "corda_config",
                                  "lora_ga_config",
                                  "megatron_config",
                                  "megatron_core",
                                  "qalora_group_size",
                                  "revision",
                                  "task_type",
                                  "auto_mapping",
                                  "peft_version",
                                  "runtime_config",
                                  "num_layers",
                                  "merge_weights",
                                  "enable_lora",
                                  "lora_dtype",
                                  "use_unsloth"};

// True for a value that asks for nothing.
bool IsNothing(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.as_bool();
  if (value.is_string()) return value.as_string().empty();
  if (value.is_array()) return value.as_array().empty();
  if (value.is_object()) return value.as_object().empty();
  return value.is_number() && value.as_double() == 0;
}

// A list of names.
std::vector<std::string> NamesOf(const char* key, FieldReader* reader) {
  std::vector<std::string> names;
  const Json* const value = reader->Find(key);
  if (value == nullptr) return names;
  constexpr const char* kSupported = "a list of names of modules is supported";
  if (!value->is_array() || value->as_array().size() > kModuleNamesMax) {
    reader->Fail(key, kSupported);
    return names;
  }
  for (const Json& name : value->as_array()) {
    if (!name.is_string() || name.as_string().empty()) {
      reader->Fail(key, kSupported);
      return names;
    }
    names.push_back(name.as_string());
  }
  return names;
}

void ReadTargets(FieldReader* reader, AdapterConfig* config) {
  for (const char* key : {"layers_to_transform", "exclude_modules"}) {
    const Json* const limit = reader->Find(key);
    // Layer 0 alone is a limit, too.
    if (limit != nullptr && (limit->is_number() || !IsNothing(*limit))) config->targets_all = false;
  }
  const Json* const value = reader->Find("target_modules");
  if (value == nullptr || !value->is_string()) {
    config->targets = NamesOf("target_modules", reader);
    return;
  }
  config->target_text = value->as_string();
  if (config->target_text == "all-linear") return;  // the tensors say which
  auto pattern = NamePattern::Parse(config->target_text);
  if (!pattern.ok()) {
    return reader->Fail("target_modules", "as an expression: " + pattern.status().message());
  }
  config->target_pattern = std::move(pattern).value();
}

// PEFT matches a key of a pattern against the end of a name, behind its beginning or a dot.
template <typename Value, typename Read>
void ReadPatterns(const char* key, FieldReader* reader, const Read& read,
                  ByPattern<Value>* patterns) {
  const Json* const value = reader->Find(key);
  if (value == nullptr) return;
  const auto object = reader->Object(key);
  if (!object) return;
  FieldReader fields = *object;
  for (const auto& [name, number] : value->as_object()) {
    auto pattern = NamePattern::Parse("(.*\\.)?(" + name + ")$");
    if (!pattern.ok()) return reader->Fail(key, pattern.status().message());
    patterns->emplace_back(std::move(pattern).value(), read(&fields, name));
  }
  reader->Absorb(fields);
}

// The embedding's name in PEFT, if the config names none.
constexpr const char* kEmbeddingName = "embed_tokens";

void ReadTokens(FieldReader* reader, AdapterConfig* config) {
  constexpr const char* kKey = "trainable_token_indices";
  constexpr int64_t kIdsMax = int64_t{1} << 31;
  const Json* const value = reader->Find(kKey);
  if (value == nullptr) return;
  const auto check = [&](std::vector<TokenId> ids, const std::string& name) {
    if (std::set<TokenId>(ids.begin(), ids.end()).size() != ids.size()) {
      return reader->Fail(kKey, "ids without one that comes twice are supported");
    }
    if (!ids.empty()) config->tokens[name] = std::move(ids);
  };
  if (value->is_array()) return check(reader->TokenIds(kKey, kIdsMax), kEmbeddingName);
  const auto object = reader->Object(kKey);
  if (!object) return;
  FieldReader fields = *object;
  for (const auto& [name, ids] : value->as_object()) {
    check(fields.TokenIds(name, kIdsMax), name);
  }
  reader->Absorb(fields);
}

void CheckKind(FieldReader* reader) {
  const auto kind = reader->OptionalString("peft_type", "\"LORA\" is supported");
  if (kind != "LORA") {
    reader->Fail("peft_type", "adapters of kind LORA are supported, and no others");
  }
  for (const Refused& refused : kRefused) {
    const Json* const value = reader->Find(refused.key);
    if (value == nullptr || IsNothing(*value)) continue;
    reader->Fail(refused.key, fmt::format("{} is not supported", refused.what));
  }
  const auto bias = reader->OptionalString("bias", "none, lora_only and all are supported");
  if (bias && *bias != "none" && *bias != "lora_only" && *bias != "all") {
    reader->Fail("bias", "none, lora_only and all are supported");
  }
}

// A key of a newer version may change answers.
void CheckKeys(const Json& json, FieldReader* reader) {
  for (const auto& [key, value] : json.as_object()) {
    const auto is_key = [&](const char* name) { return key == name; };
    const auto is_refused = [&](const Refused& refused) { return key == refused.key; };
    if (std::any_of(std::begin(kKnown), std::end(kKnown), is_key)) continue;
    if (std::any_of(std::begin(kRefused), std::end(kRefused), is_refused)) continue;
    if (IsNothing(value)) continue;
    return reader->Fail(key, "this key is not known, and null, false or nothing is supported");
  }
}

// Weights of the base may have been changed when training began.
void WarnOfStart(const FieldReader& reader, const std::string& file) {
  const Json* const start = reader.Find("init_lora_weights");
  if (start == nullptr || !start->is_string()) return;
  const std::string& name = start->as_string();
  for (const char* changes : {"pissa", "olora", "corda", "loftq"}) {
    if (!name.starts_with(changes)) continue;
    Log(LogLevel::kWarning,
        fmt::format("{}: training began with {}, which changes the base: answers are right over "
                    "the changed base, or if the adapter was converted when it was saved",
                    Visible(file, 400), Visible(name)));
  }
}

template <typename Value>
Value FirstFit(const ByPattern<Value>& patterns, std::string_view module, Value otherwise) {
  for (const auto& [pattern, value] : patterns) {
    if (pattern.Matches(module)) return value;
  }
  return otherwise;
}

}  // namespace

int64_t AdapterConfig::RankOf(std::string_view module) const { return FirstFit(ranks, module, r); }
double AdapterConfig::AlphaOf(std::string_view module) const {
  return FirstFit(alphas, module, alpha);
}

bool IsNamed(std::string_view module, std::string_view name) {
  if (!module.ends_with(name)) return false;
  return module.size() == name.size() || module[module.size() - name.size() - 1] == '.';
}

Result<AdapterConfig> ReadAdapterConfig(const std::string& text, const std::string& file) {
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file, kAdapterDepthMax));
  FieldReader reader(json, file);
  AdapterConfig config;
  CheckKind(&reader);
  CheckKeys(json, &reader);
  config.r = reader.Int("r", kAdapterRankRange, config.r);
  config.alpha = reader.Number("lora_alpha", kAlphaRange, config.alpha);
  config.use_rslora = reader.Bool("use_rslora", false);
  config.use_dora = reader.Bool("use_dora", false);
  config.ties_embeddings = reader.Bool("ensure_weight_tying", false);
  const auto rank = [](FieldReader* fields, const std::string& name) {
    return fields->Int(name, kAdapterRankRange);
  };
  const auto alpha = [](FieldReader* fields, const std::string& name) {
    return fields->Number(name, kAlphaRange);
  };
  ReadPatterns("rank_pattern", &reader, rank, &config.ranks);
  ReadPatterns("alpha_pattern", &reader, alpha, &config.alphas);
  ReadTargets(&reader, &config);
  config.target_parameters = NamesOf("target_parameters", &reader);
  config.modules_to_save = NamesOf("modules_to_save", &reader);
  ReadTokens(&reader, &config);
  config.base = reader.OptionalString("base_model_name_or_path", "a name").value_or("");
  if (!reader.ok()) return reader.status();
  WarnOfStart(reader, file);
  return config;
}

}  // namespace minisgl::weights
