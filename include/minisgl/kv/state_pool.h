// The state slots of an engine with recurrent layers, and the snapshots among them. Ids and counts
// only; one thread.
//
// A slot is in exactly one place:
//   - free
//   - taken by a caller
//   - a snapshot: the state at the end of a node of the prefix cache. It is never written again.
//     Without a pin or a hold it may be evicted, least recently used first. Requests that go on
//     from it pin it; saves that copy it hold it.
//
// A slot that is given back may be taken at once, also if a step in flight still reads or writes
// it: steps run in the order in which they were launched, so a later step writes it after that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

struct PrefixNode;

class StatePool {
 public:
  // At first all of [0, num_slots) are free. REQUIRES num_slots >= 1.
  explicit StatePool(int32_t num_slots);

  int32_t num_slots() const { return static_cast<int32_t>(slots_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_snapshots() const { return static_cast<int32_t>(slot_of_.size()); }
  // Snapshots with a pin and no hold: they can be evicted as soon as requests let them.
  int32_t num_pinned() const { return num_snapshots() - num_evictable_ - num_held_; }
  int32_t num_held() const { return num_held_; }  // snapshots with a hold
  // Slots that Take can give now.
  int32_t num_available() const { return num_free() + num_evictable_; }
  int64_t num_evicted() const { return num_evicted_; }

  // Takes a free slot, or that of the least recently used snapshot without a pin or a hold.
  // REQUIRES num_available() > 0.
  StateSlot Take();
  // Frees a slot that was taken.
  void Give(StateSlot slot);

  // The slot of the snapshot at `node`; kZeroState: it has none.
  StateSlot SnapshotAt(const PrefixNode* node) const;
  // Makes the taken `slot` the snapshot at `node`, as the most recently used. REQUIRES that it has
  // none.
  void Attach(const PrefixNode* node, StateSlot slot);
  // The snapshot at `node` is used now.
  void Touch(const PrefixNode* node);
  // Drops the snapshot at `node`, if it has one: it ends elsewhere now, or is deleted. REQUIRES no
  // pin and no hold.
  void Detach(const PrefixNode* node);
  // Adds or removes one pin of the snapshot in `slot`.
  void Pin(StateSlot slot);
  void Unpin(StateSlot slot);
  // Adds or removes one hold of it.
  void Hold(StateSlot slot);
  void Unhold(StateSlot slot);

  // Checks that each slot is in exactly one place and recounts the pins and holds. `taken`: every
  // slot that callers have taken. `pins`, `holds`: every one, an entry each.
  void CheckInvariants(std::span<const StateSlot> taken, std::span<const StateSlot> pins,
                       std::span<const StateSlot> holds = {}) const;

 private:
  struct Slot {
    bool is_free = true;
    const PrefixNode* node = nullptr;  // of the snapshot; null: free or taken
    int32_t pins = 0, holds = 0;
    // Neighbours in the list of snapshots that may be evicted; kZeroState if it is not listed.
    StateSlot older = kZeroState, fresher = kZeroState;
  };
  Slot& At(StateSlot slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& At(StateSlot slot) const { return slots_[static_cast<size_t>(slot)]; }
  // True if it is a snapshot that may be evicted.
  bool IsListed(StateSlot slot) const {
    return At(slot).node != nullptr && At(slot).pins == 0 && At(slot).holds == 0;
  }
  void List(StateSlot slot);  // as the freshest
  void Unlist(StateSlot slot);
  void Drop(StateSlot slot);  // no snapshot any more, and not free yet

  std::vector<Slot> slots_;
  std::vector<StateSlot> free_;  // a stack, as PagePool's
  // Looked up, never iterated for decisions.
  std::unordered_map<const PrefixNode*, StateSlot> slot_of_;
  StateSlot oldest_ = kZeroState, freshest_ = kZeroState;
  int32_t num_evictable_ = 0, num_held_ = 0;
  int64_t num_evicted_ = 0;
};

}  // namespace minisgl
