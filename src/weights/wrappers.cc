// See wrappers.h.
#include "weights/wrappers.h"

#include <fmt/core.h>

#include <algorithm>

#include "weights/architecture_table.h"

namespace minisgl::weights {
namespace {

constexpr const char* kLlamaSizes = R"({"vocab_size": 32000, "hidden_size": 4096,
    "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32})";
constexpr const char* kMistralSizes = R"({"vocab_size": 32000, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32})";
constexpr const char* kGemma3Sizes = R"({"vocab_size": 262208, "hidden_size": 2304,
    "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8})";

constexpr const char* kGemma4Sizes = R"({"vocab_size": 262144, "hidden_size": 2304,
    "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8})";

constexpr const char* kGlimmerSizes = R"({"vocab_size": 202048, "hidden_size": 6656,
    "intermediate_size": 19968, "num_hidden_layers": 52, "num_attention_heads": 32})";

const std::vector<InnerModel> kLlavaTexts = {{"llama", "LlamaForCausalLM", kLlamaSizes},
                                             {"mistral", "MistralForCausalLM", kMistralSizes},
                                             {"qwen2", "Qwen2ForCausalLM"}};

// The beginning of a tensor's name, after an optional "model.".
struct OtherPart {
  std::string_view prefix, what;
};
constexpr OtherPart kOtherParts[] = {
    {"visual.", "images"},         {"vision_tower.", "images"},
    {"vision_model.", "images"},   {"vision_embedder.", "images"},
    {"vision_adapter.", "images"}, {"vision_projection.", "images"},
    {"embed_vision.", "images"},   {"multi_modal_projector.", "images"},
    {"image_newline", "images"},   {"connector.", "images"},
    {"audio_tower.", "audio"},     {"embed_audio.", "audio"},
};

// The output head, whose codes have other suffixes if it is quantized. A head that is stored in
// place of the embedding, to which it is tied, stays tied.
void FindHead(const Checkpoint& checkpoint, ModelConfig* config) {
  const bool has_embedding = checkpoint.Has(config->text_prefix + "embed_tokens.weight");
  for (const char* prefix : {"language_model.", ""}) {
    for (const char* suffix : {"weight", "weight_packed", "qweight"}) {
      if (!checkpoint.Holds(fmt::format("{}lm_head.{}", prefix, suffix))) continue;
      config->head_prefix = prefix;
      config->tie_word_embeddings = config->tie_word_embeddings && !has_embedding;
      return;
    }
  }
}

// Finds whether experts have one matrix for all, and its order: [in, out] in the hub's files, [out,
// in] in files of transformers 5.
void FindExperts(const Checkpoint& checkpoint, ModelConfig* config) {
  const Architecture* const entry = FindArchitecture(config->architecture);
  if (entry == nullptr) return;
  for (int32_t layer = 0; layer < config->num_layers; ++layer) {
    if (!config->layers[static_cast<size_t>(layer)].has_experts) continue;
    const std::string experts =
        fmt::format("{}layers.{}.{}", config->text_prefix, layer, entry->experts_prefix);
    const auto down = checkpoint.GetStored(experts + "down_proj");
    config->experts.outputs_first = down.ok() && down->shape.size() == 3 &&
                                    down->shape[1] == config->hidden_size &&
                                    down->shape[2] == config->experts.intermediate_size;
    const std::vector<std::string> names = checkpoint.Names();
    config->experts.separate = std::any_of(names.begin(), names.end(), [&](const auto& name) {
      return std::string_view(name).starts_with(experts + "0.down_proj.");
    });
    if (config->experts.separate) config->experts.outputs_first = true;
    return;
  }
}

}  // namespace

const std::vector<Wrapper>& Wrappers() {
  static const auto& all = *new std::vector<Wrapper>{
      {"Gemma3ForConditionalGeneration",
       "gemma3",
       {{"gemma3_text", "Gemma3ForCausalLM", kGemma3Sizes}}},
      {"Gemma4ForConditionalGeneration",
       "gemma4",
       {{"gemma4_text", "Gemma4ForCausalLM", kGemma4Sizes}}},
      {"Gemma4UnifiedForConditionalGeneration",
       "gemma4_unified",
       {{"gemma4_unified_text", "Gemma4UnifiedForCausalLM", kGemma4Sizes}}},
      {"Mistral3ForConditionalGeneration",
       "mistral3",
       {{"mistral", "MistralForCausalLM", kMistralSizes}, {"ministral3", "Ministral3ForCausalLM"}}},
      {"MuseGlimmerForConditionalGeneration",
       "muse_glimmer",
       {{"muse_glimmer_text", "MuseGlimmerForConditionalGeneration", kGlimmerSizes}}},
      {"Qwen2VLForConditionalGeneration",
       "qwen2_vl",
       {{"qwen2_vl_text", "Qwen2VLForConditionalGeneration"}},
       /*may_be_flat=*/true},
      {"Qwen2_5_VLForConditionalGeneration",
       "qwen2_5_vl",
       {{"qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration"}},
       /*may_be_flat=*/true},
      {"Qwen3VLForConditionalGeneration",
       "qwen3_vl",
       {{"qwen3_vl_text", "Qwen3VLForConditionalGeneration"}}},
      {"Qwen3VLMoeForConditionalGeneration",
       "qwen3_vl_moe",
       {{"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration"}}},
      {"Qwen3_5ForConditionalGeneration", "qwen3_5", {{"qwen3_5_text", "Qwen3_5ForCausalLM"}}},
      {"Qwen3_5MoeForConditionalGeneration",
       "qwen3_5_moe",
       {{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}}},
      {"Exaone4_5_ForConditionalGeneration",
       "exaone4_5",
       {{"exaone4", "Exaone4ForCausalLM"}, {"exaone4_5_text", "Exaone4ForCausalLM"}}},
      {"Llama4ForConditionalGeneration", "llama4", {{"llama4_text", "Llama4ForCausalLM"}}},
      {"Glm4vForConditionalGeneration", "glm4v", {{"glm4v_text", "Glm4vForConditionalGeneration"}}},
      {"LlavaForConditionalGeneration", "llava", kLlavaTexts},
      {"LlavaNextForConditionalGeneration", "llava_next", kLlavaTexts},
      {"LlavaOnevisionForConditionalGeneration",
       "llava_onevision",
       {{"qwen2", "Qwen2ForCausalLM"}}},
      {"Idefics3ForConditionalGeneration",
       "idefics3",
       {{"llama", "LlamaForCausalLM", kLlamaSizes}}},
      {"SmolVLMForConditionalGeneration", "smolvlm", {{"llama", "LlamaForCausalLM", kLlamaSizes}}},
      {"InternVLForConditionalGeneration",
       "internvl",
       {{"qwen2", "Qwen2ForCausalLM"},
        {"qwen3", "Qwen3ForCausalLM"},
        {"llama", "LlamaForCausalLM"}}},
  };
  return all;
}

const Wrapper* FindWrapper(std::string_view name) {
  for (const Wrapper& wrapper : Wrappers()) {
    if (name == wrapper.name) return &wrapper;
  }
  return nullptr;
}

const Wrapper* FindWrapperOfType(std::string_view model_type) {
  for (const Wrapper& wrapper : Wrappers()) {
    if (model_type == wrapper.model_type) return &wrapper;
  }
  return nullptr;
}

std::string SupportedWrappers() {
  std::string types;
  for (const Wrapper& wrapper : Wrappers()) {
    types += fmt::format("{}{}", types.empty() ? "" : ", ", wrapper.model_type);
  }
  return types;
}

std::string InnerTypes(const Wrapper& wrapper) {
  std::string types;
  for (const InnerModel& inner : wrapper.inner) {
    types += fmt::format("{}\"{}\"", types.empty() ? "" : ", ", inner.model_type);
  }
  return types;
}

void FindStoredForm(const Checkpoint& checkpoint, ModelConfig* config) {
  constexpr std::string_view kPrefixes[] = {"model.language_model.", "language_model.model.",
                                            "model.text_model.", "model."};
  for (const std::string_view prefix : kPrefixes) {
    if (!checkpoint.Has(fmt::format("{}norm.weight", prefix))) continue;
    config->text_prefix = prefix;
    break;
  }
  FindHead(checkpoint, config);
  FindExperts(checkpoint, config);
}

const Architecture* FindArchitectureOfBody(std::string_view name) {
  for (const std::string_view suffix : {"TextModel", "TextForSequenceClassification",
                                        "ForSequenceClassification", "ForRewardModel", "Model"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string_view stem = name.substr(0, name.size() - suffix.size());
    if (const Architecture* const found = FindArchitecture(fmt::format("{}ForCausalLM", stem))) {
      return found;
    }
  }
  return nullptr;
}

void FindBodyNames(const Checkpoint& checkpoint, ModelConfig* config) {
  constexpr std::string_view kModel = "model.";
  const bool has_prefix = config->text_prefix == kModel && checkpoint.Has("model.norm.weight");
  if (!has_prefix && checkpoint.Has("norm.weight")) config->text_prefix = "";
  for (const char* suffix : {"weight", "weight_packed", "qweight"}) {
    if (!checkpoint.Has(fmt::format("lm_head.{}", suffix))) continue;
    config->lacks_head = false;
    return;
  }
  if (config->tie_word_embeddings) return;
  config->tie_word_embeddings = true;
  config->lacks_head = true;
}

std::string_view OtherPartOf(std::string_view name) {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  for (const OtherPart& part : kOtherParts) {
    if (name.starts_with(part.prefix)) return part.what;
  }
  return "";
}

}  // namespace minisgl::weights
