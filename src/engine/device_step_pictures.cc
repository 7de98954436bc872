// The part of device_step.h that is about pictures.
#include <vector>

#include "engine/device_pictures.h"
#include "engine/device_step.h"

namespace minisgl::engine {

Status DeviceStep::TakePictureArrays(const ModelList& models, const MemoryPlan& plan,
                                     int32_t num_ranks) {
  if (!ReadsPictures(limits())) return Status();
  MINISGL_ASSIGN_OR_RETURN(
      encoder_, DeviceEncoder::Make(state_->model().tower(), models.tower()->embedding_width(),
                                    plan.kept_embeddings, num_ranks, ops_));
  const auto tokens = static_cast<uint64_t>(limits().max_step_tokens);
  if ((limits().extras & kGivesPositions) != 0) {
    MINISGL_ASSIGN_OR_RETURN(rope_positions_, DeviceArray<RopePosition>::Make(ops_, {tokens}));
  }
  const ModelConfig& config = state_->config();
  if (config.per_layer_width == 0) return Status();
  MINISGL_ASSIGN_OR_RETURN(per_layer_ids_, DeviceArray<int32_t>::Make(ops_, {tokens}));
  const std::vector<int32_t> ids(tokens, config.per_layer_picture_id);
  MINISGL_ASSIGN_OR_RETURN(picture_ids_, minisgl::Upload<int32_t>(ops_, ids));
  return Status();
}

Status DeviceStep::TakePictures(InFlightStep* step, Status* unreadable) {
  const PlanExtras& extras = step->plan->extras;
  step->placed.clear();
  const bool takes_memory = encoder_->TakesMemory(extras);
  if (takes_memory) MINISGL_RETURN_IF_ERROR(quiet_());
  *unreadable = encoder_->Apply(extras);
  if (takes_memory) MINISGL_RETURN_IF_ERROR(quiet_());
  if (unreadable->ok()) *unreadable = encoder_->Place(extras, &step->placed);
  return ops_->status();
}

void DeviceStep::ForgetPictures(const InFlightStep& step) { encoder_->Forget(step.plan->extras); }

void DeviceStep::SharePictures(const InFlightStep& step) {
  if (encoder_ != nullptr) encoder_->Share(step.plan->extras);
}

// Called for a step that reads pictures, after its ids are there.
void DeviceStep::SetPictures(const InFlightStep& step, ForwardInput* input) {
  input->placed = step.placed;
  if (step.tail.num_key_ends > 0) input->key_end = InStep<int32_t>(step, step.tail.key_ends);
  if (per_layer_ids_.data() == nullptr) return;
  input->per_layer_ids = per_layer_ids_.data();
  const auto bytes = [](int32_t count) { return static_cast<size_t>(count) * sizeof(int32_t); };
  ops_->CopyOnDevice(per_layer_ids_.data(), token_ids_.data(), bytes(input->num_tokens));
  for (const PlacedEmbeddings& placed : step.placed) {
    ops_->CopyOnDevice(per_layer_ids_.data() + placed.token, picture_ids_.data(),
                       bytes(placed.count));
  }
}

}  // namespace minisgl::engine
