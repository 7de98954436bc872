// Any text as config.json, generation_config.json and a shard index: refused in one readable line,
// or every number that the decoder divides by or allocates from is in its range.
#include <cstdint>
#include <string>

#include "minisgl/base/utf8.h"
#include "minisgl/weights/model_config.h"
#include "weights/shard_index.h"

namespace {

using namespace minisgl;

void CheckReadable(const Status& status) {
  const std::string& message = status.message();
  MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
  MINISGL_CHECK(status.code() == StatusCode::kBadInput, "code {}", static_cast<int>(status.code()));
}

void CheckIds(const std::vector<TokenId>& ids, int64_t vocab_size) {
  for (TokenId id : ids) MINISGL_CHECK(id >= 0 && id < vocab_size, "id {}", id);
}

void CheckConfig(const ModelConfig& config) {
  MINISGL_CHECK(config.vocab_size > 0 && config.hidden_size > 0 && config.intermediate_size > 0 &&
                    config.num_layers > 0 && config.max_seq_len > 0,
                "a size is not positive");
  MINISGL_CHECK(config.num_heads > 0 && config.num_kv_heads > 0 &&
                    config.num_heads % config.num_kv_heads == 0,
                "heads do not divide");
  MINISGL_CHECK(config.head_dim > 0 && config.head_dim % 2 == 0, "head_dim {}", config.head_dim);
  MINISGL_CHECK(config.rms_norm_eps > 0 && config.rope.theta >= 1 && config.rope.factor >= 1,
                "a number is out of its range");
  MINISGL_CHECK(config.rope.high_freq_factor > config.rope.low_freq_factor, "no blend");
  CheckIds(config.eos_token_ids, config.vocab_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = ParseModelConfig(text, "config.json");
  if (config.ok()) {
    CheckConfig(*config);
  } else {
    CheckReadable(config.status());
  }
  const auto generation = ParseGenerationConfig(text, "generation_config.json", 1000);
  if (generation.ok()) {
    CheckIds(generation->eos_token_ids, 1000);
  } else {
    CheckReadable(generation.status());
  }
  const auto index = ParseShardIndex(text, "index.json");
  if (!index.ok()) {
    CheckReadable(index.status());
    return 0;
  }
  for (const std::string& shard : index->shards) {
    MINISGL_CHECK(!shard.empty() && shard.find('/') == std::string::npos && shard != "..",
                  "leads out of the directory");
  }
  return 0;
}
