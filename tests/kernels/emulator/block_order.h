// Which accesses to global memory a thread may rely on: the order between threads of a block, and
// between blocks. It is what the memory model of CUDA promises, not what a device does.
//
// Time is a clock of the kernel that barriers, __syncwarps, fences and atomics advance. Within a
// block, an access is ordered before a thread's next one if it is the thread's own, or a barrier,
// or a __syncwarp of their warp, is in between. (A __syncwarp of some lanes counts as one of all: a
// fault may be missed, none is invented.)
//
// Between blocks:
//   - a fence by a thread collects what is ordered before it, and what its block knows;
//   - an atomic releases what was collected by fences that are ordered before it. The word keeps
//     it until a plain write: atomics on the word see what all atomics before them released. A
//     compare-and-exchange that fails sees, and releases nothing;
//   - a fence by a thread after an atomic, its own or one ordered before, acquires what the atomic
//     saw; further threads of the block know it after a barrier.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace minisgl::cuda::emulator {

// A set of releases, by number.
class ReleaseSet {
 public:
  void Add(size_t release) {
    if (release / 64 >= bits_.size()) bits_.resize(release / 64 + 1);
    bits_[release / 64] |= uint64_t{1} << release % 64;
  }
  void Join(const ReleaseSet& other) {
    if (other.bits_.size() > bits_.size()) bits_.resize(other.bits_.size());
    for (size_t i = 0; i < other.bits_.size(); ++i) bits_[i] |= other.bits_[i];
  }
  void Clear() { bits_.clear(); }
  template <typename Fn>
  bool Any(const Fn& fn) const {
    for (size_t i = 0; i < bits_.size(); ++i) {
      for (uint64_t bits = bits_[i]; bits != 0; bits &= bits - 1) {
        if (fn(i * 64 + static_cast<size_t>(std::countr_zero(bits)))) return true;
      }
    }
    return false;
  }

 private:
  std::vector<uint64_t> bits_;
};

// Accesses of a block before some times: of all threads, of each warp's, of each thread.
struct Covered {
  uint32_t all = 0;
  std::array<uint32_t, 32> warps = {};
  std::vector<uint32_t> threads;

  void Raise(const Covered& other);
  bool Has(uint32_t thread, uint32_t clock) const {
    return clock < all || clock < warps[thread / 32] ||
           (thread < threads.size() && clock < threads[thread]);
  }
};

// The releases of the running kernel, and the words that hold them.
class KernelReleases {
 public:
  struct Release {
    uint32_t block;
    Covered covered;
  };
  void Clear() {
    releases_.clear();
    words_.clear();
    first_values_.clear();
  }
  // A plain write.
  void Forget(uintptr_t word) { words_.erase(word); }
  // What each word that an atomic released through held before the first of them.
  const std::unordered_map<uintptr_t, uint32_t>& first_values() const { return first_values_; }

 private:
  friend class BlockOrder;
  std::vector<Release> releases_;
  std::unordered_map<uintptr_t, uint32_t> first_values_;
  std::unordered_map<uintptr_t, ReleaseSet> words_;
};

// One block's.
class BlockOrder {
 public:
  void Begin(uint32_t block, uint32_t num_threads);
  void OnBarrier(uint32_t clock);
  void OnSyncWarp(uint32_t warp, uint32_t clock);
  void OnFence(uint32_t thread, uint32_t clock);
  void OnAtomic(uint32_t thread, uintptr_t word, bool writes, KernelReleases* kernel);

  // True if the access of `other`, a thread of this block, at `clock` is ordered before the next
  // one of `thread`.
  bool InBlock(uint32_t thread, uint32_t other, uint32_t clock) const {
    return thread == other || clock < barrier_ ||
           (thread / 32 == other / 32 && clock < sync_warp_[thread / 32]);
  }
  // The same for a thread of another block.
  bool Knows(uint32_t thread, uint32_t block, uint32_t other, uint32_t clock,
             const KernelReleases& kernel) const;

 private:
  // What is known to the threads that share it.
  struct Layer {
    ReleaseSet seen;       // by atomics
    ReleaseSet acquired;   // by fences after them
    Covered collected;     // by fences, for atomics to release
    ReleaseSet passed_on;  // collected of other blocks' releases
    bool empty = true;
    void Join(const Layer& other);
    void Clear();
  };
  template <typename Fn>
  void ForLayers(uint32_t thread, const Fn& fn) const;

  uint32_t block_ = 0, num_threads_ = 0;
  uint32_t barrier_ = 0;  // clock of the last one
  std::array<uint32_t, 32> sync_warp_ = {};
  bool used_ = false;  // a fence or an atomic was met
  Layer of_block_;
  std::array<Layer, 32> of_warp_;
  std::vector<Layer> of_thread_;
};

}  // namespace minisgl::cuda::emulator
