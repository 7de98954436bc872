// See score_head.h.
#include "minisgl/weights/score_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"
#include "weights/field_reader.h"
#include "weights/model_dir.h"
#include "weights/stored_values.h"

namespace minisgl {
namespace weights {
namespace {

constexpr uint64_t kHeadConfigBytesMax = 16 << 20;
constexpr int kHeadConfigDepthMax = 64;
constexpr int64_t kLabelsMax = 1 << 16;
constexpr size_t kLabelBytesMax = 1000;

constexpr const char* kOneLayer = "score";
constexpr const char* kFirstLayer = "score.0";
constexpr const char* kSecondLayer = "score.2";

std::string WeightOf(const std::string& layer) { return layer + ".weight"; }

// The product `layer` of an input of `num_in` elements. How many it gives, its file says.
Result<DenseModule> ReadLayer(const Checkpoint& checkpoint, const std::string& layer,
                              int64_t num_in) {
  const std::string weight = WeightOf(layer), bias = layer + ".bias";
  MINISGL_ASSIGN_OR_RETURN(const TensorView tensor, checkpoint.Get(weight));
  DenseModule dense;
  dense.in = num_in;
  dense.out = tensor.shape.empty() ? 0 : tensor.shape[0];
  if (dense.out < 1 || dense.out > kLabelsMax) {
    return BadInput("{}: tensor {} has shape {}, {} at most are needed", checkpoint.FileOf(weight),
                    weight, ShapeToString(tensor.shape), ShapeToString({kLabelsMax, num_in}));
  }
  MINISGL_ASSIGN_OR_RETURN(dense.weight,
                           weights::ReadStoredValues(checkpoint, weight, {dense.out, num_in}));
  if (checkpoint.Has(bias)) {
    MINISGL_ASSIGN_OR_RETURN(dense.bias, weights::ReadStoredValues(checkpoint, bias, {dense.out}));
  }
  return dense;
}

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

Status ReadLabels(const std::string& model_dir, const ModelConfig& config, ScoreHead* head) {
  const std::string path = JoinPath(model_dir, "config.json");
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kHeadConfigBytesMax));
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, path, kHeadConfigDepthMax));
  FieldReader reader(json, path);
  constexpr const char* kProblems =
      "regression, single_label_classification and multi_label_classification are supported";
  const std::string problem = reader.OptionalString("problem_type", kProblems).value_or("");
  const bool is_known = problem.empty() || problem == "regression" ||
                        problem == "single_label_classification" ||
                        problem == "multi_label_classification";
  if (!is_known) reader.Fail("problem_type", kProblems);
  const std::vector<TokenId> pads = reader.TokenIds("pad_token_id", config.vocab_size);
  if (!reader.ok()) return reader.status();
  if (pads.size() == 1) head->pad_id = pads[0];
  const int64_t count = head->layers.back().out;
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

Result<bool> HasScoreHead(const std::string& model_dir) {
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_dir));
  return checkpoint->Has(weights::WeightOf(weights::kOneLayer)) ||
         checkpoint->Has(weights::WeightOf(weights::kFirstLayer));
}

Result<ScoreHead> LoadScoreHead(const std::string& model_dir, const ModelConfig& config) {
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_dir));
  ScoreHead head;
  int64_t width = config.hidden_size;
  const auto add = [&](const char* layer) -> Status {
    MINISGL_ASSIGN_OR_RETURN(DenseModule dense, weights::ReadLayer(*checkpoint, layer, width));
    width = dense.out;
    head.layers.push_back(std::move(dense));
    return Status();
  };
  if (checkpoint->Has(weights::WeightOf(weights::kOneLayer))) {
    MINISGL_RETURN_IF_ERROR(add(weights::kOneLayer));
  } else if (checkpoint->Has(weights::WeightOf(weights::kFirstLayer))) {
    MINISGL_RETURN_IF_ERROR(add(weights::kFirstLayer));
    MINISGL_RETURN_IF_ERROR(add(weights::kSecondLayer));
  } else {
    return UsageError(
        "the model is no classifier: it has no tensor {}, the head of ...ForSequenceClassification",
        weights::WeightOf(weights::kOneLayer));
  }
  MINISGL_RETURN_IF_ERROR(weights::ReadLabels(model_dir, config, &head));
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
  head.layers.push_back({config.hidden_size, 1, std::move(row), {}, false});
  head.labels = {"yes"};
  head.scale = ScoreHead::Scale::kSigmoid;
  return head;
}

std::vector<float> ScoresOf(const ScoreHead& head, const std::vector<float>& state, bool raw) {
  std::vector<float> scores = state;
  for (size_t i = 0; i < head.layers.size(); ++i) {
    if (i > 0) {
      for (float& value : scores) value = std::max(value, 0.0F);
    }
    scores = weights::Multiply(head.layers[i], scores);
  }
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
