// See device_kv_copies.h.
#include "engine/device_kv_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::engine {

// A copy with its buffer. What the buffer holds is in the order of the device; a subclass moves it
// to that of the host.
class DeviceKvCopies::Copy : public KvBlockCopy {
 public:
  using Direction = KvBlockLayout::Direction;

  Copy(DeviceKvCopies* copies, Buffers* buffers, Buffer buffer)
      : copies_(copies), buffers_(buffers), buffer_(std::move(buffer)) {}
  // A read that is dropped may still be under way: its buffer must not be filled again before.
  ~Copy() override {
    if (!is_done_ && is_queued_) static_cast<void>(copies_->ops_->Wait(buffer_.copied.get()));
    buffers_->free.push_back(std::move(buffer_));
  }

  bool IsReady() override {
    if (!is_done_) is_done_ = copies_->IsDone(buffer_);
    if (is_done_ && status_.ok()) status_ = copies_->ops_->status();
    return is_done_;
  }
  Status TakeBlock(std::span<std::byte> block) override {
    MINISGL_CHECK(is_done_, "a block is taken before it is there");
    if (status_.ok()) Move(Direction::kToBlock, block.data());
    return status_;
  }
  void PutBlock(std::span<const std::byte> block) override {
    // Not written: the direction says so.
    Move(Direction::kFromBlock, const_cast<std::byte*>(block.data()));
  }
  // Queues the copies between the buffer and the device.
  void Queue(bool to_host) {
    QueuePieces(to_host);
    copies_->ops_->Record(buffer_.copied.get());
    is_queued_ = true;
  }

 protected:
  virtual void Move(Direction direction, std::byte* block) = 0;
  virtual void QueuePieces(bool to_host) = 0;

  std::byte* buffer() const { return static_cast<std::byte*>(buffer_.memory.get()); }
  void QueuePiece(bool to_host, std::byte* host, std::byte* device, size_t bytes) const {
    if (to_host) {
      copies_->ops_->CopyToHost(host, device, bytes);
    } else {
      copies_->ops_->CopyToDevice(device, host, bytes);
    }
  }

 private:
  DeviceKvCopies* const copies_;
  Buffers* const buffers_;
  Buffer buffer_;
  Status status_;
  bool is_queued_ = false, is_done_ = false;
};

class DeviceKvCopies::BlockCopy final : public Copy {
 public:
  BlockCopy(DeviceKvCopies* copies, std::span<const PageId> pages, Buffer buffer)
      : Copy(copies, &copies->block_buffers_, std::move(buffer)),
        layout_(copies->layout()),
        pages_(pages.begin(), pages.end()) {}

 private:
  // Where page `i` of a layer stands in the buffer, whose layer begins at `layer_offset` bytes.
  std::byte* Place(int64_t layer_offset, int64_t page_bytes, size_t i) const {
    return buffer() + layer_offset + static_cast<int64_t>(i) * page_bytes;
  }

  void Move(Direction direction, std::byte* block) override {
    const auto num_pages = static_cast<int32_t>(pages_.size());
    std::vector<int64_t> offsets(1, 0);
    for (int32_t layer = 0; layer < layout_.num_layers(); ++layer) {
      offsets.push_back(offsets.back() + layout_.PageBytes(layer) * num_pages);
    }
    const auto page_at = [&](int32_t layer, int32_t i) {
      const auto at = static_cast<size_t>(i);
      return pages_[at] == kNoPage
                 ? nullptr
                 : Place(offsets[static_cast<size_t>(layer)], layout_.PageBytes(layer), at);
    };
    layout_.Copy(direction, num_pages, page_at, block);
  }

  // Pages that follow each other in the pool follow each other in the buffer, and are one copy.
  void QueuePieces(bool to_host) override {
    int64_t offset = 0;
    for (int32_t layer = 0; layer < layout_.num_layers(); ++layer) {
      const int64_t page_bytes = layout_.PageBytes(layer);
      for (size_t first = 0, end = 0; first < pages_.size(); first = end) {
        end = first + 1;
        if (pages_[first] == kNoPage) continue;
        while (end < pages_.size() && pages_[end] == pages_[end - 1] + 1) ++end;
        QueuePiece(to_host, Place(offset, page_bytes, first), layout_.PageAt(layer, pages_[first]),
                   (end - first) * static_cast<size_t>(page_bytes));
      }
      offset += page_bytes * std::ssize(pages_);
    }
  }

  const KvBlockLayout layout_;
  const std::vector<PageId> pages_;
};

// The pieces of a slot have the same order in the buffer and in the memory of the host.
class DeviceKvCopies::StateCopy final : public Copy {
 public:
  StateCopy(DeviceKvCopies* copies, StateSlot slot, Buffer buffer)
      : Copy(copies, &copies->state_buffers_, std::move(buffer)),
        states_(&copies->step_->states()),
        slot_(slot) {}

 private:
  void Move(Direction direction, std::byte* state) override {
    const bool to_state = direction == Direction::kToBlock;
    std::memcpy(to_state ? state : buffer(), to_state ? buffer() : state,
                static_cast<size_t>(states_->slot_bytes()));
  }

  void QueuePieces(bool to_host) override {
    std::byte* host = buffer();
    states_->ForEachPiece(slot_, [&](float* floats, size_t bytes) {
      QueuePiece(to_host, host, reinterpret_cast<std::byte*>(floats), bytes);
      host += bytes;
    });
  }

  const StateStorage* const states_;
  const StateSlot slot_;
};

int64_t DeviceKvCopies::BlockBytes(int32_t block_tokens) const {
  if (step_->limits().num_window_pages > 0) return 0;
  return layout().BlockBytes(block_tokens / step_->limits().page_size);
}

int64_t DeviceKvCopies::StateBytes() const { return step_->states().slot_bytes(); }

std::optional<DeviceKvCopies::Buffer> DeviceKvCopies::TakeBuffer(Buffers* buffers, int64_t bytes) {
  EndWrites();
  if (buffers->free.empty() && buffers->num_made < buffers->most) {
    settle_();
    auto event = ops_->MakeEvent();
    auto memory = ops_->AllocateHost(static_cast<size_t>(bytes));
    if (!event.ok() || !memory.ok()) return std::nullopt;
    ++buffers->num_made;
    buffers->free.push_back({std::move(memory).value(), bytes, std::move(event).value()});
  }
  if (buffers->free.empty()) return std::nullopt;
  Buffer buffer = std::move(buffers->free.back());
  buffers->free.pop_back();
  MINISGL_CHECK(buffer.bytes >= bytes, "a block of {} bytes in a buffer of {}", bytes,
                buffer.bytes);
  return buffer;
}

std::unique_ptr<DeviceKvCopies::Copy> DeviceKvCopies::MakeBlock(std::span<const PageId> pages) {
  auto buffer = TakeBuffer(&block_buffers_, layout().BlockBytes(std::ssize(pages)));
  if (!buffer) return nullptr;
  return std::make_unique<BlockCopy>(this, pages, *std::move(buffer));
}

std::unique_ptr<DeviceKvCopies::Copy> DeviceKvCopies::MakeState(StateSlot slot) {
  auto buffer = TakeBuffer(&state_buffers_, StateBytes());
  if (!buffer) return nullptr;
  return std::make_unique<StateCopy>(this, slot, *std::move(buffer));
}

std::unique_ptr<KvBlockCopy> DeviceKvCopies::Queued(std::unique_ptr<Copy> copy) {
  if (copy != nullptr) copy->Queue(/*to_host=*/true);
  return copy;
}

std::unique_ptr<KvBlockCopy> DeviceKvCopies::Read(std::span<const PageId> pages) {
  return Queued(MakeBlock(pages));
}

std::unique_ptr<KvBlockCopy> DeviceKvCopies::ReadState(StateSlot slot) {
  return Queued(MakeState(slot));
}

std::unique_ptr<KvBlockCopy> DeviceKvCopies::BeginWrite(std::span<const PageId> pages) {
  return MakeBlock(pages);
}

std::unique_ptr<KvBlockCopy> DeviceKvCopies::BeginStateWrite(StateSlot slot) {
  return MakeState(slot);
}

void DeviceKvCopies::Write(std::unique_ptr<KvBlockCopy> copy) {
  static_cast<Copy*>(copy.get())->Queue(/*to_host=*/false);
  writing_.push_back(std::move(copy));
}

// With no step in flight nothing else asks the device to go on, and nothing is delayed by a wait.
bool DeviceKvCopies::IsDone(const Buffer& buffer) {
  if (!has_steps_()) static_cast<void>(ops_->Wait(buffer.copied.get()));
  return ops_->IsReached(buffer.copied.get());
}

void DeviceKvCopies::EndWrites() {
  std::erase_if(writing_, [](const auto& copy) { return copy->IsReady(); });
}

}  // namespace minisgl::engine
