#include "sched/kv_loader.h"

#include <algorithm>

#include "minisgl/base/check.h"

namespace minisgl::sched {

std::optional<int64_t> KvLoader::Lookup(const RequestState& state, int64_t cached_len) const {
  if (source_ == nullptr) return 0;
  // What is past the last token that may be shared would end at a state of no use.
  PrefixKey key = state.key();
  if (has_states_) key = key.first(static_cast<size_t>(state.shareable_len() + 1));
  const auto found = source_->Lookup(state.request.id, key, cached_len);
  if (!found) return std::nullopt;
  const int64_t most = state.shareable_len() - cached_len;
  const int64_t usable = std::clamp<int64_t>(*found, 0, std::max<int64_t>(most, 0));
  MINISGL_CHECK(!has_states_ || (usable == *found && usable % page_size_ == 0),
                "a source has no state after the {} tokens that it finds", *found);
  return usable / page_size_ * page_size_;
}

void KvLoader::Begin(RequestState* state) {
  MINISGL_CHECK(!state->is_loading, "request {} loads twice", state->request.id);
  const auto first_page = static_cast<size_t>(state->launched_len / page_size_);
  const auto pages = std::span<const PageId>(state->pages).subspan(first_page);
  state->is_loading = true;
  ++num_loading_;
  source_->Load(state->request.id, state->key(), state->launched_len, state->load_len, pages,
                state->load_state);
}

void KvLoader::Abandon(RequestState* state, int32_t first_page) {
  MINISGL_CHECK(state->is_loading && state->load_pages.empty(),
                "request {} abandons a load that it does not have", state->request.id);
  state->load_pages.assign(state->pages.begin() + first_page, state->pages.end());
  num_abandoned_pages_ += static_cast<int32_t>(state->load_pages.size());
  source_->Cancel(state->request.id);
}

std::vector<KvLoadResult> KvLoader::TakeFinished() {
  return num_loading_ == 0 ? std::vector<KvLoadResult>() : source_->TakeFinished();
}

void KvLoader::Finish(RequestState* state) {
  MINISGL_CHECK(state->is_loading, "request {} was not loading", state->request.id);
  state->is_loading = false;
  --num_loading_;
  num_abandoned_pages_ -= static_cast<int32_t>(state->load_pages.size());
  cache_->Give(state->load_pages);
  state->load_pages.clear();
}

}  // namespace minisgl::sched
