// See input_embedding.h.
#include "model/input_embedding.h"

#include "model/draft_head.h"
#include "model/per_layer_embedding.h"
#include "model/picture_tokens.h"
#include "model/prediction_input.h"

namespace minisgl::model {
namespace {

// Adds rows of `table` to the residual stream.
void AddRows(const InputEmbedding& embedding, const Matrix& table, const int32_t* rows,
             int64_t first_row, int64_t num_tokens) {
  if (table.num_out == 0) return;
  float* const placed = embedding.space.placed.data();
  embedding.ops->Embedding({.ids = rows,
                            .table = &table,
                            .scale = 1,
                            .out = placed,
                            .num_tokens = num_tokens,
                            .first_id = first_row});
  embedding.norms.Add(placed, num_tokens);
}

}  // namespace

void EmbedTokens(const InputEmbedding& embedding, const ForwardInput& input, RankSums* sums) {
  const auto& [config, options, weights, space, norms, ops, first_id] = embedding;
  const int64_t num_tokens = input.num_tokens;
  const float scale = EmbeddingScale(config, options.weight_format.dtype);
  if (config.prediction == PredictionLayer::kAssistant) {
    return ReadAsAssistant(config, scale, first_id, weights, space, norms, input, ops);
  }
  ops->Embedding({.ids = input.token_ids,
                  .table = &weights.embedding,
                  .scale = scale,
                  .out = space.residual.data(),
                  .num_tokens = num_tokens,
                  .first_id = first_id});
  sums->Reduce(space.residual.data(), num_tokens);
  PlaceEmbeddings(config, space, input, 0, ops);
  MixPositions(config, space, input, ops);
  // Position p has row first_position + p.
  AddRows(embedding, weights.positions, input.positions, -config.first_position, num_tokens);
  // All texts of a model with one type are of it.
  const bool has_types = input.token_types != nullptr && config.num_token_types > 1;
  AddRows(embedding, weights.token_types, has_types ? input.token_types : space.zero_types.data(),
          0, num_tokens);
  if (config.stored_embedding_norm) norms.NormStream(weights.input_norm, num_tokens);
  if (config.prediction == PredictionLayer::kEagle) {
    PairWithStates(config, weights, space, norms, input, ops);
  } else if (config.is_prediction_layer() && !config.is_draft_head()) {
    MixStatesBefore(config, weights.prediction, space, norms, input, ops);
  }
  if (config.embedding_norm) norms.NormEmbedding(weights.embedding_norm, num_tokens);
  if (config.per_layer_width > 0) {
    EmbedForLayers(config, options, weights.per_layer, space, input, ops);
  }
}

}  // namespace minisgl::model
