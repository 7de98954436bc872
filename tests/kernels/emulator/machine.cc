// Blocks, threads, barriers and warp operations.
#include "emulator/machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>

#include "emulator/device_emulated.h"
#include "minisgl/base/random.h"

// The built-in variables of CUDA; device_emulated.h declares them.
constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim{1, 1, 1};
constinit thread_local dim3 gridDim{1, 1, 1};

namespace minisgl::cuda::emulator {
namespace {

constexpr uint32_t kThreadsMax = 1024;
// From this order on, threads are drawn at random.
constexpr int kFirstRandomOrder = 3;

bool SamePlace(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string Text(const Place& place) {
  const char* const slash = std::strrchr(place.file_name(), '/');
  return fmt::format("{}:{}", slash == nullptr ? place.file_name() : slash + 1, place.line());
}

uint3 Split(uint32_t index, const CudaDim3& extent) {
  return {index % extent.x, index / extent.x % extent.y, index / extent.x / extent.y};
}

}  // namespace

constinit thread_local Machine* Machine::of_thread = nullptr;

Machine& Machine::Make() {
  static thread_local Machine machine;
  of_thread = &machine;
  return machine;
}

Machine::~Machine() {
  quit_ = true;
  for (const auto& thread : threads_) Fiber::Switch(&host_, thread->fiber.get());
}

void Machine::GrowPool(size_t num_threads) {
  while (threads_.size() < num_threads) {
    auto thread = std::make_unique<Thread>();
    thread->machine = this;
    thread->index = static_cast<uint32_t>(threads_.size());
    thread->fiber = std::make_unique<Fiber>(&ThreadMain, thread.get(), &host_);
    threads_.push_back(std::move(thread));
  }
}

uint64_t Machine::Random() { return DeriveSeed(random_seed_, random_index_++); }

// Ranks of threads and blocks under the options' order.
void Machine::SetOrder(uint32_t num_blocks) {
  random_seed_ = static_cast<uint64_t>(options.order);
  random_index_ = 0;
  block_order_.resize(num_blocks);
  std::iota(block_order_.begin(), block_order_.end(), 0u);
  thread_of_.resize(num_threads_);
  std::iota(thread_of_.begin(), thread_of_.end(), 0u);
  if (options.order == 1) {
    std::reverse(block_order_.begin(), block_order_.end());
    std::reverse(thread_of_.begin(), thread_of_.end());
  } else if (options.order == 2) {
    std::stable_sort(block_order_.begin(), block_order_.end(),
                     [](uint32_t a, uint32_t b) { return a % 2 > b % 2; });
    std::stable_sort(thread_of_.begin(), thread_of_.end(),
                     [](uint32_t a, uint32_t b) { return a % 32 < b % 32; });
  } else if (options.order >= kFirstRandomOrder) {
    for (std::vector<uint32_t>* const order : {&block_order_, &thread_of_}) {
      for (size_t i = order->size(); i > 1; --i) std::swap((*order)[i - 1], (*order)[Random() % i]);
    }
  }
  rank_of_.resize(num_threads_);
  for (uint32_t rank = 0; rank < num_threads_; ++rank) rank_of_[thread_of_[rank]] = rank;
}

void Machine::Run(const CudaLaunch& launch, const std::string& kernel,
                  const std::function<void()>& body) {
  if (active_) throw Fault("a kernel launched from a kernel");
  const uint64_t num_threads = uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  const uint64_t num_blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  if (num_threads == 0 || num_threads > kThreadsMax) {
    throw Fault(fmt::format("kernel {}: a block of {} threads", kernel, num_threads));
  }
  launch_ = launch;
  kernel_ = kernel;
  body_ = &body;
  num_threads_ = static_cast<uint32_t>(num_threads);
  GrowPool(num_threads_);
  SetOrder(static_cast<uint32_t>(num_blocks));
  blockDim = dim3{launch.block.x, launch.block.y, launch.block.z};
  gridDim = dim3{launch.grid.x, launch.grid.y, launch.grid.z};
  active_ = true;
  for (const uint32_t block : block_order_) {
    RunBlock(block);
    if (failed_) break;
  }
  active_ = false;
  if (failed_) throw Fault(std::exchange(fault_, {}));
}

void Machine::BeginBlock(uint32_t block) {
  blockIdx = Split(block, launch_.grid);
  ++epoch_;
  shared_.Begin(launch_.shared_bytes);
  arrays_.clear();
  failed_ = false;
  num_live_ = num_threads_;
  num_at_barrier_ = 0;
  const uint32_t num_warps = (num_threads_ + 31) / 32;
  for (uint32_t w = 0; w < num_warps; ++w) {
    Warp& warp = warps_[w];
    const uint32_t num_lanes = std::min(num_threads_ - w * 32, 32u);
    warp.lanes = num_lanes == 32 ? 0xffffffffu : (1u << num_lanes) - 1;
    warp.waiting = warp.wanted = warp.barred = 0;
    warp.time = warp.full_sync = 0;
    if (std::exchange(warp.partial_syncs, false)) warp.lane_sync = {};
  }
  for (uint32_t i = 0; i < num_threads_; ++i) {
    Thread* const thread = threads_[i].get();
    thread->met_at = nullptr;
    thread->copies.clear();
    thread->group_ends.clear();
    thread->actor.thread = i;
    thread->place_in_block = Split(i, launch_.block);
    SetReady(thread);
  }
}

void Machine::RunBlock(uint32_t block) {
  BeginBlock(block);
  Thread* const first = NextReady();
  running_ = first->index;
  threadIdx = first->place_in_block;
  Fiber::Switch(&host_, first->fiber.get());
}

// A thread of one block after another.
void Machine::ThreadMain(void* argument) {
  Thread* const thread = static_cast<Thread*>(argument);
  Machine* const machine = thread->machine;
  while (!machine->quit_) {
    try {
      if (!machine->failed_) {
        machine->RefreshActor(thread);
        (*machine->body_)();
        machine->EndThread(thread);
      }
    } catch (const Unwound&) {
    } catch (const std::exception& error) {
      thread->state = State::kEnded;
      machine->FailAll(error.what());
    }
    thread->state = State::kEnded;
    machine->Leave();
  }
}

// Ends the block: every thread that has not ended runs once more, to unwind its stack.
void Machine::FailAll(const std::string& fault) {
  failed_ = true;
  fault_ = fault;
  for (uint32_t i = 0; i < num_threads_; ++i) {
    if (threads_[i]->state != State::kEnded) SetReady(threads_[i].get());
  }
}

// The fault of a block in which no thread can continue: two threads that wait for different things.
std::string Machine::Deadlock() const {
  const Thread* first = nullptr;
  const Thread* second = nullptr;
  for (uint32_t i = 0; i < num_threads_ && second == nullptr; ++i) {
    const Thread* const thread = threads_[i].get();
    if (thread->state == State::kEnded) continue;
    if (first == nullptr) {
      first = thread;
    } else if (thread->state != first->state || !SamePlace(thread->place, first->place) ||
               (thread->state == State::kInWarpOp && thread->call->mask != first->call->mask)) {
      second = thread;
    }
  }
  const auto text = [&](const Thread& thread) {
    return thread.state == State::kInWarpOp
               ? fmt::format("{} with mask {:#x}", Where(thread), thread.call->mask)
               : Where(thread);
  };
  return fmt::format("kernel {}, block ({}, {}, {}): divergent: no thread can go on: {}{}{}",
                     kernel_, blockIdx.x, blockIdx.y, blockIdx.z, text(*first),
                     second == nullptr ? "" : ", ", second == nullptr ? "" : text(*second));
}

void Machine::SetReady(Thread* thread) {
  thread->state = State::kReady;
  const uint32_t rank = rank_of_[thread->index];
  ready_[rank / 64] |= uint64_t{1} << rank % 64;
}

// Removes the next thread from the ready ones: the lowest rank, or, in a random order, the next
// from a random rank on. Null if there is none.
Machine::Thread* Machine::NextReady() {
  const uint32_t num_words = (num_threads_ + 63) / 64;
  uint32_t word = 0;
  uint64_t keep = ~uint64_t{0};
  if (options.order >= kFirstRandomOrder) {
    const uint32_t start = static_cast<uint32_t>(Random() % num_threads_);
    word = start / 64;
    keep = ~uint64_t{0} << start % 64;
  }
  for (uint32_t i = 0; i <= num_words; ++i) {
    const uint64_t bits = ready_[word] & keep;
    if (bits != 0) {
      const uint32_t bit = static_cast<uint32_t>(std::countr_zero(bits));
      ready_[word] &= ~(uint64_t{1} << bit);
      return threads_[thread_of_[word * 64 + bit]].get();
    }
    keep = ~uint64_t{0};
    word = word + 1 == num_words ? 0 : word + 1;
  }
  return nullptr;
}

void Machine::Leave() {
  Thread* const self = &running();
  Thread* next = NextReady();
  if (next == nullptr && num_live_ > 0 && !failed_) {
    FailAll(Deadlock());
    next = NextReady();
  }
  if (next == self) return;
  if (next != nullptr) {
    running_ = next->index;
    threadIdx = next->place_in_block;
  }
  Fiber::Switch(self->fiber.get(), next != nullptr ? next->fiber.get() : &host_);
}

// Called where the running thread could continue, but so could others.
void Machine::GiveWay() {
  if (options.order >= kFirstRandomOrder && Random() % 4 == 0) {
    SetReady(&running());
    Leave();
  }
}

void Machine::RefreshActor(Thread* thread) {
  const Warp& warp = warps_[thread->index / 32];
  thread->actor.epoch = epoch_;
  thread->actor.time = warp.time;
  thread->actor.full_sync = warp.full_sync;
  thread->actor.lane_sync =
      warp.partial_syncs ? warp.lane_sync[thread->index % 32].data() : nullptr;
}

void Machine::EndThread(Thread* thread) {
  if (!thread->copies.empty()) Fail("the thread ended without waiting for its asynchronous copies");
  Warp& warp = warps_[thread->index / 32];
  const uint32_t bit = 1u << thread->index % 32;
  if (warp.wanted & bit)
    Fail(fmt::format("the thread ended, but {} waits for it", Waiting(*thread)));
  warp.barred |= bit;
  --num_live_;
  if (num_at_barrier_ > 0 && num_at_barrier_ == num_live_) ReleaseBarrier();
}

void Machine::ReleaseBarrier() {
  ++epoch_;
  num_at_barrier_ = 0;
  for (uint32_t i = 0; i < num_threads_; ++i) {
    Thread* const thread = threads_[i].get();
    if (thread->state != State::kAtBarrier) continue;
    warps_[i / 32].barred &= ~(1u << i % 32);
    if (i != running_) SetReady(thread);
  }
}

void Machine::SyncThreads(const Place& place) {
  Thread* const self = &running();
  Warp& warp = warps_[self->index / 32];
  self->met_at = "__syncthreads";
  self->place = place;
  if (warp.wanted & 1u << self->index % 32) {
    Fail(fmt::format("divergent: the thread is at a barrier, but {} waits for it", Waiting(*self)));
  }
  if (num_at_barrier_ > 0 && !SamePlace(threads_[first_at_barrier_]->place, place)) {
    Fail(fmt::format("divergent barrier: {} waits", Where(*threads_[first_at_barrier_])));
  }
  if (num_at_barrier_++ == 0) first_at_barrier_ = self->index;
  self->state = State::kAtBarrier;
  warp.barred |= 1u << self->index % 32;
  if (num_at_barrier_ == num_live_) {
    ReleaseBarrier();
    self->state = State::kReady;
    GiveWay();
  } else {
    Leave();
  }
  if (failed_) throw Unwound();
  RefreshActor(self);
}

// Throws the fault that the running thread cannot meet the lanes of the mask; `other` waits in
// another operation, or is null.
void Machine::FailToMeet(const Warp& warp, const WarpCall& call, const Thread* other) {
  const uint32_t base = running_ / 32 * 32;
  const char* const name = WarpOpName(call.op);
  if (other != nullptr) {
    Fail(fmt::format("divergent: the thread calls {}, {} calls another", name, Where(*other)));
  }
  if (!(call.mask >> running_ % 32 & 1)) {
    Fail(fmt::format("{}: the mask {:#x} lacks the calling lane", name, call.mask));
  }
  if (call.mask & ~warp.lanes) {
    Fail(fmt::format("{}: the mask {:#x} names threads that the block does not have", name,
                     call.mask));
  }
  const int lane = std::countr_zero(call.mask & warp.barred);
  Fail(fmt::format("{}: the mask {:#x} names {}", name, call.mask,
                   Where(*threads_[base + static_cast<uint32_t>(lane)])));
}

// Checks the other lanes of the mask when one arrives.
void Machine::CheckLanesCanMeet(const Warp& warp, const WarpCall& call, const Place& place) {
  if (!(call.mask >> running_ % 32 & 1) || (call.mask & (~warp.lanes | warp.barred)) != 0) {
    FailToMeet(warp, call, nullptr);
  }
  // Lanes that wait with other masks may be meant for others first.
  for (uint32_t lanes = call.mask & warp.waiting; lanes != 0; lanes &= lanes - 1) {
    const uint32_t lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const Thread& other = *threads_[running_ / 32 * 32 + lane];
    if (other.call->mask != call.mask) continue;
    if (other.call->op != call.op || !SamePlace(other.place, place)) {
      FailToMeet(warp, call, &other);
    }
    break;
  }
}

void Machine::Synchronize(Warp* warp, uint32_t mask) {
  const uint32_t now = ++warp->time;
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
  const uint32_t base = running_ / 32 * 32;
  const auto for_lanes = [&](uint32_t lanes, const auto& fn) {
    for (; lanes != 0; lanes &= lanes - 1) {
      const uint32_t lane = static_cast<uint32_t>(std::countr_zero(lanes));
      fn(lane, threads_[base + lane].get());
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
    if (thread->index != running_) SetReady(thread);
  });
  return true;
}

void Machine::MeetWarp(WarpCall* call, const Place& place) {
  Thread* const self = &running();
  Warp& warp = warps_[self->index / 32];
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

std::string Machine::Where(const Thread& thread) const {
  std::string text = fmt::format("thread {}", thread.index);
  if (thread.state == State::kEnded) text += " (ended)";
  if (thread.met_at == nullptr) return text + " (has met nobody yet)";
  return text + fmt::format(" ({} {} at {})",
                            thread.state == State::kAtBarrier || thread.state == State::kInWarpOp
                                ? "in"
                                : "last met others in",
                            thread.met_at, Text(thread.place));
}

// A lane that waits in a warp operation for `thread`.
std::string Machine::Waiting(const Thread& thread) const {
  const uint32_t base = thread.index / 32 * 32;
  for (uint32_t lanes = warps_[base / 32].waiting; lanes != 0; lanes &= lanes - 1) {
    const Thread& other = *threads_[base + static_cast<uint32_t>(std::countr_zero(lanes))];
    if (other.call->mask >> thread.index % 32 & 1) return Where(other);
  }
  return "nobody";
}

void Machine::Fail(const std::string& what) {
  throw Fault(fmt::format("kernel {}, block ({}, {}, {}), {}: {}", kernel_, blockIdx.x, blockIdx.y,
                          blockIdx.z, Where(running()), what));
}

SharedArray Machine::Take(int index, int64_t offset, int64_t num_bytes, const Place& place) {
  if (num_bytes < 0 || offset + num_bytes > static_cast<int64_t>(shared_.size())) {
    Fail(fmt::format("the array taken at {} ends at byte {} of {} of shared memory", Text(place),
                     offset + num_bytes, shared_.size()));
  }
  const SharedArray array{offset, offset + num_bytes, index};
  if (static_cast<size_t>(index) == arrays_.size()) arrays_.push_back({array, place});
  const SharedArray& other = arrays_.at(static_cast<size_t>(index)).array;
  if (other.begin != array.begin || other.end != array.end) {
    Fail(fmt::format("the array taken at {} is bytes {} to {}; another thread's is {} to {}",
                     Text(place), array.begin, array.end, other.begin, other.end));
  }
  return array;
}

std::string Machine::ArrayName(const SharedArray& array) const {
  if (array.index < 0) return "no array";
  return fmt::format("the array of {} bytes taken at {}", array.end - array.begin,
                     Text(arrays_[static_cast<size_t>(array.index)].place));
}

unsigned char* Machine::AccessShared(Access access, const SharedArray& array, int64_t offset,
                                     int num_bytes, int alignment) {
  static constexpr const char* kNames[] = {"reads", "writes", "atomically changes"};
  Complaint complaint;
  if (offset < array.begin || offset + num_bytes > array.end) {
    complaint = "out of bounds";
  } else if (offset % alignment != 0) {
    complaint = fmt::format("not aligned to {}", alignment);
  } else {
    complaint = shared_.Check(access, running().actor, static_cast<size_t>(offset),
                              static_cast<size_t>(num_bytes));
  }
  if (!complaint.empty()) [[unlikely]] {
    Fail(fmt::format("{} bytes {} to {} of {}, {}", kNames[static_cast<int>(access)],
                     offset - array.begin, offset - array.begin + num_bytes, ArrayName(array),
                     complaint));
  }
  return shared_.data() + offset;
}

void Machine::CheckGlobal(const void* pointer, size_t num_bytes, size_t alignment,
                          const char* what) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    Fail(
        fmt::format("{}: {} bytes of global memory not aligned to {}", what, num_bytes, alignment));
  }
  if (!InGlobal(pointer, num_bytes)) {
    Fail(fmt::format("{}: {} bytes at {} are not within one piece of global memory", what,
                     num_bytes, pointer));
  }
}

void Machine::PrefetchL2(const void* pointer, size_t num_bytes) {
  if (num_bytes % 16 != 0) Fail(fmt::format("PrefetchL2: {} bytes, no multiple of 16", num_bytes));
  CheckGlobal(pointer, num_bytes, 16, "PrefetchL2");
  if (options.records_prefetches) prefetches.push_back({pointer, num_bytes});
}

void Machine::CopyAsync16(const SharedArray& array, int64_t offset, const void* source,
                          bool valid) {
  Thread& self = running();
  if (reinterpret_cast<uintptr_t>(source) % 16 != 0) Fail("CopyAsync16: source not aligned to 16");
  if (valid) CheckGlobal(source, 16, 16, "CopyAsync16");
  Complaint complaint;
  if (offset < array.begin || offset + 16 > array.end) {
    complaint = "out of bounds";
  } else if (offset % 16 != 0) {
    complaint = "not aligned to 16";
  } else {
    complaint = shared_.BeginCopy(self.actor, static_cast<size_t>(offset));
  }
  if (!complaint.empty()) {
    Fail(fmt::format("CopyAsync16 to bytes {} to {} of {}, {}", offset - array.begin,
                     offset - array.begin + 16, ArrayName(array), complaint));
  }
  self.copies.push_back({static_cast<size_t>(offset), valid ? source : nullptr});
}

void Machine::CopyAsyncCommit() {
  Thread& self = running();
  self.group_ends.push_back(self.copies.size());
}

void Machine::CopyAsyncWait(int num_unfinished) {
  Thread& self = running();
  const size_t keep = static_cast<size_t>(num_unfinished);
  if (self.group_ends.size() <= keep) return;
  const size_t num_groups = self.group_ends.size() - keep;
  const size_t num_copies = self.group_ends[num_groups - 1];
  for (size_t i = 0; i < num_copies; ++i) {
    const AsyncCopy& copy = self.copies[i];
    unsigned char* const target = shared_.data() + copy.offset;
    if (copy.source == nullptr) {
      std::memset(target, 0, 16);
    } else {
      std::memcpy(target, copy.source, 16);
    }
    shared_.EndCopy(self.actor, copy.offset);
  }
  self.copies.erase(self.copies.begin(),
                    self.copies.begin() + static_cast<std::ptrdiff_t>(num_copies));
  self.group_ends.erase(self.group_ends.begin(),
                        self.group_ends.begin() + static_cast<std::ptrdiff_t>(num_groups));
  for (size_t& end : self.group_ends) end -= num_copies;
}

}  // namespace minisgl::cuda::emulator
