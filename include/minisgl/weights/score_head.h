// What makes scores of a pooled state of a text: the head of a classifier or of a reward model, or
// the tokens "yes" and "no" of a reranker. Files are untrusted.
//
//   score.weight [labels, H], and score.bias   ...ForSequenceClassification
//   score.0.weight, score.2.weight, with biases   ...ForRewardModel: ReLU between two products
//   an encoder's head   weights/encoder_head.h
//   config.json   id2label, problem_type, pad_token_id
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/weights/model_config.h"
#include "minisgl/weights/vector_pipeline.h"

namespace minisgl {

// kGelu is that of the error function.
enum class HeadActivation : uint8_t { kNone, kRelu, kTanh, kGelu };

// out = norm(activation(product x)). The norm is (x - mean) / sqrt(variance + eps) * weight + bias.
struct HeadLayer {
  DenseModule product;
  HeadActivation activation = HeadActivation::kNone;
  std::vector<float> norm_weight;  // [product.out]; empty: there is no norm
  std::vector<float> norm_bias;    // [product.out] or empty
  double norm_eps = 0;
};

struct ScoreHead {
  // How the numbers of the head become scores. As transformers has it: kSigmoid for one label or
  // several that do not exclude each other, kSoftmax for several, kNone for a regression and for
  // reward models.
  enum class Scale : uint8_t { kNone, kSigmoid, kSoftmax };

  Pooling pooling = Pooling::kLast;  // the state that the first layer takes
  std::vector<HeadLayer> layers;
  std::vector<std::string> labels;  // of the numbers that the last one gives; distinct
  Scale scale = Scale::kNone;
  // The token that texts are padded with. The reference takes the state of the last other token:
  // ends of a text that are this token are left out. Not with heads of encoders.
  std::optional<TokenId> pad_id;
};

// Reads the head of a classifier. kUsage if the model has none; kBadInput for a head that does not
// fit.
Result<ScoreHead> LoadScoreHead(const std::string& model_dir, const ModelConfig& config);
// True if the files of the model have such a head.
Result<bool> HasScoreHead(const std::string& model_dir, const ModelConfig& config);

// The scale of a head with one label that judges pairs of texts: as sentence-transformers' files
// state it (`activation_fn`), else kSigmoid. kBadInput for an activation that is not supported.
Result<ScoreHead::Scale> PairScale(const std::string& model_dir);

// The head whose one number is the logit of the token `yes` less that of `no`, with kSigmoid: the
// probability of `yes` if the answer is one of both.
Result<ScoreHead> LoadYesNoHead(const std::string& model_dir, const ModelConfig& config,
                                TokenId yes, TokenId no);

// The scores of a state. `raw`: the numbers of the head as they are.
std::vector<float> ScoresOf(const ScoreHead& head, const std::vector<float>& state, bool raw);

}  // namespace minisgl
