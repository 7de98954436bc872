// Which pages of which prefixes are being computed right now, so that a request that needs one
// waits for it instead of computing it again. Keyed by chain hashes: a collision costs a short
// wait, never a wrong answer, because what a request may use is decided by the prefix cache, which
// compares tokens.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "minisgl/batch_plan.h"

namespace minisgl {

// hashes[i] covers tokens [0, (i + 1) * page_size); one for each whole page of `tokens`.
std::vector<uint64_t> ChainHashes(std::span<const TokenId> tokens, int32_t page_size);

class ComputingIndex {
 public:
  void Add(uint64_t hash) { ++counts_[hash]; }
  void Remove(uint64_t hash);  // REQUIRES an Add without its Remove
  bool Contains(uint64_t hash) const { return counts_.contains(hash); }
  size_t size() const { return counts_.size(); }

 private:
  std::unordered_map<uint64_t, int32_t> counts_;  // looked up, never iterated
};

}  // namespace minisgl
