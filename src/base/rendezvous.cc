// See minisgl/base/rendezvous.h.
//
// A word counts the meetings that have ended; the last rank to arrive increments it, and the others
// wait for that. The pointers of two meetings are kept, in turn: a quick rank may be at the next
// meeting while another still reads the pointers of the last.
#include "minisgl/base/rendezvous.h"

#include <atomic>
#include <chrono>
#include <vector>

#include "base/core_share.h"
#include "minisgl/base/check.h"

namespace minisgl {

struct Rendezvous::State {
  explicit State(int32_t ranks, bool waits_briefly)
      : num_ranks(ranks), spins(waits_briefly), pointers{Pointers(ranks), Pointers(ranks)} {}

  using Pointers = std::vector<void*>;

  // The highest bit of the word says that a rank has failed.
  static constexpr uint32_t kFailed = uint32_t{1} << 31;

  bool HasEnded(uint32_t meeting) const {
    return meetings.load(std::memory_order_acquire) != meeting;
  }

  void WaitForEnd(uint32_t meeting) {
    if (spins) {
      const auto deadline = std::chrono::steady_clock::now() + base::kPoolSpin;
      do {
        for (int i = 0; i < 64; ++i) {
          if (HasEnded(meeting)) return;
        }
      } while (std::chrono::steady_clock::now() < deadline);
    }
    while (!HasEnded(meeting)) meetings.wait(meeting, std::memory_order_acquire);
  }

  const int32_t num_ranks;
  const bool spins;
  Pointers pointers[2];
  alignas(64) std::atomic<int32_t> num_arrived{0};
  alignas(64) std::atomic<uint32_t> meetings{0};
};

Rendezvous::Rendezvous(int32_t num_ranks, bool spins)
    : state_(std::make_unique<State>(num_ranks, spins)) {
  MINISGL_CHECK(num_ranks >= 1, "a rendezvous of {} ranks", num_ranks);
}

Rendezvous::~Rendezvous() = default;

int32_t Rendezvous::num_ranks() const { return state_->num_ranks; }

std::span<void* const> Rendezvous::Meet(int32_t rank, void* pointer) {
  State& state = *state_;
  const uint32_t meeting = state.meetings.load(std::memory_order_acquire);
  if ((meeting & State::kFailed) != 0) throw RankFailed();
  State::Pointers& pointers = state.pointers[meeting % 2];
  pointers[static_cast<size_t>(rank)] = pointer;
  if (state.num_arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == state.num_ranks) {
    state.num_arrived.store(0, std::memory_order_relaxed);
    // Without a carry into the bit of failures, which another rank may set meanwhile.
    uint32_t now = meeting;
    const uint32_t next = (meeting + 1) & ~State::kFailed;
    state.meetings.compare_exchange_strong(now, next, std::memory_order_acq_rel);
    state.meetings.notify_all();
  } else {
    state.WaitForEnd(meeting);
  }
  if ((state.meetings.load(std::memory_order_acquire) & State::kFailed) != 0) throw RankFailed();
  return pointers;
}

void Rendezvous::Fail() noexcept {
  state_->meetings.fetch_or(State::kFailed, std::memory_order_acq_rel);
  state_->meetings.notify_all();
}

void Rendezvous::Reset() noexcept {
  state_->num_arrived.store(0, std::memory_order_relaxed);
  state_->meetings.store(0, std::memory_order_release);
}

}  // namespace minisgl
