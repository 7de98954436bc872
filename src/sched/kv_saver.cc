#include "sched/kv_saver.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl::sched {

void KvSaver::Offer(const RequestState& state) {
  const int32_t block = source_ == nullptr ? 0 : source_->block_tokens();
  if (block == 0 || !cache_->keeps_pages()) return;
  const auto num_tokens =
      static_cast<size_t>(int64_t{state.tree_pages} * page_size_ / block * block);
  if (num_tokens == 0) return;
  Save save;
  save.node = state.node;
  save.locked_pages = state.tree_pages;
  save.pages.assign(state.pages.begin(),
                    state.pages.begin() + static_cast<std::ptrdiff_t>(num_tokens) / page_size_);
  const KvSaveId id = ++last_id_;
  const KvSaveOffer offer =
      source_->Save(id, state.request.id, std::span(state.tokens).first(num_tokens), save.pages);
  dropped_pages_ += offer.refused_tokens / page_size_;
  if (!offer.is_taken) return;
  cache_->Lock(save.node);
  num_pages_ += save.locked_pages;
  saves_.emplace(id, std::move(save));
}

bool KvSaver::DropOne() {
  if (static_cast<int64_t>(saves_.size()) == num_dropping_) return false;
  const auto latest = std::find_if(saves_.rbegin(), saves_.rend(),
                                   [](const auto& entry) { return !entry.second.is_dropping; });
  latest->second.is_dropping = true;
  ++num_dropping_;
  if (const auto result = source_->DropSave(latest->first)) End(*result);
  return true;
}

void KvSaver::CollectSaved() {
  if (saves_.empty()) return;
  for (const KvSaveResult& result : source_->TakeSaved()) End(result);
}

void KvSaver::End(const KvSaveResult& result) {
  const auto found = saves_.find(result.id);
  MINISGL_CHECK(found != saves_.end(), "save {} ended that never began", result.id);
  saved_pages_ += result.saved_tokens / page_size_;
  dropped_pages_ += result.dropped_tokens / page_size_;
  num_dropping_ -= found->second.is_dropping ? 1 : 0;
  num_pages_ -= found->second.locked_pages;
  cache_->Unlock(found->second.node);
  saves_.erase(found);
}

std::vector<PrefixNode*> KvSaver::Locks() const {
  std::vector<PrefixNode*> locks;
  for (const auto& [id, save] : saves_) locks.push_back(save.node);
  return locks;
}

}  // namespace minisgl::sched
