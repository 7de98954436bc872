// The configuration of a GGUF file. It is written as a config.json, so that every check of such a
// file holds for it, too.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/gguf_architectures.h"
#include "weights/gguf_family_parts.h"
#include "weights/gguf_key_names.h"
#include "weights/gguf_model.h"
#include "weights/gguf_rope.h"
#include "weights/wrappers.h"

namespace minisgl::weights {
namespace {

constexpr uint64_t kTokensMax = uint64_t{1} << 24;

// The type of most weights, or bf16 if most are quantized.
const char* TypeOfWeights(const GgufHeader& header) {
  std::map<std::string_view, uint64_t> elements;
  for (const GgufTensor& tensor : header.tensors) {
    if (tensor.shape.size() > 1) elements[tensor.type->name] += tensor.num_elements();
  }
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == elements.end() || most->first == "F32") return "float32";
  return most->first == "F16" ? "float16" : "bfloat16";
}

// Texts of tokens that end a turn; files often name but one of them.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|return|>",
    "<|call|>",
    "<EOT>",
    "<|eot|>",
    "<|end_of_text|>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<end_of_utterance>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
};

constexpr const char* kEndKeys[] = {"eos", "eot", "eom"};

std::string TokenKey(const char* name) { return fmt::format("tokenizer.ggml.{}_token_id", name); }

// A text would not begin, and an answer not end, with a token that is none.
Status CheckTokenIds(const GgufHeader& header, int64_t vocab_size) {
  for (const char* name : {"bos", "eos", "eot", "eom"}) {
    const GgufValue* const value = header.Find(TokenKey(name));
    if (value == nullptr) continue;
    const std::optional<int64_t> id = value->AsInt();
    if (id && *id >= 0 && *id < vocab_size) continue;
    return BadInput("key \"{}\": a token's id below {} is needed (found {})", TokenKey(name),
                    vocab_size, id ? fmt::format("{}", *id) : "no integer");
  }
  return Status();
}

// The tokens that end an answer.
Json EndTokenIds(const GgufHeader& header, int64_t vocab_size) {
  std::vector<int64_t> ids;
  const auto add = [&](int64_t id) {
    if (id < 0 || id >= vocab_size || std::find(ids.begin(), ids.end(), id) != ids.end()) return;
    ids.push_back(id);
  };
  for (const char* name : kEndKeys) {
    const GgufValue* const value = header.Find(TokenKey(name));
    if (value != nullptr) add(value->AsInt().value_or(-1));
  }
  const GgufValue* const tokens = header.Find("tokenizer.ggml.tokens");
  const GgufValue* const types = header.Find("tokenizer.ggml.token_type");
  if (tokens == nullptr || types == nullptr) return Json(Json::Array(ids.begin(), ids.end()));
  constexpr int64_t kControl = 3;
  const GgufElements all_types = types->Elements(kTokensMax);
  auto type = all_types.begin();
  std::map<std::string_view, int64_t> found;
  int64_t id = 0;
  for (const GgufValue& token : tokens->Elements(all_types.size())) {
    if ((*type).AsInt() == kControl) {
      if (const auto text = token.AsString()) found[*text] = id;
    }
    ++type;
    ++id;
  }
  // Where an answer has several messages, <|end|> ends each but the last.
  const bool has_messages = found.contains("<|return|>");
  for (const std::string_view text : kEndTexts) {
    const auto place = found.find(text);
    if (place == found.end() || (has_messages && text == "<|end|>")) continue;
    add(place->second);
  }
  return Json(Json::Array(ids.begin(), ids.end()));
}

// Sizes that every architecture has.
void WriteSizes(GgufMetadata* metadata, bool by_layer, Json* config) {
  const GgufTensor* const table = metadata->Tensor("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2) {
    return metadata->FailWith(BadInput("has no matrix \"token_embd.weight\"; the model needs it"));
  }
  config->Set("vocab_size", table->shape[0]);
  config->Set("hidden_size", metadata->Int("embedding_length", kWidthRange));
  const GgufValue* const width = metadata->Find("feed_forward_length");
  if (width != nullptr && !(by_layer && width->type() == GgufType::kArray)) {
    config->Set("intermediate_size", metadata->Int("feed_forward_length", kWidthRange));
  }
  const int64_t num_layers = metadata->Int("block_count", kLayersRange);
  const int64_t num_drafting = metadata->Int("nextn_predict_layers", {0, num_layers - 1}, 0);
  config->Set("num_hidden_layers", num_layers - num_drafting);
  config->Set("max_position_embeddings", metadata->Int("context_length", kSeqLenRange));
  config->Set("tie_word_embeddings", metadata->Tensor("output.weight") == nullptr);
}

int64_t WriteHeads(GgufMetadata* metadata, bool kv_by_layer, Json* config) {
  const int64_t num_heads = metadata->Int("attention.head_count", kHeadsRange);
  config->Set("num_attention_heads", num_heads);
  if (!kv_by_layer) {
    config->Set("num_key_value_heads",
                metadata->Int("attention.head_count_kv", kHeadsRange, num_heads));
  }
  const int64_t width = metadata->Int("embedding_length", kWidthRange);
  if (metadata->Find("attention.key_length") == nullptr && width % num_heads != 0) {
    metadata->Fail("attention.head_count",
                   fmt::format("without attention.key_length a divisor of {} is needed", width));
  }
  const int64_t head_dim = metadata->Int("attention.key_length", kHeadDimRange, width / num_heads);
  if (metadata->Int("attention.value_length", kHeadDimRange, head_dim) != head_dim) {
    metadata->Fail("attention.value_length",
                   fmt::format("{} is needed, as attention.key_length", head_dim));
  }
  config->Set("head_dim", head_dim);
  return head_dim;
}

// Says of each kind of biases whether any layer has one, under the key that the family has for it.
void WriteBiases(const GgufMetadata& metadata, const Architecture& architecture, Json* config) {
  std::map<std::string_view, bool> switches;
  const auto add = [&](const BiasSwitch& bias, const char* name) {
    if (bias.key.empty()) return;
    switches[bias.key] |= AnyLayerHas(metadata, *config, name);
  };
  add(architecture.qkv_bias, "attn_q.bias");
  add(architecture.output_bias, "attn_output.bias");
  add(architecture.feed_forward_bias, "ffn_down.bias");
  for (const auto& [key, value] : switches) config->Set(std::string(key), value);
}

void WriteEps(GgufMetadata* metadata, const Architecture& architecture, Json* config) {
  constexpr const char* kRms = "attention.layer_norm_rms_epsilon";
  const bool is_layer = architecture.norm_kind == NormKind::kLayer;
  const char* const name = is_layer ? "attention.layer_norm_epsilon" : kRms;
  Json eps = metadata->Number(name);
  if (eps.is_null()) eps = metadata->Number(kRms);
  if (eps.is_null()) metadata->Fail(name, "a number is needed");
  config->Set(architecture.eps_key, std::move(eps));
}

}  // namespace

Result<std::string> GgufConfigText(const GgufHeader& header) {
  MINISGL_ASSIGN_OR_RETURN(const GgufArchitecture* const entry, FindGgufArchitecture(header));
  const Architecture* const architecture = FindArchitecture(entry->architecture);
  MINISGL_CHECK(architecture != nullptr, "{} is in no table", entry->architecture);
  GgufMetadata metadata(header, entry->name);
  Json config;
  config.Set("architectures", Json(Json::Array{Json(architecture->name)}));
  config.Set("model_type", architecture->model_type);
  config.Set("torch_dtype", TypeOfWeights(header));
  WriteSizes(&metadata, entry->feed_forward_by_layer, &config);
  if (!metadata.ok()) return metadata.status();
  if (!entry->own_attention) {
    const GgufValue* const kv_heads = metadata.Find("attention.head_count_kv");
    const bool kv_by_layer = architecture->state_type != nullptr && kv_heads != nullptr &&
                             kv_heads->type() == GgufType::kArray;
    const int64_t head_dim = WriteHeads(&metadata, kv_by_layer, &config);
    if (!metadata.ok()) return metadata.status();
    WriteRope(&metadata, entry->partial_rotary, head_dim, &config);
  }
  WriteEps(&metadata, *architecture, &config);
  WriteBiases(metadata, *architecture, &config);
  if (entry->write != nullptr && metadata.ok()) entry->write(&metadata, &config);
  if (!metadata.ok()) return metadata.status();
  const int64_t vocab_size = config.Find("vocab_size")->as_int();
  MINISGL_RETURN_IF_ERROR(CheckTokenIds(header, vocab_size));
  if (const GgufValue* const bos = header.Find(TokenKey("bos"))) {
    config.Set("bos_token_id", *bos->AsInt());
  }
  config.Set("eos_token_id", EndTokenIds(header, vocab_size));
  const Wrapper* const wrapper = FindWrapper(architecture->name);
  if (wrapper == nullptr) return config.Dump(/*indent=*/2);
  Json outer;
  outer.Set("architectures", *config.Find("architectures"));
  outer.Set("model_type", wrapper->model_type).Set("text_config", std::move(config));
  return outer.Dump(/*indent=*/2);
}

namespace {

bool HasTensor(const GgufHeader& header, std::string_view end_of_name) {
  return std::any_of(header.tensors.begin(), header.tensors.end(),
                     [&](const GgufTensor& tensor) { return tensor.name.ends_with(end_of_name); });
}

// True if the rotary embedding has sections for positions of pictures.
bool HasSections(const GgufHeader& header, const char* architecture) {
  const GgufValue* const sections =
      header.Find(fmt::format("{}.rope.dimension_sections", architecture));
  if (sections == nullptr) return false;
  for (const GgufValue& section : sections->Elements(4)) {
    if (section.AsInt().value_or(0) != 0) return true;
  }
  return false;
}

// What the tensors of the file are, where those of a model directory are otherwise.
void SetStoredForms(const GgufHeader& header, const GgufArchitecture& entry, ModelConfig* config) {
  if (entry.norms_with_one) config->norm_plus_one = false;
  config->gate_apart = entry.gate_apart;
  // The matrices of experts stand one after another, [out, in], gates apart from the others.
  config->experts.separate = config->experts.outputs_first = config->experts.num_experts > 0;
  // Older files have one tensor of what latents are expanded to.
  config->latent.split = config->latent.rank > 0 && HasTensor(header, ".attn_k_b.weight");
  config->states.by_group = false;
  if (const GgufValue* const count =
          header.Find(std::string(entry.name) + ".nextn_predict_layers")) {
    config->num_prediction_layers = static_cast<int32_t>(count->AsInt().value_or(0));
  }
  // Rows of GLM-4V's queries and keys are stored as halves of heads.
  if (HasSections(header, entry.name)) config->rotary_interleaved = false;
}

}  // namespace

Result<ModelConfig> ReadGgufConfig(const GgufHeader& header, const std::string& path) {
  const Result<std::string> text = GgufConfigText(header);
  if (!text.ok()) return text.status().WithPrefix(Visible(path, 400));
  MINISGL_ASSIGN_OR_RETURN(const GgufArchitecture* const entry, FindGgufArchitecture(header));
  Result<ModelConfig> parsed = ParseModelConfig(*text, path);
  if (!parsed.ok()) return InMetadataTerms(parsed.status(), path, entry->name);
  ModelConfig config = *std::move(parsed);
  SetStoredForms(header, *entry, &config);
  // Sizes that the tensors do not have are no model's: nothing is planned with them.
  const auto tensors = FindGgufTensors(header, config, ListedExperts::kFirst);
  if (!tensors.ok()) return tensors.status().WithPrefix(Visible(path, 400));
  config.quantization = GgufQuantization(*tensors);
  return config;
}

}  // namespace minisgl::weights
