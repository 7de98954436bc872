#include "sched/adapter_ledger.h"

#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::sched {

AdapterLedger::AdapterLedger(AdapterSource* source) : source_(source) {
  if (source == nullptr) return;
  entries_.resize(static_cast<size_t>(source->num_adapters()));
  MINISGL_CHECK(source->max_loaded() >= 1, "{} adapters at once", source->max_loaded());
}

AdapterLedger::Entry* AdapterLedger::EntryOf(const RequestState& state) {
  if (source_ == nullptr || state.request.extras == nullptr) return nullptr;
  const AdapterSlot adapter = state.request.extras->adapter;
  if (adapter == kNoAdapter) return nullptr;
  MINISGL_CHECK(static_cast<size_t>(adapter) < entries_.size(), "adapter {} of {}", adapter,
                entries_.size());
  return &At(adapter);
}

void AdapterLedger::Wait(RequestState* state, WaitingQueue* queue) {
  Entry* const entry = EntryOf(*state);
  if (entry == nullptr) return;
  state->adapter_use = AdapterUse::kWaits;
  entry->waiting.insert(state);
  entry->last_used = ++num_changes_;
  if (entry->status != Status::kOpen) queue->Hold(state, kHeldByAdapter);
  if (entry->status != Status::kAbsent) return;
  const bool is_new = wanted_.insert(state->request.extras->adapter).second;
  if (is_new) entry->wanted_since = queue->num_admissions();
}

void AdapterLedger::Run(RequestState* state) {
  Entry* const entry = EntryOf(*state);
  if (entry == nullptr) return;
  MINISGL_CHECK(entry->status == Status::kOpen, "I15: request {} runs, and its adapter does not",
                state->request.id);
  entry->waiting.erase(state);
  ++entry->num_running;
  entry->last_used = ++num_changes_;
  state->adapter_use = AdapterUse::kRuns;
}

void AdapterLedger::Leave(RequestState* state) {
  Entry* const entry = EntryOf(*state);
  if (entry == nullptr || state->adapter_use == AdapterUse::kNone) return;
  if (state->adapter_use == AdapterUse::kRuns) --entry->num_running;
  entry->waiting.erase(state);
  entry->last_used = ++num_changes_;
  state->adapter_use = AdapterUse::kNone;
  if (entry->waiting.empty()) wanted_.erase(state->request.extras->adapter);
}

std::vector<RequestState*> AdapterLedger::WaitingFor(AdapterSlot adapter) const {
  const auto& waiting = entries_[static_cast<size_t>(adapter)].waiting;
  return {waiting.begin(), waiting.end()};
}

void AdapterLedger::Open(AdapterSlot adapter, WaitingQueue* queue) {
  Entry& entry = At(adapter);
  if (entry.status == Status::kClosed) --num_closed_;
  entry.status = Status::kOpen;
  loaded_.insert(adapter);
  for (RequestState* state : entry.waiting) queue->Unhold(state, kHeldByAdapter);
}

void AdapterLedger::Close(AdapterSlot adapter, WaitingQueue* queue) {
  Entry& entry = At(adapter);
  entry.status = Status::kClosed;
  ++num_closed_;
  for (RequestState* state : entry.waiting) queue->Hold(state, kHeldByAdapter);
}

const RequestState* AdapterLedger::FirstReady(const Entry& entry) {
  for (const RequestState* state : entry.waiting) {
    if ((state->holds & (kHeldByGate | kHeldByTurn)) == 0) return state;
  }
  return nullptr;
}

void AdapterLedger::Drop(AdapterSlot adapter, WaitingQueue* queue) {
  Entry& entry = At(adapter);
  MINISGL_CHECK(entry.num_running == 0, "I15: adapter {} is dropped with {} requests", adapter,
                entry.num_running);
  if (entry.status == Status::kClosed) --num_closed_;
  entry.status = Status::kAbsent;
  entry.wanted_since = queue->num_admissions();
  loaded_.erase(adapter);
  for (RequestState* state : entry.waiting) queue->Hold(state, kHeldByAdapter);
  if (!entry.waiting.empty()) wanted_.insert(adapter);
  --num_held_;
  source_->Drop(adapter);
}

AdapterSlot AdapterLedger::FirstWanted(const WaitingQueue& queue) const {
  AdapterSlot first = kNoAdapter;
  const RequestState* its_request = nullptr;
  const auto goes_before = [&](const Entry& a, const RequestState* of_a, const Entry& b) {
    const bool a_passed = IsPassed(a, queue), b_passed = IsPassed(b, queue);
    if (a_passed != b_passed) return a_passed;
    if (a_passed && a.wanted_since != b.wanted_since) return a.wanted_since < b.wanted_since;
    return Goes()(of_a, its_request);
  };
  for (const AdapterSlot adapter : wanted_) {
    const Entry& entry = entries_[static_cast<size_t>(adapter)];
    const RequestState* const request = FirstReady(entry);
    if (request == nullptr) continue;
    if (first != kNoAdapter && !goes_before(entry, request, entries_[static_cast<size_t>(first)])) {
      continue;
    }
    first = adapter;
    its_request = request;
  }
  return first;
}

AdapterSlot AdapterLedger::PickIdle() const {
  AdapterSlot picked = kNoAdapter;
  uint64_t oldest = 0;
  for (const AdapterSlot adapter : loaded_) {
    const Entry& entry = entries_[static_cast<size_t>(adapter)];
    const bool is_idle = entry.status == Status::kClosed || FirstReady(entry) == nullptr;
    if (!is_idle || entry.num_running > 0) continue;
    if (picked != kNoAdapter && entry.last_used >= oldest) continue;
    picked = adapter;
    oldest = entry.last_used;
  }
  return picked;
}

AdapterSlot AdapterLedger::PickToClose() const {
  AdapterSlot picked = kNoAdapter;
  for (const AdapterSlot adapter : loaded_) {
    const Entry& entry = entries_[static_cast<size_t>(adapter)];
    if (entry.status != Status::kOpen) continue;
    if (picked != kNoAdapter) {
      const Entry& other = entries_[static_cast<size_t>(picked)];
      const auto key = [](const Entry& one) { return std::pair(one.num_running, one.last_used); };
      if (key(entry) >= key(other)) continue;
    }
    picked = adapter;
  }
  return picked;
}

// Returns true if a load may be tried again.
bool AdapterLedger::MakeRoom(const Entry& wanted, WaitingQueue* queue) {
  if (const AdapterSlot idle = PickIdle(); idle != kNoAdapter) {
    Drop(idle, queue);
    return true;
  }
  if (!IsPassed(wanted, *queue) || num_closed_ > 0) return false;
  const AdapterSlot closed = PickToClose();
  if (closed == kNoAdapter) return false;
  Close(closed, queue);
  return true;
}

std::vector<AdapterLoad> AdapterLedger::Update(WaitingQueue* queue) {
  std::vector<AdapterLoad> failed;
  if (source_ == nullptr) return failed;
  for (AdapterLoad& load : source_->TakeFinished()) {
    MINISGL_CHECK(At(load.adapter).status == Status::kLoading, "adapter {} was not loading",
                  load.adapter);
    if (load.error.empty()) {
      Open(load.adapter, queue);
      continue;
    }
    At(load.adapter).status = Status::kAbsent;
    --num_held_;
    if (!At(load.adapter).waiting.empty()) {
      wanted_.insert(load.adapter);
      At(load.adapter).wanted_since = queue->num_admissions();
    }
    failed.push_back(std::move(load));
  }
  if (!failed.empty()) return failed;  // their requests end first
  for (;;) {
    const AdapterSlot wanted = FirstWanted(*queue);
    if (wanted == kNoAdapter) break;
    Entry& entry = At(wanted);
    if (num_held_ >= source_->max_loaded()) {
      if (MakeRoom(entry, queue)) continue;
      return failed;
    }
    source_->Load(wanted);
    wanted_.erase(wanted);
    entry.status = Status::kLoading;
    ++num_held_;
  }
  // Nothing waits for room any more.
  if (num_closed_ == 0) return failed;
  const std::set<AdapterSlot> loaded = loaded_;
  for (const AdapterSlot adapter : loaded) {
    if (At(adapter).status == Status::kClosed) Open(adapter, queue);
  }
  return failed;
}

void AdapterLedger::CheckInvariants(const std::vector<const RequestState*>& requests) const {
  if (source_ == nullptr) return;
  std::vector<int64_t> running(entries_.size());
  for (const RequestState* state : requests) {
    if (state->request.extras == nullptr || state->request.extras->adapter == kNoAdapter) continue;
    const auto adapter = static_cast<size_t>(state->request.extras->adapter);
    if (adapter >= entries_.size()) continue;
    const Entry& entry = entries_[adapter];
    const bool waits = state->phase == Phase::kWaiting, ended = state->phase == Phase::kEnded;
    const AdapterUse use = ended   ? AdapterUse::kNone
                           : waits ? AdapterUse::kWaits
                                   : AdapterUse::kRuns;
    MINISGL_CHECK(state->adapter_use == use, "I15: request {} is not counted as it is",
                  state->request.id);
    const bool is_held = (state->holds & kHeldByAdapter) != 0;
    MINISGL_CHECK(is_held == (waits && entry.status != Status::kOpen),
                  "I15: request {} is held, or its adapter is not loaded", state->request.id);
    const bool is_loaded = entry.status == Status::kOpen || entry.status == Status::kClosed;
    MINISGL_CHECK(waits || ended || is_loaded, "I15: request {} runs without its adapter",
                  state->request.id);
    running[adapter] += use == AdapterUse::kRuns ? 1 : 0;
  }
  int32_t num_held = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    num_held += entry.status == Status::kAbsent ? 0 : 1;
    MINISGL_CHECK(entry.num_running == running[i], "I15: adapter {} has {} requests of {}", i,
                  entry.num_running, running[i]);
    const bool is_wanted = entry.status == Status::kAbsent && !entry.waiting.empty();
    MINISGL_CHECK(wanted_.contains(static_cast<AdapterSlot>(i)) == is_wanted,
                  "I15: adapter {} is wanted, or not listed", i);
  }
  MINISGL_CHECK(num_held == num_held_ && num_held <= source_->max_loaded(),
                "I15: {} adapters at once, {} counted, of {}", num_held, num_held_,
                source_->max_loaded());
}

}  // namespace minisgl::sched
