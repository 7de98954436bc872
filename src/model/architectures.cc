// The list itself. See architectures.h for what an entry means.
#include "model/architectures.h"

#include <array>
#include <limits>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

using Role = TensorRole;

constexpr TensorSpec kLlamaModel[] = {
    {Role::kEmbedding, "model.embed_tokens.weight", "V", "D"},
    {Role::kFinalNorm, "model.norm.weight", "D", nullptr},
    {Role::kHead, "lm_head.weight", "V", "D"},
};

constexpr TensorSpec kLlamaLayer[] = {
    {Role::kAttentionNorm, "model.layers.{}.input_layernorm.weight", "D", nullptr},
    {Role::kQuery, "model.layers.{}.self_attn.q_proj.weight", "H*E", "D"},
    {Role::kKey, "model.layers.{}.self_attn.k_proj.weight", "HKV*E", "D"},
    {Role::kValue, "model.layers.{}.self_attn.v_proj.weight", "HKV*E", "D"},
    {Role::kAttentionOutput, "model.layers.{}.self_attn.o_proj.weight", "D", "H*E"},
    {Role::kFeedForwardNorm, "model.layers.{}.post_attention_layernorm.weight", "D", nullptr},
    {Role::kGate, "model.layers.{}.mlp.gate_proj.weight", "I", "D"},
    {Role::kUp, "model.layers.{}.mlp.up_proj.weight", "I", "D"},
    {Role::kDown, "model.layers.{}.mlp.down_proj.weight", "D", "I"},
};

// Qwen2: a bias on each of the three projections into attention.
constexpr TensorSpec kQkvBiases[] = {
    {Role::kQueryBias, "model.layers.{}.self_attn.q_proj.bias", "H*E", nullptr},
    {Role::kKeyBias, "model.layers.{}.self_attn.k_proj.bias", "HKV*E", nullptr},
    {Role::kValueBias, "model.layers.{}.self_attn.v_proj.bias", "HKV*E", nullptr},
};

// Qwen3: query and key heads are normalised before they are rotated.
constexpr TensorSpec kHeadNorms[] = {
    {Role::kQueryNorm, "model.layers.{}.self_attn.q_norm.weight", "E", nullptr},
    {Role::kKeyNorm, "model.layers.{}.self_attn.k_norm.weight", "E", nullptr},
};

template <size_t kA, size_t kB>
constexpr std::array<TensorSpec, kA + kB> Joined(const TensorSpec (&a)[kA],
                                                 const TensorSpec (&b)[kB]) {
  std::array<TensorSpec, kA + kB> all = {};
  for (size_t i = 0; i < kA; ++i) all[i] = a[i];
  for (size_t i = 0; i < kB; ++i) all[kA + i] = b[i];
  return all;
}
constexpr auto kQwen2Layer = Joined(kLlamaLayer, kQkvBiases);
constexpr auto kQwen3Layer = Joined(kLlamaLayer, kHeadNorms);

// Old conversions stored the rotary frequencies, which follow from the configuration.
constexpr std::string_view kLlamaIgnored[] = {".rotary_emb.inv_freq"};

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", kLlamaModel, kLlamaLayer, kLlamaIgnored, Activation::kSilu},
    {"MistralForCausalLM", kLlamaModel, kLlamaLayer, kLlamaIgnored, Activation::kSilu},
    {"Qwen2ForCausalLM", kLlamaModel, kQwen2Layer, kLlamaIgnored, Activation::kSilu},
    {"Qwen3ForCausalLM", kLlamaModel, kQwen3Layer, kLlamaIgnored, Activation::kSilu},
};

std::optional<int64_t> Product(int64_t a, int64_t b) {
  if (a < 0 || b < 0) return std::nullopt;
  const auto product = CheckedMul(static_cast<uint64_t>(a), static_cast<uint64_t>(b));
  if (!product || *product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*product);
}

Status AddRequired(const ModelConfig& config, std::span<const TensorSpec> specs, int32_t layer,
                   std::vector<RequiredTensor>* tensors) {
  for (const TensorSpec& spec : specs) {
    if (!IsRequired(config, spec)) continue;
    RequiredTensor tensor = {TensorName(spec, layer), {}, spec.is_norm()};
    for (const char* symbol : {spec.rows, spec.columns}) {
      if (symbol == nullptr) continue;
      const auto size = SymbolSize(config, symbol);
      if (!size) return BadInput("the configuration's sizes are too large ({})", symbol);
      tensor.shape.push_back(*size);
    }
    tensors->push_back(std::move(tensor));
  }
  return Status();
}

}  // namespace

bool TensorSpec::is_norm() const {
  return role == Role::kFinalNorm || role == Role::kAttentionNorm ||
         role == Role::kFeedForwardNorm || role == Role::kQueryNorm || role == Role::kKeyNorm;
}

Result<const Architecture*> FindArchitecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
    known += known.empty() ? "" : ", ";
    known += architecture.name;
  }
  return BadInput("architecture \"{}\" is not supported; supported: {}", Visible(name), known);
}

std::string TensorName(const TensorSpec& spec, int32_t layer) {
  const size_t hole = spec.name.find("{}");
  if (hole == std::string_view::npos) return std::string(spec.name);
  return fmt::format("{}{}{}", spec.name.substr(0, hole), layer, spec.name.substr(hole + 2));
}

std::optional<int64_t> SymbolSize(const ModelConfig& config, std::string_view symbol) {
  if (symbol == "V") return config.vocab_size;
  if (symbol == "D") return config.hidden_size;
  if (symbol == "I") return config.intermediate_size;
  if (symbol == "E") return config.head_dim;
  if (symbol == "H*E") return Product(config.num_heads, config.head_dim);
  MINISGL_CHECK(symbol == "HKV*E", "the architecture list names an unknown size {}", symbol);
  return Product(config.num_kv_heads, config.head_dim);
}

bool IsRequired(const ModelConfig& config, const TensorSpec& spec) {
  return spec.role != TensorRole::kHead || !config.tie_word_embeddings;
}

Result<std::vector<RequiredTensor>> RequiredTensors(const ModelConfig& config) {
  MINISGL_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(config.architecture));
  std::vector<RequiredTensor> tensors;
  MINISGL_RETURN_IF_ERROR(AddRequired(config, architecture->model_tensors, 0, &tensors));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    MINISGL_RETURN_IF_ERROR(AddRequired(config, architecture->layer_tensors, layer, &tensors));
  }
  return tensors;
}

}  // namespace minisgl
