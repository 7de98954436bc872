// What the prefix cache finds where the pool is too small for all: pages are let go, least recently
// used first. A model of the cache by hashes of pages, as if rows ran one after another in the
// order of the file; the scheduler lets rows with a common prefix run together, and finds more.
// Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "minisgl/base/ids.h"

namespace minisgl::report {

class PoolModel {
 public:
  // Some 100 MB at most. The model of a larger pool keeps so many pages and no more.
  static constexpr int64_t kPagesMax = int64_t{1} << 20;

  PoolModel(int32_t page_size, int64_t num_pages);

  // A request: its prompt is looked up, then it and an answer of so many tokens are kept.
  void Add(std::span<const TokenId> prompt, int64_t answer_tokens);

  // Tokens of prompts that were found.
  int64_t found_tokens() const { return found_tokens_; }

 private:
  void Touch(uint64_t page);

  const int32_t page_size_;
  const size_t pages_max_;
  std::list<uint64_t> by_use_;  // the freshest first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> pages_;
  uint64_t next_answer_ = 0;
  int64_t found_tokens_ = 0;
};

}  // namespace minisgl::report
