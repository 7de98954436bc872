#include "report/pool_model.h"

#include <algorithm>
#include <vector>

#include "sched/computing_index.h"

namespace minisgl::report {

PoolModel::PoolModel(int32_t page_size, int64_t num_pages)
    : page_size_(page_size),
      pages_max_(static_cast<size_t>(std::clamp<int64_t>(num_pages, 1, kPagesMax))) {}

void PoolModel::Touch(uint64_t page) {
  const auto [entry, is_new] = pages_.try_emplace(page, by_use_.end());
  if (!is_new) {
    by_use_.splice(by_use_.begin(), by_use_, entry->second);
    return;
  }
  by_use_.push_front(page);
  entry->second = by_use_.begin();
  if (pages_.size() <= pages_max_) return;
  pages_.erase(by_use_.back());
  by_use_.pop_back();
}

void PoolModel::Add(std::span<const TokenId> prompt, int64_t answer_tokens) {
  if (prompt.empty()) return;
  const std::vector<uint64_t> hashes = ChainHashes(prompt, page_size_);
  const size_t usable = (prompt.size() - 1) / static_cast<size_t>(page_size_);
  size_t found = 0;
  while (found < usable && pages_.contains(hashes[found])) ++found;
  found_tokens_ += static_cast<int64_t>(found) * page_size_;
  // The pages of answers are nobody else's: a number stands for each. Deepest first, as the cache
  // has it: a prefix outlives what follows it.
  const auto length = static_cast<int64_t>(prompt.size());
  // The last token is never computed on, and what is no whole page is not kept.
  const int64_t pages = (length + std::max<int64_t>(answer_tokens, 1) - 1) / page_size_;
  const int64_t own = pages - static_cast<int64_t>(hashes.size());
  // More than the pool holds push out all, whatever their number.
  for (int64_t i = 0; i < std::min(own, static_cast<int64_t>(pages_max_)); ++i) {
    Touch(++next_answer_);
  }
  for (auto hash = hashes.rbegin(); hash != hashes.rend(); ++hash) Touch(*hash);
}

}  // namespace minisgl::report
