// The part of device_step.h that is about adapters.
#include <algorithm>

#include "engine/device_step.h"

namespace minisgl::engine {

Status DeviceStep::TakeAdapters(const ModelList& models, const ModelFiles& files) {
  if (models.adapters().empty()) return Status();
  MINISGL_ASSIGN_OR_RETURN(
      adapters_, DeviceAdapters::Make(models, files[0], state_->model().adapters(), ops_));
  return Status();
}

// [num_tokens] of the step, padding included.
void DeviceStep::FillTokenSlots(const BatchPlan& plan, int32_t num_tokens, std::byte* meta) const {
  auto* const slots = reinterpret_cast<int32_t*>(meta + layout_.token_slots);
  std::fill_n(slots, num_tokens, -1);
  for (const AdapterSpan& span : plan.extras.adapters) {
    std::fill_n(slots + span.token, span.count, adapters_->SlotOf(span.slot));
  }
}

}  // namespace minisgl::engine
