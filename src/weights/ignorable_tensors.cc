// Tensors of files that no part of the model reads, and are known to be harmless.
#include <fmt/core.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "weights/architecture_table.h"
#include "weights/architectures.h"
#include "weights/wrappers.h"

namespace minisgl::weights {
namespace {

// A tensor's layer, and its name within that.
struct InLayer {
  int32_t layer;
  std::string_view name;
};

std::optional<InLayer> LayerOf(const ModelConfig& config, std::string_view name) {
  const Architecture* const entry = FindArchitecture(config.architecture);
  const std::string layers = fmt::format("{}.", entry == nullptr ? "layers" : entry->layers);
  if (!name.starts_with(config.text_prefix)) return std::nullopt;
  name.remove_prefix(config.text_prefix.size());
  if (!name.starts_with(layers)) return std::nullopt;
  name.remove_prefix(layers.size());
  int32_t layer = -1;
  const char* const all_end = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data(), all_end, layer);
  if (error != std::errc() || end == all_end || *end != '.' || layer < 0) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end - name.data()) + 1);
  return InLayer{layer, name};
}

// True for keys and values of a layer that reads another layer's: some files keep them.
bool IsOfSharedKeys(const ModelConfig& config, std::string_view name) {
  const std::optional<InLayer> place = LayerOf(config, name);
  if (!place || place->layer >= std::ssize(config.layers)) return false;
  if (config.layers[static_cast<size_t>(place->layer)].kv_layer < 0) return false;
  for (const std::string_view part : {"k_proj.", "v_proj.", "k_norm.", "v_norm."}) {
    if (place->name.starts_with(fmt::format("self_attn.{}", part))) return true;
  }
  return false;
}

// True for what an encoder's files have behind or beside its layers: heads that predict words or
// labels (encoder_head.h), the product over the first token, and the numbers of positions.
bool IsOfHead(const ModelConfig& config, std::string_view name) {
  for (const std::string_view head :
       {"cls.", "lm_head.", "head.", "decoder.", "classifier.", "pre_classifier.", "vocab_"}) {
    if (name.starts_with(head)) return true;
  }
  if (!name.starts_with(config.text_prefix)) return false;
  name.remove_prefix(config.text_prefix.size());
  return name.starts_with("pooler.") || name == "embeddings.position_ids" ||
         name == "embeddings.token_type_ids";
}

}  // namespace

bool IsOfPredictionLayer(const ModelConfig& config, std::string_view name) {
  if (name.starts_with("mtp.")) return true;
  if (config.num_prediction_layers > 0 && name.starts_with(config.text_prefix + "mtp_"))
    return true;
  const std::optional<InLayer> place = LayerOf(config, name);
  return place && place->layer >= config.num_layers &&
         place->layer - config.num_layers < config.num_prediction_layers;
}

bool IsIgnorable(const ModelConfig& config, std::string_view name) {
  // Old conversions stored the rotary frequencies, some also tables computed from them.
  for (const char* table : {"inv_freq", "original_inv_freq", "cos_cached", "sin_cached"}) {
    if (name.ends_with(fmt::format(".rotary_emb.{}", table))) return true;
  }
  if (config.is_encoder && IsOfHead(config, name)) return true;
  // The head of a classifier (score_head.h).
  if (config.lacks_head && name.starts_with("score.")) return true;
  return IsOfPredictionLayer(config, name) || IsOfSharedKeys(config, name) ||
         (!config.wrapper.empty() && !OtherPartOf(name).empty()) ||
         (config.tie_word_embeddings && name == config.head_prefix + "lm_head.weight");
}

}  // namespace minisgl::weights
