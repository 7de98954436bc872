#include "report/prefix_counter.h"

#include <vector>

#include "sched/computing_index.h"

namespace minisgl::report {

PrefixCounter::PrefixCounter(int32_t page_size, size_t pages_max)
    : page_size_(page_size), pages_max_(pages_max) {}

void PrefixCounter::Add(const PrefixKey& prompt) {
  if (prompt.empty()) return;
  const std::vector<uint64_t> hashes = sched::ChainHashes(prompt, page_size_);
  const size_t usable = (prompt.size() - 1) / static_cast<size_t>(page_size_);
  for (size_t page = 0; page < hashes.size(); ++page) {
    if (!IsKept(hashes[page])) continue;
    const auto [entry, is_new] = pages_.try_emplace(hashes[page], false);
    if (is_new || page >= usable) continue;
    // Each kept page represents 2^halvings_ pages.
    hits_ += int64_t{1} << halvings_;
    shared_ += entry->second ? 0 : 1;
    entry->second = true;
  }
  while (pages_.size() > pages_max_) Halve();
}

void PrefixCounter::Halve() {
  ++halvings_;
  shared_ = 0;
  std::erase_if(pages_, [this](const auto& page) { return !IsKept(page.first); });
  for (const auto& [hash, is_shared] : pages_) shared_ += is_shared ? 1 : 0;
}

}  // namespace minisgl::report
