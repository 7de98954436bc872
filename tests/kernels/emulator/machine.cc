// Blocks, their threads, and the order in which these run.
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

// Global memory that a thread touches before other blocks run: for threads that wait for another
// block.
constexpr uint32_t kTouchesMax = 1 << 16;

uint3 Split(uint32_t index, const CudaDim3& extent) {
  return {index % extent.x, index / extent.x % extent.y, index / extent.x / extent.y};
}

// Blocks that are alive at once.
uint32_t BlocksAtOnce(const Options& options) {
  static constexpr int kOfOrder[kNumOrders] = {2, 1, 4, 4, 1, 2, 3, 4};
  if (options.blocks_at_once > 0) return static_cast<uint32_t>(options.blocks_at_once);
  return options.check_order ? static_cast<uint32_t>(kOfOrder[options.order % kNumOrders]) : 1;
}

}  // namespace

bool SamePlace(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string PlaceText(const Place& place) {
  const char* const slash = std::strrchr(place.file_name(), '/');
  return fmt::format("{}:{}", slash == nullptr ? place.file_name() : slash + 1, place.line());
}

constinit thread_local Machine* Machine::of_thread = nullptr;
constinit thread_local Unwatched unwatched;

Machine& Machine::Make() {
  static thread_local Machine machine;
  of_thread = &machine;
  return machine;
}

Machine::~Machine() {
  quit_ = true;
  for (const auto& block : blocks_) {
    block_ = block.get();
    for (const auto& thread : block->threads) Fiber::Switch(&host_, thread->fiber.get());
  }
}

void Machine::GrowPool(Block* block) {
  while (block->threads.size() < num_threads_) {
    auto thread = std::make_unique<Thread>();
    thread->machine = this;
    thread->block = block;
    thread->index = static_cast<uint32_t>(block->threads.size());
    thread->fiber = std::make_unique<Fiber>(&ThreadMain, thread.get(), &host_);
    block->threads.push_back(std::move(thread));
  }
}

void Machine::ReplaceAbandoned() {
  for (const auto& block : blocks_) {
    for (const auto& thread : block->threads) {
      if (!std::exchange(thread->abandoned, false)) continue;
      thread->fiber = std::make_unique<Fiber>(&ThreadMain, thread.get(), &host_);
    }
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
  SetOrder(static_cast<uint32_t>(num_blocks));
  blockDim = dim3{launch.block.x, launch.block.y, launch.block.z};
  gridDim = dim3{launch.grid.x, launch.grid.y, launch.grid.z};
  check_order_ = options.check_order;
  if (check_order_) {
    first_number_ =
        GlobalMemory::Get().BeginKernel(kernel, num_blocks, launch.programmatic, launch.stream);
  }
  clock_ = 0;
  touches_left_ = kTouchesMax;
  atomics_left_ = options.atomics_max;
  released_early_ = true;
  releases_.Clear();
  failed_ = false;
  active_ = true;
  RunBlocks();
  active_ = false;
  unwatched = {};
  if (check_order_) GlobalMemory::Get().EndKernel(released_early_);
  if (!failed_) return;
  ReplaceAbandoned();
  GlobalMemory::Get().Finish();
  throw Fault(std::exchange(fault_, {}));
}

void Machine::RunBlocks() {
  size_t at_once = std::min<size_t>(BlocksAtOnce(options), block_order_.size());
  num_begun_ = num_alive_ = 0;
  wants_block_ = false;
  block_ = nullptr;
  while (true) {
    if (std::exchange(wants_block_, false)) ++at_once;
    while (blocks_.size() < at_once) blocks_.push_back(std::make_unique<Block>());
    for (size_t i = 0; i < at_once && num_begun_ < block_order_.size() && !failed_; ++i) {
      if (!blocks_[i]->alive) BeginBlock(blocks_[i].get(), block_order_[num_begun_++]);
    }
    Block* const block = NextAlive();
    if (block == nullptr) return;
    Resume(block);
    if (std::exchange(block->gave_way, false)) continue;
    block->alive = false;
    --num_alive_;
    released_early_ = released_early_ && block->released_early;
    touches_left_ = kTouchesMax;
    atomics_left_ = options.atomics_max;
  }
}

// The block to run: the one after the last, or in a random order any. Null if none is alive.
Machine::Block* Machine::NextAlive() {
  if (num_alive_ == 0) return nullptr;
  size_t start = 0;
  if (options.order >= kFirstRandomOrder && num_alive_ > 1) {
    start = Random() % blocks_.size();
  } else {
    while (start < blocks_.size() && blocks_[start].get() != block_) ++start;
    ++start;
  }
  while (!blocks_[start % blocks_.size()]->alive) ++start;
  return blocks_[start % blocks_.size()].get();
}

void Machine::Resume(Block* block) {
  block_ = block;
  blockIdx = block->place_in_grid;
  Thread* const thread = block->threads[block->running].get();
  SetRunning(thread);
  Fiber::Switch(&host_, thread->fiber.get());
}

// Called by a thread where blocks may depend on each other.
void Machine::VisitOtherBlocks() {
  if (num_alive_ < 2 && !wants_block_) return;
  if (options.order >= kFirstRandomOrder && Random() % 2 == 0) return;
  block_->gave_way = true;
  Fiber::Switch(running().fiber.get(), &host_);
}

void Machine::SetRunning(Thread* thread) {
  block_->running = thread->index;
  threadIdx = thread->place_in_block;
  if (check_order_) unwatched = {thread->fiber->stack_begin(), Fiber::kStackBytes};
}

uint3 Machine::BlockPlace(uint32_t index) const { return Split(index, launch_.grid); }

void Machine::BeginBlock(Block* block, uint32_t index) {
  block_ = block;
  ++num_alive_;
  atomics_to_block_ = kAtomicsUntilBlock;
  block->alive = true;
  block->gave_way = false;
  block->number = first_number_ + index;
  block->place_in_grid = Split(index, launch_.grid);
  block->epoch = ++epoch_;
  block->shared.Begin(launch_.shared_bytes);
  block->arrays.clear();
  block->num_live = num_threads_;
  block->num_at_barrier = 0;
  block->any_waited = block->released_early = false;
  if (check_order_) block->order.Begin(block->number, num_threads_);
  const uint32_t num_warps = (num_threads_ + 31) / 32;
  for (uint32_t w = 0; w < num_warps; ++w) {
    Warp& warp = block->warps[w];
    const uint32_t num_lanes = std::min(num_threads_ - w * 32, 32u);
    warp.lanes = num_lanes == 32 ? 0xffffffffu : (1u << num_lanes) - 1;
    warp.waiting = warp.wanted = warp.barred = 0;
    warp.time = warp.full_sync = 0;
    if (std::exchange(warp.partial_syncs, false)) warp.lane_sync = {};
  }
  BeginThreads(block);
}

void Machine::BeginThreads(Block* block) {
  GrowPool(block);
  for (uint32_t i = 0; i < num_threads_; ++i) {
    Thread* const thread = block->threads[i].get();
    thread->met_at = nullptr;
    thread->waited = !launch_.programmatic;
    thread->copies.clear();
    thread->group_ends.clear();
    thread->actor.thread = i;
    thread->place_in_block = Split(i, launch_.block);
    SetReady(thread);
  }
  block->running = NextReady()->index;
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

// Ends the blocks: every thread that has not ended runs once more, to unwind its stack.
void Machine::FailAll(const std::string& fault) {
  failed_ = true;
  fault_ = fault;
  Block* const failed = block_;
  for (const auto& block : blocks_) {
    if (!block->alive) continue;
    block_ = block.get();
    for (uint32_t i = 0; i < num_threads_; ++i) {
      // The running thread of another block continues where that gave way.
      if (block_ != failed && i == block_->running) continue;
      Thread* const thread = block_->threads[i].get();
      if (thread->state != State::kEnded) SetReady(thread);
    }
  }
  block_ = failed;
}

// The fault of a block in which no thread can continue: two threads that wait for different things.
std::string Machine::Deadlock() const {
  const Thread* first = nullptr;
  const Thread* second = nullptr;
  for (uint32_t i = 0; i < num_threads_ && second == nullptr; ++i) {
    const Thread* const thread = block_->threads[i].get();
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
  block_->ready[rank / 64] |= uint64_t{1} << rank % 64;
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
    const uint64_t bits = block_->ready[word] & keep;
    if (bits != 0) {
      const uint32_t bit = static_cast<uint32_t>(std::countr_zero(bits));
      block_->ready[word] &= ~(uint64_t{1} << bit);
      return block_->threads[thread_of_[word * 64 + bit]].get();
    }
    keep = ~uint64_t{0};
    word = word + 1 == num_words ? 0 : word + 1;
  }
  return nullptr;
}

void Machine::Leave() {
  Thread* const self = &running();
  Thread* next = NextReady();
  if (next == nullptr && block_->num_live > 0 && !failed_) {
    FailAll(Deadlock());
    next = NextReady();
  }
  if (next == self) return;
  if (next != nullptr) SetRunning(next);
  Fiber::Switch(self->fiber.get(), next != nullptr ? next->fiber.get() : &host_);
}

// Called where the running thread could continue, but so could others.
void Machine::GiveWay() {
  if (options.order >= kFirstRandomOrder && Random() % 4 == 0) {
    SetReady(&running());
    Leave();
    if (Random() % 8 == 0) VisitOtherBlocks();
  }
}

void Machine::RefreshActor(Thread* thread) {
  const Warp& warp = block_->warps[thread->index / 32];
  thread->actor.epoch = block_->epoch;
  thread->actor.time = warp.time;
  thread->actor.full_sync = warp.full_sync;
  thread->actor.lane_sync =
      warp.partial_syncs ? warp.lane_sync[thread->index % 32].data() : nullptr;
}

void Machine::EndThread(Thread* thread) {
  if (!thread->waited) Fail("the thread ended without GridWait in a programmatic launch");
  if (!thread->copies.empty()) Fail("the thread ended without waiting for its asynchronous copies");
  Warp& warp = block_->warps[thread->index / 32];
  const uint32_t bit = 1u << thread->index % 32;
  if (warp.wanted & bit)
    Fail(fmt::format("the thread ended, but {} waits for it", Waiting(*thread)));
  warp.barred |= bit;
  --block_->num_live;
  if (block_->num_at_barrier > 0 && block_->num_at_barrier == block_->num_live) ReleaseBarrier();
}

std::string Machine::Where(const Thread& thread) const {
  std::string text = fmt::format("thread {}", thread.index);
  if (thread.state == State::kEnded) text += " (ended)";
  if (thread.met_at == nullptr) return text + " (has met nobody yet)";
  return text + fmt::format(" ({} {} at {})",
                            thread.state == State::kAtBarrier || thread.state == State::kInWarpOp
                                ? "in"
                                : "last met others in",
                            thread.met_at, PlaceText(thread.place));
}

// A lane that waits in a warp operation for `thread`.
std::string Machine::Waiting(const Thread& thread) const {
  const uint32_t base = thread.index / 32 * 32;
  for (uint32_t lanes = block_->warps[base / 32].waiting; lanes != 0; lanes &= lanes - 1) {
    const Thread& other = *block_->threads[base + static_cast<uint32_t>(std::countr_zero(lanes))];
    if (other.call->mask >> thread.index % 32 & 1) return Where(other);
  }
  return "nobody";
}

std::string Machine::FaultText(const std::string& what) {
  return fmt::format("kernel {}, block ({}, {}, {}), {}: {}", kernel_, blockIdx.x, blockIdx.y,
                     blockIdx.z, Where(running()), what);
}

void Machine::Fail(const std::string& what) { throw Fault(FaultText(what)); }

}  // namespace minisgl::cuda::emulator
