// See encoder_keys.h.
#include "weights/encoder_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "weights/config_keys.h"
#include "weights/distance_kinds.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kTypesRange = {1, 1 << 16};

// Keys with which a class of this name would be a decoder, or place its tokens otherwise.
void CheckIsEncoder(FieldReader* reader, const char* positions = "absolute") {
  CheckNeutral(reader, "is_decoder", Json(false), "only encoders (false) are supported");
  CheckNeutral(reader, "add_cross_attention", Json(false), "only false is supported");
  CheckNeutral(reader, "position_embedding_type", Json(positions),
               fmt::format("only \"{}\" is supported for this class", positions));
}

// Gives `from` the name `to`, unless the configuration has that.
void Rename(std::string_view from, std::string_view to, Json* config) {
  const Json* const value = config->Find(from);
  if (value != nullptr && config->Find(to) == nullptr) config->Set(std::string(to), Json(*value));
}

// The integer of `key`, or `fallback`.
int64_t IntOr(const Json& config, std::string_view key, int64_t fallback) {
  const Json* const value = config.Find(key);
  return value != nullptr && value->is_int() ? value->as_int() : fallback;
}

// The table of positions has no token's before the one behind `row`.
void BeginBehindRow(int64_t row, FieldReader* reader, ModelConfig* config) {
  config->first_position = row + 1;
  config->max_seq_len -= config->first_position;
  if (config->max_seq_len >= kSeqLenRange.min) return;
  reader->Fail("max_position_embeddings",
               fmt::format("at least {} rows are needed: a text begins at row {}",
                           config->first_position + kSeqLenRange.min, config->first_position));
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
  // Two classes have the name JinaBertModel.
  const std::string first_layer = fmt::format("{}{}.0.", config->text_prefix, entry.layers);
  if (!entry.second_names.empty() && checkpoint.Has(first_layer + "mlp.up_gated_layer.weight")) {
    config->second_names = config->up_before_gate = config->adds_input_again = true;
    config->qk_norm = QkNorm::kWhole;
    config->qk_norm_bias = true;
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
  BeginBehindRow(reader->Int("pad_token_id", {0, config->vocab_size - 1}, 1), reader, config);
}

void ReadJinaBert(FieldReader* reader, ModelConfig* config) {
  CheckIsEncoder(reader, "alibi");
  CheckNeutral(reader, "feed_forward_type", Json("geglu"), "only \"geglu\" is supported");
  config->num_token_types = reader->Int("type_vocab_size", kTypesRange, 2);
  config->linear_distances = true;
  config->down_bias = true;
  config->lacks_final_norm = true;
}

void RenameDistilBert(Json* config) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"dim", "hidden_size"},
      {"n_heads", "num_attention_heads"},
      {"n_layers", "num_hidden_layers"},
      {"hidden_dim", "intermediate_size"},
      {"activation", "hidden_act"}};
  for (const auto& [from, to] : kNames) Rename(from, to, config);
}

void ReadDistilBert(FieldReader* reader, ModelConfig* config) {
  CheckIsEncoder(reader);
  config->num_positions = config->max_seq_len;
  config->lacks_final_norm = true;
}

// The reference's table begins behind row 1, and it knows one number of kinds, whatever the file
// says of these.
void ReadMpnet(FieldReader* reader, ModelConfig* config) {
  CheckIsEncoder(reader);
  CheckNeutral(reader, "relative_attention_num_buckets", Json(kDistanceKinds),
               "32 is supported, as in all published models");
  config->num_positions = config->max_seq_len;
  config->num_distances = kDistanceKinds;
  config->lacks_final_norm = true;
  BeginBehindRow(1, reader, config);
}

void RenameNomicBert(Json* config) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"n_embd", "hidden_size"},
      {"n_head", "num_attention_heads"},
      {"n_layer", "num_hidden_layers"},
      {"n_inner", "intermediate_size"},
      {"n_positions", "max_position_embeddings"},
      {"layer_norm_epsilon", "layer_norm_eps"},
      {"rotary_emb_base", "rope_theta"},
      {"rotary_emb_fraction", "partial_rotary_factor"}};
  for (const auto& [from, to] : kNames) Rename(from, to, config);
  const Json* const activation = config->Find("activation_function");
  if (activation == nullptr || config->Find("hidden_act") != nullptr) return;
  const bool is_swiglu = *activation == Json("swiglu"), is_geglu = *activation == Json("geglu");
  config->Set("hidden_act", is_swiglu ? Json("silu") : is_geglu ? Json("gelu") : Json(*activation));
}

void ReadNomicBert(FieldReader* reader, ModelConfig* config) {
  CheckIsEncoder(reader);
  for (const char* key : {"causal", "prenorm", "use_rms_norm", "parallel_block", "qkv_proj_bias",
                          "mlp_fc1_bias", "mlp_fc2_bias", "rotary_emb_interleaved"}) {
    CheckNeutral(reader, key, Json(false), "only false is supported for this model_type");
  }
  CheckNeutral(reader, "rotary_emb_scale_base", std::nullopt, "only null is supported");
  CheckNeutral(reader, "moe_every_n_layers", Json(0), "layers without experts (0) are supported");
  config->num_token_types = reader->Int("type_vocab_size", kTypesRange, 2);
  config->lacks_final_norm = true;
  // Longer texts would be rotated by a base of their own.
  if (reader->OptionalNumber("rotary_scaling_factor", kFactorRange)) {
    config->max_seq_len =
        std::min(config->max_seq_len, reader->Int("max_trained_positions", kSeqLenRange, 2048));
  }
}

void RenameModernBert(Json* config) {
  Rename("global_rope_theta", "rope_theta", config);
  const Json* const local = config->Find("local_rope_theta");
  if (local != nullptr && local->is_null() && config->Find("rope_theta") != nullptr) {
    config->Set("local_rope_theta", Json(*config->Find("rope_theta")));
  }
  // The width is of both sides together: a token attends to those at most half of it away.
  const int64_t width = IntOr(*config, "local_attention", 128);
  if (width >= 0 && width < kWindowRange.max) config->Set("sliding_window", Json(width / 2 + 1));
  const int64_t period = IntOr(*config, "global_attn_every_n_layers", 3);
  const int64_t layers = IntOr(*config, "num_hidden_layers", 0);
  const bool is_stated = config->Find("layer_types") != nullptr;
  if (is_stated || period < 1 || layers < 1 || layers > kLayersRange.max) return;
  Json::Array types;
  for (int64_t i = 0; i < layers; ++i) {
    types.emplace_back(i % period == 0 ? "full_attention" : "sliding_attention");
  }
  config->Set("layer_types", Json(std::move(types)));
}

void ReadModernBert(FieldReader* reader, ModelConfig* config) {
  CheckIsEncoder(reader);
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    CheckNeutral(reader, key, Json(false), "only false is supported for this model_type");
  }
  config->norm_bias = reader->Bool("norm_bias", false);
  config->layers[0].lacks_attention_norm = true;
}

}  // namespace minisgl::weights
