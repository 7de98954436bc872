// See gguf_architectures.h.
#include "weights/gguf_architectures.h"

#include <fmt/core.h>

#include <utility>

#include "minisgl/base/utf8.h"
#include "weights/gguf_families.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

// Tensors that no entry names otherwise.
constexpr NamedRole kGgufNames[] = {
    {Role::kEmbedding, "token_embd.weight"},
    {Role::kFinalNorm, "output_norm.weight"},
    {Role::kHead, "output.weight"},
    {Role::kAttentionNorm, "attn_norm.weight"},
    {Role::kAttentionPostNorm, "post_attention_norm.weight"},
    {Role::kFeedForwardNorm, "ffn_norm.weight"},
    {Role::kFeedForwardPostNorm, "post_ffw_norm.weight"},
    {Role::kQkv, "attn_qkv.weight"},
    {Role::kQuery, "attn_q.weight"},
    {Role::kKey, "attn_k.weight"},
    {Role::kValue, "attn_v.weight"},
    {Role::kQueryBias, "attn_q.bias"},
    {Role::kKeyBias, "attn_k.bias"},
    {Role::kValueBias, "attn_v.bias"},
    {Role::kQueryNorm, "attn_q_norm.weight"},
    {Role::kKeyNorm, "attn_k_norm.weight"},
    {Role::kSinks, "attn_sinks.weight"},
    {Role::kAttentionOutput, "attn_output.weight"},
    {Role::kAttentionOutputBias, "attn_output.bias"},
    {Role::kGateUp, "ffn_up.weight"},
    {Role::kGate, "ffn_gate.weight"},
    {Role::kUp, "ffn_up.weight"},
    {Role::kDown, "ffn_down.weight"},
    {Role::kGateBias, "ffn_gate.bias"},
    {Role::kUpBias, "ffn_up.bias"},
    {Role::kDownBias, "ffn_down.bias"},
    {Role::kRouter, "ffn_gate_inp.weight"},
    {Role::kRouterBias, "ffn_gate_inp.bias"},
    {Role::kExpertGate, "ffn_gate_exps.weight"},
    {Role::kExpertUp, "ffn_up_exps.weight"},
    {Role::kExpertDown, "ffn_down_exps.weight"},
    {Role::kExpertDownBias, "ffn_down_exps.bias"},
    {Role::kChoiceBias, "exp_probs_b.bias"},
    {Role::kSharedGate, "ffn_gate_shexp.weight"},
    {Role::kSharedUp, "ffn_up_shexp.weight"},
    {Role::kSharedDown, "ffn_down_shexp.weight"},
    {Role::kSharedShare, "ffn_gate_inp_shexp.weight"},
    {Role::kFinalNormBias, "output_norm.bias"},
    {Role::kAttentionNormBias, "attn_norm.bias"},
    {Role::kFeedForwardNormBias, "ffn_norm.bias"},
    {Role::kAttentionGate, "attn_gate.weight"},
    {Role::kQueryDown, "attn_q_a.weight"},
    {Role::kQueryDownBias, "attn_q_a.bias"},
    {Role::kQueryDownNorm, "attn_q_a_norm.weight"},
    {Role::kQueryUp, "attn_q_b.weight"},
    {Role::kLatent, "attn_kv_a_mqa.weight"},
    {Role::kLatentBias, "attn_kv_a_mqa.bias"},
    {Role::kLatentNorm, "attn_kv_a_norm.weight"},
    {Role::kLatentUp, "attn_kv_b.weight"},
    {Role::kLatentKeys, "attn_k_b.weight"},
    {Role::kLatentValues, "attn_v_b.weight"},
    {Role::kExpertsInput, "ffn_latent_down.weight"},
    {Role::kExpertsOutput, "ffn_latent_up.weight"},
    {Role::kStateInput, "ssm_in.weight"},
    {Role::kStateInputBias, "ssm_in.bias"},
    {Role::kStateGate, "attn_gate.weight"},
    {Role::kStateGain, "ssm_beta.weight"},
    {Role::kStateDecay, "ssm_alpha.weight"},
    {Role::kStateGainDecay, "ssm_ba.weight"},
    {Role::kConvWeight, "ssm_conv1d.weight"},
    {Role::kConvBias, "ssm_conv1d.bias"},
    {Role::kDecayRate, "ssm_a"},
    {Role::kDecayBias, "ssm_dt.bias"},
    {Role::kStateSkip, "ssm_d"},
    {Role::kStateNorm, "ssm_norm.weight"},
    {Role::kStateOutput, "ssm_out.weight"},
    {Role::kStateOutputBias, "ssm_out.bias"},
};

// The norm between attention and the feed-forward part, of families that call it by attention.
const NamedRole kPostAttentionNorm = {Role::kFeedForwardNorm, "post_attention_norm.weight"};

std::vector<GgufArchitecture> FamiliesLikeLlama() {
  return {
      {.name = "llama",
       .architecture = "LlamaForCausalLM",
       .pairs_side_by_side = true,
       .write = WriteLlama},
      {.name = "mistral3",
       .architecture = "MistralForCausalLM",
       .pairs_side_by_side = true,
       .write = WriteMistral3},
      {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .pairs_side_by_side = true},
      {.name = "arcee", .architecture = "ArceeForCausalLM", .pairs_side_by_side = true},
      {.name = "granite",
       .architecture = "GraniteForCausalLM",
       .pairs_side_by_side = true,
       .write = WriteGranite},
      {.name = "apertus", .architecture = "ApertusForCausalLM"},
      {.name = "ernie4_5", .architecture = "Ernie4_5ForCausalLM"},
      {.name = "seed_oss", .architecture = "SeedOssForCausalLM", .names = {kPostAttentionNorm}},
      {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
      {.name = "qwen2vl", .architecture = "Qwen2ForCausalLM"},
      {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
      {.name = "qwen3vl", .architecture = "Qwen3ForCausalLM"},
      {.name = "hunyuan-dense", .architecture = "HunYuanDenseV1ForCausalLM"},
      {.name = "phi3",
       .architecture = "Phi3ForCausalLM",
       .partial_rotary = true,
       .write = WritePhi3},
      {.name = "glm4", .architecture = "Glm4ForCausalLM", .partial_rotary = true},
  };
}

// Scaled embeddings, norms after a part, parallel parts, LayerNorms, windows.
std::vector<GgufArchitecture> FamiliesOfOtherNorms() {
  return {
      {.name = "gemma", .architecture = "GemmaForCausalLM", .norms_with_one = true},
      {.name = "gemma2",
       .architecture = "Gemma2ForCausalLM",
       .norms_with_one = true,
       .write = WriteGemma2},
      {.name = "gemma3",
       .architecture = "Gemma3ForCausalLM",
       .norms_with_one = true,
       .write = WriteGemma3},
      {.name = "muse-glimmer",
       .architecture = "MuseGlimmerForConditionalGeneration",
       .pairs_side_by_side = true,
       .norms_with_one = true,
       .write = WriteMuseGlimmer},
      {.name = "olmo2", .architecture = "Olmo2ForCausalLM", .write = WriteOlmo2},
      {.name = "exaone4", .architecture = "Exaone4ForCausalLM", .write = WriteExaone4},
      {.name = "cohere2", .architecture = "Cohere2ForCausalLM", .write = WriteCohere2},
      {.name = "stablelm",
       .architecture = "StableLmForCausalLM",
       .partial_rotary = true,
       .write = WriteStableLm},
      {.name = "starcoder2", .architecture = "Starcoder2ForCausalLM", .write = WriteStarcoder2},
      {.name = "nemotron",
       .architecture = "NemotronForCausalLM",
       .norms_with_one = true,
       .partial_rotary = true},
  };
}

std::vector<GgufArchitecture> FamiliesWithExperts() {
  return {
      {.name = "qwen2moe", .architecture = "Qwen2MoeForCausalLM", .write = WriteQwen2Moe},
      {.name = "qwen3moe", .architecture = "Qwen3MoeForCausalLM", .write = WriteQwen3Moe},
      {.name = "qwen3vlmoe", .architecture = "Qwen3MoeForCausalLM", .write = WriteQwen3Moe},
      {.name = "olmoe", .architecture = "OlmoeForCausalLM", .write = WriteOlmoe},
      {.name = "granitemoe",
       .architecture = "GraniteMoeForCausalLM",
       .pairs_side_by_side = true,
       .gate_apart = true,
       .write = WriteGraniteMoe},
      {.name = "glm4moe",
       .architecture = "Glm4MoeForCausalLM",
       .partial_rotary = true,
       .names = {kPostAttentionNorm},
       .write = WriteGlm4Moe},
      {.name = "ernie4_5-moe", .architecture = "Ernie4_5_MoeForCausalLM", .write = WriteErnie45Moe},
      {.name = "exaone-moe", .architecture = "ExaoneMoeForCausalLM", .write = WriteExaoneMoe},
      {.name = "cohere2moe", .architecture = "Cohere2MoeForCausalLM", .write = WriteCohere2Moe},
      {.name = "hunyuan-moe", .architecture = "HunYuanMoEV1ForCausalLM", .write = WriteHunYuanMoe},
      {.name = "minimax-m2",
       .architecture = "MiniMaxM2ForCausalLM",
       .partial_rotary = true,
       .write = WriteMiniMaxM2},
      {.name = "gpt-oss",
       .architecture = "GptOssForCausalLM",
       .names = {kPostAttentionNorm},
       .write = WriteGptOss},
      {.name = "deepseek2",
       .architecture = "DeepseekV2ForCausalLM",
       .own_attention = true,
       .write = WriteDeepseek2},
      {.name = "gemma4",
       .architecture = "Gemma4ForCausalLM",
       .feed_forward_by_layer = true,
       .own_attention = true,
       .names = {{Role::kRouterScale, "ffn_gate_inp.scale"},
                 {Role::kExpertScale, "ffn_down_exps.scale"},
                 {Role::kDensePostNorm, "post_ffw_norm_1.weight"},
                 {Role::kExpertNorm, "pre_ffw_norm_2.weight"},
                 {Role::kExpertPostNorm, "post_ffw_norm_2.weight"},
                 {Role::kLayerFactor, "layer_output_scale.weight"},
                 {Role::kPerLayerTable, "per_layer_token_embd.weight"},
                 {Role::kPerLayerModel, "per_layer_model_proj.weight"},
                 {Role::kPerLayerModelNorm, "per_layer_proj_norm.weight"},
                 {Role::kPerLayerGate, "inp_gate.weight"},
                 {Role::kPerLayerOutput, "proj.weight"},
                 {Role::kPerLayerNorm, "post_norm.weight"}},
       .write = WriteGemma4},
  };
}

GgufArchitecture Lfm2(const char* name, const char* architecture,
                      void (*write)(GgufMetadata*, Json*)) {
  return {.name = name,
          .architecture = architecture,
          .names = {{Role::kFinalNorm, "token_embd_norm.weight"},
                    {Role::kStateInput, "shortconv.in_proj.weight"},
                    {Role::kStateInputBias, "shortconv.in_proj.bias"},
                    {Role::kConvWeight, "shortconv.conv.weight"},
                    {Role::kConvBias, "shortconv.conv.bias"},
                    {Role::kStateOutput, "shortconv.out_proj.weight"},
                    {Role::kStateOutputBias, "shortconv.out_proj.bias"}},
          .write = write};
}

GgufArchitecture DeltaNet(const char* name, const char* architecture,
                          void (*write)(GgufMetadata*, Json*)) {
  return {.name = name,
          .architecture = architecture,
          .norms_with_one = true,
          .partial_rotary = true,
          .values_by_turns = true,
          .decays_as_powers = true,
          .names = {kPostAttentionNorm, {Role::kStateInput, "attn_qkv.weight"}},
          .write = write};
}

// With experts it has another name, and that is all.
GgufArchitecture NemotronH(const char* name) {
  return {.name = name,
          .architecture = "NemotronHForCausalLM",
          .decays_as_powers = true,
          .feed_forward_by_layer = true,
          .names = {{Role::kFeedForwardNorm, "attn_norm.weight"}},
          .write = WriteNemotronH};
}

std::vector<GgufArchitecture> FamiliesWithStates() {
  std::vector<GgufArchitecture> all = {
      Lfm2("lfm2", "Lfm2ForCausalLM", WriteLfm2),
      Lfm2("lfm2moe", "Lfm2MoeForCausalLM", WriteLfm2Moe),
      DeltaNet("qwen35", "Qwen3_5ForCausalLM", WriteQwen35),
      DeltaNet("qwen35moe", "Qwen3_5MoeForCausalLM", WriteQwen35Moe),
      DeltaNet("qwen3next", "Qwen3NextForCausalLM", WriteQwen3Next),
      NemotronH("nemotron_h"),
      NemotronH("nemotron_h_moe"),
      {.name = "granitehybrid",
       .architecture = "GraniteMoeHybridForCausalLM",
       .pairs_side_by_side = true,
       .partial_rotary = true,
       .decays_as_powers = true,
       .gate_apart = true,
       .write = WriteGraniteHybrid},
      {.name = "falcon-h1",
       .architecture = "FalconH1ForCausalLM",
       .decays_as_powers = true,
       .names = {{Role::kFeedForwardNorm, "ffn_norm"}},
       .write = WriteFalconH1},
  };
  all[4].values_by_turns = false;
  all[4].names.push_back({Role::kStateGain, "ssm_ba.weight"});
  all[4].names.push_back({Role::kStateDecay, "ssm_ba.weight"});
  return all;
}

const std::vector<NamedRole> kNamesOfEncoders = {
    {Role::kPositions, "position_embd.weight"},
    {Role::kTokenTypes, "token_types.weight"},
    {Role::kEmbeddingNorm, "token_embd_norm.weight"},
    {Role::kEmbeddingNormBias, "token_embd_norm.bias"},
    {Role::kAttentionPostNorm, "attn_output_norm.weight"},
    {Role::kAttentionPostNormBias, "attn_output_norm.bias"},
    {Role::kFeedForwardPostNorm, "layer_output_norm.weight"},
    {Role::kFeedForwardPostNormBias, "layer_output_norm.bias"}};

// Tables of positions are stored without the rows before the first.
std::vector<GgufArchitecture> Encoders() {
  std::vector<NamedRole> jina_names = kNamesOfEncoders;
  jina_names.push_back({Role::kGateUp, "ffn_up.weight"});
  return {
      {.name = "bert", .architecture = "BertModel", .names = kNamesOfEncoders, .write = WriteBert},
      {.name = "nomic-bert",
       .architecture = "NomicBertModel",
       .names = kNamesOfEncoders,
       .write = WriteBert},
      {.name = "jina-bert-v2",
       .architecture = "JinaBertModel",
       .names = jina_names,
       .write = WriteJinaBert},
  };
}

const std::vector<GgufArchitecture>& Entries() {
  static const auto& entries = *[] {
    auto* const all = new std::vector<GgufArchitecture>(FamiliesLikeLlama());
    for (const auto& more :
         {FamiliesOfOtherNorms(), FamiliesWithExperts(), FamiliesWithStates(), Encoders()}) {
      all->insert(all->end(), more.begin(), more.end());
    }
    return all;
  }();
  return entries;
}

}  // namespace

std::string GgufArchitectureNames() {
  std::string names;
  for (const GgufArchitecture& entry : Entries()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  return names;
}

std::vector<int64_t> RowsOfPairs(int64_t num_rows, int64_t head_dim) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t in_head = row % head_dim, half = in_head / (head_dim / 2);
    rows.push_back(row - in_head + in_head % (head_dim / 2) * 2 + half);
  }
  return rows;
}

const GgufArchitecture* GgufArchitectureNamed(std::string_view name) {
  for (const GgufArchitecture& entry : Entries()) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

Result<const GgufArchitecture*> FindGgufArchitecture(const GgufHeader& header) {
  const GgufValue* const value = header.Find("general.architecture");
  const auto name = value != nullptr ? value->AsString() : std::nullopt;
  if (!name) return BadInput("key \"general.architecture\" is missing; it names the model's kind");
  if (const GgufArchitecture* const entry = GgufArchitectureNamed(*name)) return entry;
  return BadInput("GGUF files of architecture \"{}\" are not run; supported: {}",
                  Visible(*name, 100), GgufArchitectureNames());
}

const char* GgufNameOf(const GgufArchitecture& entry, TensorRole role) {
  for (const NamedRole& named : entry.names) {
    if (named.role == role) return named.name;
  }
  for (const NamedRole& named : kGgufNames) {
    if (named.role == role) return named.name;
  }
  return nullptr;
}

}  // namespace minisgl::weights
