// See encoded_inputs.h.
#include "engine/encoded_inputs.h"

#include <algorithm>
#include <utility>

namespace minisgl::engine {

Status EncodedInputs::Apply(const PlanExtras& extras) {
  for (const EmbeddingSource source : extras.dropped) {
    inputs_.erase(source);
    if (source == begun_) encoding_ = nullptr;
  }
  for (const EncoderRun& run : extras.encoded) {
    const Status status = Encode(run);
    if (status.ok()) continue;
    encoding_ = nullptr;
    return status;
  }
  return Status();
}

Status EncodedInputs::Encode(const EncoderRun& run) {
  if (run.begin == 0) {
    if (tower_ == nullptr || run.content == nullptr) {
      return MakeStatus(StatusCode::kInternal, "input {} has nothing to encode", run.source);
    }
    encoding_ = nullptr;  // its arrays are the tower's
    inputs_.erase(run.source);
    MINISGL_ASSIGN_OR_RETURN(
        embeddings_,
        DeviceArray<float>::Make(ops_, {static_cast<uint64_t>(run.num_embeddings),
                                        static_cast<uint64_t>(tower_->embedding_width())}));
    begun_ = run.source;
    content_ = run.content;
    MINISGL_ASSIGN_OR_RETURN(encoding_, tower_->Begin(*content_, embeddings_.data()));
  } else if (encoding_ == nullptr || begun_ != run.source) {
    return Status();  // an earlier piece failed: no row reads it
  }
  MINISGL_RETURN_IF_ERROR(encoding_->Advance(run.end, run.num_embeddings));
  if (!run.is_last()) return Status();
  encoding_ = nullptr;
  content_ = nullptr;
  inputs_.emplace(run.source, std::move(embeddings_));
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
