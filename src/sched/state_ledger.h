// State slots of running requests, and the snapshots that they leave in the prefix cache.
//
// state_ledger.cc shows why every row finds the state that it begins from. If the engine has no
// state slots, every bound holds and every change does nothing. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"
#include "minisgl/kv/prefix_cache.h"
#include "minisgl/kv/state_pool.h"
#include "sched/request_state.h"

namespace minisgl::sched {

class StateLedger {
 public:
  // `running` (the admitted requests) outlives this. REQUIRES, if there are state slots, enough of
  // them for one request.
  StateLedger(const EngineLimits& limits, const std::vector<RequestState*>* running);

  // Null without state slots.
  StatePool* pool() { return pool_.get(); }
  const StatePool* pool() const { return pool_.get(); }
  // Where requests leave snapshots; set once, before anything else. Outlives this. `block_tokens`:
  // of the blocks whose ends a source keeps states at; 0: there is none.
  void SetCache(PrefixCache* cache, int32_t block_tokens) {
    cache_ = cache;
    block_tokens_ = block_tokens;
  }

  // True if another request can have its slots.
  bool CanAdmit() const;
  // True if it could, if no snapshot were held.
  bool CouldAdmit() const;
  // Snapshots that may be held, at most, so that promises can be kept.
  int64_t NumHoldable() const;

  // `state` is admitted with `match`: pins the snapshot that it goes on from.
  void Begin(RequestState* state, const PrefixMatch& match);
  // Plans a snapshot after the first `len` tokens of `state`, if it still comes there, `len` is the
  // end of a page and not many are planned; and one at the end of the source's block before that.
  void Want(RequestState* state, int64_t len) const;
  // Takes the slot that the load of `state` writes, which was just admitted.
  void TakeForLoad(RequestState* state);
  // The load ended. Gives the slot up, unless the state in it `is_good`: then it is that after
  // computed_len, and the whole pages of `state` are in the prefix cache.
  void EndLoad(RequestState* state, bool is_good);

  // Plans the segments of the next `count` tokens of `state`, row `row` of a plan. `num_drafts` of
  // them are drafts; `may_drop`: the token that it samples may be dropped.
  void AddSegments(RequestState* state, int64_t count, int64_t num_drafts, bool may_drop, int row,
                   std::vector<StateSegment>* segments);
  // computed_len of `state` has grown, and its whole pages are in the prefix cache: leaves the
  // snapshots there that were planned.
  void Advance(RequestState* state);
  // The tokens of `state` past `len` were not accepted. Returns the length, at most `len`, from
  // which its next row must begin. REQUIRES no step in flight with it.
  int64_t RollBack(RequestState* state, int64_t len);
  // Leaves the last state at the end of a page in the prefix cache, and gives up all others.
  void Release(RequestState* state);

  // Slots promised to running requests and not taken; a snapshot that is pinned counts as not
  // taken.
  int64_t Owed() const;
  // Checks the slots of all running requests, and each slot's place (I1, I5, I7, I8).
  // `load_states`: slots that loads write. `holds`: those of saves.
  void CheckInvariants(std::span<const StateSlot> load_states,
                       std::span<const StateSlot> holds) const;

 private:
  // Slots that are promised to no request.
  int64_t NumSpare() const;
  // True if such a slot can be had.
  bool HasSpare(bool may_evict) const;
  // The slot of the state after `len` tokens.
  StateSlot SlotAt(const RequestState& state, int64_t len) const;
  // A slot for the state after `end` tokens, of a row that begins at `begin`.
  StateSlot TakeForWrite(RequestState* state, int64_t begin, int64_t end);
  // A length within a row after which its state is written to a slot of its own.
  struct Mark {
    int64_t len;
    bool is_snapshot;  // else: for a roll-back
  };
  std::vector<Mark> MarksOf(const RequestState& state, int64_t begin, int64_t end,
                            int64_t num_drafts, bool may_drop) const;
  bool IsWanted(const RequestState& state, int64_t len) const;
  // The state of `entry` is computed. Returns false if `state` holds the slot no longer.
  bool AdvanceEntry(RequestState* state, const StateEntry& entry);
  void Unpin(RequestState* state);
  // The state of `entry` is a snapshot now, from which `state` goes on.
  void GoOnFrom(RequestState* state, const StateEntry& entry);
  void WantAt(RequestState* state, int64_t len) const;
  // The state after `len` tokens, which was kept, would be given up: if it ends a block of the
  // source, and a slot can be spared, it is kept in place of the one before.
  void KeepBlockEnd(RequestState* state, int64_t len);
  // True if the state of `entry` became a snapshot: the slot is the cache's.
  bool Leave(const RequestState& state, const StateEntry& entry);

  int32_t page_size_;
  int32_t entitled_;  // slots promised to a running request; the snapshot that it pins counts
  std::unique_ptr<StatePool> pool_;
  PrefixCache* cache_ = nullptr;
  int32_t block_tokens_ = 0;
  const std::vector<RequestState*>* running_;
};

}  // namespace minisgl::sched
