// Barriers and warp operations.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "emulator/machine.h"

namespace minisgl::cuda::emulator {

void Machine::ReleaseBarrier() {
  block_->epoch = ++epoch_;
  if (check_order_) block_->order.OnBarrier(++clock_);
  block_->num_at_barrier = 0;
  for (uint32_t i = 0; i < num_threads_; ++i) {
    Thread* const thread = block_->threads[i].get();
    if (thread->state != State::kAtBarrier) continue;
    thread->waited = thread->waited || block_->any_waited;
    block_->warps[i / 32].barred &= ~(1u << i % 32);
    if (i != block_->running) SetReady(thread);
  }
}

void Machine::SyncThreads(const Place& place) {
  Thread* const self = &running();
  Warp& warp = block_->warps[self->index / 32];
  self->met_at = "__syncthreads";
  self->place = place;
  if (warp.wanted & 1u << self->index % 32) {
    Fail(fmt::format("divergent: the thread is at a barrier, but {} waits for it", Waiting(*self)));
  }
  if (block_->num_at_barrier > 0 &&
      !SamePlace(block_->threads[block_->first_at_barrier]->place, place)) {
    Fail(fmt::format("divergent barrier: {} waits",
                     Where(*block_->threads[block_->first_at_barrier])));
  }
  if (block_->num_at_barrier++ == 0) block_->first_at_barrier = self->index;
  self->state = State::kAtBarrier;
  warp.barred |= 1u << self->index % 32;
  if (block_->num_at_barrier == block_->num_live) {
    ReleaseBarrier();
    self->state = State::kReady;
    GiveWay();
    VisitOtherBlocks();
  } else {
    Leave();
  }
  if (failed_) throw Unwound();
  RefreshActor(self);
}

// Throws the fault that the running thread cannot meet the lanes of the mask; `other` waits in
// another operation, or is null.
void Machine::FailToMeet(const Warp& warp, const WarpCall& call, const Thread* other) {
  const uint32_t base = block_->running / 32 * 32;
  const char* const name = WarpOpName(call.op);
  if (other != nullptr) {
    Fail(fmt::format("divergent: the thread calls {}, {} calls another", name, Where(*other)));
  }
  if (!(call.mask >> block_->running % 32 & 1)) {
    Fail(fmt::format("{}: the mask {:#x} lacks the calling lane", name, call.mask));
  }
  if (call.mask & ~warp.lanes) {
    Fail(fmt::format("{}: the mask {:#x} names threads that the block does not have", name,
                     call.mask));
  }
  const int lane = std::countr_zero(call.mask & warp.barred);
  Fail(fmt::format("{}: the mask {:#x} names {}", name, call.mask,
                   Where(*block_->threads[base + static_cast<uint32_t>(lane)])));
}

// Checks the other lanes of the mask when one arrives.
void Machine::CheckLanesCanMeet(const Warp& warp, const WarpCall& call, const Place& place) {
  if (!(call.mask >> block_->running % 32 & 1) || (call.mask & (~warp.lanes | warp.barred)) != 0) {
    FailToMeet(warp, call, nullptr);
  }
  // Lanes that wait with other masks may be meant for others first.
  for (uint32_t lanes = call.mask & warp.waiting; lanes != 0; lanes &= lanes - 1) {
    const uint32_t lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const Thread& other = *block_->threads[block_->running / 32 * 32 + lane];
    if (other.call->mask != call.mask) continue;
    if (other.call->op != call.op || !SamePlace(other.place, place)) {
      FailToMeet(warp, call, &other);
    }
    break;
  }
}

void Machine::Synchronize(Warp* warp, uint32_t mask) {
  const uint32_t now = ++warp->time;
  if (check_order_) block_->order.OnSyncWarp(block_->running / 32, ++clock_);
  if (mask == warp->lanes) {
    warp->full_sync = now;
    return;
  }
  if (!std::exchange(warp->partial_syncs, true)) {
    for (auto& row : warp->lane_sync) row.fill(warp->full_sync);
  }
  std::array<uint32_t, 32> known = {};
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    for (uint32_t other = 0; other < 32; ++other) {
      known[other] = std::max(known[other], warp->lane_sync[lane][other]);
    }
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) known[lane] = now;
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) warp->lane_sync[lane] = known;
  }
}

// Performs the operation if all lanes of the mask wait with that mask, and makes the others ready.
bool Machine::CompleteWarpOp(Warp* warp, uint32_t mask) {
  const uint32_t base = block_->running / 32 * 32;
  const auto for_lanes = [&](uint32_t lanes, const auto& fn) {
    for (; lanes != 0; lanes &= lanes - 1) {
      const uint32_t lane = static_cast<uint32_t>(std::countr_zero(lanes));
      fn(lane, block_->threads[base + lane].get());
    }
  };
  std::array<WarpCall*, 32> calls = {};
  bool all = true;
  for_lanes(mask, [&](uint32_t lane, const Thread* thread) {
    calls[lane] = thread->call;
    all = all && thread->call->mask == mask;
  });
  if (!all) return false;
  const Complaint complaint = RunWarpOp(calls, mask);
  if (!complaint.empty()) Fail(complaint);
  if (running().call->op == WarpOp::kSyncWarp) Synchronize(warp, mask);
  warp->waiting &= ~mask;
  warp->wanted = 0;
  for_lanes(warp->waiting,
            [&](uint32_t, const Thread* thread) { warp->wanted |= thread->call->mask; });
  for_lanes(mask, [&](uint32_t, Thread* thread) {
    if (thread->index != block_->running) SetReady(thread);
  });
  return true;
}

void Machine::MeetWarp(WarpCall* call, const Place& place) {
  Thread* const self = &running();
  Warp& warp = block_->warps[self->index / 32];
  const uint32_t mask = call->mask;
  self->met_at = WarpOpName(call->op);
  self->place = place;
  CheckLanesCanMeet(warp, *call, place);
  self->call = call;
  warp.waiting |= 1u << self->index % 32;
  warp.wanted |= mask;
  if ((warp.waiting & mask) == mask && CompleteWarpOp(&warp, mask)) {
    GiveWay();
  } else {
    self->state = State::kInWarpOp;
    Leave();
  }
  if (failed_) throw Unwound();
  RefreshActor(self);
}

}  // namespace minisgl::cuda::emulator
