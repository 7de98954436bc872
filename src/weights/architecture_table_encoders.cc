// Encoders: all tokens of a text attend to each other, and their states become its vector.
#include <utility>

#include <algorithm>

#include "weights/architecture_table.h"
#include "weights/encoder_keys.h"

namespace minisgl::weights {
namespace {

using Role = TensorRole;

const std::vector<NamedRole> kNamesOfBert = {
    {Role::kEmbedding, "model.embeddings.word_embeddings.weight"},
    {Role::kPositions, "model.embeddings.position_embeddings.weight"},
    {Role::kTokenTypes, "model.embeddings.token_type_embeddings.weight"},
    {Role::kEmbeddingNorm, "model.embeddings.LayerNorm.weight"},
    {Role::kEmbeddingNormBias, "model.embeddings.LayerNorm.bias"},
    {Role::kQuery, "attention.self.query.weight"},
    {Role::kQueryBias, "attention.self.query.bias"},
    {Role::kKey, "attention.self.key.weight"},
    {Role::kKeyBias, "attention.self.key.bias"},
    {Role::kValue, "attention.self.value.weight"},
    {Role::kValueBias, "attention.self.value.bias"},
    {Role::kAttentionOutput, "attention.output.dense.weight"},
    {Role::kAttentionOutputBias, "attention.output.dense.bias"},
    {Role::kAttentionPostNorm, "attention.output.LayerNorm.weight"},
    {Role::kAttentionPostNormBias, "attention.output.LayerNorm.bias"},
    {Role::kUp, "intermediate.dense.weight"},
    {Role::kUpBias, "intermediate.dense.bias"},
    {Role::kDown, "output.dense.weight"},
    {Role::kDownBias, "output.dense.bias"},
    {Role::kFeedForwardPostNorm, "output.LayerNorm.weight"},
    {Role::kFeedForwardPostNormBias, "output.LayerNorm.bias"}};

// Returns `names` with those of `changes` in place of its own for the same roles, or added.
std::vector<NamedRole> ChangedNames(std::vector<NamedRole> names,
                                    const std::vector<NamedRole>& changes) {
  for (const NamedRole& change : changes) {
    const auto same = std::find_if(names.begin(), names.end(), [&](const NamedRole& named) {
      return named.role == change.role;
    });
    if (same == names.end()) {
      names.push_back(change);
    } else {
      *same = change;
    }
  }
  return names;
}

Architecture BertFamily(const char* name, const char* model_type,
                        std::vector<const char*> other_names, const char* prefix,
                        void (*read)(FieldReader*, ModelConfig*)) {
  return {.name = name,
          .model_type = model_type,
          .other_names = std::move(other_names),
          .max_seq_len = 512,
          .norm_kind = NormKind::kLayer,
          .norm_placement = NormPlacement::kAfterSum,
          .norm_bias = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-12,
          .qkv_bias = kAlways,
          .output_bias = kAlways,
          .feed_forward_bias = kAlways,
          .activation = "gelu",
          .gated = false,
          .rotated = Rotated::kNone,
          .names = kNamesOfBert,
          .layers = "encoder.layer",
          .encoder_prefixes = {"", prefix},
          .read = read};
}

// As BERT, with names of its own and no types.
Architecture DistilBert() {
  return {.name = "DistilBertModel",
          .model_type = "distilbert",
          .other_names = {"DistilBertForMaskedLM", "DistilBertForSequenceClassification"},
          .max_seq_len = 512,
          .norm_kind = NormKind::kLayer,
          .norm_placement = NormPlacement::kAfterSum,
          .norm_bias = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-12,
          .qkv_bias = kAlways,
          .output_bias = kAlways,
          .feed_forward_bias = kAlways,
          .activation = "gelu",
          .gated = false,
          .rotated = Rotated::kNone,
          .names = {{Role::kEmbedding, "model.embeddings.word_embeddings.weight"},
                    {Role::kPositions, "model.embeddings.position_embeddings.weight"},
                    {Role::kEmbeddingNorm, "model.embeddings.LayerNorm.weight"},
                    {Role::kEmbeddingNormBias, "model.embeddings.LayerNorm.bias"},
                    {Role::kQuery, "attention.q_lin.weight"},
                    {Role::kQueryBias, "attention.q_lin.bias"},
                    {Role::kKey, "attention.k_lin.weight"},
                    {Role::kKeyBias, "attention.k_lin.bias"},
                    {Role::kValue, "attention.v_lin.weight"},
                    {Role::kValueBias, "attention.v_lin.bias"},
                    {Role::kAttentionOutput, "attention.out_lin.weight"},
                    {Role::kAttentionOutputBias, "attention.out_lin.bias"},
                    {Role::kAttentionPostNorm, "sa_layer_norm.weight"},
                    {Role::kAttentionPostNormBias, "sa_layer_norm.bias"},
                    {Role::kUp, "ffn.lin1.weight"},
                    {Role::kUpBias, "ffn.lin1.bias"},
                    {Role::kDown, "ffn.lin2.weight"},
                    {Role::kDownBias, "ffn.lin2.bias"},
                    {Role::kFeedForwardPostNorm, "output_layer_norm.weight"},
                    {Role::kFeedForwardPostNormBias, "output_layer_norm.bias"}},
          .layers = "transformer.layer",
          .encoder_prefixes = {"", "distilbert."},
          .rename = RenameDistilBert,
          .read = ReadDistilBert};
}

// As BERT, with names of its own, no types, and numbers of distances.
Architecture Mpnet() {
  return {.name = "MPNetModel",
          .model_type = "mpnet",
          .other_names = {"MPNetForMaskedLM", "MPNetForSequenceClassification"},
          .max_seq_len = 512,
          .norm_kind = NormKind::kLayer,
          .norm_placement = NormPlacement::kAfterSum,
          .norm_bias = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-12,
          .qkv_bias = kAlways,
          .output_bias = kAlways,
          .feed_forward_bias = kAlways,
          .activation = "gelu",
          .gated = false,
          .rotated = Rotated::kNone,
          .names = {{Role::kEmbedding, "model.embeddings.word_embeddings.weight"},
                    {Role::kPositions, "model.embeddings.position_embeddings.weight"},
                    {Role::kDistances, "model.encoder.relative_attention_bias.weight"},
                    {Role::kEmbeddingNorm, "model.embeddings.LayerNorm.weight"},
                    {Role::kEmbeddingNormBias, "model.embeddings.LayerNorm.bias"},
                    {Role::kQuery, "attention.attn.q.weight"},
                    {Role::kQueryBias, "attention.attn.q.bias"},
                    {Role::kKey, "attention.attn.k.weight"},
                    {Role::kKeyBias, "attention.attn.k.bias"},
                    {Role::kValue, "attention.attn.v.weight"},
                    {Role::kValueBias, "attention.attn.v.bias"},
                    {Role::kAttentionOutput, "attention.attn.o.weight"},
                    {Role::kAttentionOutputBias, "attention.attn.o.bias"},
                    {Role::kAttentionPostNorm, "attention.LayerNorm.weight"},
                    {Role::kAttentionPostNormBias, "attention.LayerNorm.bias"},
                    {Role::kUp, "intermediate.dense.weight"},
                    {Role::kUpBias, "intermediate.dense.bias"},
                    {Role::kDown, "output.dense.weight"},
                    {Role::kDownBias, "output.dense.bias"},
                    {Role::kFeedForwardPostNorm, "output.LayerNorm.weight"},
                    {Role::kFeedForwardPostNormBias, "output.LayerNorm.bias"}},
          .layers = "encoder.layer",
          .encoder_prefixes = {"", "mpnet."},
          .read = ReadMpnet};
}

// As BERT, with a gate in the feed-forward part, and distances in place of positions.
Architecture JinaBert() {
  return {
      .name = "JinaBertModel",
      .model_type = "bert",
      .other_names = {"JinaBertForMaskedLM", "JinaBertForSequenceClassification"},
      .max_seq_len = 512,
      .norm_kind = NormKind::kLayer,
      .norm_placement = NormPlacement::kAfterSum,
      .norm_bias = true,
      .eps_key = "layer_norm_eps",
      .eps = 1e-12,
      .qkv_bias = kAlways,
      .output_bias = kAlways,
      .activation = "gelu",
      .rotated = Rotated::kNone,
      .names = ChangedNames(kNamesOfBert, {{Role::kGateUp, "mlp.gated_layers.weight"},
                                           {Role::kDown, "mlp.wo.weight"},
                                           {Role::kDownBias, "mlp.wo.bias"},
                                           {Role::kFeedForwardPostNorm, "mlp.layernorm.weight"},
                                           {Role::kFeedForwardPostNormBias, "mlp.layernorm.bias"}}),
      .second_names = {{Role::kQueryNorm, "attention.self.layer_norm_q.weight"},
                       {Role::kQueryNormBias, "attention.self.layer_norm_q.bias"},
                       {Role::kKeyNorm, "attention.self.layer_norm_k.weight"},
                       {Role::kKeyNormBias, "attention.self.layer_norm_k.bias"},
                       {Role::kAttentionSecondNorm, "layer_norm_1.weight"},
                       {Role::kAttentionSecondNormBias, "layer_norm_1.bias"},
                       {Role::kGateUp, "mlp.up_gated_layer.weight"},
                       {Role::kDown, "mlp.down_layer.weight"},
                       {Role::kDownBias, "mlp.down_layer.bias"},
                       {Role::kFeedForwardPostNorm, "layer_norm_2.weight"},
                       {Role::kFeedForwardPostNormBias, "layer_norm_2.bias"}},
      .layers = "encoder.layer",
      .encoder_prefixes = {"", "bert."},
      .read = ReadJinaBert};
}

Architecture NomicBert() {
  return {.name = "NomicBertModel",
          .model_type = "nomic_bert",
          .other_names = {"NomicBertForMaskedLM", "NomicBertForPreTraining",
                          "NomicBertForSequenceClassification"},
          .max_seq_len = 2048,
          .norm_kind = NormKind::kLayer,
          .norm_placement = NormPlacement::kAfterSum,
          .norm_bias = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-12,
          .rotary_partial = true,
          .theta = 1000,
          .names = {{Role::kEmbedding, "model.embeddings.word_embeddings.weight"},
                    {Role::kTokenTypes, "model.embeddings.token_type_embeddings.weight"},
                    {Role::kEmbeddingNorm, "model.emb_ln.weight"},
                    {Role::kEmbeddingNormBias, "model.emb_ln.bias"},
                    {Role::kQkv, "attn.Wqkv.weight"},
                    {Role::kAttentionOutput, "attn.out_proj.weight"},
                    {Role::kAttentionPostNorm, "norm1.weight"},
                    {Role::kAttentionPostNormBias, "norm1.bias"},
                    {Role::kGate, "mlp.fc12.weight"},
                    {Role::kUp, "mlp.fc11.weight"},
                    {Role::kDown, "mlp.fc2.weight"},
                    {Role::kFeedForwardPostNorm, "norm2.weight"},
                    {Role::kFeedForwardPostNormBias, "norm2.bias"}},
          .layers = "encoder.layers",
          .encoder_prefixes = {"", "bert.", "nomic_bert."},
          .rename = RenameNomicBert,
          .read = ReadNomicBert};
}

Architecture ModernBert() {
  return {.name = "ModernBertModel",
          .model_type = "modernbert",
          .other_names = {"ModernBertForMaskedLM", "ModernBertForSequenceClassification"},
          .max_seq_len = 8192,
          .norm_kind = NormKind::kLayer,
          .eps_key = "norm_eps",
          .eps = 1e-5,
          .activation_key = "hidden_activation",
          .activation = "gelu",
          .theta = 160000,
          .window_theta = 10000,
          .window_theta_key = "local_rope_theta",
          .windows = Windows::kAllButEach,
          .window = 65,
          .window_period = 3,
          .names = {{Role::kEmbedding, "model.embeddings.tok_embeddings.weight"},
                    {Role::kEmbeddingNorm, "model.embeddings.norm.weight"},
                    {Role::kEmbeddingNormBias, "model.embeddings.norm.bias"},
                    {Role::kAttentionNorm, "attn_norm.weight"},
                    {Role::kAttentionNormBias, "attn_norm.bias"},
                    {Role::kQkv, "attn.Wqkv.weight"},
                    {Role::kAttentionOutput, "attn.Wo.weight"},
                    {Role::kFeedForwardNorm, "mlp_norm.weight"},
                    {Role::kFeedForwardNormBias, "mlp_norm.bias"},
                    {Role::kGateUp, "mlp.Wi.weight"},
                    {Role::kDown, "mlp.Wo.weight"},
                    {Role::kFinalNorm, "model.final_norm.weight"},
                    {Role::kFinalNormBias, "model.final_norm.bias"}},
          .encoder_prefixes = {"", "model."},
          .rename = RenameModernBert,
          .read = ReadModernBert};
}

}  // namespace

std::vector<Architecture> EncoderFamilies() {
  // Files that name no class are of the last with their type.
  return {
      JinaBert(),
      BertFamily("BertModel", "bert",
                 {"BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"},
                 "bert.", ReadBert),
      BertFamily("RobertaModel", "roberta",
                 {"RobertaForMaskedLM", "RobertaForSequenceClassification"}, "roberta.",
                 ReadRoberta),
      BertFamily("XLMRobertaModel", "xlm-roberta",
                 {"XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"}, "roberta.",
                 ReadRoberta),
      BertFamily("CamembertModel", "camembert",
                 {"CamembertForMaskedLM", "CamembertForSequenceClassification"}, "roberta.",
                 ReadRoberta),
      DistilBert(),
      Mpnet(),
      NomicBert(),
      ModernBert(),
  };
}

}  // namespace minisgl::weights
