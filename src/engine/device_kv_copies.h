// Copies of blocks of keys and values, and of states, between a device and the host.
//
// A block passes through a buffer of the host that the device's copies can use: whole pages, layer
// by layer. Its own bytes are in another order; the thread that takes or puts the block moves them,
// so that the engine's thread only queues copies. States, which are larger than blocks and go one
// at a time, have buffers of their own. Buffers are made when they are first used. Used by the
// engine's thread, except as KvBlockCopy says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/device_step.h"
#include "engine/kv_block.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

class DeviceKvCopies {
 public:
  // At most. More blocks than that are not read at once (runtime/prefix_source.h).
  static constexpr int kBlockBuffers = 16, kStateBuffers = 4;

  // `step` and `ops` outlive it. `has_steps`: true if steps are in flight, which must not wait for
  // a copy. `settle` is called before a buffer is made.
  DeviceKvCopies(const DeviceStep* step, DeviceOps* ops, std::function<bool()> has_steps,
                 std::function<void()> settle)
      : step_(step), ops_(ops), has_steps_(std::move(has_steps)), settle_(std::move(settle)) {}

  // The functions of Engine.
  int64_t BlockBytes(int32_t block_tokens) const;
  std::unique_ptr<KvBlockCopy> Read(std::span<const PageId> pages);
  std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId> pages);
  // WritePages and WriteState.
  void Write(std::unique_ptr<KvBlockCopy> copy);
  int64_t StateBytes() const;
  std::unique_ptr<KvBlockCopy> ReadState(StateSlot slot);
  std::unique_ptr<KvBlockCopy> BeginStateWrite(StateSlot slot);

 private:
  struct Buffer {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
    std::unique_ptr<DeviceEvent> copied;
  };
  struct Buffers {
    int most = 0;
    int num_made = 0;
    std::vector<Buffer> free;
  };
  class Copy;
  class BlockCopy;
  class StateCopy;

  KvBlockLayout layout() const { return {step_->kv(), *ops_, step_->limits().page_size}; }
  // Nothing if all are in use, or there is no memory for one more.
  std::optional<Buffer> TakeBuffer(Buffers* buffers, int64_t bytes);
  // A copy with a buffer, or null.
  std::unique_ptr<Copy> MakeBlock(std::span<const PageId> pages);
  std::unique_ptr<Copy> MakeState(StateSlot slot);
  // `copy`, as a read that is queued; null likewise.
  static std::unique_ptr<KvBlockCopy> Queued(std::unique_ptr<Copy> copy);
  bool IsDone(const Buffer& buffer);
  // Takes back the buffers of writes that are done.
  void EndWrites();

  const DeviceStep* const step_;
  DeviceOps* const ops_;
  const std::function<bool()> has_steps_;
  const std::function<void()> settle_;
  Buffers block_buffers_ = {.most = kBlockBuffers, .free = {}};
  Buffers state_buffers_ = {.most = kStateBuffers, .free = {}};
  std::vector<std::unique_ptr<KvBlockCopy>> writing_;
};

}  // namespace minisgl::engine
