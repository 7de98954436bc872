// Where KV of a prefix may come from besides the prefix cache: a disk, another process. The
// scheduler asks at admission, keeps the pages while a load writes them, and goes on when it is
// told.
//
// It is not asked where layers with a sliding window keep window pages of their own: what it writes
// is whole pages of all layers.
//
// Used by the scheduler's thread alone; loads run wherever the source likes.
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

  // How many tokens of `tokens` past the first `cached_len` (whole pages) it has, 0 for none;
  // nothing where it does not know yet: asked again at later steps, the request waits and blocks
  // nobody.
  virtual std::optional<int64_t> Lookup(RequestId id, std::span<const TokenId> tokens,
                                        int64_t cached_len) = 0;
  // Begins to write KV of positions [begin, begin + count), whole pages, into `pages`. One load a
  // request at a time. The pages stay the load's until TakeFinished names the request.
  virtual void Load(RequestId id, std::span<const TokenId> tokens, int64_t begin, int64_t count,
                    std::span<const PageId> pages) = 0;
  // Nobody needs it any more. It still ends through TakeFinished.
  virtual void Cancel(RequestId id) = 0;
  // Loads that ended since the last call.
  virtual std::vector<KvLoadResult> TakeFinished() = 0;
};

}  // namespace minisgl
