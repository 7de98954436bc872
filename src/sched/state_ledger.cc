// Why every row finds the state that it begins from.
//
// A row of tokens [begin, end) reads the state after `begin` tokens from one slot and writes that
// after `end` tokens to another. The next row begins at `end`. If the row's tokens are not all
// accepted, it begins again at `begin`, or after: that state was read, not written, and its slot is
// not written before a later row of the request is planned. No later row is planned before the
// tokens of one that may be rolled back are known (a step with drafts has none beside it, and a row
// whose mask is late has none after it). So of a request's own slots these are never written by its
// next row:
//  - the one that it reads
//  - those past computed_len: of rows in flight, and marks that were not looked at yet
//  - the latest state at the end of a page, which stays in the prefix cache when the request ends.
//    A surplus row after the end of an answer writes another slot.
// With f rows in flight these are at most max(f, 1) + 1, and the row that is planned writes one
// more. So StateSlotsPerRequest(max_in_flight) are promised to a request; the snapshot that it pins
// is one of them. What is promised and not taken yet is free or a snapshot (I8): one without a pin,
// or one that the request has pinned. Requests may pin the same snapshot, which only leaves more.
//
// A slot that a load writes is one of the promised ones, too. A snapshot that is held, because a
// save copies it, counts as neither free nor pinned: holds take what is promised to no request, and
// saves are dropped when another request needs their slots.
//
// Marks are slots beyond that, if there are any: for the snapshots that are planned within a row
// (they may evict older ones), and for states to which a row may be rolled back (they may not).
// Without such a mark the request computes the tokens since `begin` again.
#include "sched/state_ledger.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::sched {
namespace {

// Tokens after which a long prompt or answer leaves a snapshot in any case.
constexpr int64_t kBackstopTokens = 4096;
// Upper bound on the snapshots that are planned for one request at a time.
constexpr size_t kWantedMax = 8;

// Slots of `state` that are part of its promise, without the snapshot that it pins.
int64_t NumPromised(const RequestState& state) {
  const int64_t loading = state.load_state == kZeroState ? 0 : 1;
  return loading + std::count_if(state.states.begin(), state.states.end(),
                                 [](const StateEntry& entry) { return !entry.is_spare; });
}

}  // namespace

StateLedger::StateLedger(const EngineLimits& limits, const std::vector<RequestState*>* running)
    : page_size_(limits.page_size),
      entitled_(StateSlotsPerRequest(limits.max_in_flight)),
      running_(running) {
  if (limits.num_state_slots == 0) return;
  MINISGL_CHECK(limits.num_state_slots >= entitled_, "{} state slots, a request needs {}",
                limits.num_state_slots, entitled_);
  MINISGL_CHECK(limits.num_window_pages == 0, "window pages beside states");
  pool_ = std::make_unique<StatePool>(limits.num_state_slots);
}

int64_t StateLedger::Owed() const {
  int64_t owed = 0;
  for (const RequestState* state : *running_) {
    owed += std::max<int64_t>(entitled_ - NumPromised(*state), 0);
  }
  return owed;
}

bool StateLedger::CanAdmit() const { return pool_ == nullptr || NumSpare() >= entitled_; }

bool StateLedger::CouldAdmit() const {
  return pool_ == nullptr || NumSpare() + pool_->num_held() >= entitled_;
}

int64_t StateLedger::NumHoldable() const {
  return pool_ == nullptr ? 0 : std::max<int64_t>(NumSpare(), 0);
}

int64_t StateLedger::NumSpare() const {
  return pool_->num_available() + pool_->num_pinned() - Owed();
}

bool StateLedger::HasSpare(bool may_evict) const {
  const int32_t at_hand = may_evict ? pool_->num_available() : pool_->num_free();
  return at_hand > 0 && NumSpare() > 0;
}

void StateLedger::Begin(RequestState* state, const PrefixMatch& match) {
  if (match.state == kZeroState) return;
  pool_->Pin(match.state);
  state->pinned_state = match.state;
  state->pinned_len = int64_t{page_size_} * std::ssize(match.pages);
}

void StateLedger::Unpin(RequestState* state) {
  if (state->pinned_state == kZeroState) return;
  pool_->Unpin(state->pinned_state);
  state->pinned_state = kZeroState;
  state->pinned_len = 0;
}

void StateLedger::GoOnFrom(RequestState* state, const StateEntry& entry) {
  Unpin(state);
  pool_->Pin(entry.slot);
  state->pinned_state = entry.slot;
  state->pinned_len = entry.len;
}

void StateLedger::TakeForLoad(RequestState* state) {
  if (pool_ != nullptr) state->load_state = pool_->Take();
}

void StateLedger::EndLoad(RequestState* state, bool is_good) {
  const StateSlot slot = std::exchange(state->load_state, kZeroState);
  if (slot == kZeroState) return;
  if (!is_good) {
    pool_->Give(slot);
    return;
  }
  const StateEntry entry = {slot, state->computed_len, false};
  if (Leave(*state, entry)) {
    GoOnFrom(state, entry);
  } else {  // another request left it first
    state->states.push_back(entry);
  }
}

void StateLedger::Want(RequestState* state, int64_t len) const {
  if (pool_ == nullptr || !cache_->keeps_pages()) return;
  WantAt(state, len);
  if (block_tokens_ > 0) WantAt(state, len / block_tokens_ * block_tokens_);
}

void StateLedger::WantAt(RequestState* state, int64_t len) const {
  if (len % page_size_ != 0) return;
  std::vector<int64_t>& wanted = state->wanted_states;
  if (len <= state->launched_len + state->load_len || wanted.size() >= kWantedMax) return;
  const auto place = std::lower_bound(wanted.begin(), wanted.end(), len);
  if (place == wanted.end() || *place != len) wanted.insert(place, len);
}

bool StateLedger::IsWanted(const RequestState& state, int64_t len) const {
  return (len % kBackstopTokens == 0 && cache_->keeps_pages()) ||
         std::binary_search(state.wanted_states.begin(), state.wanted_states.end(), len);
}

StateSlot StateLedger::SlotAt(const RequestState& state, int64_t len) const {
  for (const StateEntry& entry : state.states) {
    if (entry.len == len) return entry.slot;
  }
  if (state.pinned_state != kZeroState && state.pinned_len == len) return state.pinned_state;
  MINISGL_CHECK(len == 0, "I7: request {} has no state after {} tokens", state.request.id, len);
  return kZeroState;
}

StateSlot StateLedger::TakeForWrite(RequestState* state, int64_t begin, int64_t end) {
  StateEntry* oldest = nullptr;
  for (StateEntry& entry : state->states) {
    const bool is_kept = entry.len == state->kept_state_len ||
                         (entry.is_spare && entry.len == state->kept_block_len);
    const bool is_needed = entry.len == begin || entry.len > state->computed_len || is_kept;
    if (!is_needed && (oldest == nullptr || entry.len < oldest->len)) oldest = &entry;
  }
  if (oldest != nullptr) {
    *oldest = {oldest->slot, end, false};
    return oldest->slot;
  }
  const StateSlot slot = pool_->Take();
  state->states.push_back({slot, end, false});
  const int64_t held = NumPromised(*state) + (state->pinned_state != kZeroState ? 1 : 0);
  MINISGL_CHECK(held <= entitled_, "I8: request {} holds {} states of {}", state->request.id, held,
                entitled_);
  return slot;
}

std::vector<StateLedger::Mark> StateLedger::MarksOf(const RequestState& state, int64_t begin,
                                                    int64_t end, int64_t num_drafts,
                                                    bool may_drop) const {
  std::vector<Mark> marks;
  for (const int64_t len : state.wanted_states) {
    if (len > begin && len < end) marks.push_back({len, true});
  }
  for (int64_t len = (begin / kBackstopTokens + 1) * kBackstopTokens; len < end;
       len += kBackstopTokens) {
    if (cache_->keeps_pages()) marks.push_back({len, true});
  }
  // No request goes on from within an input that is computed whole.
  std::erase_if(marks, [&](const Mark& mark) { return state.BeforeInput(mark.len) != mark.len; });
  // The lengths that may be accepted, beside all of them.
  const int64_t least = end - num_drafts - (may_drop ? 1 : 0);
  for (int64_t len = std::max(least, begin + 1); len < end; ++len) marks.push_back({len, false});
  std::sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) {
    return a.len != b.len ? a.len < b.len : a.is_snapshot > b.is_snapshot;
  });
  const auto same = [](const Mark& a, const Mark& b) { return a.len == b.len; };
  marks.erase(std::unique(marks.begin(), marks.end(), same), marks.end());
  return marks;
}

void StateLedger::AddSegments(RequestState* state, int64_t count, int64_t num_drafts, bool may_drop,
                              int row, std::vector<StateSegment>* segments) {
  if (pool_ == nullptr) return;
  const int64_t begin = state->launched_len, end = begin + count;
  StateSlot read = SlotAt(*state, begin);
  if (begin > state->pinned_len) Unpin(state);
  const StateSlot write = TakeForWrite(state, begin, end);
  int64_t at = begin;
  for (const Mark& mark : MarksOf(*state, begin, end, num_drafts, may_drop)) {
    if (!HasSpare(mark.is_snapshot)) continue;
    const StateSlot slot = pool_->Take();
    state->states.push_back({slot, mark.len, true});
    segments->push_back({row, static_cast<int32_t>(mark.len - at), read, slot});
    read = slot;
    at = mark.len;
  }
  segments->push_back({row, static_cast<int32_t>(end - at), read, write});
}

bool StateLedger::Leave(const RequestState& state, const StateEntry& entry) {
  return cache_->AttachState(state.key().first(static_cast<size_t>(entry.len)), entry.slot);
}

bool StateLedger::AdvanceEntry(RequestState* state, const StateEntry& entry) {
  const bool is_last = entry.len == state->computed_len;
  const bool is_cached = entry.len <= int64_t{state->tree_pages} * page_size_;
  if (is_cached && IsWanted(*state, entry.len)) {
    std::erase(state->wanted_states, entry.len);
    if (Leave(*state, entry)) {
      if (entry.len > state->kept_state_len) state->kept_state_len = 0;
      if (!is_last) return false;
      // The next row reads it, or one in flight that may be rolled back to it.
      GoOnFrom(state, entry);
      return false;
    }
  }
  if (is_last) {
    const bool is_page_end = entry.len % page_size_ == 0;
    if (is_cached && is_page_end && cache_->keeps_pages()) state->kept_state_len = entry.len;
    return true;
  }
  if (!entry.is_spare || entry.len == state->kept_state_len || entry.len == state->kept_block_len) {
    return true;
  }
  pool_->Give(entry.slot);
  return false;
}

void StateLedger::Advance(RequestState* state) {
  if (pool_ == nullptr) return;
  const int64_t kept_len = state->kept_state_len;
  std::erase_if(state->states, [&](const StateEntry& entry) {
    return entry.len <= state->computed_len && !AdvanceEntry(state, entry);
  });
  if (state->kept_state_len != kept_len) KeepBlockEnd(state, kept_len);
}

void StateLedger::KeepBlockEnd(RequestState* state, int64_t len) {
  if (block_tokens_ == 0 || len == 0 || len % block_tokens_ != 0) return;
  const auto kept = std::find_if(state->states.begin(), state->states.end(),
                                 [len](const StateEntry& entry) { return entry.len == len; });
  if (kept == state->states.end() || (!kept->is_spare && NumSpare() <= 0)) return;
  kept->is_spare = true;
  const int64_t before = std::exchange(state->kept_block_len, len);
  std::erase_if(state->states, [&](const StateEntry& entry) {
    const bool is_before = entry.is_spare && entry.len == before;
    if (is_before) pool_->Give(entry.slot);
    return is_before;
  });
}

int64_t StateLedger::RollBack(RequestState* state, int64_t len) {
  if (pool_ == nullptr) return len;
  int64_t last = state->pinned_len;
  std::erase_if(state->states, [&](const StateEntry& entry) {
    if (entry.len > len) pool_->Give(entry.slot);
    return entry.len > len;
  });
  for (const StateEntry& entry : state->states) last = std::max(last, entry.len);
  for (StateEntry& entry : state->states) {
    if (entry.len == last) entry.is_spare = false;
  }
  return last;
}

void StateLedger::Release(RequestState* state) {
  if (pool_ == nullptr) return;
  Unpin(state);
  for (const StateEntry& entry : state->states) {
    const bool is_kept = entry.len == state->kept_state_len || entry.len == state->kept_block_len;
    const bool stays = is_kept && Leave(*state, entry);
    if (!stays) pool_->Give(entry.slot);
  }
  state->states.clear();
  state->kept_state_len = state->kept_block_len = 0;
  state->wanted_states.clear();
}

void StateLedger::CheckInvariants(std::span<const StateSlot> load_states,
                                  std::span<const StateSlot> holds) const {
  if (pool_ == nullptr) return;
  std::vector<StateSlot> taken(load_states.begin(), load_states.end()), pins;
  for (const RequestState* state : *running_) {
    for (const StateEntry& entry : state->states) {
      taken.push_back(entry.slot);
      MINISGL_CHECK(entry.len >= 1 && entry.len <= state->launched_len,
                    "I7: request {} has a state after {} tokens of {}", state->request.id,
                    entry.len, state->launched_len);
    }
    if (state->pinned_state != kZeroState) pins.push_back(state->pinned_state);
    SlotAt(*state, state->launched_len);
  }
  pool_->CheckInvariants(taken, pins, holds);
  MINISGL_CHECK(NumSpare() >= 0, "I8: {} states promised, {} available, {} pinned", Owed(),
                pool_->num_available(), pool_->num_pinned());
}

}  // namespace minisgl::sched
