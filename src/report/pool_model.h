// Model of the prefix cache in a pool too small for everything: pages are evicted, least recently
// used first.
//
// It works on hashes of pages and assumes that rows run one after another in input order. The
// scheduler runs rows with a common prefix together, so it finds more than the model. Used by one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "minisgl/base/prefix_key.h"

namespace minisgl::report {

class PoolModel {
 public:
  // About 100 MB. The model of a larger pool is limited to this many pages.
  static constexpr int64_t kPagesMax = int64_t{1} << 20;

  PoolModel(int32_t page_size, int64_t num_pages);

  // Adds a request: looks up its prompt, then caches it with an answer of `answer_tokens` tokens.
  void Add(const PrefixKey& prompt, int64_t answer_tokens);

  // Prompt tokens found in the cache so far.
  int64_t found_tokens() const { return found_tokens_; }

 private:
  void Touch(uint64_t page);

  const int32_t page_size_;
  const size_t pages_max_;
  std::list<uint64_t> by_use_;  // most recently used first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> pages_;
  uint64_t next_answer_ = 0;
  int64_t found_tokens_ = 0;
};

}  // namespace minisgl::report
