// A source of KV for prefixes besides the prefix cache: a disk, or another process.
//
// The scheduler asks it at admission, keeps the pages while a load writes them, and goes on with
// the request when the load ends. A source writes whole pages of all layers, so it is not used if
// layers with a sliding window keep separate window pages.
//
// If the source keeps KV, too, the scheduler offers it the prefix of each request that ends, and
// holds the prefix in the prefix cache until the source has read it. Such pages make no request
// wait: if they are needed, the save is dropped, except for blocks that are being read.
//
// Only the scheduler's thread calls it; loads and saves may run on any thread.
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

using KvSaveId = uint64_t;

struct KvSaveOffer {
  bool is_taken = false;       // a save has begun to wait: it ends through TakeSaved or DropSave
  int64_t refused_tokens = 0;  // neither kept already, nor wanted
};

struct KvSaveResult {
  KvSaveId id = 0;
  int64_t saved_tokens = 0;    // kept now, and not before
  int64_t dropped_tokens = 0;  // of those that were wanted
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
  // The request ended: Lookup is not called for it again.
  virtual void Forget(RequestId) {}

  // Tokens of the blocks that it keeps, a multiple of the page size; 0: it keeps none, and the
  // functions below are not called.
  virtual int32_t block_tokens() const { return 0; }
  // Offers the KV of `tokens`, whole blocks from position 0 on, in `pages`, which hold it until the
  // save ends. Reads no page before the next TakeSaved. `request` computed it, and may have been
  // looked up.
  virtual KvSaveOffer Save(KvSaveId, RequestId request, std::span<const TokenId> tokens,
                           std::span<const PageId> pages) {
    static_cast<void>(request), static_cast<void>(tokens), static_cast<void>(pages);
    return {};
  }
  // The pages are needed: drops what is not being read. Returns the result if the save ended by
  // this; otherwise it soon ends through TakeSaved.
  virtual std::optional<KvSaveResult> DropSave(KvSaveId id) { return KvSaveResult{.id = id}; }
  // Saves that ended since the last call.
  virtual std::vector<KvSaveResult> TakeSaved() { return {}; }
};

}  // namespace minisgl
