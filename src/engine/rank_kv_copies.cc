// See rank_kv_copies.h.
#include "engine/rank_kv_copies.h"

#include <utility>

namespace minisgl::engine {

// The copies of the ranks' parts, as one.
class RankKvCopies::Copy final : public KvBlockCopy {
 public:
  struct Part {
    std::unique_ptr<KvBlockCopy> copy;
    size_t bytes;
  };
  explicit Copy(std::vector<Part> parts) : parts_(std::move(parts)) {}

  std::vector<Part>& parts() { return parts_; }

  bool IsReady() override {
    bool all = true;
    for (const Part& part : parts_) all = part.copy->IsReady() && all;
    return all;
  }
  Status TakeBlock(std::span<std::byte> block) override {
    for (const Part& part : parts_) {
      MINISGL_RETURN_IF_ERROR(part.copy->TakeBlock(block.first(part.bytes)));
      block = block.subspan(part.bytes);
    }
    return Status();
  }
  void PutBlock(std::span<const std::byte> block) override {
    for (const Part& part : parts_) {
      part.copy->PutBlock(block.first(part.bytes));
      block = block.subspan(part.bytes);
    }
  }

 private:
  std::vector<Part> parts_;
};

RankKvCopies::RankKvCopies(const std::vector<std::unique_ptr<DeviceRank>>& ranks,
                           const std::function<bool()>& has_steps,
                           const std::function<void()>& settle)
    : page_size_(ranks[0]->step()->limits().page_size) {
  for (const auto& rank : ranks) {
    of_ranks_.push_back(
        std::make_unique<DeviceKvCopies>(rank->step(), rank->ops(), has_steps, settle));
  }
}

int64_t RankKvCopies::BlockBytes(int32_t block_tokens) const {
  int64_t bytes = 0;
  for (const auto& own : of_ranks_) bytes += own->BlockBytes(block_tokens);
  return bytes;
}

int64_t RankKvCopies::StateBytes() const {
  int64_t bytes = 0;
  for (const auto& own : of_ranks_) bytes += own->StateBytes();
  return bytes;
}

std::unique_ptr<KvBlockCopy> RankKvCopies::MakeCopy(const Make& make, const BytesOf& bytes_of) {
  if (of_ranks_.size() == 1) return make(of_ranks_[0].get());
  std::vector<Copy::Part> parts;
  for (const auto& own : of_ranks_) {
    auto copy = make(own.get());
    if (copy == nullptr) return nullptr;
    parts.push_back({std::move(copy), static_cast<size_t>(bytes_of(*own))});
  }
  return std::make_unique<Copy>(std::move(parts));
}

std::unique_ptr<KvBlockCopy> RankKvCopies::MakeBlock(std::span<const PageId> pages,
                                                     const Make& make) {
  const auto block_tokens = static_cast<int32_t>(std::ssize(pages)) * page_size_;
  return MakeCopy(make, [&](const DeviceKvCopies& own) { return own.BlockBytes(block_tokens); });
}

std::unique_ptr<KvBlockCopy> RankKvCopies::MakeState(const Make& make) {
  return MakeCopy(make, [](const DeviceKvCopies& own) { return own.StateBytes(); });
}

std::unique_ptr<KvBlockCopy> RankKvCopies::Read(std::span<const PageId> pages) {
  return MakeBlock(pages, [&](DeviceKvCopies* own) { return own->Read(pages); });
}

std::unique_ptr<KvBlockCopy> RankKvCopies::BeginWrite(std::span<const PageId> pages) {
  return MakeBlock(pages, [&](DeviceKvCopies* own) { return own->BeginWrite(pages); });
}

std::unique_ptr<KvBlockCopy> RankKvCopies::ReadState(StateSlot slot) {
  return MakeState([&](DeviceKvCopies* own) { return own->ReadState(slot); });
}

std::unique_ptr<KvBlockCopy> RankKvCopies::BeginStateWrite(StateSlot slot) {
  return MakeState([&](DeviceKvCopies* own) { return own->BeginStateWrite(slot); });
}

void RankKvCopies::Write(std::unique_ptr<KvBlockCopy> copy) {
  if (of_ranks_.size() == 1) return of_ranks_[0]->Write(std::move(copy));
  auto& parts = static_cast<Copy*>(copy.get())->parts();
  for (size_t i = 0; i < parts.size(); ++i) of_ranks_[i]->Write(std::move(parts[i].copy));
}

}  // namespace minisgl::engine
