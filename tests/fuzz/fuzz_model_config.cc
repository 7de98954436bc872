// Any text as config.json, generation_config.json and a shard index: either rejected with one
// readable line, or every number by which the decoder divides or allocates is in its range.
#include <cstdint>
#include <string>

#include "minisgl/base/utf8.h"
#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"
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

void CheckRope(const RopeConfig& rope, int32_t head_dim) {
  MINISGL_CHECK(rope.dim >= 2 && rope.dim % 2 == 0 && rope.dim <= head_dim, "dim {}", rope.dim);
  MINISGL_CHECK(rope.theta >= 1 && rope.factor > 0 && rope.attention_factor > 0,
                "a number of the rotary is out of its range");
  MINISGL_CHECK(rope.high_freq_factor > rope.low_freq_factor, "no blend");
  MINISGL_CHECK(rope.beta_fast > 0 && rope.beta_slow > 0, "betas");
  const bool has_length =
      rope.scaling != RopeScaling::kNone && rope.scaling != RopeScaling::kLinear;
  MINISGL_CHECK(!has_length || rope.original_max_seq_len > 1, "no length to scale from");
  const bool is_long = rope.scaling == RopeScaling::kLongRope;
  const size_t pairs = is_long ? static_cast<size_t>(rope.dim / 2) : 0;
  MINISGL_CHECK(rope.short_factors.size() == pairs && rope.long_factors.size() == pairs, "factors");
  for (const double factor : rope.long_factors) MINISGL_CHECK(factor > 0, "factor {}", factor);
}

void CheckExperts(const ExpertsConfig& experts) {
  if (experts.num_experts == 0) return;
  MINISGL_CHECK(experts.num_chosen > 0 && experts.num_chosen <= experts.num_experts &&
                    experts.intermediate_size > 0 && experts.shared_intermediate_size >= 0,
                "experts are out of range");
  const Routing& routing = experts.routing;
  MINISGL_CHECK(routing.num_groups > 0 && experts.num_experts % routing.num_groups == 0 &&
                    routing.num_chosen_groups > 0 &&
                    routing.num_chosen_groups <= routing.num_groups,
                "groups of experts are out of range");
  const int32_t group_size = experts.num_experts / routing.num_groups;
  MINISGL_CHECK(group_size >= routing.best_of_group &&
                    experts.num_chosen <= routing.num_chosen_groups * group_size,
                "groups of experts are too small");
}

void CheckConfig(const ModelConfig& config) {
  MINISGL_CHECK(config.vocab_size > 0 && config.hidden_size > 0 && config.intermediate_size > 0 &&
                    config.num_layers > 0 && config.max_seq_len > 0,
                "a size is not positive");
  MINISGL_CHECK(config.num_heads > 0 && config.num_kv_heads > 0 &&
                    config.num_heads % config.num_kv_heads == 0,
                "heads do not divide");
  MINISGL_CHECK(config.head_dim > 0 && config.head_dim % 2 == 0, "head_dim {}", config.head_dim);
  MINISGL_CHECK(config.norm_eps > 0 && config.embedding_scale > 0 && config.residual_scale > 0 &&
                    config.logit_scale > 0 && config.attention_scale >= 0,
                "a number is out of its range");
  MINISGL_CHECK(config.query_scale_beta == 0 || config.query_scale_length > 0, "divides by zero");
  for (const RopeConfig& rope : config.ropes) CheckRope(rope, config.head_dim);
  MINISGL_CHECK(config.layers.size() == static_cast<size_t>(config.num_layers), "layers are amiss");
  for (const LayerConfig& layer : config.layers) {
    MINISGL_CHECK(layer.sliding_window >= 0 && layer.rope >= -1 &&
                      layer.rope < static_cast<int32_t>(config.ropes.size()),
                  "a layer is out of range");
    MINISGL_CHECK(!layer.has_experts || config.experts.num_experts > 0, "experts are amiss");
  }
  CheckExperts(config.experts);
  for (const auto& tensors : {weights::ModelTensors(config), weights::LayerTensors(config, 0)}) {
    for (const weights::TensorSpec& spec : tensors) {
      for (const std::string& symbol : spec.dims) {
        MINISGL_CHECK(weights::SymbolSize(config, symbol).value_or(0) > 0, "{} of {}", symbol,
                      spec.name);
      }
    }
  }
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
  const auto index = weights::ParseShardIndex(text, "index.json");
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
