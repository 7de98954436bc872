// The cache that keeps nothing: every request computes and owns all of its pages. It is the
// baseline for the radix cache's speed, and shows that answers do not depend on the cache.
#include "minisgl/base/check.h"
#include "minisgl/kv/prefix_cache.h"

namespace minisgl {
namespace {

class NaiveCache : public PrefixCache {
 public:
  PrefixMatch Match(const PrefixKey&) override { return {}; }
  void Lock(PrefixNode*) override { ++num_locks_; }
  void Unlock(PrefixNode*) override {
    MINISGL_CHECK(num_locks_ > 0, "unlock without a lock");
    --num_locks_;
  }
  PrefixInsertion Insert(PrefixNode* from, int32_t, const PrefixKey&,
                         std::span<const PageId>) override {
    return {from, {}};
  }
  bool AttachState(const PrefixKey&, StateSlot) override { return false; }
  void Evict(int32_t count, std::vector<PageId>*) override {
    MINISGL_CHECK(count == 0, "nothing can be evicted from a cache that keeps nothing");
  }
  int32_t num_evictable() const override { return 0; }
  int32_t num_locked() const override { return 0; }
  bool keeps_pages() const override { return false; }
  void CheckInvariants(std::span<PrefixNode* const> locked_nodes) const override {
    MINISGL_CHECK(static_cast<int64_t>(locked_nodes.size()) == num_locks_, "I5: {} locks, {} held",
                  num_locks_, locked_nodes.size());
  }
  std::vector<PageId> PathPages(const PrefixNode*) const override { return {}; }
  std::vector<PathState> PathStates(const PrefixNode*) const override { return {}; }
  std::vector<PageId> AllPages() const override { return {}; }

 private:
  int64_t num_locks_ = 0;
};

}  // namespace

std::unique_ptr<PrefixCache> MakeNaiveCache() { return std::make_unique<NaiveCache>(); }

}  // namespace minisgl
