// The configuration determines the tensors of a model. They have the names of llama below, except
// where the entry of the table overrides them.
#include "weights/architectures.h"

#include <set>
#include <utility>

#include "minisgl/base/utf8.h"
#include "weights/architecture_table.h"
#include "weights/state_tensors.h"
#include "weights/wrappers.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

// Names of roles that an entry does not name. Those without "model." or "lm_head" are within a
// layer.
constexpr NamedRole kLlamaNames[] = {
    {Role::kEmbedding, "model.embed_tokens.weight"},
    {Role::kFinalNorm, "model.norm.weight"},
    {Role::kFinalNormBias, "model.norm.bias"},
    {Role::kHead, "lm_head.weight"},
    {Role::kAttentionNorm, "input_layernorm.weight"},
    {Role::kAttentionNormBias, "input_layernorm.bias"},
    {Role::kFeedForwardNorm, "post_attention_layernorm.weight"},
    {Role::kFeedForwardNormBias, "post_attention_layernorm.bias"},
    {Role::kQuery, "self_attn.q_proj.weight"},
    {Role::kKey, "self_attn.k_proj.weight"},
    {Role::kValue, "self_attn.v_proj.weight"},
    {Role::kQueryBias, "self_attn.q_proj.bias"},
    {Role::kKeyBias, "self_attn.k_proj.bias"},
    {Role::kValueBias, "self_attn.v_proj.bias"},
    {Role::kQueryNorm, "self_attn.q_norm.weight"},
    {Role::kKeyNorm, "self_attn.k_norm.weight"},
    {Role::kQueryDown, "self_attn.q_a_proj.weight"},
    {Role::kQueryDownBias, "self_attn.q_a_proj.bias"},
    {Role::kQueryDownNorm, "self_attn.q_a_layernorm.weight"},
    {Role::kQueryUp, "self_attn.q_b_proj.weight"},
    {Role::kLatent, "self_attn.kv_a_proj_with_mqa.weight"},
    {Role::kLatentBias, "self_attn.kv_a_proj_with_mqa.bias"},
    {Role::kLatentNorm, "self_attn.kv_a_layernorm.weight"},
    {Role::kLatentUp, "self_attn.kv_b_proj.weight"},
    {Role::kLatentKeys, "self_attn.k_b_proj.weight"},
    {Role::kLatentValues, "self_attn.v_b_proj.weight"},
    {Role::kSinks, "self_attn.sinks"},
    {Role::kAttentionOutput, "self_attn.o_proj.weight"},
    {Role::kAttentionOutputBias, "self_attn.o_proj.bias"},
    {Role::kGate, "mlp.gate_proj.weight"},
    {Role::kUp, "mlp.up_proj.weight"},
    {Role::kDown, "mlp.down_proj.weight"},
    {Role::kGateBias, "mlp.gate_proj.bias"},
    {Role::kUpBias, "mlp.up_proj.bias"},
    {Role::kDownBias, "mlp.down_proj.bias"},
    {Role::kRouter, "mlp.gate.weight"},
    {Role::kChoiceBias, "mlp.gate.e_score_correction_bias"},
    {Role::kExpertGate, "mlp.experts.{}.gate_proj.weight"},
    {Role::kExpertUp, "mlp.experts.{}.up_proj.weight"},
    {Role::kExpertDown, "mlp.experts.{}.down_proj.weight"},
    {Role::kSharedGate, "mlp.shared_expert.gate_proj.weight"},
    {Role::kSharedUp, "mlp.shared_expert.up_proj.weight"},
    {Role::kSharedDown, "mlp.shared_expert.down_proj.weight"},
    {Role::kSharedShare, "mlp.shared_expert_gate.weight"},
    {Role::kRouterScale, "router.scale"},
    {Role::kExpertScale, "router.per_expert_scale"},
    {Role::kDensePostNorm, "post_feedforward_layernorm_1.weight"},
    {Role::kExpertNorm, "pre_feedforward_layernorm_2.weight"},
    {Role::kExpertPostNorm, "post_feedforward_layernorm_2.weight"},
    {Role::kAttentionGate, "self_attn.gate_proj.weight"},
    {Role::kLayerFactor, "layer_scalar"},
    {Role::kXieluPositive, "mlp.act_fn.alpha_p"},
    {Role::kXieluNegative, "mlp.act_fn.alpha_n"},
    {Role::kXieluLinear, "mlp.act_fn.beta"},
    {Role::kXieluMin, "mlp.act_fn.eps"},
    {Role::kPerLayerTable, "model.embed_tokens_per_layer.weight"},
    {Role::kPerLayerModel, "model.per_layer_model_projection.weight"},
    {Role::kPerLayerModelNorm, "model.per_layer_projection_norm.weight"},
    {Role::kPerLayerGate, "per_layer_input_gate.weight"},
    {Role::kPerLayerOutput, "per_layer_projection.weight"},
    {Role::kPerLayerNorm, "post_per_layer_input_norm.weight"},
};

// The name of `role`; null if neither the entry nor llama has one. `separate`: experts are stored
// one by one, though the entry names the tensors of all. `second`: ModelConfig::second_names.
const char* NameOf(const Architecture& architecture, Role role, bool separate, bool second) {
  if (second) {
    for (const NamedRole& named : architecture.second_names) {
      if (named.role == role) return named.name;
    }
  }
  for (const NamedRole& named : architecture.names) {
    if (named.role == role && !(separate && role == Role::kExpertDown)) return named.name;
  }
  for (const NamedRole& named : kLlamaNames) {
    if (named.role == role) return named.name;
  }
  return StateNameOf(architecture.state_mixer, role);
}

const Architecture& EntryOf(const ModelConfig& config) {
  const Architecture* architecture = FindArchitecture(config.architecture);
  MINISGL_CHECK(architecture != nullptr, "no entry for architecture {}",
                Visible(config.architecture));
  return *architecture;
}

// Collects the tensors of one layer, or of the model outside its layers.
class SpecList {
 public:
  explicit SpecList(const ModelConfig& config, int32_t layer = -1)
      : entry_(EntryOf(config)),
        layer_(layer),
        text_prefix_(config.text_prefix),
        head_prefix_(config.head_prefix),
        separate_(config.experts.separate),
        old_norm_names_(config.old_norm_names),
        second_names_(config.second_names),
        layer_prefix_(config.draft_head.layer_prefix.empty()
                          ? fmt::format("{}{}.{}.", config.text_prefix, entry_.layers,
                                        int64_t{layer} + config.prediction_layer)
                          : config.draft_head.layer_prefix) {}

  void Add(Role role, std::vector<std::string> dims, TensorOrder order = TensorOrder::kPlain) {
    AddNumbered(role, 0, std::move(dims), order);
  }

  // The tensor of `role` for each of `count` experts or heads.
  void AddEach(Role role, int32_t count, const std::vector<std::string>& dims) {
    for (int32_t i = 0; i < count; ++i) AddNumbered(role, i, dims, TensorOrder::kPlain);
  }

  // A tensor that has another role, too.
  void AddAs(Role role, Role named, std::vector<std::string> dims) {
    AddNumbered(named, 0, std::move(dims), TensorOrder::kPlain);
    specs_.back().role = role;
  }

  // A tensor that no entry names.
  void AddNamed(Role role, std::string name, std::vector<std::string> dims) {
    specs_.push_back({role, 0, std::move(name), std::move(dims), TensorOrder::kPlain, layer_});
  }

  bool Names(Role role) const {
    return NameOf(entry_, role, /*separate=*/false, second_names_) != nullptr;
  }
  const Architecture& entry() const { return entry_; }
  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  void AddNumbered(Role role, int32_t index, std::vector<std::string> dims, TensorOrder order) {
    const char* pattern = NameOf(entry_, role, separate_, second_names_);
    MINISGL_CHECK(pattern != nullptr, "{} has no name for role {}", entry_.name,
                  static_cast<int>(role));
    std::string name = FullName(PlaceExperts(pattern));
    if (const size_t hole = name.find("{}"); hole != std::string::npos) {
      name.replace(hole, 2, fmt::format("{}", index));
    }
    specs_.push_back({role, index, std::move(name), std::move(dims), order, layer_});
  }

  // `pattern` with the entry's prefix of experts that are stored one by one.
  std::string PlaceExperts(std::string_view pattern) const {
    constexpr std::string_view kLlamaExperts = "mlp.experts.";
    if (!separate_ || !pattern.starts_with(kLlamaExperts)) return std::string(pattern);
    return fmt::format("{}{}", entry_.experts_prefix, pattern.substr(kLlamaExperts.size()));
  }

  // The name of a norm's weights in old files.
  std::string StoredNorm(std::string_view pattern) const {
    constexpr std::string_view kNorm = "LayerNorm.";
    const size_t at = old_norm_names_ ? pattern.find(kNorm) : std::string_view::npos;
    if (at == std::string_view::npos) return std::string(pattern);
    const std::string_view module = pattern.substr(0, at + kNorm.size());
    return fmt::format("{}{}", module, pattern.ends_with(".bias") ? "beta" : "gamma");
  }

  std::string FullName(std::string_view pattern) const {
    constexpr std::string_view kModel = "model.";
    if (layer_ >= 0) return layer_prefix_ + StoredNorm(pattern);
    if (!pattern.starts_with(kModel)) return fmt::format("{}{}", head_prefix_, pattern);
    return text_prefix_ + StoredNorm(pattern.substr(kModel.size()));
  }

  const Architecture& entry_;
  const int32_t layer_;
  const std::string text_prefix_, head_prefix_;
  const bool separate_, old_norm_names_, second_names_;
  const std::string layer_prefix_;
  std::vector<TensorSpec> specs_;
};

void AddNorms(const ModelConfig& config, const LayerConfig& layer, SpecList* list) {
  const bool is_before = config.norms_before_states && HasState(layer.mixer);
  const NormPlacement placement = is_before ? NormPlacement::kBefore : config.norm_placement;
  const auto add = [&](Role norm, Role bias) {
    list->Add(norm, {"D"});
    if (config.norm_bias) list->Add(bias, {"D"});
  };
  if (placement == NormPlacement::kAfterSum) {
    add(Role::kAttentionPostNorm, Role::kAttentionPostNormBias);
    if (config.adds_input_again) {
      add(Role::kAttentionSecondNorm, Role::kAttentionSecondNormBias);
    }
    add(Role::kFeedForwardPostNorm, Role::kFeedForwardPostNormBias);
    return;
  }
  const bool has_first = layer.mixer != Mixer::kNone && !layer.lacks_attention_norm;
  if (placement != NormPlacement::kAfter && has_first) {
    add(Role::kAttentionNorm, Role::kAttentionNormBias);
  }
  if (!layer.has_feed_forward) return;
  if (placement == NormPlacement::kBefore || placement == NormPlacement::kAround) {
    add(Role::kFeedForwardNorm, Role::kFeedForwardNormBias);
  }
  if (placement == NormPlacement::kAfter || placement == NormPlacement::kAround) {
    list->Add(Role::kAttentionPostNorm, {"D"});
    list->Add(Role::kFeedForwardPostNorm, {"D"});
  }
}

void AddQkNorms(const ModelConfig& config, const LayerShape& shape, bool has_kv, SpecList* list) {
  if (config.qk_norm_plain) return;
  switch (config.qk_norm) {
    case QkNorm::kNone:
      break;
    case QkNorm::kHead:
    case QkNorm::kHeadAfterRotary:
      list->Add(Role::kQueryNorm, {"E"});
      if (has_kv) list->Add(Role::kKeyNorm, {"E"});
      break;
    case QkNorm::kHeadOwn:
      list->AddEach(Role::kQueryNorm, shape.num_heads, {"E"});
      if (has_kv) list->AddEach(Role::kKeyNorm, shape.num_kv_heads, {"E"});
      break;
    case QkNorm::kWhole:
      list->Add(Role::kQueryNorm, {"H*E"});
      if (has_kv) list->Add(Role::kKeyNorm, {"HKV*E"});
      if (!config.qk_norm_bias) break;
      list->Add(Role::kQueryNormBias, {"H*E"});
      if (has_kv) list->Add(Role::kKeyNormBias, {"HKV*E"});
      break;
  }
}

// `has_kv`: the layer has keys and values of its own.
void AddAttention(const ModelConfig& config, const LayerShape& shape, bool has_kv,
                  bool keys_as_values, SpecList* list) {
  const bool is_plain = shape.value_dim == shape.head_dim;
  const char* const values = is_plain ? "HKV*E" : "HKV*EV";
  if (list->Names(Role::kQkv)) {
    MINISGL_CHECK(!config.qkv_bias && is_plain && has_kv, "{} fuses q, k, v without biases",
                  config.architecture);
    list->Add(Role::kQkv, {"(H+2HKV)*E", "D"});
  } else {
    list->Add(Role::kQuery, {config.gate_in_query ? "2H*E" : "H*E", "D"});
    if (has_kv) list->Add(Role::kKey, {"HKV*E", "D"});
    if (has_kv)
      list->AddAs(Role::kValue, keys_as_values ? Role::kKey : Role::kValue, {values, "D"});
  }
  if (config.qkv_bias) {
    list->Add(Role::kQueryBias, {config.gate_in_query ? "2H*E" : "H*E"});
    if (has_kv) list->Add(Role::kKeyBias, {"HKV*E"});
    const Role named = keys_as_values ? Role::kKeyBias : Role::kValueBias;
    if (has_kv) list->AddAs(Role::kValueBias, named, {values});
  }
  AddQkNorms(config, shape, has_kv, list);
  if (config.attention_sinks) list->Add(Role::kSinks, {"H"});
  if (config.attention_gate && !config.gate_in_query)
    list->Add(Role::kAttentionGate, {is_plain ? "H*E" : "H*EV", "D"});
  list->Add(Role::kAttentionOutput, {"D", is_plain ? "H*E" : "H*EV"});
  if (config.attention_output_bias) list->Add(Role::kAttentionOutputBias, {"D"});
}

// The mixer of a layer with a state.
void AddStateMixer(const ModelConfig& config, Mixer mixer, SpecList* list) {
  const StateConfig& states = config.states;
  const bool is_conv = mixer == Mixer::kShortConv, is_delta = mixer == Mixer::kDeltaNet;
  const char* const inputs = is_conv           ? "3C"
                             : !is_delta       ? "SV+C+SH"
                             : states.by_group ? "C+SV"
                                               : "C";
  if (states.separate) {
    list->Add(Role::kStateQuery, {"SK", "D"});
    list->Add(Role::kStateKey, {"SK", "D"});
    list->Add(Role::kStateValue, {"SV", "D"});
    list->Add(Role::kConvQuery, {"SK", "1", "LC"});
    list->Add(Role::kConvKey, {"SK", "1", "LC"});
    list->Add(Role::kConvValue, {"SV", "1", "LC"});
  } else {
    list->Add(Role::kStateInput, {inputs, "D"});
    list->Add(Role::kConvWeight, {"C", "1", "LC"});
  }
  if (states.input_bias) list->Add(Role::kStateInputBias, {inputs});
  if (is_delta && states.by_group) {
    list->Add(Role::kStateGainDecay, {"2SH", "D"});
  } else if (is_delta) {
    list->Add(Role::kStateGate, {"SV", "D"});
    list->Add(Role::kStateGain, {"SH", "D"});
    list->Add(Role::kStateDecay, {"SH", "D"});
  }
  if (states.conv_bias) list->Add(Role::kConvBias, {"C"});
  list->Add(Role::kStateOutput, {"D", is_conv ? "C" : "SV"});
  if (states.output_bias) list->Add(Role::kStateOutputBias, {"D"});
  if (is_conv) return;
  list->Add(Role::kDecayRate, {"SH"});
  list->Add(Role::kDecayBias, {"SH"});
  if (!is_delta) list->Add(Role::kStateSkip, {"SH"});
  if (states.norm_group > 0) list->Add(Role::kStateNorm, {is_delta ? "SP" : "SV"});
}

void AddLatentAttention(const ModelConfig& config, SpecList* list) {
  if (config.latent.query_rank > 0) {
    list->Add(Role::kQueryDown, {"RQ", "D"});
    if (config.qkv_bias) list->Add(Role::kQueryDownBias, {"RQ"});
    list->Add(Role::kQueryDownNorm, {"RQ"});
    list->Add(Role::kQueryUp, {"H*(EN+ER)", "RQ"});
  } else {
    list->Add(Role::kQuery, {"H*(EN+ER)", "D"});
  }
  list->Add(Role::kLatent, {"R+ER", "D"});
  if (config.qkv_bias) list->Add(Role::kLatentBias, {"R+ER"});
  list->Add(Role::kLatentNorm, {"R"});
  if (config.latent.split) {
    list->Add(Role::kLatentKeys, {"H*R", "EN"});
    list->Add(Role::kLatentValues, {"H*EO", "R"});
  } else {
    list->Add(Role::kLatentUp, {"H*(EN+EO)", "R"});
  }
  list->Add(Role::kAttentionOutput, {"D", "H*EO"});
  if (config.attention_output_bias) list->Add(Role::kAttentionOutputBias, {"D"});
}

void AddFeedForward(const ModelConfig& config, SpecList* list) {
  const bool fused = config.gated && list->Names(Role::kGateUp) && !config.gate_apart;
  MINISGL_CHECK(!fused || !config.feed_forward_bias, "{} fuses gate and up without biases",
                config.architecture);
  if (fused) {
    list->Add(Role::kGateUp, {"2I", "D"});
  } else {
    if (config.gated) list->Add(Role::kGate, {"I", "D"});
    list->Add(Role::kUp, {"I", "D"});
  }
  list->Add(Role::kDown, {"D", "I"});
  if (config.activation == Activation::kXielu) {
    list->Add(Role::kXieluPositive, {"1"});
    list->Add(Role::kXieluNegative, {"1"});
    list->Add(Role::kXieluLinear, {});
    list->Add(Role::kXieluMin, {});
  }
  if (config.down_bias) list->Add(Role::kDownBias, {"D"});
  if (!config.feed_forward_bias) return;
  if (config.gated) list->Add(Role::kGateBias, {"I"});
  list->Add(Role::kUpBias, {"I"});
  list->Add(Role::kDownBias, {"D"});
}

void AddExperts(const ModelConfig& config, ListedExperts listed, SpecList* list) {
  const ExpertsConfig& experts = config.experts;
  const char* const inputs = experts.latent_size > 0 ? "XD" : "D";
  list->Add(Role::kRouter, {"X", "D"});
  if (experts.latent_size > 0) {
    list->Add(Role::kExpertsInput, {"XD", "D"});
    list->Add(Role::kExpertsOutput, {"D", "XD"});
  }
  if (config.feed_forward_bias) list->Add(Role::kRouterBias, {"X"});
  if (experts.choice_bias && list->entry().choice_bias_row) {
    list->Add(Role::kChoiceBias, {"1", "X"});
  } else if (experts.choice_bias) {
    list->Add(Role::kChoiceBias, {"X"});
  }
  if (list->entry().experts_inputs_first && !experts.outputs_first) {
    list->Add(Role::kExpertGateUp, {"X", "D", "2J"},
              list->entry().experts_interleaved ? TensorOrder::kInputsFirstInterleaved
                                                : TensorOrder::kInputsFirst);
    list->Add(Role::kExpertDown, {"X", "J", "D"}, TensorOrder::kInputsFirst);
  } else if (list->Names(Role::kExpertGateUp) && !experts.separate) {
    list->Add(Role::kExpertGateUp, {"X", "2J", "D"});
    list->Add(Role::kExpertDown, {"X", "D", "J"});
  } else {
    const int32_t count = listed == ListedExperts::kAll ? experts.num_experts : 1;
    if (config.gated) list->AddEach(Role::kExpertGate, count, {"J", inputs});
    list->AddEach(Role::kExpertUp, count, {"J", inputs});
    list->AddEach(Role::kExpertDown, count, {inputs, "J"});
  }
  if (config.feed_forward_bias) {
    list->Add(Role::kExpertGateUpBias, {"X", "2J"}, TensorOrder::kInterleaved);
    list->Add(Role::kExpertDownBias, {"X", "D"});
  }
  if (experts.beside_dense) {
    list->Add(Role::kRouterScale, {"D"});
    list->Add(Role::kExpertScale, {"X"});
    for (const Role norm : {Role::kDensePostNorm, Role::kExpertNorm, Role::kExpertPostNorm}) {
      list->Add(norm, {"D"});
    }
  }
  if (experts.shared_intermediate_size == 0) return;
  if (list->Names(Role::kSharedGateUp) && !config.gate_apart) {
    list->Add(Role::kSharedGateUp, {"2S", "D"});
  } else {
    if (config.gated) list->Add(Role::kSharedGate, {"S", "D"});
    list->Add(Role::kSharedUp, {"S", "D"});
  }
  list->Add(Role::kSharedDown, {"D", "S"});
  if (experts.shared_gate) list->Add(Role::kSharedShare, {"1", "D"});
}

void AddPerLayer(SpecList* list) {
  list->Add(Role::kPerLayerGate, {"P", "D"});
  list->Add(Role::kPerLayerOutput, {"D", "P"});
  list->Add(Role::kPerLayerNorm, {"D"});
}

// A tensor of two roles is added once.
Status AddRequired(const ModelConfig& config, const std::vector<TensorSpec>& specs,
                   std::vector<RequiredTensor>* tensors) {
  std::set<std::string_view> names;
  for (const TensorSpec& spec : specs) {
    if (!names.insert(spec.name).second) continue;
    RequiredTensor tensor = {spec.name, {}, spec.is_norm(), spec.role};
    for (const std::string& symbol : spec.dims) {
      const auto size = SymbolSize(config, symbol, spec.layer);
      if (!size) return BadInput("the configuration's sizes are too large ({})", symbol);
      tensor.shape.push_back(*size);
    }
    tensors->push_back(std::move(tensor));
  }
  return Status();
}

}  // namespace

bool TensorSpec::is_norm() const {
  switch (role) {
    case Role::kFinalNorm:
    case Role::kEmbeddingNorm:
    case Role::kAttentionNorm:
    case Role::kAttentionPostNorm:
    case Role::kFeedForwardNorm:
    case Role::kFeedForwardPostNorm:
    case Role::kQueryNorm:
    case Role::kKeyNorm:
    case Role::kQueryDownNorm:
    case Role::kLatentNorm:
    case Role::kRouterScale:
    case Role::kExpertScale:
    case Role::kDensePostNorm:
    case Role::kExpertNorm:
    case Role::kExpertPostNorm:
    case Role::kLayerFactor:
    case Role::kAttentionSecondNorm:
    case Role::kPerLayerModelNorm:
    case Role::kPerLayerNorm:
    case Role::kPredictionEmbeddingNorm:
    case Role::kPredictionStateNorm:
      return true;
    default:
      return false;
  }
}

std::vector<TensorSpec> ModelTensors(const ModelConfig& config) {
  if (config.is_prediction_layer()) return PredictionTensors(config);
  SpecList list(config);
  list.Add(Role::kEmbedding, {"V", "D"});
  if (config.num_positions > 0) list.Add(Role::kPositions, {"NP", "D"});
  if (config.num_token_types > 0) list.Add(Role::kTokenTypes, {"NT", "D"});
  if (config.num_distances > 0) list.Add(Role::kDistances, {"NB", "H"});
  if (config.stored_embedding_norm) {
    list.Add(Role::kEmbeddingNorm, {"D"});
    if (config.norm_bias) list.Add(Role::kEmbeddingNormBias, {"D"});
  }
  if (!config.lacks_final_norm) {
    list.Add(Role::kFinalNorm, {"D"});
    if (config.norm_bias) list.Add(Role::kFinalNormBias, {"D"});
  }
  if (!config.tie_word_embeddings) list.Add(Role::kHead, {"V", "D"});
  if (config.per_layer_width > 0) {
    list.Add(Role::kPerLayerTable, {"VP", "L*P"});
    list.Add(Role::kPerLayerModel, {"L*P", "D"});
    list.Add(Role::kPerLayerModelNorm, {"P"});
  }
  return list.Take();
}

HeadNames HeadNamesOf(const ModelConfig& config) {
  SpecList list(config);
  list.Add(Role::kEmbedding, {"V", "D"});
  list.Add(Role::kHead, {"V", "D"});
  const std::vector<TensorSpec> specs = list.Take();
  return {specs[0].name, specs[1].name};
}

std::vector<TensorSpec> LayerTensors(const ModelConfig& config, int32_t layer,
                                     ListedExperts experts) {
  SpecList list(config, layer);
  const auto at = static_cast<size_t>(layer);
  const LayerConfig own = at < config.layers.size() ? config.layers[at] : LayerConfig();
  AddNorms(config, own, &list);
  if (HasState(own.mixer)) AddStateMixer(config, own.mixer, &list);
  if (own.mixer == Mixer::kAttention && config.latent.rank > 0) {
    AddLatentAttention(config, &list);
  } else if (HasAttention(own.mixer)) {
    AddAttention(config, LayerShapeOf(config, layer), own.kv_layer < 0, own.keys_as_values, &list);
  }
  if (own.has_experts) AddExperts(config, experts, &list);
  const bool has_dense = !own.has_experts || config.experts.beside_dense;
  if (own.has_feed_forward && has_dense) AddFeedForward(config, &list);
  if (config.per_layer_width > 0) AddPerLayer(&list);
  if (config.layer_factors) list.Add(Role::kLayerFactor, {"1"});
  std::vector<TensorSpec> specs = list.Take();
  if (config.prediction == PredictionLayer::kEagle) ReadPairs(&specs);
  return specs;
}

Result<std::vector<RequiredTensor>> RequiredTensors(const ModelConfig& config) {
  if (FindArchitecture(config.architecture) == nullptr) {
    return BadInput("architecture \"{}\" is not supported; supported: {}",
                    Visible(config.architecture), SupportedArchitectures());
  }
  std::vector<RequiredTensor> tensors;
  MINISGL_RETURN_IF_ERROR(AddRequired(config, ModelTensors(config), &tensors));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    MINISGL_RETURN_IF_ERROR(AddRequired(config, LayerTensors(config, layer), &tensors));
  }
  return tensors;
}

std::string SupportedArchitectures() {
  std::string names;
  for (const Architecture& architecture : Architectures()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", architecture.name);
  }
  return names;
}

}  // namespace minisgl::weights
