#include "model/picture_tokens.h"

namespace minisgl::model {

void PlaceEmbeddings(const ModelConfig& config, const Workspace& space, const ForwardInput& input,
                     size_t part, Ops* ops) {
  const int64_t width = config.hidden_size;
  const int64_t first = static_cast<int64_t>(part) * width;
  for (const PlacedEmbeddings& placed : input.placed) {
    if (first >= placed.width) continue;
    ops->PlaceRows({.x = placed.embeddings + first,
                    .x_stride = placed.width,
                    .out = space.residual.data() + placed.token * width,
                    .out_stride = width,
                    .num_rows = placed.count,
                    .width = width,
                    .adds = part > 0});
  }
}

void MixPositions(const ModelConfig& config, const Workspace& space, const ForwardInput& input,
                  Ops* ops) {
  if (input.rope_positions == nullptr) return;
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    const RopeConfig& rope = config.ropes[i];
    if (!rope.has_sections()) continue;
    ops->MixRotary({.cos = space.rotary[i].cos.data(),
                    .sin = space.rotary[i].sin.data(),
                    .out_cos = space.mixed_cos.data(),
                    .out_sin = space.mixed_sin.data(),
                    .positions = input.rope_positions,
                    .num_tokens = input.num_tokens,
                    .half = rope.dim / 2,
                    .sections = rope.sections,
                    .mixed = rope.sections_mixed});
    return;  // a model has one such rotary
  }
}

void TurnByMixed(const ModelConfig& config, const Workspace& space, const ForwardInput& input,
                 int32_t rope, RopeKvWriteParams* params) {
  if (input.rope_positions == nullptr) return;
  if (!config.ropes[static_cast<size_t>(rope)].has_sections()) return;
  params->positions = space.token_indices.data();
  params->cos = space.mixed_cos.data();
  params->sin = space.mixed_sin.data();
}

const int32_t* KeyEnds(const ModelConfig& config, size_t index, const ForwardInput& input) {
  const bool has_window = config.layers[index].sliding_window > 0;
  if (config.prediction == PredictionLayer::kBlock) {
    const DraftHeadConfig& head = config.draft_head;
    const bool is_causal = has_window ? head.windows_are_causal : head.others_are_causal;
    return is_causal ? nullptr : input.key_end;
  }
  // A device bounds the keys of its layers from both sides (AttentionParams::first_key).
  if (config.is_prediction_layer()) return input.key_end;
  if (config.attends_both_ways) return has_window ? input.window_key_end : input.key_end;
  const bool sees_pictures =
      config.picture_attention == PictureAttention::kAllLayers ||
      (config.picture_attention == PictureAttention::kWindowLayers && has_window);
  return sees_pictures ? input.key_end : nullptr;
}

}  // namespace minisgl::model
