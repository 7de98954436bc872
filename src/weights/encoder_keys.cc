// See encoder_keys.h.
#include "weights/encoder_keys.h"

#include <fmt/core.h>

#include <string>

#include "weights/config_keys.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kTypesRange = {1, 1 << 16};

// Keys with which a class of this name would be a decoder, or place its tokens otherwise.
void CheckIsEncoder(FieldReader* reader) {
  CheckNeutral(reader, "is_decoder", Json(false), "only encoders (false) are supported");
  CheckNeutral(reader, "add_cross_attention", Json(false), "only false is supported");
  CheckNeutral(reader, "position_embedding_type", Json("absolute"),
               "only \"absolute\" is supported");
}

}  // namespace

void BecomeEncoder(const Architecture& entry, ModelConfig* config) {
  config->is_encoder = true;
  config->attends_both_ways = true;
  config->lacks_head = true;
  config->tie_word_embeddings = true;
  config->text_prefix = entry.encoder_prefixes[0];
  config->stored_embedding_norm = true;
}

void FindEncoderNames(const Checkpoint& checkpoint, const Architecture& entry,
                      ModelConfig* config) {
  for (const char* prefix : entry.encoder_prefixes) {
    ModelConfig named = *config;
    named.text_prefix = prefix;
    if (!checkpoint.Has(HeadNamesOf(named).embedding)) continue;
    config->text_prefix = prefix;
    break;
  }
  for (const char* place : {"embeddings.LayerNorm", "emb_ln"}) {
    if (checkpoint.Has(fmt::format("{}{}.gamma", config->text_prefix, place))) {
      config->old_norm_names = true;
    }
  }
}

void ReadBert(FieldReader* reader, ModelConfig* config) {
  CheckIsEncoder(reader);
  config->num_positions = config->max_seq_len;
  config->num_token_types = reader->Int("type_vocab_size", kTypesRange, 2);
  config->lacks_final_norm = true;
}

void ReadRoberta(FieldReader* reader, ModelConfig* config) {
  ReadBert(reader, config);
  config->first_position = reader->Int("pad_token_id", {0, config->vocab_size - 1}, 1) + 1;
  config->max_seq_len -= config->first_position;
  if (config->max_seq_len < kSeqLenRange.min) {
    reader->Fail("max_position_embeddings",
                 fmt::format("at least {} rows are needed: a text begins at row {}",
                             config->first_position + kSeqLenRange.min, config->first_position));
  }
}

}  // namespace minisgl::weights
