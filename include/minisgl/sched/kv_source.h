// A source of KV for prefixes besides the prefix cache: a disk, or another process.
//
// The scheduler asks it at admission, keeps the pages while a load writes them, and goes on with
// the request when the load ends. A source writes whole pages of all layers, so it is not used if
// layers with a sliding window keep separate window pages.
//
// A model with states goes on from a state, so a source that keeps states, too, finds no more of a
// prefix than the tokens up to one of them, and loads that state beside the pages. A source that
// keeps none is not used for such a model.
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
#include "minisgl/base/prefix_key.h"
#include "minisgl/sched/request.h"

namespace minisgl {

struct KvLoadResult {
  RequestId id = 0;
  // Loaded and good, from the first of the load on; with states all, only if the state is good.
  int64_t num_tokens = 0;
  bool failed = false;  // fewer than asked for
};

using KvSaveId = uint64_t;

// The state of a model after the first `len` tokens of a prefix, in a slot of the engine.
struct KvState {
  int64_t len = 0;
  StateSlot slot = kZeroState;
};

// What a save may keep: whole blocks of tokens from position 0 on, and states at ends of blocks.
struct KvPrefix {
  PrefixKey key;
  std::span<const PageId> pages;
  std::span<const KvState> states;  // those worth most first
  int64_t states_max = 0;           // more of them cannot be held
};

struct KvSaveOffer {
  bool is_taken = false;          // a save has begun to wait: it ends through TakeSaved or DropSave
  int64_t refused_tokens = 0;     // neither kept already, nor wanted
  std::vector<StateSlot> states;  // to hold until the save ends; none if it is not taken
};

struct KvSaveResult {
  KvSaveId id = 0;
  int64_t saved_tokens = 0;    // kept now, and not before
  int64_t dropped_tokens = 0;  // of those that were wanted
  int64_t saved_states = 0;
};

class KvSource {
 public:
  virtual ~KvSource() = default;

  // Returns how many tokens of `key` past the first `cached_len` (whole pages) it has, 0 for none.
  // Returns nothing if it does not know yet: the scheduler asks again at later steps, and until
  // then the request waits without blocking others. A source that keeps states finds what ends at
  // one, before the last token of `key`.
  virtual std::optional<int64_t> Lookup(RequestId id, const PrefixKey& key, int64_t cached_len) = 0;
  // Begins to write KV of positions [begin, begin + count), whole pages, into `pages`, and the
  // state after them into slot `state`; kZeroState: the model has none. At most one load per
  // request at a time. Pages and slot stay the load's until TakeFinished names the request.
  virtual void Load(RequestId id, const PrefixKey& key, int64_t begin, int64_t count,
                    std::span<const PageId> pages, StateSlot state) = 0;
  // The load is no longer needed. It still ends through TakeFinished.
  virtual void Cancel(RequestId id) = 0;
  // Loads that ended since the last call.
  virtual std::vector<KvLoadResult> TakeFinished() = 0;
  // The request ended: Lookup is not called for it again.
  virtual void Forget(RequestId) {}

  // Tokens of the blocks that it keeps, a multiple of the page size; 0: it keeps none, and the
  // functions below are not called.
  virtual int32_t block_tokens() const { return 0; }
  // True if it keeps states beside them.
  virtual bool keeps_states() const { return false; }
  // Offers a prefix, whose pages and slots hold it until the save ends. Reads none of them before
  // the next TakeSaved. `request` computed it, and may have been looked up.
  virtual KvSaveOffer Save(KvSaveId, RequestId request, const KvPrefix& prefix) {
    static_cast<void>(request), static_cast<void>(prefix);
    return {};
  }
  // The pages are needed: drops what is not being read. Returns the result if the save ended by
  // this; otherwise it soon ends through TakeSaved.
  virtual std::optional<KvSaveResult> DropSave(KvSaveId id) { return KvSaveResult{.id = id}; }
  // Saves that ended since the last call.
  virtual std::vector<KvSaveResult> TakeSaved() { return {}; }
};

}  // namespace minisgl
