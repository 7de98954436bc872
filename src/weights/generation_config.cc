// generation_config.json: the model's sampling defaults. Keys of other decoding methods are
// ignored, because they change nothing unless requested.
#include "minisgl/base/file_kind.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/weights/model_config.h"
#include "weights/field_reader.h"
#include "weights/model_dir.h"

namespace minisgl::weights {
namespace {

constexpr const char* kFileName = "generation_config.json";
constexpr uint64_t kGenerationConfigBytesMax = 1 << 20;
constexpr int kGenerationConfigDepthMax = 32;

constexpr NumberRange kTemperatureRange = {0, 100};
constexpr NumberRange kTopPRange = {0, 1, true};
constexpr NumberRange kMinPRange = {0, 1};
constexpr NumberRange kPenaltyRange = {0, 100, true};
constexpr IntRange kTopKRange = {0, (int64_t{1} << 31) - 1};
constexpr IntRange kNewTokensRange = {1, 1 << 30};

Result<GenerationConfig> ReadGenerationConfig(const std::string& text, const std::string& file,
                                              int64_t vocab_size) {
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file, kGenerationConfigDepthMax));
  FieldReader reader(json, file);
  GenerationConfig config;
  config.eos_token_ids = reader.TokenIds("eos_token_id", vocab_size);
  config.do_sample = reader.OptionalBool("do_sample");
  config.temperature = reader.OptionalNumber("temperature", kTemperatureRange);
  config.top_p = reader.OptionalNumber("top_p", kTopPRange);
  config.min_p = reader.OptionalNumber("min_p", kMinPRange);
  config.repetition_penalty = reader.OptionalNumber("repetition_penalty", kPenaltyRange);
  if (const auto top_k = reader.OptionalInt("top_k", kTopKRange)) {
    config.top_k = static_cast<int32_t>(*top_k);
  }
  config.max_new_tokens = reader.OptionalInt("max_new_tokens", kNewTokensRange);
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
  if (!weights::IsListed(model_dir, weights::kFileName)) return GenerationConfig();
  const std::string path = weights::JoinPath(model_dir, weights::kFileName);
  MINISGL_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(path, weights::kGenerationConfigBytesMax));
  Result<GenerationConfig> config = ParseGenerationConfig(text, path, vocab_size);
  if (!config.ok()) return OrFileKind(config.status(), text, path);
  return config;
}

}  // namespace minisgl
