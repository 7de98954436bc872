// A source of KV for prefixes besides the prefix cache: a disk, or another process.
//
// The scheduler asks it at admission, keeps the pages while a load writes them, and goes on with
// the request when the load ends. A source writes whole pages of all layers, so it is not used if
// layers with a sliding window keep separate window pages.
//
// Only the scheduler's thread calls it; loads may run on any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/sched/request.h"

namespace minisgl {

struct KvLoadResult {
  RequestId id = 0;
  int64_t num_tokens = 0;  // loaded and good, from the first of the load on
  bool failed = false;     // fewer than asked for
};

class KvSource {
 public:
  virtual ~KvSource() = default;

  // Returns how many tokens of `tokens` past the first `cached_len` (whole pages) it has, 0 for
  // none. Returns nothing if it does not know yet: the scheduler asks again at later steps, and
  // until then the request waits without blocking others.
  virtual std::optional<int64_t> Lookup(RequestId id, std::span<const TokenId> tokens,
                                        int64_t cached_len) = 0;
  // Begins to write KV of positions [begin, begin + count), whole pages, into `pages`. At most one
  // load per request at a time. The pages stay the load's until TakeFinished names the request.
  virtual void Load(RequestId id, std::span<const TokenId> tokens, int64_t begin, int64_t count,
                    std::span<const PageId> pages) = 0;
  // The load is no longer needed. It still ends through TakeFinished.
  virtual void Cancel(RequestId id) = 0;
  // Loads that ended since the last call.
  virtual std::vector<KvLoadResult> TakeFinished() = 0;
};

}  // namespace minisgl
