#include "minisgl/kv/state_pool.h"

#include "minisgl/base/check.h"

namespace minisgl {

StatePool::StatePool(int32_t num_slots) : slots_(static_cast<size_t>(num_slots)) {
  MINISGL_CHECK(num_slots >= 1, "a pool of {} states", num_slots);
  for (StateSlot slot = num_slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

void StatePool::List(StateSlot slot) {
  Slot& entry = At(slot);
  entry.older = freshest_;
  entry.fresher = kZeroState;
  (freshest_ == kZeroState ? oldest_ : At(freshest_).fresher) = slot;
  freshest_ = slot;
  ++num_evictable_;
}

void StatePool::Unlist(StateSlot slot) {
  Slot& entry = At(slot);
  (entry.older == kZeroState ? oldest_ : At(entry.older).fresher) = entry.fresher;
  (entry.fresher == kZeroState ? freshest_ : At(entry.fresher).older) = entry.older;
  entry.older = entry.fresher = kZeroState;
  --num_evictable_;
}

void StatePool::Drop(StateSlot slot) {
  Slot& entry = At(slot);
  MINISGL_CHECK(entry.pins == 0 && entry.holds == 0,
                "the snapshot in state slot {} is dropped with a pin or a hold", slot);
  Unlist(slot);
  slot_of_.erase(entry.node);
  entry.node = nullptr;
}

StateSlot StatePool::Take() {
  if (free_.empty()) {
    MINISGL_CHECK(oldest_ != kZeroState, "no state slot is available");
    const StateSlot slot = oldest_;
    Drop(slot);
    ++num_evicted_;
    return slot;
  }
  const StateSlot slot = free_.back();
  free_.pop_back();
  At(slot).is_free = false;
  return slot;
}

void StatePool::Give(StateSlot slot) {
  Slot& entry = At(slot);
  MINISGL_CHECK(!entry.is_free && entry.node == nullptr, "state slot {} is given twice", slot);
  entry.is_free = true;
  free_.push_back(slot);
}

StateSlot StatePool::SnapshotAt(const PrefixNode* node) const {
  const auto found = slot_of_.find(node);
  return found == slot_of_.end() ? kZeroState : found->second;
}

void StatePool::Attach(const PrefixNode* node, StateSlot slot) {
  MINISGL_CHECK(!At(slot).is_free && At(slot).node == nullptr, "state slot {} is not taken", slot);
  MINISGL_CHECK(slot_of_.emplace(node, slot).second, "a prefix has two snapshots");
  At(slot).node = node;
  List(slot);
}

void StatePool::Touch(const PrefixNode* node) {
  const StateSlot slot = SnapshotAt(node);
  if (slot == kZeroState || !IsListed(slot)) return;
  Unlist(slot);
  List(slot);
}

void StatePool::Detach(const PrefixNode* node) {
  const StateSlot slot = SnapshotAt(node);
  if (slot == kZeroState) return;
  Drop(slot);
  Give(slot);
}

void StatePool::Pin(StateSlot slot) {
  MINISGL_CHECK(At(slot).node != nullptr, "state slot {} holds no snapshot", slot);
  if (IsListed(slot)) Unlist(slot);
  ++At(slot).pins;
}

void StatePool::Unpin(StateSlot slot) {
  MINISGL_CHECK(At(slot).pins > 0, "state slot {} has no pin", slot);
  --At(slot).pins;
  if (IsListed(slot)) List(slot);
}

void StatePool::Hold(StateSlot slot) {
  MINISGL_CHECK(At(slot).node != nullptr, "state slot {} holds no snapshot", slot);
  if (IsListed(slot)) Unlist(slot);
  num_held_ += At(slot).holds++ == 0 ? 1 : 0;
}

void StatePool::Unhold(StateSlot slot) {
  MINISGL_CHECK(At(slot).holds > 0, "state slot {} has no hold", slot);
  num_held_ -= --At(slot).holds == 0 ? 1 : 0;
  if (IsListed(slot)) List(slot);
}

void StatePool::CheckInvariants(std::span<const StateSlot> taken, std::span<const StateSlot> pins,
                                std::span<const StateSlot> holds) const {
  std::vector<int32_t> places(slots_.size(), 0), counted(slots_.size(), 0);
  std::vector<int32_t> counted_holds(slots_.size(), 0);
  for (const StateSlot slot : free_) {
    MINISGL_CHECK(At(slot).is_free, "I2: state slot {} is listed as free", slot);
    ++places[static_cast<size_t>(slot)];
  }
  for (const StateSlot slot : taken) {
    MINISGL_CHECK(!At(slot).is_free && At(slot).node == nullptr,
                  "I1: state slot {} is taken, and free or a snapshot", slot);
    ++places[static_cast<size_t>(slot)];
  }
  for (const StateSlot slot : pins) ++counted[static_cast<size_t>(slot)];
  for (const StateSlot slot : holds) ++counted_holds[static_cast<size_t>(slot)];
  int32_t num_snapshots = 0, num_listed = 0, num_held = 0;
  for (StateSlot slot = 0; slot < num_slots(); ++slot) {
    const auto at = static_cast<size_t>(slot);
    const Slot& entry = slots_[at];
    if (entry.node != nullptr) {
      ++places[at];
      ++num_snapshots;
      MINISGL_CHECK(SnapshotAt(entry.node) == slot, "I3: the snapshot in state slot {} is lost",
                    slot);
    }
    MINISGL_CHECK(places[at] == 1, "I1: state slot {} is in {} places", slot, places[at]);
    MINISGL_CHECK(entry.pins == counted[at], "I5: state slot {} has {} pins, {} held", slot,
                  entry.pins, counted[at]);
    MINISGL_CHECK(entry.holds == counted_holds[at], "I5: state slot {} has {} holds, {} held", slot,
                  entry.holds, counted_holds[at]);
    num_held += entry.holds > 0 ? 1 : 0;
  }
  for (StateSlot slot = oldest_; slot != kZeroState; slot = At(slot).fresher) {
    MINISGL_CHECK(IsListed(slot), "I5: state slot {} is listed as evictable", slot);
    ++num_listed;
  }
  MINISGL_CHECK(num_snapshots == this->num_snapshots() && num_listed == num_evictable_ &&
                    num_held == num_held_,
                "I5: {} snapshots, {} evictable, {} held; counters say {}, {}, {}", num_snapshots,
                num_listed, num_held, this->num_snapshots(), num_evictable_, num_held_);
}

}  // namespace minisgl
