#include "sched/kv_saver.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl::sched {

PrefixNode* KvSaver::LockFor(const RequestState& state) {
  const int32_t block = source_ == nullptr ? 0 : source_->block_tokens();
  if (block == 0 || !cache_->keeps_pages()) return nullptr;
  if (int64_t{state.tree_pages} * page_size_ < block) return nullptr;
  cache_->Lock(state.node);
  return state.node;
}

std::vector<KvState> KvSaver::StatesOf(const PrefixNode* node, int32_t block) const {
  std::vector<KvState> states;
  for (const PathState& state : cache_->PathStates(node)) {
    const int64_t len = int64_t{state.num_pages} * page_size_;
    if (len % block == 0) states.push_back({len, state.slot});
  }
  return states;
}

void KvSaver::Offer(const RequestState& state, PrefixNode* node) {
  if (node == nullptr) return;
  Save save;
  save.node = node;
  save.pages = cache_->PathPages(node);
  save.locked_pages = static_cast<int32_t>(save.pages.size());
  const int32_t block = source_->block_tokens();
  const auto num_tokens =
      static_cast<size_t>(int64_t{save.locked_pages} * page_size_ / block * block);
  save.pages.resize(num_tokens / static_cast<size_t>(page_size_));
  const std::vector<KvState> states = StatesOf(node, block);
  const KvSaveId id = ++last_id_;
  const KvSaveOffer offer = source_->Save(id, state.request.id,
                                          {.key = state.key().first(num_tokens),
                                           .pages = save.pages,
                                           .states = states,
                                           .states_max = states_->NumHoldable()});
  dropped_pages_ += offer.refused_tokens / page_size_;
  if (!offer.is_taken) {
    cache_->Unlock(node);
    return;
  }
  save.states = offer.states;
  for (const StateSlot slot : save.states) states_->pool()->Hold(slot);
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
  saved_states_ += result.saved_states;
  for (const StateSlot slot : found->second.states) states_->pool()->Unhold(slot);
  cache_->Unlock(found->second.node);
  saves_.erase(found);
}

std::vector<PrefixNode*> KvSaver::Locks() const {
  std::vector<PrefixNode*> locks;
  for (const auto& [id, save] : saves_) locks.push_back(save.node);
  return locks;
}

std::vector<StateSlot> KvSaver::Holds() const {
  std::vector<StateSlot> holds;
  for (const auto& [id, save] : saves_) {
    holds.insert(holds.end(), save.states.begin(), save.states.end());
  }
  return holds;
}

}  // namespace minisgl::sched
