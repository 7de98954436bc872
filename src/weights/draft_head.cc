// See minisgl/weights/draft_head.h.
#include "minisgl/weights/draft_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"
#include "weights/architectures.h"
#include "weights/field_reader.h"
#include "weights/model_dir.h"

namespace minisgl {
namespace {

constexpr int kDepthMax = 32;
constexpr IntRange kSizeRange = {1, int64_t{1} << 31};
constexpr IntRange kBlockRange = {2, 1024};
constexpr IntRange kClustersRange = {1, 1 << 20};
constexpr int64_t kTransitionRankMax = 1 << 16;

// Assistants of Muse Glimmer are DFlash heads under other names.
constexpr const char* kGlimmer = "muse_glimmer_assistant";

// What a configuration says that the head is.
enum class HeadKind : uint8_t { kNone, kEagle3, kDFlash, kDSpark, kAssistant, kOther };

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string StringOf(const Json& json, std::string_view key) {
  const Json* const value = json.Find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

std::string ArchitectureOf(const Json& json) {
  const Json* const names = json.Find("architectures");
  const bool is_list = names != nullptr && names->is_array() && !names->as_array().empty();
  if (!is_list || !names->as_array()[0].is_string()) return "";
  return names->as_array()[0].as_string();
}

// The first files of EAGLE-3 have the name of a plain model, and draft_vocab_size.
HeadKind HeadKindOf(const Json& json) {
  const std::string name = ArchitectureOf(json),
                    speculators = StringOf(json, "speculators_model_type");
  if (!speculators.empty()) return speculators == "eagle3" ? HeadKind::kEagle3 : HeadKind::kOther;
  const bool is_second = json.Find("selector_rank") != nullptr || Contains(name, "DFlash2");
  if (is_second || Contains(name, "Medusa")) return HeadKind::kOther;
  if (Contains(name, "DSpark")) {  // with layers of Qwen3; others have the name of their model
    const bool is_plain = name == "Qwen3DSparkModel" || name == "DSparkDraftModel";
    return is_plain ? HeadKind::kDSpark : HeadKind::kOther;
  }
  if (name == "Gemma4AssistantForCausalLM" || StringOf(json, "model_type") == "gemma4_assistant") {
    return HeadKind::kAssistant;
  }
  if (Contains(name, "DFlash") || StringOf(json, "model_type") == kGlimmer) {
    return HeadKind::kDFlash;
  }
  const bool is_first = name == "LlamaForCausalLM" && json.Find("draft_vocab_size") != nullptr;
  if (is_first || Contains(name, "Eagle3")) return HeadKind::kEagle3;
  return Contains(name, "Eagle") ? HeadKind::kOther : HeadKind::kNone;
}

Result<Json> ReadConfig(const std::string& dir) {
  constexpr uint64_t kBytesMax = 16 << 20;
  const std::string path = weights::JoinPath(dir, "config.json");
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kBytesMax));
  return weights::ParseJsonObject(text, path, kDepthMax);
}

// Reads one head: its configuration, against its files and its target.
class HeadReader {
 public:
  HeadReader(const std::string& dir, const ModelConfig& target, const Json& json,
             const Checkpoint& files)
      : path_(weights::JoinPath(dir, "config.json")), target_(target), json_(json), files_(files) {}

  Result<ModelConfig> Read(HeadKind kind) {
    if (kind == HeadKind::kAssistant) return ReadAssistant();
    root_ = files_.Holds("model.fc.weight") ? "model." : "";
    is_glimmer_ = StringOf(json_, "model_type") == kGlimmer;
    const bool is_eagle = kind == HeadKind::kEagle3;
    MINISGL_ASSIGN_OR_RETURN(config_, ReadLayers(is_eagle));
    config_.text_prefix = root_;
    config_.tie_word_embeddings = false;
    config_.eos_token_ids.clear();
    config_.bos_token_id.reset();
    MINISGL_RETURN_IF_ERROR(is_eagle ? ReadEagle() : ReadBlock(kind == HeadKind::kDSpark));
    MINISGL_RETURN_IF_ERROR(CheckTarget());
    MINISGL_RETURN_IF_ERROR(CheckNoOthers());
    return std::move(config_);
  }

 private:
  template <typename... Args>
  Status Error(fmt::format_string<Args...> format, Args&&... args) const {
    return BadInput("{}: {}", Visible(path_, 400),
                    fmt::format(format, std::forward<Args>(args)...));
  }

  // The configuration of the layers, as that of a model of such layers.
  Result<ModelConfig> ReadLayers(bool is_eagle) const {
    const Json* const inner = json_.Find("transformer_layer_config");
    Json layers = inner != nullptr && inner->is_object() ? *inner : json_;
    for (const char* type : {"torch_dtype", "dtype"}) {
      const Json* const own = json_.Find(type);
      if (own != nullptr && layers.Find(type) == nullptr) layers.Set(type, *own);
    }
    std::erase_if(layers.as_object(), [&](const Json::Member& member) {
      return member.first == "eos_token_id" || member.first == "bos_token_id" ||
             member.first == "pad_token_id" || (is_eagle && member.first == "layer_types");
    });
    bool has_norms = !is_eagle;
    for (const std::string& name : files_.Names()) has_norms |= Contains(name, "self_attn.q_norm.");
    if (is_glimmer_) layers.Set("use_sliding_window", true).Set("vocab_size", target_.vocab_size);
    layers.Set("architectures", Json::Array{has_norms ? "Qwen3ForCausalLM" : "LlamaForCausalLM"});
    layers.Set("model_type", has_norms ? "qwen3" : "llama");
    layers.Set("tie_word_embeddings", false);
    return ParseModelConfig(layers.Dump(), path_);
  }

  Status ReadEagle() {
    weights::FieldReader reader(json_, path_);
    DraftHeadConfig* const head = &config_.draft_head;
    config_.prediction = PredictionLayer::kEagle;
    head->adds_norm = reader.Bool("norm_before_residual", false);
    head->recycles_norm = reader.Bool("norm_output", false);
    for (const char* key : {"norm_before_fc", "fc_norm", "parallel_drafting"}) {
      if (reader.Bool(key, false)) reader.Fail(key, "heads with it are not run");
    }
    const int64_t num_ids = config_.vocab_size;
    config_.vocab_size = reader.Int("draft_vocab_size", kSizeRange, num_ids);
    ReadEagleLayers(&reader);
    MINISGL_RETURN_IF_ERROR(reader.status());
    if (config_.num_layers != 1) {
      return Error("heads of one layer are run, and this one has {}", config_.num_layers);
    }
    head->input_name = root_ + "fc";
    head->layer_prefix =
        root_ + (files_.Holds(root_ + "midlayer.hidden_norm.weight") ? "midlayer." : "layers.0.");
    head->norm_name = head->layer_prefix + "hidden_norm";
    head->has_embedding = files_.Holds(root_ + "embed_tokens.weight");
    head->has_head = files_.Holds("lm_head.weight");
    head->num_ids = head->has_embedding ? num_ids : target_.vocab_size;
    if (!head->has_head) config_.vocab_size = target_.vocab_size;
    return ReadRowIds();
  }

  // speculators counts a layer by what enters it, SpecForge and SGLang by what leaves it.
  void ReadEagleLayers(weights::FieldReader* reader) {
    constexpr const char* kKey = "eagle_aux_hidden_state_layer_ids";
    std::vector<int32_t>* const layers = &config_.draft_head.target_layers;
    if (reader->Find(kKey) != nullptr) return ReadIds(reader, kKey, 0);
    if (auto inner = reader->Object("eagle_config")) {
      if (!inner->Bool("use_aux_hidden_state", true)) {
        inner->Fail("use_aux_hidden_state", "heads that read one state are not run");
      }
      if (inner->Find(kKey) != nullptr) ReadIds(&*inner, kKey, 1);
      reader->Absorb(*inner);
    }
    if (!layers->empty()) return;
    if (target_.num_layers < 6) {
      return reader->FailWith(
          kKey, "nothing", "a head for a model of fewer than 6 layers names those that it reads");
    }
    *layers = {2, target_.num_layers / 2, target_.num_layers - 3};
  }

  void ReadIds(weights::FieldReader* reader, const char* key, int64_t plus) {
    const Json* const ids = reader->Find(key);
    const bool is_list =
        ids->is_array() && !ids->as_array().empty() && ids->as_array().size() <= 64;
    for (const Json& id : is_list ? ids->as_array() : Json::Array()) {
      const bool is_known =
          id.is_int() && id.as_int() >= 0 && id.as_int() + plus < target_.num_layers;
      if (!is_known) break;
      config_.draft_head.target_layers.push_back(static_cast<int32_t>(id.as_int() + plus));
    }
    if (is_list && config_.draft_head.target_layers.size() == ids->as_array().size()) return;
    reader->Fail(key,
                 fmt::format("a list of layers of the model, which has {}", target_.num_layers));
  }

  Status ReadRowIds() {
    const std::string name = root_ + "d2t";
    if (!files_.Holds(name)) {
      if (config_.vocab_size <= target_.vocab_size &&
          config_.vocab_size == config_.draft_head.num_ids)
        return Status();
      return Error("the head has {} rows, and the files do not say whose (tensor \"d2t\")",
                   config_.vocab_size);
    }
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, files_.GetStored(name));
    if (view.num_elements() != config_.vocab_size) {
      return BadInput("{}: tensor \"{}\" has {} elements; draft_vocab_size is {}",
                      Visible(files_.FileOf(name), 400), Visible(name, 200), view.num_elements(),
                      config_.vocab_size);
    }
    auto ids = std::make_shared<std::vector<TokenId>>();
    for (int64_t row = 0; row < view.num_elements(); ++row) {
      const double id = static_cast<double>(row) + view.At(row);
      if (!(id >= 0 && id < static_cast<double>(target_.vocab_size))) {
        return BadInput("{}: tensor \"{}\": row {} is token {}; the model has {}",
                        Visible(files_.FileOf(name), 400), Visible(name, 200), row, id,
                        target_.vocab_size);
      }
      ids->push_back(static_cast<TokenId>(id));
    }
    config_.draft_head.row_ids = std::move(ids);
    return Status();
  }

  // The confidence of a DSpark head, which says how many drafts are worth a verification, is not
  // read: the drafts that were right say it.
  Status ReadBlock(bool is_dspark) {
    DraftHeadConfig* const head = &config_.draft_head;
    config_.prediction = PredictionLayer::kBlock;
    // Newer files have these keys in an object, older ones beside all others.
    Json own = json_;
    if (const Json* const inner = json_.Find("dflash_config");
        inner != nullptr && inner->is_object())
      for (const auto& [key, value] : inner->as_object()) own.Set(key, value);
    weights::FieldReader reader(own, path_);
    const auto target_layers = static_cast<int32_t>(
        reader.Int("num_target_layers", weights::kLayerRange, target_.num_layers));
    head->block_size = static_cast<int32_t>(reader.Int("block_size", kBlockRange, 16));
    head->mask_id = static_cast<TokenId>(
        reader.Int("mask_token_id", IntRange{0, std::max<int64_t>(target_.vocab_size, 1) - 1}));
    if (reader.Find("target_layer_ids") != nullptr) {
      ReadIds(&reader, "target_layer_ids", 1);
    } else {
      SpreadLayers();
    }
    config_.embedding_scale = reader.Number("input_embedding_scale", {-1e6, 1e6}, 1.0);
    config_.logit_scale = reader.Number("output_multiplier", {1e-6, 1e6}, 1.0);
    config_.logit_softcap = reader.Number("final_logit_softcapping", {0, 1e6}, 0.0);
    if (const auto is_causal = reader.OptionalBool("is_causal")) {
      head->windows_are_causal = head->others_are_causal = *is_causal;
    }
    if (reader.Bool("fc_layernorm", false)) {
      reader.Fail("fc_layernorm", "heads with it are not run");
    }
    head->predicts_next = is_dspark;
    head->transition_rank =
        static_cast<int32_t>(reader.Int("markov_rank", {0, kTransitionRankMax}, 0));
    const bool has_confidence = reader.Bool("enable_confidence_head", false);
    if (!is_dspark && (has_confidence || head->transition_rank > 0)) {
      reader.Fail(has_confidence ? "enable_confidence_head" : "markov_rank",
                  "only DSpark heads have it");
    }
    const Json* const type = reader.Find("markov_head_type");
    if (head->transition_rank > 0 && type != nullptr &&
        !(type->is_string() && type->as_string() == "vanilla")) {
      reader.Fail("markov_head_type", "\"vanilla\" is run");
    }
    MINISGL_RETURN_IF_ERROR(reader.status());
    if (target_layers != target_.num_layers) {
      return Error("the head is for a model of {} layers; this one has {}", target_layers,
                   target_.num_layers);
    }
    head->has_embedding = is_dspark && files_.Holds(root_ + "embed_tokens.weight");
    head->has_head = is_dspark && files_.Holds("lm_head.weight");
    if ((head->has_embedding || head->has_head) && config_.vocab_size != target_.vocab_size) {
      return Error("the head has {} tokens; the model has {}", config_.vocab_size,
                   target_.vocab_size);
    }
    head->num_ids = target_.vocab_size;
    config_.vocab_size = target_.vocab_size;
    head->input_name = root_ + (is_glimmer_ ? "encoder.fc" : "fc");
    head->norm_name = root_ + (is_glimmer_ ? "encoder.output_norm_enc" : "hidden_norm");
    if (is_glimmer_) {  // its windows are not causal, and hold one key more
      head->windows_are_causal = false;
      for (LayerConfig& layer : config_.layers) layer.sliding_window += layer.sliding_window > 0;
    }
    return Status();
  }

  // The layers that a head reads whose files do not say it: the outputs of as many as it has
  // itself, from 1 to L - 3.
  void SpreadLayers() {
    const int32_t count = config_.num_layers, last = std::max(target_.num_layers - 4, 0);
    for (int32_t i = 0; i < count; ++i) {
      const double place =
          count == 1 ? target_.num_layers / 2 : std::nearbyint(1 + double{i} * last / (count - 1));
      config_.draft_head.target_layers.push_back(
          std::min(static_cast<int32_t>(place) + 1, target_.num_layers - 1));
    }
  }

  Result<ModelConfig> ReadAssistant() {
    const Json* const inner = json_.Find("text_config");
    if (inner == nullptr || !inner->is_object()) return Error("has no object text_config");
    Json layers = *inner;
    // Here the layers seem to have keys; whose they read is said below.
    layers.Set("architectures", Json::Array{"Gemma4ForCausalLM"}).Set("model_type", "gemma4_text");
    layers.Set("num_kv_shared_layers", 0).Set("tie_word_embeddings", true);
    layers.Set("use_bidirectional_attention", nullptr);
    for (const char* type : {"torch_dtype", "dtype"}) {
      const Json* const own = json_.Find(type);
      if (own != nullptr) layers.Set(type, *own);
    }
    std::erase_if(layers.as_object(), [](const Json::Member& member) {
      return member.first == "eos_token_id" || member.first == "bos_token_id";
    });
    MINISGL_ASSIGN_OR_RETURN(config_, ParseModelConfig(layers.Dump(), path_));
    config_.prediction = PredictionLayer::kAssistant;
    config_.tie_word_embeddings = false;
    config_.logit_softcap = 0;
    config_.embedding_scale = target_.embedding_scale;
    config_.rounds_embedding_scales = target_.rounds_embedding_scales;
    DraftHeadConfig* const head = &config_.draft_head;
    head->has_head = true;
    head->num_ids = target_.vocab_size;
    weights::FieldReader reader(json_, path_);
    head->target_width = reader.Int("backbone_hidden_size", kSizeRange, 1536);
    if (reader.Bool("use_ordered_embeddings", false)) {
      head->num_clusters = static_cast<int32_t>(reader.Int("num_centroids", kClustersRange, 2048));
      head->num_best = static_cast<int32_t>(
          reader.Int("centroid_intermediate_top_k", {1, head->num_clusters}, 32));
    }
    MINISGL_RETURN_IF_ERROR(reader.status());
    if (head->target_width != target_.hidden_size) {
      return Error("the assistant is for a model of hidden size {}; this one has {}",
                   head->target_width, target_.hidden_size);
    }
    if (config_.vocab_size != target_.vocab_size || config_.per_layer_width > 0 ||
        config_.experts.num_experts > 0) {
      return Error(
          "the assistant has {} tokens, {} experts and per-layer embeddings of {}; {}, 0 "
          "and 0 are supported",
          config_.vocab_size, config_.experts.num_experts, config_.per_layer_width,
          target_.vocab_size);
    }
    MINISGL_RETURN_IF_ERROR(FindKeys());
    MINISGL_RETURN_IF_ERROR(ReadClusters());
    MINISGL_RETURN_IF_ERROR(CheckNoOthers());
    return std::move(config_);
  }

  // Each layer reads the keys of the target's last layer of its kind that has some.
  Status FindKeys() {
    for (int32_t i = 0; i < config_.num_layers; ++i) {
      LayerConfig& layer = config_.layers[static_cast<size_t>(i)];
      const bool has_window = layer.sliding_window > 0;
      int32_t from = target_.num_layers - 1;
      for (; from >= 0; --from) {
        const LayerConfig& other = target_.layers[static_cast<size_t>(from)];
        const bool is_same = (other.sliding_window > 0) == has_window;
        if (other.mixer == Mixer::kAttention && other.kv_layer < 0 && is_same) break;
      }
      if (from < 0) return Error("the model has no layer whose keys layer {} reads", i);
      const LayerShape own = LayerShapeOf(config_, i), keys = LayerShapeOf(target_, from);
      if (own.head_dim != keys.head_dim || own.num_heads % keys.num_kv_heads != 0) {
        return Error("layer {} has {} heads of {}; the model's keys there are {} of {}", i,
                     own.num_heads, own.head_dim, keys.num_kv_heads, keys.head_dim);
      }
      layer.num_kv_heads = keys.num_kv_heads;
      layer.keys_as_values = false;
      layer.kv_layer = 0;
      // A row stands at the place of the last key. The key a window before it may be gone.
      const int32_t window = target_.layers[static_cast<size_t>(from)].sliding_window;
      if (has_window) layer.sliding_window = std::max(window - 1, 1);
      config_.draft_head.kv_layers.push_back(from);
    }
    return Status();
  }

  Status ReadClusters() {
    DraftHeadConfig* const head = &config_.draft_head;
    if (head->num_clusters == 0) return Status();
    const std::string name = "masked_embedding.token_ordering";
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, files_.GetStored(name));
    if (view.num_elements() != config_.vocab_size || config_.vocab_size % head->num_clusters != 0) {
      return BadInput("{}: tensor \"{}\" has {} elements in {} clusters, for {} tokens",
                      Visible(files_.FileOf(name), 400), name, view.num_elements(),
                      head->num_clusters, config_.vocab_size);
    }
    auto ids = std::make_shared<std::vector<TokenId>>();
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      const double id = view.At(i);
      if (!(id >= 0 && id < static_cast<double>(config_.vocab_size))) {
        return BadInput("{}: tensor \"{}\": element {} is {}; the model has {} tokens",
                        Visible(files_.FileOf(name), 400), name, i, id, config_.vocab_size);
      }
      ids->push_back(static_cast<TokenId>(id));
    }
    head->clusters = std::move(ids);
    return Status();
  }

  Status CheckTarget() {
    DraftHeadConfig* const head = &config_.draft_head;
    weights::FieldReader reader(json_, path_);
    const auto stated = reader.OptionalInt("target_hidden_size", kSizeRange);
    MINISGL_RETURN_IF_ERROR(reader.status());
    head->target_width = target_.hidden_size;
    const std::string name = head->input_name + ".weight";
    if (files_.Holds(name)) {
      MINISGL_ASSIGN_OR_RETURN(const TensorView view, files_.GetStored(name));
      const auto count = std::ssize(head->target_layers);
      if (view.shape.size() == 2 && view.shape[1] != count * target_.hidden_size) {
        return BadInput("{}: \"{}\" reads {} numbers; {} states of {} have {}",
                        Visible(files_.FileOf(name), 400), name, view.shape[1], count,
                        Visible(target_.architecture, 200), count * target_.hidden_size);
      }
    }
    if (stated && *stated != target_.hidden_size) {
      return Error("the head is for a model of hidden size {}; this one has {}", *stated,
                   target_.hidden_size);
    }
    const bool reads_tables = !head->has_embedding || !head->has_head;
    if (reads_tables && config_.hidden_size != target_.hidden_size) {
      return Error(
          "hidden_size is {}; a head without an embedding and an output head of its own "
          "has that of the model, {}",
          config_.hidden_size, target_.hidden_size);
    }
    const auto cannot_be_read = [&](int32_t layer) {
      return target_.layers[static_cast<size_t>(layer)].mixer == Mixer::kNone;
    };
    const bool has_plain_stream = target_.norm_placement != NormPlacement::kAfterSum;
    if (!has_plain_stream ||
        std::any_of(head->target_layers.begin(), head->target_layers.end(), cannot_be_read)) {
      return Error("states of the layers of {} cannot be read", Visible(target_.architecture, 200));
    }
    return Status();
  }

  // A part that is not known would change the drafts.
  Status CheckNoOthers() const {
    const auto module = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
    std::set<std::string> known = {root_ + "d2t", root_ + "t2d", "masked_embedding.token_ordering",
                                   "lm_head"};
    if (config_.draft_head.predicts_next) known.insert(root_ + "confidence_head.proj");
    for (const weights::TensorSpec& spec : weights::PredictionTensors(config_)) {
      known.insert(module(spec.name));
    }
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
      for (const weights::TensorSpec& spec : weights::LayerTensors(config_, layer)) {
        known.insert(module(spec.name));
      }
    }
    for (const std::string& name : files_.Names()) {
      if (known.contains(name) || known.contains(module(name))) continue;
      return BadInput("{}: tensor \"{}\" is of no part of such a head that is run",
                      Visible(files_.FileOf(name), 400), Visible(name, 200));
    }
    return Status();
  }

  const std::string path_;
  const ModelConfig& target_;
  const Json& json_;
  const Checkpoint& files_;
  bool is_glimmer_ = false;
  std::string root_;  // before the names of all tensors but the output head
  ModelConfig config_;
};

}  // namespace

bool IsDraftHead(const std::string& dir) {
  const auto json = ReadConfig(dir);
  return json.ok() && HeadKindOf(*json) != HeadKind::kNone;
}

Result<ModelConfig> LoadDraftHead(const std::string& dir, const ModelConfig& target) {
  MINISGL_ASSIGN_OR_RETURN(const Json json, ReadConfig(dir));
  const HeadKind kind = HeadKindOf(json);
  if (kind == HeadKind::kNone || kind == HeadKind::kOther) {
    return BadInput(
        "{} is no head that is run: EAGLE-3, DFlash and DSpark heads and assistants of Gemma 4 are",
        Visible(ArchitectureOf(json), 200));
  }
  MINISGL_ASSIGN_OR_RETURN(const auto files, Checkpoint::Open(dir));
  return HeadReader(dir, target, json, *files).Read(kind);
}

}  // namespace minisgl
