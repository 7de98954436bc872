// Order of accesses between threads and blocks.
#include "emulator/block_order.h"

#include <cstring>

namespace minisgl::cuda::emulator {

void Covered::Raise(const Covered& other) {
  all = std::max(all, other.all);
  for (size_t i = 0; i < warps.size(); ++i) warps[i] = std::max(warps[i], other.warps[i]);
  if (other.threads.size() > threads.size()) threads.resize(other.threads.size());
  for (size_t i = 0; i < other.threads.size(); ++i) {
    threads[i] = std::max(threads[i], other.threads[i]);
  }
}

void BlockOrder::Layer::Join(const Layer& other) {
  if (other.empty) return;
  seen.Join(other.seen);
  acquired.Join(other.acquired);
  passed_on.Join(other.passed_on);
  collected.Raise(other.collected);
  empty = false;
}

void BlockOrder::Layer::Clear() {
  if (empty) return;
  seen.Clear();
  acquired.Clear();
  passed_on.Clear();
  collected = {};
  empty = true;
}

void BlockOrder::Begin(uint32_t block, uint32_t num_threads) {
  block_ = block;
  num_threads_ = num_threads;
  barrier_ = 0;
  sync_warp_ = {};
  if (!used_) return;
  used_ = false;
  of_block_.Clear();
  for (Layer& layer : of_warp_) layer.Clear();
  for (Layer& layer : of_thread_) layer.Clear();
}

// Layers that a thread sees: the block's, its warp's, its own.
template <typename Fn>
void BlockOrder::ForLayers(uint32_t thread, const Fn& fn) const {
  fn(of_block_);
  fn(of_warp_[thread / 32]);
  if (thread < of_thread_.size()) fn(of_thread_[thread]);
}

void BlockOrder::OnSyncWarp(uint32_t warp, uint32_t clock) {
  sync_warp_[warp] = clock;
  if (!used_) return;
  for (size_t i = warp * 32; i < of_thread_.size() && i < warp * 32 + 32; ++i) {
    of_warp_[warp].Join(of_thread_[i]);
    of_thread_[i].Clear();
  }
}

void BlockOrder::OnBarrier(uint32_t clock) {
  barrier_ = clock;
  if (!used_) return;
  for (Layer& layer : of_thread_) {
    of_block_.Join(layer);
    layer.Clear();
  }
  for (Layer& layer : of_warp_) {
    of_block_.Join(layer);
    layer.Clear();
  }
}

void BlockOrder::OnFence(uint32_t thread, uint32_t clock) {
  used_ = true;
  of_thread_.resize(num_threads_);
  Layer& own = of_thread_[thread];
  own.empty = false;
  ReleaseSet seen;
  ForLayers(thread, [&](const Layer& layer) { seen.Join(layer.seen); });
  own.acquired.Join(seen);
  ForLayers(thread, [&](const Layer& layer) { own.passed_on.Join(layer.acquired); });
  Covered& covered = own.collected;
  covered.all = barrier_;
  covered.warps[thread / 32] = sync_warp_[thread / 32];
  covered.threads.resize(thread + 1);
  covered.threads[thread] = clock;
}

void BlockOrder::OnAtomic(uint32_t thread, uintptr_t word, bool writes, KernelReleases* kernel) {
  const auto found = kernel->words_.find(word);
  if (found == kernel->words_.end() && (!used_ || !writes)) return;  // no fence yet
  used_ = true;
  of_thread_.resize(num_threads_);
  Layer& own = of_thread_[thread];
  own.empty = false;
  ReleaseSet& held = found == kernel->words_.end() ? kernel->words_[word] : found->second;
  own.seen.Join(held);
  if (!writes) return;
  uint32_t value;
  std::memcpy(&value, reinterpret_cast<const void*>(word), sizeof(value));
  kernel->first_values_.emplace(word, value);
  KernelReleases::Release release{block_, {}};
  ForLayers(thread, [&](const Layer& layer) {
    release.covered.Raise(layer.collected);
    held.Join(layer.passed_on);
  });
  held.Add(kernel->releases_.size());
  kernel->releases_.push_back(std::move(release));
}

bool BlockOrder::Knows(uint32_t thread, uint32_t block, uint32_t other, uint32_t clock,
                       const KernelReleases& kernel) const {
  if (!used_) return false;
  bool knows = false;
  ForLayers(thread, [&](const Layer& layer) {
    knows = knows || layer.acquired.Any([&](size_t i) {
      const KernelReleases::Release& release = kernel.releases_[i];
      return release.block == block && release.covered.Has(other, clock);
    });
  });
  return knows;
}

}  // namespace minisgl::cuda::emulator
