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
      : identity_(options.identity), max_bytes_(static_cast<size_t>(options.max_bytes)) {
    MINISGL_CHECK(options.block_bytes > 0 && options.max_bytes >= options.block_bytes,
                  "{} bytes for blocks of {}", options.max_bytes, options.block_bytes);
  }

  std::vector<KvBlockKey> Keys(const PrefixKey& key) const override {
    return KvBlockKeys(identity_, key);
  }

  int64_t Find(KvBlockPath path) override {
    const std::lock_guard lock(mutex_);
    const auto end = std::find_if(path.begin(), path.end(), [this](const KvBlockKey& key) {
      return !pieces_.contains({key, false});
    });
    return end - path.begin();
  }

  bool Read(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override {
    return ReadPiece(/*is_state=*/false, path, block, data);
  }
  bool Write(KvBlockPath path, const PrefixKey& block, std::span<const std::byte> data) override {
    return WritePiece(/*is_state=*/false, path, block, data);
  }
  bool HasState(KvBlockPath path) override { return Has({path.back(), true}); }
  bool ReadState(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override {
    return ReadPiece(/*is_state=*/true, path, block, data);
  }
  bool WriteState(KvBlockPath path, const PrefixKey& block,
                  std::span<const std::byte> data) override {
    return Has({path.back(), false}) && data.size() <= max_bytes_ &&
           WritePiece(/*is_state=*/true, path, block, data);
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
  using Id = std::pair<KvBlockKey, bool>;  // true: the state after the block with this key
  struct Data {
    std::vector<TokenId> tokens;
    std::vector<std::byte> bytes;
  };
  struct Piece {
    std::shared_ptr<const Data> data;
    std::list<Id>::iterator place;  // in order_
  };

  bool ReadPiece(bool is_state, KvBlockPath path, const PrefixKey& block,
                 std::span<std::byte> data) {
    const std::shared_ptr<const Data> found = Get({path.back(), is_state}, path);
    if (found == nullptr || !std::equal(found->tokens.begin(), found->tokens.end(),
                                        block.tokens().begin(), block.tokens().end())) {
      return false;
    }
    std::memcpy(data.data(), found->bytes.data(), data.size());  // without the lock
    return true;
  }

  bool WritePiece(bool is_state, KvBlockPath path, const PrefixKey& block,
                  std::span<const std::byte> data) {
    const Id id = {path.back(), is_state};
    if (Has(id)) {
      Touch(path);
      return true;
    }
    auto made = std::make_shared<Data>();
    made->tokens.assign(block.tokens().begin(), block.tokens().end());
    made->bytes.assign(data.begin(), data.end());
    const std::lock_guard lock(mutex_);
    if (!pieces_.contains(id)) {
      order_.push_front(id);
      pieces_.emplace(id, Piece{std::move(made), order_.begin()});
      bytes_ += data.size();
      ++(is_state ? stats_.states_written : stats_.blocks_written);
    }
    Use(path);
    while (bytes_ > max_bytes_) {
      const auto last = pieces_.find(order_.back());
      bytes_ -= last->second.data->bytes.size();
      pieces_.erase(last);
      order_.pop_back();
      ++stats_.blocks_evicted;
    }
    return true;
  }

  bool Has(const Id& id) const {
    const std::lock_guard lock(mutex_);
    return pieces_.contains(id);
  }
  std::shared_ptr<const Data> Get(const Id& id, KvBlockPath path) {
    const std::lock_guard lock(mutex_);
    const auto found = pieces_.find(id);
    if (found == pieces_.end()) return nullptr;
    Use(path);
    ++(id.second ? stats_.states_read : stats_.blocks_read);
    return found->second.data;
  }
  // REQUIRES mutex_.
  void Use(KvBlockPath path) {
    const auto use = [this](const Id& id) {
      const auto found = pieces_.find(id);
      if (found != pieces_.end()) order_.splice(order_.begin(), order_, found->second.place);
    };
    use({path.back(), true});  // the state goes before its block
    for (auto key = path.rbegin(); key != path.rend(); ++key) use({*key, false});
  }

  const std::string identity_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<Id, Piece> pieces_;
  std::list<Id> order_;  // the one that was used last comes first
  size_t bytes_ = 0;     // of the data of all
  KvBlockStoreStats stats_;
};

class KvBlockTiers final : public KvBlockStore {
 public:
  KvBlockTiers(std::unique_ptr<KvBlockStore> near, std::unique_ptr<KvBlockStore> far)
      : near_(std::move(near)), far_(std::move(far)) {}

  std::vector<KvBlockKey> Keys(const PrefixKey& key) const override { return far_->Keys(key); }
  // What one of them has alone: a prefix seldom begins in one and goes on in the other.
  int64_t Find(KvBlockPath path) override { return std::max(near_->Find(path), far_->Find(path)); }
  bool Read(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override {
    if (near_->Read(path, block, data)) {
      far_->Touch(path);
      return true;
    }
    if (!far_->Read(path, block, data)) return false;
    near_->Write(path, block, data);
    return true;
  }
  bool Write(KvBlockPath path, const PrefixKey& block, std::span<const std::byte> data) override {
    const bool is_near = near_->Write(path, block, data);
    return far_->Write(path, block, data) || is_near;
  }
  bool HasState(KvBlockPath path) override { return near_->HasState(path) || far_->HasState(path); }
  bool ReadState(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override {
    if (near_->ReadState(path, block, data)) {
      far_->Touch(path);
      return true;
    }
    if (!far_->ReadState(path, block, data)) return false;
    near_->WriteState(path, block, data);
    return true;
  }
  bool WriteState(KvBlockPath path, const PrefixKey& block,
                  std::span<const std::byte> data) override {
    const bool is_near = near_->WriteState(path, block, data);
    return far_->WriteState(path, block, data) || is_near;
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
