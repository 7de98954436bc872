// See kv_block_memory.h. A path is used from its end to its beginning, so that of one prefix the
// last block goes first: the blocks after a lost one are never found.
#include "minisgl/store/kv_block_memory.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl {
namespace {

class KvBlockMemory final : public KvBlockStore {
 public:
  explicit KvBlockMemory(const KvBlockMemoryOptions& options)
      : identity_(options.identity),
        block_bytes_(static_cast<size_t>(options.block_bytes)),
        blocks_max_(static_cast<size_t>(options.max_bytes / options.block_bytes)) {
    MINISGL_CHECK(options.block_bytes > 0 && blocks_max_ > 0, "{} bytes for blocks of {}",
                  options.max_bytes, options.block_bytes);
  }

  std::vector<KvBlockKey> Keys(std::span<const TokenId> tokens) const override {
    return KvBlockKeys(identity_, tokens);
  }

  int64_t Find(KvBlockPath path) override {
    const std::lock_guard lock(mutex_);
    const auto end = std::find_if(path.begin(), path.end(),
                                  [this](const KvBlockKey& key) { return !blocks_.contains(key); });
    return end - path.begin();
  }

  bool Read(KvBlockPath path, std::span<const TokenId> block_tokens,
            std::span<std::byte> data) override {
    const std::shared_ptr<const Data> found = Get(path);
    if (found == nullptr || !std::equal(found->tokens.begin(), found->tokens.end(),
                                        block_tokens.begin(), block_tokens.end())) {
      return false;
    }
    std::memcpy(data.data(), found->bytes.data(), block_bytes_);  // without the lock
    return true;
  }

  bool Write(KvBlockPath path, std::span<const TokenId> block_tokens,
             std::span<const std::byte> data) override {
    if (Has(path.back())) {
      Touch(path);
      return true;
    }
    auto made = std::make_shared<Data>();
    made->tokens.assign(block_tokens.begin(), block_tokens.end());
    made->bytes.assign(data.begin(), data.end());
    const std::lock_guard lock(mutex_);
    if (!blocks_.contains(path.back())) {
      order_.push_front(path.back());
      blocks_.emplace(path.back(), Block{std::move(made), order_.begin()});
      ++stats_.blocks_written;
    }
    Use(path);
    while (blocks_.size() > blocks_max_) {
      blocks_.erase(order_.back());
      order_.pop_back();
      ++stats_.blocks_evicted;
    }
    return true;
  }

  void Touch(KvBlockPath path) override {
    const std::lock_guard lock(mutex_);
    Use(path);
  }

  bool accepts_blocks() const override { return true; }

  KvBlockStoreStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  struct Data {
    std::vector<TokenId> tokens;
    std::vector<std::byte> bytes;
  };
  struct Block {
    std::shared_ptr<const Data> data;
    std::list<KvBlockKey>::iterator place;  // in order_
  };

  bool Has(const KvBlockKey& key) const {
    const std::lock_guard lock(mutex_);
    return blocks_.contains(key);
  }
  std::shared_ptr<const Data> Get(KvBlockPath path) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(path.back());
    if (found == blocks_.end()) return nullptr;
    Use(path);
    ++stats_.blocks_read;
    return found->second.data;
  }
  // REQUIRES mutex_.
  void Use(KvBlockPath path) {
    for (auto key = path.rbegin(); key != path.rend(); ++key) {
      const auto found = blocks_.find(*key);
      if (found != blocks_.end()) order_.splice(order_.begin(), order_, found->second.place);
    }
  }

  const std::string identity_;
  const size_t block_bytes_;
  const size_t blocks_max_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<KvBlockKey, Block> blocks_;
  std::list<KvBlockKey> order_;  // the one that was used last comes first
  KvBlockStoreStats stats_;
};

class KvBlockTiers final : public KvBlockStore {
 public:
  KvBlockTiers(std::unique_ptr<KvBlockStore> near, std::unique_ptr<KvBlockStore> far)
      : near_(std::move(near)), far_(std::move(far)) {}

  std::vector<KvBlockKey> Keys(std::span<const TokenId> tokens) const override {
    return far_->Keys(tokens);
  }
  // What one of them has alone: a prefix seldom begins in one and goes on in the other.
  int64_t Find(KvBlockPath path) override { return std::max(near_->Find(path), far_->Find(path)); }
  bool Read(KvBlockPath path, std::span<const TokenId> block_tokens,
            std::span<std::byte> data) override {
    if (near_->Read(path, block_tokens, data)) {
      far_->Touch(path);
      return true;
    }
    if (!far_->Read(path, block_tokens, data)) return false;
    near_->Write(path, block_tokens, data);
    return true;
  }
  bool Write(KvBlockPath path, std::span<const TokenId> block_tokens,
             std::span<const std::byte> data) override {
    const bool is_near = near_->Write(path, block_tokens, data);
    return far_->Write(path, block_tokens, data) || is_near;
  }
  void Touch(KvBlockPath path) override {
    near_->Touch(path);
    far_->Touch(path);
  }
  bool accepts_blocks() const override { return near_->accepts_blocks() || far_->accepts_blocks(); }
  KvBlockStoreStats stats() const override { return far_->stats(); }

 private:
  const std::unique_ptr<KvBlockStore> near_, far_;
};

}  // namespace

std::unique_ptr<KvBlockStore> MakeKvBlockMemory(const KvBlockMemoryOptions& options) {
  return std::make_unique<KvBlockMemory>(options);
}

std::unique_ptr<KvBlockStore> MakeKvBlockTiers(std::unique_ptr<KvBlockStore> near,
                                               std::unique_ptr<KvBlockStore> far) {
  return std::make_unique<KvBlockTiers>(std::move(near), std::move(far));
}

}  // namespace minisgl
