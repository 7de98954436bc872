// The adapters in the memory of one rank's device: slots of one size, taken at the start, and which
// adapter each holds.
//
// A slot is filled by a copy that is queued beside the steps that run. That slot's last adapter was
// dropped after the last step with rows of it, so no step in flight reads it. Used by the engine's
// thread, except Pack.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/device_ops.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/model_list.h"
#include "minisgl/plan/adapter_slot.h"

namespace minisgl::engine {

class DeviceAdapters {
 public:
  // Takes the slots, and loads all adapters of the list if it is to (loads_all_adapters).
  // `decoder`: of the rank; both pointers outlive the result. kOutOfMemory; errors of
  // DecoderAdapters::Pack.
  static Result<std::unique_ptr<DeviceAdapters>> Make(const ModelList& models,
                                                      const Checkpoint& checkpoint,
                                                      DecoderAdapters* decoder, DeviceOps* ops);
  // Upper bound on the bytes that Make takes on one rank, and the decoder beside it for steps of so
  // many tokens and rows of logits. nullopt: past 2^64.
  static std::optional<uint64_t> CountBytes(const ModelList& models, int64_t max_step_tokens,
                                            int64_t max_logit_rows);

  // What a slot holds of adapter `index` of the list. Any thread.
  Result<std::shared_ptr<const model::PackedAdapter>> Pack(std::shared_ptr<const Adapter> adapter,
                                                           const Checkpoint& checkpoint) const {
    return decoder_->Pack(std::move(adapter), checkpoint);
  }
  // Queues the copy of what Pack made. Operations that follow see it. REQUIRES a slot that is free.
  void Load(AdapterSlot adapter, const model::PackedAdapter& packed);
  // Frees the slot. REQUIRES that no step in flight has rows of the adapter.
  void Drop(AdapterSlot adapter);
  // Where the adapter is. REQUIRES that it is loaded.
  int32_t SlotOf(AdapterSlot adapter) const;

 private:
  // Memory of the host that a copy reads.
  struct Staging {
    std::shared_ptr<void> memory;
    std::unique_ptr<DeviceEvent> copied;
  };

  DeviceAdapters(DecoderAdapters* decoder, DeviceOps* ops) : decoder_(decoder), ops_(ops) {}
  std::byte* MemoryOf(int32_t slot) const {
    return memory_.data() + int64_t{slot} * decoder_->slot_bytes();
  }
  int32_t TakeSlot(AdapterSlot adapter);

  DecoderAdapters* const decoder_;
  DeviceOps* const ops_;
  DeviceArray<std::byte> memory_;      // [slots][slot_bytes]
  std::vector<AdapterSlot> adapters_;  // of each slot; kNoAdapter: it is free
  std::vector<int32_t> slots_;         // of each adapter; -1: it is not loaded
  std::array<Staging, 2> staging_;     // used in turn; none if all are loaded at the start
  size_t next_staging_ = 0;
};

}  // namespace minisgl::engine
