// How much of many prompts stands in a prefix that another one before had: what the radix cache
// would find if it never had to let go of anything.
//
// A page of tokens with all that stands before it is known by a hash, so that the set of hashes is
// the tree. Memory is bounded: where there are too many pages a random half of them is forgotten,
// and then another, and what is counted in the rest stands for all. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "minisgl/base/ids.h"

namespace minisgl::report {

class PrefixCounter {
 public:
  // Some 60 MB at most; with pages of 16 tokens, 16 million tokens that differ are counted exactly.
  static constexpr size_t kPagesMax = size_t{1} << 20;

  explicit PrefixCounter(int32_t page_size, size_t pages_max = kPagesMax);

  // A prompt, as whole pages of it.
  void Add(std::span<const TokenId> prompt);

  // Tokens that a prompt found in one before it: whole pages, and never its last token, which is
  // always computed.
  int64_t shared_tokens() const { return hits_ * page_size_; }
  // Whole pages that differ, and those of them that more than one prompt has.
  int64_t unique_pages() const { return static_cast<int64_t>(pages_.size()) << halvings_; }
  int64_t shared_pages() const { return shared_ << halvings_; }
  // Whether they were counted one by one.
  bool is_exact() const { return halvings_ == 0; }

 private:
  bool IsKept(uint64_t hash) const { return (hash & ((uint64_t{1} << halvings_) - 1)) == 0; }
  void Halve();

  const int32_t page_size_;
  const size_t pages_max_;
  std::unordered_map<uint64_t, bool> pages_;  // of the pages kept: whether a second prompt had it
  int halvings_ = 0;
  int64_t hits_ = 0;
  int64_t shared_ = 0;
};

}  // namespace minisgl::report
