// Counts the prompt tokens in a prefix that an earlier prompt had: the tokens that a radix cache
// would find if it never evicted any.
//
// A page is identified by a hash of its tokens and all tokens before it, so that a set of hashes
// represents the tree. Memory is bounded by sampling: if there are too many pages, a random half of
// them is dropped, repeatedly, and the counts of the rest are scaled up. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "minisgl/base/prefix_key.h"

namespace minisgl::report {

class PrefixCounter {
 public:
  // About 60 MB. With pages of 16 tokens, up to 16 million distinct tokens are counted exactly.
  static constexpr size_t kPagesMax = size_t{1} << 20;

  explicit PrefixCounter(int32_t page_size, size_t pages_max = kPagesMax);

  // Adds the whole pages of a prompt.
  void Add(const PrefixKey& prompt);

  // Tokens that a prompt shared with an earlier one: whole pages, never including its last token,
  // which is always computed.
  int64_t shared_tokens() const { return hits_ * page_size_; }
  // Number of distinct whole pages, and of those that more than one prompt has.
  int64_t unique_pages() const { return static_cast<int64_t>(pages_.size()) << halvings_; }
  int64_t shared_pages() const { return shared_ << halvings_; }
  // True if no page was dropped.
  bool is_exact() const { return halvings_ == 0; }

 private:
  bool IsKept(uint64_t hash) const { return (hash & ((uint64_t{1} << halvings_) - 1)) == 0; }
  void Halve();

  const int32_t page_size_;
  const size_t pages_max_;
  std::unordered_map<uint64_t, bool> pages_;  // kept pages: true if a second prompt had the page
  int halvings_ = 0;
  int64_t hits_ = 0;
  int64_t shared_ = 0;
};

}  // namespace minisgl::report
