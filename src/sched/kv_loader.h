// Loads of KV from a KvSource, and the pages that they write. The pages are taken at admission and
// kept until the source ends the load, even if the request is released meanwhile. So is the slot of
// the state that a load writes (StateLedger). One thread.
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
  // `source` may be null: then no prefix is ever loaded.
  KvLoader(KvSource* source, CacheManager* cache, int32_t page_size, bool has_states)
      : source_(source), cache_(cache), page_size_(page_size), has_states_(has_states) {}

  bool has_source() const { return source_ != nullptr; }
  // Returns how many tokens past `cached_len` the source has, in whole pages, and no more than
  // may be shared; with states, up to one that it has. Returns nothing if the source does not know
  // yet.
  std::optional<int64_t> Lookup(const RequestState& state, int64_t cached_len) const;
  // Begins the load of load_len tokens into the request's pages past launched_len.
  void Begin(RequestState* state);
  // Takes over pages [first_page, ...) of a request that is released while the source writes them.
  void Abandon(RequestState* state, int32_t first_page);
  // Returns the loads that ended since the last call. REQUIRES Finish for each.
  std::vector<KvLoadResult> TakeFinished();
  // The load ended: frees its pages if they were abandoned.
  void Finish(RequestState* state);

  int32_t num_loading() const { return num_loading_; }
  // Pages of loads whose request was released. They will be free.
  int32_t num_abandoned_pages() const { return num_abandoned_pages_; }

 private:
  KvSource* source_;
  CacheManager* cache_;
  int32_t page_size_;
  bool has_states_;
  int32_t num_loading_ = 0;
  int32_t num_abandoned_pages_ = 0;
};

}  // namespace minisgl::sched
