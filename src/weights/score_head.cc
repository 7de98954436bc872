// See score_head.h.
#include "minisgl/weights/score_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/weights/checkpoint.h"
#include "weights/encoder_head.h"
#include "weights/field_reader.h"
#include "weights/model_dir.h"

namespace minisgl {
namespace weights {
namespace {

constexpr int kHeadConfigDepthMax = 64;
constexpr size_t kLabelBytesMax = 1000;

constexpr const char* kOneLayer = "score";
constexpr const char* kFirstLayer = "score.0";
constexpr const char* kSecondLayer = "score.2";

std::string WeightOf(const std::string& layer) { return layer + ".weight"; }

// The names of the labels, LABEL_0 and so on where the file has none. A name of two labels would
// tell of neither.
std::vector<std::string> LabelsOf(const FieldReader& reader, int64_t count) {
  std::vector<std::string> labels, numbered;
  const Json* const names = reader.Find("id2label");
  for (int64_t i = 0; i < count; ++i) {
    numbered.push_back(fmt::format("LABEL_{}", i));
    const Json* const name =
        names != nullptr && names->is_object() ? names->Find(fmt::format("{}", i)) : nullptr;
    const bool is_usable =
        name != nullptr && name->is_string() && name->as_string().size() <= kLabelBytesMax;
    labels.push_back(is_usable ? name->as_string() : numbered.back());
  }
  const std::set<std::string> distinct(labels.begin(), labels.end());
  return std::ssize(distinct) == count ? labels : numbered;
}

ScoreHead::Scale ScaleOf(const std::string& problem, int64_t num_labels, bool is_reward) {
  if (is_reward || problem == "regression") return ScoreHead::Scale::kNone;
  const bool excludes = num_labels > 1 && problem != "multi_label_classification";
  return excludes ? ScoreHead::Scale::kSoftmax : ScoreHead::Scale::kSigmoid;
}

bool IsRewardModel(const FieldReader& reader) {
  const Json* const names = reader.Find("architectures");
  if (names == nullptr || !names->is_array() || names->as_array().empty()) return false;
  const Json& name = names->as_array()[0];
  return name.is_string() && name.as_string().ends_with("RewardModel");
}

// `reader`: of config.json.
Status ReadLabels(const ModelConfig& config, FieldReader& reader, ScoreHead* head) {
  constexpr const char* kProblems =
      "regression, single_label_classification and multi_label_classification are supported";
  const std::string problem = reader.OptionalString("problem_type", kProblems).value_or("");
  const bool is_known = problem.empty() || problem == "regression" ||
                        problem == "single_label_classification" ||
                        problem == "multi_label_classification";
  if (!is_known) reader.Fail("problem_type", kProblems);
  const std::vector<TokenId> pads = reader.TokenIds("pad_token_id", config.vocab_size);
  if (!reader.ok()) return reader.status();
  if (pads.size() == 1 && !config.is_encoder) head->pad_id = pads[0];
  const int64_t count = head->layers.back().product.out;
  head->labels = LabelsOf(reader, count);
  head->scale = ScaleOf(problem, count, IsRewardModel(reader));
  return Status();
}

std::vector<float> Multiply(const DenseModule& dense, const std::vector<float>& input) {
  std::vector<float> output(static_cast<size_t>(dense.out));
  const auto width = static_cast<size_t>(dense.in);
  for (size_t o = 0; o < output.size(); ++o) {
    double sum = dense.bias.empty() ? 0.0 : double{dense.bias[o]};
    for (size_t i = 0; i < width; ++i) sum += double{dense.weight[o * width + i]} * input[i];
    output[o] = static_cast<float>(sum);
  }
  return output;
}

double Activate(HeadActivation activation, double value) {
  switch (activation) {
    case HeadActivation::kNone:
      break;
    case HeadActivation::kRelu:
      return std::max(value, 0.0);
    case HeadActivation::kTanh:
      return std::tanh(value);
    case HeadActivation::kGelu:
      return value / 2 * (1 + std::erf(value / std::sqrt(2.0)));
  }
  return value;
}

void NormOutput(const HeadLayer& layer, std::vector<float>* values) {
  double mean = 0, variance = 0;
  const auto count = static_cast<double>(values->size());
  for (const float value : *values) mean += value / count;
  for (const float value : *values) variance += (value - mean) * (value - mean) / count;
  const double factor = 1 / std::sqrt(variance + layer.norm_eps);
  for (size_t i = 0; i < values->size(); ++i) {
    const double bias = layer.norm_bias.empty() ? 0 : layer.norm_bias[i];
    (*values)[i] = static_cast<float>(((*values)[i] - mean) * factor * layer.norm_weight[i] + bias);
  }
}

std::vector<float> Apply(const HeadLayer& layer, const std::vector<float>& input) {
  std::vector<float> output = Multiply(layer.product, input);
  for (float& value : output) value = static_cast<float>(Activate(layer.activation, value));
  if (!layer.norm_weight.empty()) NormOutput(layer, &output);
  return output;
}

double Sigmoid(double value) { return 1 / (1 + std::exp(-value)); }

// A row of the output head, dense or quantized.
Result<std::vector<float>> ReadHeadRow(const Checkpoint& checkpoint, const std::string& name,
                                       int64_t row, const ModelConfig& config) {
  std::vector<float> values(static_cast<size_t>(config.hidden_size));
  if (const WeightTensor* const matrix = checkpoint.FindMatrix(name)) {
    if (matrix->num_in() != config.hidden_size || row >= matrix->num_out()) {
      return BadInput("tensor {} has shape {}, {} is needed", name,
                      ShapeToString({matrix->num_out(), matrix->num_in()}),
                      ShapeToString({config.vocab_size, config.hidden_size}));
    }
    matrix->ReadRow(row, values.data());
    return values;
  }
  MINISGL_ASSIGN_OR_RETURN(const TensorView tensor, checkpoint.Get(name));
  const bool fits =
      tensor.shape.size() == 2 && row < tensor.shape[0] && tensor.shape[1] == config.hidden_size;
  if (!fits) {
    return BadInput("{}: tensor {} has shape {}, {} is needed", checkpoint.FileOf(name), name,
                    ShapeToString(tensor.shape),
                    ShapeToString({config.vocab_size, config.hidden_size}));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.At(row * config.hidden_size + static_cast<int64_t>(i));
  }
  return values;
}

}  // namespace
}  // namespace weights

Result<bool> HasScoreHead(const std::string& model_dir, const ModelConfig& config) {
  // A GGUF file has a head of scores only beside an encoder, and opening it reads its vocabulary.
  if (IsGgufFile(model_dir) && !config.is_encoder) return false;
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_dir));
  return checkpoint->Has(weights::WeightOf(weights::kOneLayer)) ||
         checkpoint->Has(weights::WeightOf(weights::kFirstLayer)) ||
         weights::HasEncoderHead(*checkpoint, config);
}

Result<ScoreHead::Scale> PairScale(const std::string& model_dir) {
  MINISGL_ASSIGN_OR_RETURN(const auto stated, weights::StatedPairScale(model_dir));
  return stated.value_or(ScoreHead::Scale::kSigmoid);
}

Result<ScoreHead> LoadScoreHead(const std::string& model_dir, const ModelConfig& config) {
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_dir));
  ScoreHead head;
  int64_t width = config.hidden_size;
  const auto add = [&](const char* name, HeadActivation activation) -> Status {
    HeadLayer layer;
    MINISGL_ASSIGN_OR_RETURN(layer.product,
                             weights::ReadProduct(*checkpoint, name, width, /*needs_bias=*/false));
    layer.activation = activation;
    width = layer.product.out;
    head.layers.push_back(std::move(layer));
    return Status();
  };
  const bool has_one = checkpoint->Has(weights::WeightOf(weights::kOneLayer));
  const bool has_two = checkpoint->Has(weights::WeightOf(weights::kFirstLayer));
  const bool is_encoders = weights::HasEncoderHead(*checkpoint, config);
  if (!has_one && !has_two && !is_encoders) {
    return UsageError(
        "the model is no classifier: it has no tensor {}, the head of ...ForSequenceClassification",
        config.is_encoder ? "classifier.weight" : weights::WeightOf(weights::kOneLayer));
  }
  const std::string path =
      IsGgufFile(model_dir) ? model_dir : weights::JoinPath(model_dir, "config.json");
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ModelConfigText(model_dir));
  MINISGL_ASSIGN_OR_RETURN(const Json json,
                           weights::ParseJsonObject(text, path, weights::kHeadConfigDepthMax));
  weights::FieldReader reader(json, path);
  if (is_encoders) {
    MINISGL_RETURN_IF_ERROR(weights::LoadEncoderLayers(*checkpoint, config, &reader, &head));
  } else if (has_one) {
    MINISGL_RETURN_IF_ERROR(add(weights::kOneLayer, HeadActivation::kNone));
  } else {
    MINISGL_RETURN_IF_ERROR(add(weights::kFirstLayer, HeadActivation::kRelu));
    MINISGL_RETURN_IF_ERROR(add(weights::kSecondLayer, HeadActivation::kNone));
  }
  MINISGL_RETURN_IF_ERROR(weights::ReadLabels(config, reader, &head));
  return head;
}

Result<ScoreHead> LoadYesNoHead(const std::string& model_dir, const ModelConfig& config,
                                TokenId yes, TokenId no) {
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_dir));
  constexpr const char* kHead = "lm_head.weight";
  const bool is_tied = config.tie_word_embeddings || !checkpoint->Has(kHead);
  const std::string name = is_tied ? config.text_prefix + "embed_tokens.weight" : kHead;
  MINISGL_ASSIGN_OR_RETURN(std::vector<float> row,
                           weights::ReadHeadRow(*checkpoint, name, yes, config));
  MINISGL_ASSIGN_OR_RETURN(const std::vector<float> other,
                           weights::ReadHeadRow(*checkpoint, name, no, config));
  for (size_t i = 0; i < row.size(); ++i) row[i] -= other[i];
  ScoreHead head;
  HeadLayer layer;
  layer.product = {config.hidden_size, 1, std::move(row), {}, false};
  head.layers.push_back(std::move(layer));
  head.labels = {"yes"};
  head.scale = ScoreHead::Scale::kSigmoid;
  return head;
}

std::vector<float> ScoresOf(const ScoreHead& head, const std::vector<float>& state, bool raw) {
  std::vector<float> scores = state;
  for (const HeadLayer& layer : head.layers) scores = weights::Apply(layer, scores);
  if (raw || head.scale == ScoreHead::Scale::kNone) return scores;
  if (head.scale == ScoreHead::Scale::kSigmoid) {
    for (float& value : scores) value = static_cast<float>(weights::Sigmoid(value));
    return scores;
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const float value : scores) sum += std::exp(value - largest);
  for (float& value : scores) value = static_cast<float>(std::exp(value - largest) / sum);
  return scores;
}

}  // namespace minisgl
