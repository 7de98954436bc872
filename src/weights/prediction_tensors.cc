// The tensors of layers and heads that draft from states of a target (ModelConfig::prediction).
#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

class NamedSpecs {
 public:
  void Add(Role role, std::string name, std::vector<std::string> dims) {
    specs_.push_back({role, 0, name + ".weight", std::move(dims), TensorOrder::kPlain, -1});
  }
  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  std::vector<TensorSpec> specs_;
};

std::vector<TensorSpec> OfLayer(const ModelConfig& config) {
  const bool is_apart = config.prediction == PredictionLayer::kApart;
  const std::string prefix =
      is_apart ? config.text_prefix
               : fmt::format("{}layers.{}.", config.text_prefix, config.prediction_layer);
  NamedSpecs specs;
  specs.Add(Role::kPredictionInput, prefix + (is_apart ? "fc" : "eh_proj"), {"D", "2D"});
  specs.Add(Role::kPredictionEmbeddingNorm, prefix + (is_apart ? "pre_fc_norm_embedding" : "enorm"),
            {"D"});
  specs.Add(Role::kPredictionStateNorm, prefix + (is_apart ? "pre_fc_norm_hidden" : "hnorm"),
            {"D"});
  specs.Add(Role::kFinalNorm, prefix + (is_apart ? "norm" : "shared_head.norm"), {"D"});
  std::vector<TensorSpec> all = specs.Take();
  if (!config.copied_head.empty()) {
    all.push_back({Role::kHead, 0, config.copied_head, {"V", "D"}, TensorOrder::kPlain, -1});
  }
  return all;
}

std::vector<TensorSpec> OfAssistant(const ModelConfig& config) {
  NamedSpecs specs;
  specs.Add(Role::kPredictionInput, "pre_projection", {"D", "2B"});
  specs.Add(Role::kPredictionOutput, "post_projection", {"B", "D"});
  if (config.draft_head.num_clusters > 0) {
    specs.Add(Role::kPredictionClusters, "masked_embedding.centroids", {"CT", "D"});
  }
  specs.Add(Role::kFinalNorm, "model.norm", {"D"});
  specs.Add(Role::kHead, "model.embed_tokens", {"V", "D"});
  return specs.Take();
}

std::vector<TensorSpec> OfHead(const ModelConfig& config) {
  const DraftHeadConfig& head = config.draft_head;
  NamedSpecs specs;
  specs.Add(Role::kPredictionInput, head.input_name, {"D", "DT"});
  specs.Add(Role::kPredictionStateNorm, head.norm_name, {"D"});
  specs.Add(Role::kFinalNorm, config.text_prefix + "norm", {"D"});
  if (head.has_embedding) {
    specs.Add(Role::kEmbedding, config.text_prefix + "embed_tokens", {"VI", "D"});
  }
  if (head.has_head) specs.Add(Role::kHead, config.head_prefix + "lm_head", {"V", "D"});
  if (head.transition_rank > 0) {
    const std::string prefix = config.text_prefix + "markov_head.";
    specs.Add(Role::kTransitionInput, prefix + "markov_w1", {"V", "TR"});
    specs.Add(Role::kTransitionOutput, prefix + "markov_w2", {"V", "TR"});
  }
  return specs.Take();
}

}  // namespace

std::vector<TensorSpec> PredictionTensors(const ModelConfig& config) {
  if (config.prediction == PredictionLayer::kAssistant) return OfAssistant(config);
  return config.is_draft_head() ? OfHead(config) : OfLayer(config);
}

void ReadPairs(std::vector<TensorSpec>* layer) {
  for (TensorSpec& spec : *layer) {
    const bool reads_pair =
        spec.role == Role::kQuery || spec.role == Role::kKey || spec.role == Role::kValue;
    if (reads_pair) spec.dims.back() = "2D";
  }
}

}  // namespace minisgl::weights
