// See minisgl/weights/prediction_layer.h.
#include "minisgl/weights/prediction_layer.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>

#include "minisgl/base/utf8.h"
#include "weights/architectures.h"

namespace minisgl {
namespace {

// The architectures that store the layer as PredictionLayer says.
PredictionLayer PredictionKindOf(const ModelConfig& target) {
  for (const char* name : {"Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"}) {
    if (target.architecture == name) return PredictionLayer::kApart;
  }
  for (const char* name :
       {"DeepseekV3ForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM"}) {
    if (target.architecture == name) return PredictionLayer::kBehind;
  }
  return PredictionLayer::kNone;
}

std::string PrefixBehind(const ModelConfig& target) {
  return fmt::format("{}layers.{}.", target.text_prefix, target.num_layers);
}

// The tensor without which there is no such layer.
std::string InputOf(const ModelConfig& target, PredictionLayer kind) {
  return kind == PredictionLayer::kApart ? "mtp.fc.weight"
                                         : PrefixBehind(target) + "eh_proj.weight";
}

// The last layer of the target that attends to all keys: a prediction layer has its sizes.
std::optional<LayerConfig> LastFullAttention(const ModelConfig& target) {
  const auto found =
      std::find_if(target.layers.rbegin(), target.layers.rend(), [](const auto& own) {
        return own.mixer == Mixer::kAttention && own.sliding_window == 0 && own.kv_layer < 0;
      });
  if (found == target.layers.rend()) return std::nullopt;
  return *found;
}

// The configuration of a layer of `kind`, without experts.separate; nullopt: no layer of the target
// has its shape.
std::optional<ModelConfig> ConfigOfPrediction(const ModelConfig& target, PredictionLayer kind) {
  const std::optional<LayerConfig> layer = LastFullAttention(target);
  if (!layer) return std::nullopt;
  ModelConfig config = target;
  config.prediction = kind;
  config.num_prediction_layers = 0;
  config.num_layers = 1;
  config.layers = {*layer};
  config.states = StateConfig();
  config.final_norm_is_plain = false;
  if (kind == PredictionLayer::kApart) {
    config.text_prefix = "mtp.";
  } else {
    config.prediction_layer = target.num_layers;
  }
  // Whatever the target's last layer has.
  if (config.experts.num_experts > 0) config.layers[0].has_experts = true;
  return config;
}

// The name of the target's output head if a copy of it in 4 bits is worth its memory: "" if it is
// small, which a cache holds, or if it is stored as codes.
std::string HeadToCopy(const ModelConfig& target, const Checkpoint& checkpoint) {
  constexpr int64_t kElementsMin = int64_t{1} << 25;
  if (target.vocab_size < kElementsMin / target.hidden_size) return "";
  const weights::HeadNames names = weights::HeadNamesOf(target);
  const std::string& name = target.tie_word_embeddings && checkpoint.Holds(names.embedding)
                                ? names.embedding
                                : names.head;
  const auto stored = checkpoint.Get(name);
  const bool has_16_bits =
      stored.ok() && (stored->dtype == DType::kBF16 || stored->dtype == DType::kF16);
  return has_16_bits && checkpoint.FindMatrix(name) == nullptr ? name : "";
}

}  // namespace

namespace weights {

std::optional<ModelConfig> PredictionConfigOf(const ModelConfig& target) {
  const PredictionLayer kind = PredictionKindOf(target);
  return kind == PredictionLayer::kNone ? std::nullopt : ConfigOfPrediction(target, kind);
}

}  // namespace weights

bool HasPredictionLayer(const ModelConfig& target, const Checkpoint& checkpoint) {
  const PredictionLayer kind = PredictionKindOf(target);
  return kind != PredictionLayer::kNone && checkpoint.Holds(InputOf(target, kind));
}

Result<ModelConfig> PredictionLayerOf(const ModelConfig& target, const Checkpoint& checkpoint) {
  const PredictionLayer kind = PredictionKindOf(target);
  if (kind == PredictionLayer::kNone) {
    return BadInput("{} has no layer that predicts further tokens, or none of a kind that is read",
                    Visible(target.architecture, 200));
  }
  if (!checkpoint.Holds(InputOf(target, kind))) {
    return BadInput(
        "the files have no layer that predicts further tokens (\"{}\" is missing); quantized and "
        "converted files often leave it out",
        Visible(InputOf(target, kind), 200));
  }
  std::optional<ModelConfig> config = ConfigOfPrediction(target, kind);
  if (!config) return BadInput("no layer of the model has the shape of a layer that predicts");
  if (config->experts.num_experts > 0) {
    config->experts.separate =
        checkpoint.Has(fmt::format("{}layers.{}.mlp.experts.0.gate_proj.weight",
                                   config->text_prefix, config->prediction_layer));
  }
  config->copied_head = HeadToCopy(target, checkpoint);
  return std::move(*config);
}

}  // namespace minisgl
