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

void PoolModel::Add(const PrefixKey& prompt, int64_t answer_tokens) {
  if (prompt.empty()) return;
  const std::vector<uint64_t> hashes = sched::ChainHashes(prompt, page_size_);
  const size_t usable = (prompt.size() - 1) / static_cast<size_t>(page_size_);
  size_t found = 0;
  while (found < usable && pages_.contains(hashes[found])) ++found;
  found_tokens_ += static_cast<int64_t>(found) * page_size_;
  // Pages of answers are never shared, so a serial number identifies each. Touch the deepest pages
  // first, like the cache: a prefix outlives its continuations.
  const auto length = static_cast<int64_t>(prompt.size());
  // The last token is never computed, and partial pages are not kept.
  const int64_t pages = (length + std::max<int64_t>(answer_tokens, 1) - 1) / page_size_;
  const int64_t own = pages - static_cast<int64_t>(hashes.size());
  // Touching more pages than the pool holds evicts everything, so the rest can be skipped.
  for (int64_t i = 0; i < std::min(own, static_cast<int64_t>(pages_max_)); ++i) {
    Touch(++next_answer_);
  }
  for (auto hash = hashes.rbegin(); hash != hashes.rend(); ++hash) Touch(*hash);
}

}  // namespace minisgl::report
