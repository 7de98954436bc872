// Encoders: all tokens of a text attend to each other, and their states become its vector.
#include <utility>

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

}  // namespace

std::vector<Architecture> EncoderFamilies() {
  return {
      BertFamily("BertModel", "bert", {"BertForMaskedLM", "BertForPreTraining"}, "bert.", ReadBert),
      BertFamily("RobertaModel", "roberta", {"RobertaForMaskedLM"}, "roberta.", ReadRoberta),
      BertFamily("XLMRobertaModel", "xlm-roberta", {"XLMRobertaForMaskedLM"}, "roberta.",
                 ReadRoberta),
      BertFamily("CamembertModel", "camembert", {"CamembertForMaskedLM"}, "roberta.", ReadRoberta),
  };
}

}  // namespace minisgl::weights
