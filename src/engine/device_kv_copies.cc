// See device_kv_copies.h.
#include "engine/device_kv_copies.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::engine {

class DeviceKvCopies::BlockCopy final : public KvBlockCopy {
 public:
  BlockCopy(DeviceKvCopies* copies, std::span<const PageId> pages, Buffer buffer)
      : copies_(copies),
        layout_(copies->layout()),
        pages_(pages.begin(), pages.end()),
        buffer_(std::move(buffer)) {}
  // A read that is dropped may still be under way: its buffer must not be filled again before.
  ~BlockCopy() override {
    if (!is_done_ && is_queued_) static_cast<void>(copies_->ops_->Wait(buffer_.copied.get()));
    copies_->free_.push_back(std::move(buffer_));
  }

  bool IsReady() override {
    if (!is_done_) is_done_ = copies_->IsDone(buffer_);
    if (is_done_ && status_.ok()) status_ = copies_->ops_->status();
    return is_done_;
  }
  Status TakeBlock(std::span<std::byte> block) override {
    MINISGL_CHECK(is_done_, "a block is taken before it is there");
    if (status_.ok()) Move(KvBlockLayout::Direction::kToBlock, block.data());
    return status_;
  }
  void PutBlock(std::span<const std::byte> block) override {
    // Not written: the direction says so.
    Move(KvBlockLayout::Direction::kFromBlock, const_cast<std::byte*>(block.data()));
  }

  const std::vector<PageId>& pages() const { return pages_; }
  const Buffer& buffer() const { return buffer_; }
  void set_queued() { is_queued_ = true; }
  // Where page `i` of a layer stands in the buffer, whose layer begins at `layer_offset` bytes.
  std::byte* Place(int64_t layer_offset, int64_t page_bytes, size_t i) const {
    return static_cast<std::byte*>(buffer_.memory.get()) + layer_offset +
           static_cast<int64_t>(i) * page_bytes;
  }

 private:
  void Move(KvBlockLayout::Direction direction, std::byte* block) {
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

  DeviceKvCopies* const copies_;
  const KvBlockLayout layout_;
  const std::vector<PageId> pages_;
  Buffer buffer_;
  Status status_;
  bool is_queued_ = false, is_done_ = false;
};

int64_t DeviceKvCopies::BlockBytes(int32_t block_tokens) const {
  if (step_->limits().num_window_pages > 0) return 0;
  return layout().BlockBytes(block_tokens / step_->limits().page_size);
}

std::unique_ptr<DeviceKvCopies::BlockCopy> DeviceKvCopies::Make(std::span<const PageId> pages) {
  EndWrites();
  const auto bytes = static_cast<size_t>(layout().BlockBytes(std::ssize(pages)));
  if (free_.empty() && num_buffers_ < kBuffers) {
    auto event = ops_->MakeEvent();
    auto memory = ops_->AllocateHost(bytes);
    if (!event.ok() || !memory.ok()) return nullptr;
    ++num_buffers_;
    free_.push_back({std::move(memory).value(), bytes, std::move(event).value()});
  }
  if (free_.empty()) return nullptr;
  Buffer buffer = std::move(free_.back());
  free_.pop_back();
  MINISGL_CHECK(buffer.bytes >= bytes, "a block of {} bytes in a buffer of {}", bytes,
                buffer.bytes);
  return std::make_unique<BlockCopy>(this, pages, std::move(buffer));
}

std::unique_ptr<KvBlockCopy> DeviceKvCopies::Read(std::span<const PageId> pages) {
  std::unique_ptr<BlockCopy> copy = Make(pages);
  if (copy != nullptr) Queue(*copy, /*to_host=*/true);
  if (copy != nullptr) copy->set_queued();
  return copy;
}

std::unique_ptr<KvBlockCopy> DeviceKvCopies::BeginWrite(std::span<const PageId> pages) {
  return Make(pages);
}

void DeviceKvCopies::Write(std::unique_ptr<KvBlockCopy> copy) {
  auto* const block = static_cast<BlockCopy*>(copy.get());
  Queue(*block, /*to_host=*/false);
  block->set_queued();
  writing_.push_back(std::move(copy));
}

// Pages that follow each other in the pool follow each other in the buffer, and are one copy.
void DeviceKvCopies::Queue(const BlockCopy& copy, bool to_host) {
  const KvBlockLayout blocks = layout();
  const std::vector<PageId>& pages = copy.pages();
  int64_t offset = 0;
  for (int32_t layer = 0; layer < blocks.num_layers(); ++layer) {
    const int64_t page_bytes = blocks.PageBytes(layer);
    for (size_t first = 0, end = 0; first < pages.size(); first = end) {
      end = first + 1;
      if (pages[first] == kNoPage) continue;
      while (end < pages.size() && pages[end] == pages[end - 1] + 1) ++end;
      const size_t bytes = (end - first) * static_cast<size_t>(page_bytes);
      std::byte* const host = copy.Place(offset, page_bytes, first);
      std::byte* const device = blocks.PageAt(layer, pages[first]);
      if (to_host) {
        ops_->CopyToHost(host, device, bytes);
      } else {
        ops_->CopyToDevice(device, host, bytes);
      }
    }
    offset += page_bytes * std::ssize(pages);
  }
  ops_->Record(copy.buffer().copied.get());
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
