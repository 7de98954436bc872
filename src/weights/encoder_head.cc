// See encoder_head.h.
#include "weights/encoder_head.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "minisgl/base/mapped_file.h"
#include "weights/config_keys.h"
#include "weights/model_dir.h"
#include "weights/stored_values.h"

namespace minisgl::weights {
namespace {

constexpr uint64_t kSettingsBytesMax = 16 << 20;
constexpr int kSettingsDepthMax = 64;
constexpr int64_t kHeadWidthMax = 1 << 16;
constexpr const char* kClassifier = "classifier";

// The prefix that the tensors of the encoder's class have, as "bert.".
std::string PrefixOf(const Checkpoint& checkpoint, const ModelConfig& config) {
  for (const char* const prefix : {"bert.", "nomic_bert.", "roberta.", "distilbert.", "mpnet."}) {
    if (checkpoint.Has(std::string(prefix) + "pooler.dense.weight")) return prefix;
  }
  return config.text_prefix;
}

Status AddLayer(const Checkpoint& checkpoint, const std::string& name, HeadActivation activation,
                bool needs_bias, int64_t* width, ScoreHead* head) {
  HeadLayer layer;
  MINISGL_ASSIGN_OR_RETURN(layer.product, ReadProduct(checkpoint, name, *width, needs_bias));
  layer.activation = activation;
  *width = layer.product.out;
  head->layers.push_back(std::move(layer));
  return Status();
}

// "cls" or "mean", and the activation and the norm behind the first product.
Status AddModernBert(const Checkpoint& checkpoint, const ModelConfig& config, FieldReader* reader,
                     int64_t* width, ScoreHead* head) {
  constexpr const char* kPoolings = "cls and mean are supported";
  const std::string pooling =
      reader->OptionalString("classifier_pooling", kPoolings).value_or("cls");
  if (pooling != "cls" && pooling != "mean") reader->Fail("classifier_pooling", kPoolings);
  head->pooling = pooling == "mean" ? Pooling::kMean : Pooling::kFirst;
  constexpr const char* kActivations = "gelu, relu and tanh are supported";
  const std::string name =
      reader->OptionalString("classifier_activation", kActivations).value_or("gelu");
  const HeadActivation activation = name == "relu"   ? HeadActivation::kRelu
                                    : name == "tanh" ? HeadActivation::kTanh
                                                     : HeadActivation::kGelu;
  if (activation == HeadActivation::kGelu && name != "gelu") {
    reader->Fail("classifier_activation", kActivations);
  }
  MINISGL_RETURN_IF_ERROR(AddLayer(checkpoint, "head.dense", activation,
                                   reader->Bool("classifier_bias", false), width, head));
  HeadLayer& layer = head->layers.back();
  MINISGL_ASSIGN_OR_RETURN(layer.norm_weight,
                           ReadStoredValues(checkpoint, "head.norm.weight", {*width}));
  if (checkpoint.Has("head.norm.bias")) {
    MINISGL_ASSIGN_OR_RETURN(layer.norm_bias,
                             ReadStoredValues(checkpoint, "head.norm.bias", {*width}));
  }
  layer.norm_eps = config.norm_eps;
  return Status();
}

}  // namespace

Result<DenseModule> ReadProduct(const Checkpoint& checkpoint, const std::string& layer,
                                int64_t num_in, bool needs_bias) {
  const std::string weight = layer + ".weight", bias = layer + ".bias";
  MINISGL_ASSIGN_OR_RETURN(const TensorView tensor, checkpoint.Get(weight));
  DenseModule dense;
  dense.in = num_in;
  dense.out = tensor.shape.empty() ? 0 : tensor.shape[0];
  if (dense.out < 1 || dense.out > kHeadWidthMax) {
    return BadInput("{}: tensor {} has shape {}, {} at most are needed", checkpoint.FileOf(weight),
                    weight, ShapeToString(tensor.shape), ShapeToString({kHeadWidthMax, num_in}));
  }
  MINISGL_ASSIGN_OR_RETURN(dense.weight, ReadStoredValues(checkpoint, weight, {dense.out, num_in}));
  if (needs_bias || checkpoint.Has(bias)) {
    MINISGL_ASSIGN_OR_RETURN(dense.bias, ReadStoredValues(checkpoint, bias, {dense.out}));
  }
  return dense;
}

bool HasEncoderHead(const Checkpoint& checkpoint, const ModelConfig& config) {
  return config.is_encoder &&
         (checkpoint.Has("classifier.weight") || checkpoint.Has("classifier.out_proj.weight"));
}

Status LoadEncoderLayers(const Checkpoint& checkpoint, const ModelConfig& config,
                         FieldReader* reader, ScoreHead* head) {
  int64_t width = config.hidden_size;
  const auto add = [&](const std::string& name, HeadActivation activation) {
    return AddLayer(checkpoint, name, activation, /*needs_bias=*/true, &width, head);
  };
  head->pooling = Pooling::kFirst;
  if (checkpoint.Has("classifier.out_proj.weight")) {
    if (!checkpoint.Has("classifier.dense.weight")) {
      return BadInput(
          "{}: has the last product of a head and not the one before it (a GGUF file's "
          "cls.weight), "
          "which converters leave out of BertForSequenceClassification; use the model's directory",
          checkpoint.FileOf("classifier.out_proj.weight"));
    }
    MINISGL_RETURN_IF_ERROR(add("classifier.dense", HeadActivation::kTanh));
    return add("classifier.out_proj", HeadActivation::kNone);
  }
  if (config.model_type == "modernbert") {
    MINISGL_RETURN_IF_ERROR(AddModernBert(checkpoint, config, reader, &width, head));
  } else if (config.model_type == "distilbert") {
    MINISGL_RETURN_IF_ERROR(add("pre_classifier", HeadActivation::kRelu));
  } else {
    MINISGL_RETURN_IF_ERROR(
        add(PrefixOf(checkpoint, config) + "pooler.dense", HeadActivation::kTanh));
  }
  return add(kClassifier, HeadActivation::kNone);
}

Result<std::optional<ScoreHead::Scale>> StatedPairScale(const std::string& model_dir) {
  using Scale = ScoreHead::Scale;
  const auto read = [&](const char* name, auto find) -> Result<std::optional<Scale>> {
    if (!IsListed(model_dir, name)) return std::optional<Scale>();
    const std::string path = JoinPath(model_dir, name);
    MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kSettingsBytesMax));
    MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, path, kSettingsDepthMax));
    FieldReader reader(json, path);
    constexpr const char* kSupported = "Sigmoid and Identity of torch are supported";
    const auto [key, value] = find(json);
    if (value == nullptr || value->is_null()) return std::optional<Scale>();
    if (*value == Json("torch.nn.modules.activation.Sigmoid"))
      return std::optional(Scale::kSigmoid);
    if (*value == Json("torch.nn.modules.linear.Identity")) return std::optional(Scale::kNone);
    reader.FailWith(key, value->is_string() ? value->Dump() : value->TypeName(), kSupported);
    return reader.status();
  };
  using Found = std::pair<const char*, const Json*>;
  MINISGL_ASSIGN_OR_RETURN(const auto own,
                           read("config_sentence_transformers.json", [](const Json& json) -> Found {
                             return {"activation_fn", json.Find("activation_fn")};
                           }));
  if (own) return own;
  return read("config.json", [](const Json& json) -> Found {
    const Json* const settings = json.Find("sentence_transformers");
    const bool is_new =
        settings != nullptr && settings->is_object() && settings->Find("activation_fn") != nullptr;
    if (is_new) return {"sentence_transformers.activation_fn", settings->Find("activation_fn")};
    constexpr const char* kOld = "sbert_ce_default_activation_function";
    return {kOld, json.Find(kOld)};
  });
}

}  // namespace minisgl::weights
