// generation_config.json: the model's sampling defaults. Keys of other decoding methods are
// ignored, because they change nothing unless requested. -1 turns a setting off, as null does:
// files are written for several engines, of which some read it so.
#include "minisgl/base/file_kind.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/sampling_fields.h"
#include "minisgl/weights/model_config.h"
#include "weights/field_reader.h"
#include "weights/model_dir.h"

namespace minisgl::weights {
namespace {

constexpr const char* kFileName = "generation_config.json";
constexpr uint64_t kGenerationConfigBytesMax = 1 << 20;
constexpr int kGenerationConfigDepthMax = 32;

constexpr IntRange kNewTokensRange = {1, 1 << 30};  // narrower than kMaxTokensRange

// True for null and -1.
bool IsOff(const char* key, const FieldReader& reader) {
  const Json* value = reader.Find(key);
  return value == nullptr || (value->is_number() && value->as_double() == -1);
}

void ReadField(const NumberField& field, FieldReader* reader, GenerationConfig* config) {
  if (IsOff(field.name, *reader)) return;
  config->*field.override_value = reader->OptionalNumber(field.name, field.range);
}

void ReadField(const IntField& field, FieldReader* reader, GenerationConfig* config) {
  if (IsOff(field.name, *reader)) return;
  if (const auto value = reader->OptionalInt(field.name, field.range)) {
    config->*field.override_value = static_cast<int32_t>(*value);
  }
}

Result<GenerationConfig> ReadGenerationConfig(const std::string& text, const std::string& file,
                                              int64_t vocab_size) {
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file, kGenerationConfigDepthMax));
  FieldReader reader(json, file);
  GenerationConfig config;
  config.eos_token_ids = reader.TokenIds("eos_token_id", vocab_size);
  config.do_sample = reader.OptionalBool("do_sample");
  ReadField(kTemperature, &reader, &config);
  ReadField(kTopP, &reader, &config);
  ReadField(kMinP, &reader, &config);
  ReadField(kRepetitionPenalty, &reader, &config);
  ReadField(kTopK, &reader, &config);
  if (!IsOff("max_new_tokens", reader)) {
    config.max_new_tokens = reader.OptionalInt("max_new_tokens", kNewTokensRange);
  }
  if (!reader.ok()) return reader.status();
  return config;
}
}  // namespace
}  // namespace minisgl::weights

namespace minisgl {

Result<GenerationConfig> ParseGenerationConfig(const std::string& text, const std::string& file,
                                               int64_t vocab_size) {
  return weights::ReadGenerationConfig(text, file, vocab_size);
}

Result<GenerationConfig> LoadGenerationConfig(const std::string& model_dir, int64_t vocab_size) {
  // The end tokens of a GGUF file are in its configuration; it states no sampling.
  if (IsGgufFile(model_dir) || !weights::IsListed(model_dir, weights::kFileName))
    return GenerationConfig();
  const std::string path = weights::JoinPath(model_dir, weights::kFileName);
  MINISGL_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(path, weights::kGenerationConfigBytesMax));
  Result<GenerationConfig> config = ParseGenerationConfig(text, path, vocab_size);
  if (!config.ok()) return OrFileKind(config.status(), text, path);
  return config;
}

}  // namespace minisgl
