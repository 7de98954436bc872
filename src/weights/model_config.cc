// config.json: every key that the decoder depends on is read with its type and range, and every key
// that would change the computation in a way the decoder does not know is refused unless it holds
// its neutral value.
#include "minisgl/weights/model_config.h"

#include <array>
#include <span>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "weights/field_reader.h"
#include "weights/model_dir.h"

namespace minisgl {
namespace {

constexpr uint64_t kConfigBytesMax = 16 << 20;
constexpr int kConfigDepthMax = 32;

// Far above any model, and small enough that a product of two fits int64_t.
constexpr IntRange kVocabRange = {1, 1 << 24};
constexpr IntRange kWidthRange = {1, 1 << 24};
constexpr IntRange kLayersRange = {1, 10000};
constexpr IntRange kHeadsRange = {1, 1 << 16};
constexpr IntRange kHeadDimRange = {2, 1 << 12};
constexpr IntRange kSeqLenRange = {2, 1 << 30};  // a prompt of one token, and one of answer
constexpr NumberRange kEpsRange = {0, 1, true};
constexpr NumberRange kThetaRange = {1, 1e15};
constexpr NumberRange kFactorRange = {1, 1e6};
constexpr NumberRange kFrequencyFactorRange = {0, 1e6, true};

// What transformers' configurations have where the file is silent.
constexpr double kDefaultEps = 1e-6;
constexpr double kDefaultTheta = 10000.0;

// How attention over a window of keys, which is not supported, is turned on.
enum class Windows : uint8_t {
  kNone,      // not at all
  kByWidth,   // by sliding_window, which is not null where the file is silent
  kBySwitch,  // by use_sliding_window; sliding_window alone means nothing
};

struct Architecture {
  const char* name;
  const char* model_type;
  bool qkv_bias;  // always there
  Windows windows;
  // Where the file is silent:
  int64_t max_seq_len;
  int64_t num_kv_heads;  // 0: the number of query heads
  int64_t head_dim;      // 0: hidden_size / num_attention_heads
};
constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", false, Windows::kNone, 2048, 0, 0},
    {"MistralForCausalLM", "mistral", false, Windows::kByWidth, 131072, 8, 0},
    {"Qwen2ForCausalLM", "qwen2", true, Windows::kBySwitch, 32768, 32, 0},
    {"Qwen3ForCausalLM", "qwen3", false, Windows::kBySwitch, 32768, 32, 128},
};

std::string SupportedArchitectures() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", architecture.name);
  }
  return fmt::format("supported: {}", names);
}

// Keys that may only hold one value; without one, only null.
struct NeutralKey {
  const char* key;
  std::optional<Json> neutral;
  const char* supported;
};

void CheckNeutral(std::span<const NeutralKey> keys, FieldReader* reader) {
  for (const NeutralKey& entry : keys) {
    const Json* value = reader->Find(entry.key);
    if (value == nullptr) continue;
    const bool neutral =
        entry.neutral && (*value == *entry.neutral ||
                          (value->is_number() && entry.neutral->is_number() &&
                           value->as_double() == entry.neutral->as_double()));  // 1 is 1.0
    if (!neutral) reader->Fail(entry.key, entry.supported);
  }
}

void CheckTopLevelNeutral(FieldReader* reader) {
  const std::array keys = {
      NeutralKey{"hidden_act", Json("silu"), "\"silu\" is supported"},
      NeutralKey{"hidden_activation", Json("silu"), "\"silu\" is supported"},
      NeutralKey{"mlp_bias", Json(false), "only false is supported"},
      NeutralKey{"quantization_config", std::nullopt,
                 "only weights that are not quantized (null) are supported"},
      NeutralKey{"partial_rotary_factor", Json(1), "only 1 is supported"},
  };
  CheckNeutral(keys, reader);
}

// What attention is computed over, and whether its projections have biases.
void CheckAttention(const Json& json, const Architecture& architecture, FieldReader* reader) {
  const std::array bias = {
      architecture.qkv_bias
          ? NeutralKey{"attention_bias", Json(true), "only true is supported for this model_type"}
          : NeutralKey{"attention_bias", Json(false), "only false is supported"}};
  CheckNeutral(bias, reader);
  const std::array window = {
      architecture.windows == Windows::kBySwitch
          ? NeutralKey{"use_sliding_window", Json(false),
                       "only full attention (false) is supported"}
          : NeutralKey{"sliding_window", std::nullopt, "only full attention (null) is supported"}};
  CheckNeutral(window, reader);
  if (architecture.windows == Windows::kByWidth && json.Find("sliding_window") == nullptr) {
    reader->FailWith("sliding_window", "nothing, which means 4096",
                     "only full attention (null) is supported");
  }
  const Json* types = reader->Find("layer_types");
  if (types == nullptr) return;
  constexpr const char* kSupported = "\"full_attention\" for every layer is supported";
  if (!types->is_array()) return reader->Fail("layer_types", kSupported);
  for (const Json& type : types->as_array()) {
    if (type != Json("full_attention")) {
      return reader->FailWith("layer_types", Visible(type.Dump()), kSupported);
    }
  }
}

// `architectures` decides; `model_type` must not contradict it, and stands in where there is none.
// Null where the reader has failed.
const Architecture* ReadArchitecture(FieldReader* reader, ModelConfig* config) {
  const std::string supported = SupportedArchitectures();
  const std::optional<std::string> model_type = reader->OptionalString("model_type", supported);
  const Json* names = reader->Find("architectures");
  if (names == nullptr && !model_type) {
    reader->Fail("architectures", supported);
    return nullptr;
  }
  if (names != nullptr &&
      (!names->is_array() || names->as_array().size() != 1 || !names->as_array()[0].is_string())) {
    reader->Fail("architectures", "one name in an array is needed; " + supported);
    return nullptr;
  }
  const Architecture* found = nullptr;
  for (const Architecture& candidate : kArchitectures) {
    const bool matches = names != nullptr ? names->as_array()[0].as_string() == candidate.name
                                          : *model_type == candidate.model_type;
    if (matches) found = &candidate;
  }
  if (found == nullptr) {
    reader->Fail(names != nullptr ? "architectures" : "model_type", supported);
  } else if (model_type && *model_type != found->model_type) {
    reader->Fail("model_type", supported);
  } else {
    config->architecture = found->name;
    config->model_type = found->model_type;
  }
  return reader->ok() ? found : nullptr;
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

// One object of rotary settings, under either of its names. `theta` is the top level's.
RopeConfig ReadRopeObject(FieldReader* reader, double theta) {
  RopeConfig rope;
  rope.theta = reader->Number("rope_theta", kThetaRange, theta);
  const NeutralKey whole_head = {"partial_rotary_factor", Json(1), "only 1 is supported"};
  CheckNeutral({&whole_head, 1}, reader);

  constexpr const char* kSupported = "\"default\", \"linear\" and \"llama3\" are supported";
  const char* key = reader->Find("rope_type") == nullptr && reader->Find("type") != nullptr
                        ? "type"
                        : "rope_type";
  const std::string type = reader->OptionalString(key, kSupported).value_or("default");
  if (type == "default" || type == "none") return rope;
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = reader->Number("factor", kFactorRange);
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = reader->Number("factor", kFactorRange);
    rope.low_freq_factor = reader->Number("low_freq_factor", kFrequencyFactorRange);
    rope.high_freq_factor = reader->Number("high_freq_factor", kFrequencyFactorRange);
    rope.original_max_seq_len = reader->Int("original_max_position_embeddings", kSeqLenRange);
    // The blend between the two divides by their difference.
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      reader->Fail("high_freq_factor", "a number above low_freq_factor is supported");
    }
  } else {
    reader->Fail(key, kSupported);
  }
  return rope;
}

void ReadRope(FieldReader* reader, ModelConfig* config) {
  const double theta = reader->Number("rope_theta", kThetaRange, kDefaultTheta);
  config->rope.theta = theta;
  bool stated = false;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    std::optional<FieldReader> object = reader->Object(key);
    if (!object) continue;
    const RopeConfig rope = ReadRopeObject(&*object, theta);
    reader->Absorb(*object);
    if (stated && !(rope == config->rope)) {
      reader->Fail(key, "the same settings as in rope_parameters are needed, or neither");
    }
    config->rope = rope;
    stated = true;
  }
}

void ReadSizes(const Architecture& architecture, FieldReader* reader, ModelConfig* config) {
  config->vocab_size = reader->Int("vocab_size", kVocabRange);
  config->hidden_size = reader->Int("hidden_size", kWidthRange);
  config->intermediate_size = reader->Int("intermediate_size", kWidthRange);
  config->num_layers = static_cast<int32_t>(reader->Int("num_hidden_layers", kLayersRange));
  config->num_heads = static_cast<int32_t>(reader->Int("num_attention_heads", kHeadsRange));
  config->num_kv_heads = static_cast<int32_t>(
      reader->Int("num_key_value_heads", kHeadsRange,
                  architecture.num_kv_heads > 0 ? architecture.num_kv_heads : config->num_heads));
  config->max_seq_len =
      reader->Int("max_position_embeddings", kSeqLenRange, architecture.max_seq_len);
  config->rms_norm_eps = reader->Number("rms_norm_eps", kEpsRange, kDefaultEps);
  if (!reader->ok()) return;

  if (config->num_heads % config->num_kv_heads != 0) {
    return reader->Fail(
        "num_key_value_heads",
        fmt::format("a divisor of num_attention_heads ({}) is needed", config->num_heads));
  }
  std::optional<int64_t> head_dim = reader->OptionalInt("head_dim", kHeadDimRange);
  if (!head_dim && architecture.head_dim > 0) head_dim = architecture.head_dim;
  if (!head_dim && config->hidden_size % config->num_heads != 0) {
    return reader->Fail("num_attention_heads",
                        fmt::format("without head_dim a divisor of hidden_size ({}) is needed",
                                    config->hidden_size));
  }
  config->head_dim =
      static_cast<int32_t>(head_dim.value_or(config->hidden_size / config->num_heads));
  if (config->head_dim % 2 != 0 || config->head_dim > kHeadDimRange.max) {
    reader->FailWith("head_dim", fmt::format("{}", config->head_dim),
                     fmt::format("an even number up to {} is supported", kHeadDimRange.max));
  }
}

}  // namespace

Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& file) {
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file, kConfigDepthMax));
  FieldReader reader(json, file);
  ModelConfig config;
  // The first error is the one told: what the model is comes before its details.
  const Architecture* architecture = ReadArchitecture(&reader, &config);
  if (architecture == nullptr) return reader.status();
  CheckTopLevelNeutral(&reader);
  CheckAttention(json, *architecture, &reader);
  ReadDType(&reader, &config);
  ReadSizes(*architecture, &reader, &config);
  ReadRope(&reader, &config);
  config.tie_word_embeddings = reader.Bool("tie_word_embeddings", false);
  if (reader.ok()) {
    if (const auto bos = reader.OptionalInt("bos_token_id", {0, config.vocab_size - 1})) {
      config.bos_token_id = static_cast<TokenId>(*bos);
    }
    config.eos_token_ids = reader.TokenIds("eos_token_id", config.vocab_size);
  }
  if (!reader.ok()) return reader.status();
  return config;
}

Result<ModelConfig> LoadModelConfig(const std::string& model_dir) {
  MINISGL_RETURN_IF_ERROR(CheckModelDir(model_dir));
  if (!IsListed(model_dir, "config.json")) return MissingFile(model_dir, "config.json");
  const std::string path = JoinPath(model_dir, "config.json");
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesMax));
  return ParseModelConfig(text, path);
}

}  // namespace minisgl
