// See prefix_source.h.
#include "runtime/prefix_source.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::runtime {
namespace {

constexpr int kTouchesMax = 64;  // that wait

}  // namespace

PrefixSource::PrefixSource(Engine* engine, KvBlockStore* store,
                           std::unique_ptr<BackgroundWork> work, int32_t block_tokens)
    : engine_(engine),
      store_(store),
      block_tokens_(block_tokens),
      block_bytes_(engine->KvBlockBytes(block_tokens)),
      state_bytes_(engine->StateBytes()),
      work_(std::move(work)) {
  const bool has_states = engine->limits().num_state_slots > 0;
  MINISGL_CHECK(block_bytes_ > 0 && (state_bytes_ > 0) == has_states,
                "the engine's pages or states cannot be copied");
}

PrefixSource::~PrefixSource() = default;

PrefixSource::Known& PrefixSource::KeysOf(RequestId request, const PrefixKey& key) {
  Known& known = known_[request];
  const size_t num_blocks = key.size() / static_cast<size_t>(block_tokens_);
  if (known.keys == nullptr || known.keys->size() < num_blocks) {
    known.keys = std::make_shared<const std::vector<KvBlockKey>>(
        store_->Keys(key.first(num_blocks * static_cast<size_t>(block_tokens_))));
    known.num_found = -1;
  }
  return known;
}

int64_t PrefixSource::FindBlocks(Known* known, int64_t num_blocks) {
  if (known->num_found < 0 || known->found_at != num_saved_) {
    known->num_found = store_->Find(*known->keys);
    known->found_at = num_saved_;
    known->state_limit = -1;
  }
  return std::min(known->num_found, num_blocks);
}

int64_t PrefixSource::FindState(Known* known, int64_t num_blocks) {
  if (known->state_limit != num_blocks) {
    known->state_limit = known->up_to_state = num_blocks;
    while (known->up_to_state > 0 && !store_->HasState(PathTo(known->keys, known->up_to_state - 1)))
      --known->up_to_state;
  }
  return known->up_to_state;
}

std::vector<PageId> PrefixSource::PagesOf(int64_t block, int64_t begin, int64_t count,
                                          std::span<const PageId> pages) const {
  const int64_t page_size = engine_->limits().page_size;
  std::vector<PageId> of_block;
  for (int64_t at = block * block_tokens_; at < (block + 1) * block_tokens_; at += page_size) {
    const bool is_in = at >= begin && at < begin + count;
    of_block.push_back(is_in ? pages[static_cast<size_t>((at - begin) / page_size)] : kNoPage);
  }
  return of_block;
}

std::optional<int64_t> PrefixSource::Lookup(RequestId id, const PrefixKey& key,
                                            int64_t cached_len) {
  const auto num_tokens = static_cast<int64_t>(key.size());
  if (num_tokens - cached_len < block_tokens_ + 1) return 0;
  Known& known = KeysOf(id, key);
  // A state after the last token would leave none to compute.
  const int64_t most = (keeps_states() ? num_tokens - 1 : num_tokens) / block_tokens_;
  int64_t num_found = FindBlocks(&known, most);
  if (keeps_states()) num_found = FindState(&known, num_found);
  const int64_t gained = num_found * block_tokens_ - cached_len;
  return gained < block_tokens_ ? 0 : gained;
}

void PrefixSource::Load(RequestId id, const PrefixKey& key, int64_t begin, int64_t count,
                        std::span<const PageId> pages, StateSlot state) {
  LoadState load;
  load.waiting_state = state;
  load.keys = KeysOf(id, key).keys;
  load.begin = begin;
  load.count = count;
  load.pages.assign(pages.begin(), pages.end());
  load.next_block = begin / block_tokens_;
  load.end_block = CeilDiv<int64_t>(begin + count, block_tokens_);
  load.prefix = PrefixPart(key.first(static_cast<size_t>(load.end_block * block_tokens_)));
  MINISGL_CHECK(loads_.emplace(id, std::move(load)).second, "request {} loads twice", id);
}

void PrefixSource::Cancel(RequestId id) {
  const auto found = loads_.find(id);
  if (found == loads_.end()) return;
  found->second.is_stopped = true;
  for (const auto& job : found->second.jobs) job->is_skipped = true;
}

std::vector<KvLoadResult> PrefixSource::TakeFinished() {
  std::vector<KvLoadResult> finished;
  for (auto it = loads_.begin(); it != loads_.end();) {
    LoadState& load = it->second;
    if (!Advance(&load)) {
      ++it;
      continue;
    }
    finished.push_back({it->first, load.good, load.good < load.count});
    it = loads_.erase(it);
  }
  return finished;
}

void PrefixSource::EndRead(LoadState* load) {
  Job& job = *load->jobs.front();
  if (load->is_stopped || !job.is_good) {
    load->is_stopped = true;
    for (const auto& later : load->jobs) later->is_skipped = true;
    job.copy.reset();
  } else if (job.piece.is_state()) {
    engine_->WriteState(std::move(job.copy));
  } else {
    engine_->WritePages(std::move(job.copy));
    const int64_t end = std::min((job.piece.block + 1) * block_tokens_, load->begin + load->count);
    load->good = end - load->begin;
  }
  load->jobs.pop_front();
  --num_reading_;
}

bool PrefixSource::BeginRead(LoadState* load) {
  auto job = std::make_shared<Job>();
  const bool is_state = load->waiting_state != kZeroState;
  job->piece = {is_state ? load->end_block - 1 : load->next_block, load->waiting_state};
  job->copy =
      is_state
          ? engine_->BeginStateWrite(load->waiting_state)
          : engine_->BeginWrite(PagesOf(load->next_block, load->begin, load->count, load->pages));
  if (job->copy == nullptr) return false;
  num_refusals_ = 0;
  ++num_reading_;
  if (is_state) {
    load->waiting_state = kZeroState;
  } else {
    ++load->next_block;
  }
  load->jobs.push_back(job);
  PostRead(load, job);
  return true;
}

// Several blocks are read at once, and count in their order. After one that is not to be had, those
// under way are waited for, because they still write their pages.
bool PrefixSource::Advance(LoadState* load) {
  while (!load->jobs.empty() && load->jobs.front()->is_done) EndRead(load);
  while (!load->is_stopped && load->next_block < load->end_block) {
    if (BeginRead(load)) continue;
    load->is_stopped = load->jobs.empty() && IsRefused();  // again when others have ended
    break;
  }
  return load->jobs.empty() && (load->is_stopped || load->next_block == load->end_block);
}

// The load lives until its jobs have ended.
void PrefixSource::PostRead(const LoadState* load, const std::shared_ptr<Job>& job) {
  job->is_posted = true;
  work_->Post(/*is_urgent=*/true, [this, load, job](std::vector<std::byte>* scratch) {
    try {
      if (!job->is_skipped) {
        const int64_t block = job->piece.block;
        const KvBlockPath path = PathTo(load->keys, block);
        const PrefixKey key = BlockOf(load->prefix, block);
        scratch->resize(static_cast<size_t>(BytesOf(job->piece)));
        job->is_good = job->piece.is_state() ? store_->ReadState(path, key, *scratch)
                                             : store_->Read(path, key, *scratch);
        if (job->is_good) job->copy->PutBlock(*scratch);
      }
    } catch (const std::exception&) {
      job->is_good = false;  // no memory: the block is computed
    }
    job->is_done = true;
  });
}

void PrefixSource::AddStates(const KvPrefix& prefix, const Keys& keys, SaveState* save,
                             KvSaveOffer* offer) {
  for (const KvState& state : prefix.states) {
    const Piece piece = {state.len / block_tokens_ - 1, state.slot};
    if (saving_.contains(KeyOf(keys, piece))) continue;
    if (store_->HasState(PathTo(keys, piece.block))) {
      Touch(keys, piece.block + 1);
    } else if (std::ssize(offer->states) < prefix.states_max) {
      save->waiting.push_back(piece);
      offer->states.push_back(piece.slot);
    }
  }
}

KvSaveOffer PrefixSource::Save(KvSaveId id, RequestId request, const KvPrefix& prefix) {
  const auto num_blocks = static_cast<int64_t>(prefix.key.size()) / block_tokens_;
  Known& known = KeysOf(request, prefix.key);
  const int64_t num_found = FindBlocks(&known, num_blocks);
  if (num_found > 0) Touch(known.keys, num_found);
  SaveState save;
  KvSaveOffer offer;
  for (int64_t block = num_found; block < num_blocks; ++block) {
    if (!saving_.contains(KeyOf(known.keys, {block}))) save.waiting.push_back({block});
  }
  const int64_t num_missing = std::ssize(save.waiting);
  if (keeps_states()) AddStates(prefix, known.keys, &save, &offer);
  if (save.waiting.empty()) return {};
  if (!store_->accepts_blocks()) return {.refused_tokens = num_missing * block_tokens_};
  // A state goes after its block.
  std::stable_sort(save.waiting.begin(), save.waiting.end(),
                   [](const Piece& a, const Piece& b) { return a.block < b.block; });
  save.keys = known.keys;
  save.first_block = save.waiting.front().block;
  const std::ptrdiff_t first = save.first_block * block_tokens_;
  save.part = PrefixPart(prefix.key.subspan(static_cast<size_t>(first)));
  save.pages.assign(prefix.pages.begin() + first / engine_->limits().page_size, prefix.pages.end());
  save.result.id = id;
  for (const Piece& piece : save.waiting) saving_.insert(KeyOf(save.keys, piece));
  saves_.emplace(id, std::move(save));
  offer.is_taken = true;
  return offer;
}

std::optional<KvSaveResult> PrefixSource::DropSave(KvSaveId id) {
  const auto found = saves_.find(id);
  MINISGL_CHECK(found != saves_.end(), "save {} is dropped, and does not exist", id);
  SaveState& save = found->second;
  DropWaiting(&save);
  for (const auto& job : save.jobs) job->is_skipped = true;
  if (!save.jobs.empty()) return std::nullopt;
  const KvSaveResult result = save.result;
  saves_.erase(found);
  return result;
}

void PrefixSource::DropWaiting(SaveState* save) {
  for (const Piece& piece : save->waiting) {
    saving_.erase(KeyOf(save->keys, piece));
    if (!piece.is_state()) save->result.dropped_tokens += block_tokens_;
  }
  save->waiting.clear();
}

bool PrefixSource::IsRefused() {
  if (num_reading_ > 0 || num_writing_ > 0) return false;
  return ++num_refusals_ >= kRefusalsMax;
}

std::vector<KvSaveResult> PrefixSource::TakeSaved() {
  std::vector<KvSaveResult> finished;
  for (auto it = saves_.begin(); it != saves_.end();) {
    SaveState& save = it->second;
    EndWrites(&save);
    BeginWrites(&save);
    if (!save.jobs.empty() || !save.waiting.empty()) {
      ++it;
      continue;
    }
    finished.push_back(save.result);
    it = saves_.erase(it);
  }
  return finished;
}

void PrefixSource::EndWrites(SaveState* save) {
  std::erase_if(save->jobs, [&](const std::shared_ptr<Job>& job) {
    if (!job->is_done) return false;
    --num_writing_;
    num_saved_ += job->is_good ? 1 : 0;
    if (job->piece.is_state()) {
      save->result.saved_states += job->is_good ? 1 : 0;
    } else {
      (job->is_good ? save->result.saved_tokens : save->result.dropped_tokens) += block_tokens_;
    }
    saving_.erase(KeyOf(save->keys, job->piece));
    job->copy.reset();
    return true;
  });
}

void PrefixSource::BeginWrites(SaveState* save) {
  while (num_writing_ < kSavesAtOnce && !save->waiting.empty()) {
    auto job = std::make_shared<Job>();
    const Piece piece = job->piece = save->waiting.front();
    job->copy = piece.is_state()
                    ? engine_->ReadState(piece.slot)
                    : engine_->ReadPages(PagesOf(piece.block, save->first_block * block_tokens_,
                                                 std::ssize(save->part.tokens), save->pages));
    if (job->copy == nullptr) {
      if (save->jobs.empty() && IsRefused()) DropWaiting(save);
      break;
    }
    num_refusals_ = 0;
    save->jobs.push_back(std::move(job));
    save->waiting.pop_front();
    ++num_writing_;
  }
  for (const auto& job : save->jobs) {
    if (!job->is_posted && job->copy->IsReady()) PostWrite(save, job);
  }
}

// The save lives until its jobs have ended.
void PrefixSource::PostWrite(const SaveState* save, const std::shared_ptr<Job>& job) {
  job->is_posted = true;
  work_->Post(/*is_urgent=*/false, [this, save, job](std::vector<std::byte>* scratch) {
    try {
      if (!job->is_skipped) {
        const int64_t block = job->piece.block;
        const KvBlockPath path = PathTo(save->keys, block);
        const PrefixKey key = BlockOf(save->part, block);
        scratch->resize(static_cast<size_t>(BytesOf(job->piece)));
        job->is_good = job->copy->TakeBlock(*scratch).ok() &&
                       (job->piece.is_state() ? store_->WriteState(path, key, *scratch)
                                              : store_->Write(path, key, *scratch));
      }
    } catch (const std::exception&) {
      job->is_good = false;  // no memory: the block is not kept
    }
    job->is_done = true;
  });
}

void PrefixSource::Touch(const Keys& keys, int64_t num_blocks) {
  if (num_touches_ >= kTouchesMax) return;
  ++num_touches_;
  work_->Post(/*is_urgent=*/false, [this, keys, num_blocks](std::vector<std::byte>*) {
    store_->Touch(PathTo(keys, num_blocks - 1));
    --num_touches_;
  });
}

}  // namespace minisgl::runtime
