// An index of the prefix pages that running requests are computing, and of the requests that wait
// for them instead of computing them again.
//
// Keyed by chain hashes. A collision costs a short wait, never a wrong answer, because the prefix
// cache, which compares whole keys, decides what a request may use. A request removes its pages
// when they are in the cache or when it stops, so every wait ends.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "minisgl/base/prefix_key.h"

namespace minisgl::sched {

struct RequestState;

// Returns one hash for each whole page of `key`, which begins at place 0: hashes[i] covers tokens
// [0, (i + 1) * page_size) and the marks in them.
std::vector<uint64_t> ChainHashes(const PrefixKey& key, int32_t page_size);

class ComputingIndex {
 public:
  void Add(uint64_t hash) { ++counts_[hash]; }
  // Undoes one Add, and appends the requests that wait for the page to `waiters`. REQUIRES an Add
  // without its Remove.
  void Remove(uint64_t hash, std::vector<RequestState*>* waiters);
  void AddWaiter(uint64_t hash, RequestState* state);
  void RemoveWaiter(uint64_t hash, RequestState* state);
  bool Contains(uint64_t hash) const { return counts_.contains(hash); }
  size_t size() const { return counts_.size() + waiters_.size(); }
  size_t num_waiters() const { return num_waiters_; }

 private:
  // Both are looked up, never iterated.
  std::unordered_map<uint64_t, int32_t> counts_;
  std::unordered_map<uint64_t, std::vector<RequestState*>> waiters_;
  size_t num_waiters_ = 0;
};

}  // namespace minisgl::sched
