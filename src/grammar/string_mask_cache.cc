#include "grammar/string_mask_cache.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace minisgl::grammar {

bool StringMaskCache::Find(const std::string& spelling, std::span<uint32_t> mask) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(spelling);
  if (found == places_.end()) return false;
  entries_.splice(entries_.begin(), entries_, found->second);
  std::ranges::copy(found->second->mask, mask.begin());
  return true;
}

void StringMaskCache::Keep(std::string spelling, std::span<const uint32_t> mask) {
  const std::lock_guard lock(mutex_);
  if (places_.contains(spelling)) return;
  entries_.push_front({std::move(spelling), {mask.begin(), mask.end()}});
  places_.emplace(entries_.front().spelling, entries_.begin());
  bytes_ += BytesOf(entries_.front());
  while (bytes_ > bytes_max_) {
    bytes_ -= BytesOf(entries_.back());
    places_.erase(entries_.back().spelling);
    entries_.pop_back();
  }
}

size_t StringMaskCache::BytesOf(const Entry& entry) {
  constexpr size_t kOverheadBytes = 160;
  return entry.spelling.size() + entry.mask.size() * sizeof(uint32_t) + kOverheadBytes;
}

}  // namespace minisgl::grammar
