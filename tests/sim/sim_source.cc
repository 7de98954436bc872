#include "sim/sim_source.h"

#include <fmt/core.h>

namespace minisgl::sim {

int64_t SimSource::Draw(int64_t below) {
  const uint64_t hash = Extend(seed_ * 0x9E3779B97F4A7C15ull + ++draws_, -11);
  return static_cast<int64_t>(hash % static_cast<uint64_t>(below));
}

std::optional<int64_t> SimSource::Lookup(RequestId id, const PrefixKey& key, int64_t cached_len) {
  static_cast<void>(id);
  if (!is_healed_ && Draw(100) < plan_.unknown_percent) return std::nullopt;
  if (Draw(100) >= plan_.has_percent) return 0;
  // Not in whole pages, and up to the last token: the scheduler decides how much of it to use.
  return Draw(static_cast<int64_t>(key.size()) - cached_len + 1);
}

void SimSource::Load(RequestId id, const PrefixKey& key, int64_t begin, int64_t count,
                     std::span<const PageId> pages, StateSlot state) {
  if (state != kZeroState) violation_ = "a source that keeps no states loads one";
  const int64_t page_size = engine_->limits().page_size;
  if (loads_.contains(id) || count < 1 || begin % page_size != 0 || count % page_size != 0 ||
      begin + count >= static_cast<int64_t>(key.size()) ||
      static_cast<int64_t>(pages.size()) * page_size != count) {
    violation_ = fmt::format("request {} loads {} tokens from {} into {} pages", id, count, begin,
                             pages.size());
    return;
  }
  LoadJob job;
  job.tokens.assign(key.tokens().begin(), key.tokens().end());
  job.marks.assign(key.marks().begin(), key.marks().end());
  job.begin = begin;
  job.count = job.good = count;
  job.pages.assign(pages.begin(), pages.end());
  job.due = now_ + (is_healed_ ? 1 : Draw(plan_.delay_max + 1));
  if (!is_healed_ && Draw(100) < plan_.fail_percent) job.good = Draw(count);
  engine_->BeginLoad(pages);
  loads_.emplace(id, std::move(job));
}

void SimSource::Cancel(RequestId id) {
  const auto found = loads_.find(id);
  if (found == loads_.end()) {
    violation_ = fmt::format("request {} cancels a load that is not there", id);
    return;
  }
  if (Draw(2) == 0) found->second.good = 0;
  if (Draw(2) == 0) found->second.due = now_ + 1;
}

std::vector<KvLoadResult> SimSource::TakeFinished() {
  std::vector<KvLoadResult> finished;
  for (auto it = loads_.begin(); it != loads_.end();) {
    const LoadJob& job = it->second;
    if (job.due > now_ && !is_healed_) {
      ++it;
      continue;
    }
    engine_->EndLoad(job.pages, {job.tokens, job.marks}, job.begin, job.good);
    finished.push_back({it->first, job.good, job.good < job.count});
    it = loads_.erase(it);
  }
  return finished;
}

}  // namespace minisgl::sim
