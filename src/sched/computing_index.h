// Which pages of which prefixes are being computed right now, so that a request that needs one
// waits for it instead of computing it again, and who waits. Keyed by chain hashes: a collision
// costs a short wait, never a wrong answer, because what a request may use is decided by the prefix
// cache, which compares tokens. Whoever computes a page takes it out again when it is in the cache
// or when he stops, so every wait ends.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl::sched {

struct RequestState;

// hashes[i] covers tokens [0, (i + 1) * page_size); one for each whole page of `tokens`.
std::vector<uint64_t> ChainHashes(std::span<const TokenId> tokens, int32_t page_size);

class ComputingIndex {
 public:
  void Add(uint64_t hash) { ++counts_[hash]; }
  // Appends who waited for the page to `freed`. REQUIRES an Add without its Remove.
  void Remove(uint64_t hash, std::vector<RequestState*>* freed);
  void AddWaiter(uint64_t hash, RequestState* state);
  void RemoveWaiter(uint64_t hash, RequestState* state);
  bool Contains(uint64_t hash) const { return counts_.contains(hash); }
  size_t size() const { return counts_.size() + waiters_.size(); }
  size_t num_waiters() const { return num_waiters_; }

 private:
  std::unordered_map<uint64_t, int32_t> counts_;  // looked up, never iterated, like the next
  std::unordered_map<uint64_t, std::vector<RequestState*>> waiters_;
  size_t num_waiters_ = 0;
};

}  // namespace minisgl::sched
