// See device_adapters.h.
#include "engine/device_adapters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/model/adapters.h"

namespace minisgl::engine {

Result<std::unique_ptr<DeviceAdapters>> DeviceAdapters::Make(const ModelList& models,
                                                             const Checkpoint& checkpoint,
                                                             DecoderAdapters* decoder,
                                                             DeviceOps* ops) {
  std::unique_ptr<DeviceAdapters> made(new DeviceAdapters(decoder, ops));
  const size_t count = models.adapters().size();
  const size_t num_slots = std::min(count, static_cast<size_t>(models.max_adapters()));
  const auto slot_bytes = static_cast<uint64_t>(decoder->slot_bytes());
  MINISGL_ASSIGN_OR_RETURN(made->memory_,
                           DeviceArray<std::byte>::Make(ops, {num_slots, slot_bytes}));
  MINISGL_RETURN_IF_ERROR(decoder->UseSlots(made->memory_.data()));
  made->adapters_.assign(num_slots, kNoAdapter);
  made->slots_.assign(count, -1);
  if (!models.loads_all_adapters()) {
    for (Staging& staging : made->staging_) {
      MINISGL_ASSIGN_OR_RETURN(staging.memory, ops->AllocateHost(slot_bytes));
      MINISGL_ASSIGN_OR_RETURN(staging.copied, ops->MakeEvent());
    }
    return made;
  }
  for (size_t i = 0; i < count; ++i) {
    MINISGL_ASSIGN_OR_RETURN(const auto packed, made->Pack(models.adapters()[i], checkpoint));
    const std::span<const std::byte> image = decoder->SlotImage(*packed);
    const int32_t slot = made->TakeSlot(static_cast<AdapterSlot>(i));
    MINISGL_RETURN_IF_ERROR(ops->Upload(made->MemoryOf(slot), image.data(), image.size()));
  }
  return made;
}

int32_t DeviceAdapters::TakeSlot(AdapterSlot adapter) {
  const auto free = std::find(adapters_.begin(), adapters_.end(), kNoAdapter);
  MINISGL_CHECK(free != adapters_.end(), "no slot of {} is free for adapter {}", adapters_.size(),
                adapter);
  *free = adapter;
  const auto slot = static_cast<int32_t>(free - adapters_.begin());
  slots_[static_cast<size_t>(adapter)] = slot;
  return slot;
}

// Waits if both stagings are still copied, or begun behind steps that run.
void DeviceAdapters::Load(AdapterSlot adapter, const model::PackedAdapter& packed) {
  const std::span<const std::byte> image = decoder_->SlotImage(packed);
  Staging& staging = staging_[next_staging_];
  next_staging_ = (next_staging_ + 1) % staging_.size();
  if (!ops_->Wait(staging.copied.get()).ok()) return;  // which the next step reports
  std::memcpy(staging.memory.get(), image.data(), image.size());
  ops_->CopyToDevice(MemoryOf(TakeSlot(adapter)), staging.memory.get(), image.size());
  ops_->Record(staging.copied.get());
}

void DeviceAdapters::Drop(AdapterSlot adapter) {
  int32_t& slot = slots_[static_cast<size_t>(adapter)];
  if (slot < 0) return;  // its load has failed with the device
  adapters_[static_cast<size_t>(slot)] = kNoAdapter;
  slot = -1;
}

int32_t DeviceAdapters::SlotOf(AdapterSlot adapter) const {
  const int32_t slot = slots_[static_cast<size_t>(adapter)];
  MINISGL_CHECK(slot >= 0, "a row of adapter {}, which is not loaded", adapter);
  return slot;
}

std::optional<uint64_t> DeviceAdapters::CountBytes(const ModelList& models, int64_t max_step_tokens,
                                                   int64_t max_logit_rows) {
  if (models.adapters().empty()) return 0;
  uint64_t slot_bytes = 0, inner_floats = 0;
  for (const auto& adapter : models.adapters()) {
    const AdapterSlotNeeds needs =
        SlotNeedsOf(models.target(), *adapter, max_step_tokens, max_logit_rows);
    slot_bytes = std::max(slot_bytes, needs.slot_bytes);
    inner_floats = std::max(inner_floats, needs.inner_floats);
  }
  const uint64_t count =
      std::min(models.adapters().size(), static_cast<size_t>(models.max_adapters()));
  const auto slots = CheckedMul(count, slot_bytes);
  const auto inner = CheckedMul(inner_floats, sizeof(float));
  return slots && inner ? CheckedAdd(*slots, *inner) : std::nullopt;
}

}  // namespace minisgl::engine
