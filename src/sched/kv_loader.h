// Loads of KV from outside, and the pages they write: taken at admission, and kept until the source
// lets go, whatever became of the request meanwhile. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "minisgl/kv/cache_manager.h"
#include "minisgl/sched/kv_source.h"
#include "sched/request_state.h"

namespace minisgl::sched {

class KvLoader {
 public:
  // `source` may be null: then it has nothing.
  KvLoader(KvSource* source, CacheManager* cache, int32_t page_size)
      : source_(source), cache_(cache), page_size_(page_size) {}

  bool has_source() const { return source_ != nullptr; }
  // Whole pages past `cached_len` that the source has, in tokens, never the last token of all;
  // nothing where it does not know yet.
  std::optional<int64_t> Lookup(const RequestState& state, int64_t cached_len) const;
  // The request's pages past launched_len are handed to the source for load_len tokens.
  void Begin(RequestState* state);
  // The request lets go of its pages [first_page, ...) while the source still writes them.
  void Abandon(RequestState* state, int32_t first_page);
  // Loads that ended since the last call. REQUIRES Finish for each.
  std::vector<KvLoadResult> TakeFinished();
  // The source let go of the pages: abandoned ones are free.
  void Finish(RequestState* state);

  int32_t num_loading() const { return num_loading_; }
  // Pages of loads that nobody waits for: they will be free.
  int32_t num_abandoned_pages() const { return num_abandoned_pages_; }

 private:
  KvSource* source_;
  CacheManager* cache_;
  int32_t page_size_;
  int32_t num_loading_ = 0;
  int32_t num_abandoned_pages_ = 0;
};

}  // namespace minisgl::sched
