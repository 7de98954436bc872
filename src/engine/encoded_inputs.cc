// See encoded_inputs.h.
#include "engine/encoded_inputs.h"

#include <algorithm>
#include <utility>

namespace minisgl::engine {

Status EncodedInputs::Apply(const PlanExtras& extras) {
  for (const EmbeddingSource source : extras.dropped) inputs_.erase(source);
  for (const EncoderRun& run : extras.encoded) {
    if (tower_ == nullptr || run.content == nullptr) {
      return MakeStatus(StatusCode::kInternal, "input {} has nothing to encode", run.source);
    }
    inputs_.erase(run.source);
    MINISGL_ASSIGN_OR_RETURN(
        auto embeddings,
        DeviceArray<float>::Make(ops_, {static_cast<uint64_t>(run.num_embeddings),
                                        static_cast<uint64_t>(tower_->embedding_width())}));
    MINISGL_RETURN_IF_ERROR(tower_->Encode(*run.content, embeddings.data()));
    inputs_.emplace(run.source, std::move(embeddings));
  }
  return Status();
}

Status EncodedInputs::Place(const PlanExtras& extras, std::vector<PlacedEmbeddings>* placed) const {
  placed->clear();
  for (const ReplacedEmbeddings& run : extras.embeddings) {
    const auto found = inputs_.find(run.source);
    if (found == inputs_.end()) {
      return MakeStatus(StatusCode::kInternal, "input {} was not encoded", run.source);
    }
    const int64_t width = tower_->embedding_width();
    placed->push_back({.token = static_cast<int32_t>(run.token),
                       .count = run.count,
                       .embeddings = found->second.data() + run.first * width,
                       .width = width});
  }
  return Status();
}

void PictureTokens::List(const BatchPlan& plan, const ModelConfig& config, ForwardInput* input) {
  if (!plan.extras.positions.empty()) {
    ListPositions(plan);
    input->rope_positions = positions_.data();
  }
  if (plan.extras.embeddings.empty()) return;
  if (config.picture_attention != PictureAttention::kCausal) {
    ListKeyEnds(plan);
    input->key_end = key_ends_.data();
  }
  if (config.per_layer_width > 0) {
    per_layer_ids_.assign(input->token_ids, input->token_ids + plan.num_tokens());
    for (const ReplacedEmbeddings& run : plan.extras.embeddings) {
      std::fill_n(per_layer_ids_.begin() + run.token, run.count, config.per_layer_picture_id);
    }
    input->per_layer_ids = per_layer_ids_.data();
  }
}

void PictureTokens::ListPositions(const BatchPlan& plan) {
  const PlanExtras& extras = plan.extras;
  positions_.clear();
  for (const int32_t place : plan.positions) positions_.push_back({place, place, place});
  for (const PositionSpan& span : extras.positions) {
    std::copy_n(extras.rope_positions.begin() + span.offset, span.count,
                positions_.begin() + span.token);
  }
}

void PictureTokens::ListKeyEnds(const BatchPlan& plan) {
  key_ends_.clear();
  for (const int32_t place : plan.positions) key_ends_.push_back(place + 1);
  for (const ReplacedEmbeddings& run : plan.extras.embeddings) {
    const auto begin = key_ends_.begin() + run.token;
    std::fill_n(begin, run.count, *(begin + run.count - 1));
  }
}

}  // namespace minisgl::engine
