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
      work_(std::move(work)) {
  MINISGL_CHECK(block_bytes_ > 0, "the engine's pages cannot be copied");
}

PrefixSource::~PrefixSource() = default;

PrefixSource::Known& PrefixSource::KeysOf(RequestId request, std::span<const TokenId> tokens) {
  Known& known = known_[request];
  const size_t num_blocks = tokens.size() / static_cast<size_t>(block_tokens_);
  if (known.keys == nullptr || known.keys->size() < num_blocks) {
    known.keys = std::make_shared<const std::vector<KvBlockKey>>(
        store_->Keys(tokens.first(num_blocks * static_cast<size_t>(block_tokens_))));
    known.num_found = -1;
  }
  return known;
}

int64_t PrefixSource::FindBlocks(Known* known, int64_t num_blocks) {
  if (known->num_found < 0 || known->found_at != num_saved_) {
    known->num_found = store_->Find(*known->keys);
    known->found_at = num_saved_;
  }
  return std::min(known->num_found, num_blocks);
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

std::optional<int64_t> PrefixSource::Lookup(RequestId id, std::span<const TokenId> tokens,
                                            int64_t cached_len) {
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  if (num_tokens - cached_len < block_tokens_ + 1) return 0;
  Known& known = KeysOf(id, tokens);
  const int64_t num_found = FindBlocks(&known, num_tokens / block_tokens_);
  const int64_t gained = num_found * block_tokens_ - cached_len;
  return gained < block_tokens_ ? 0 : gained;
}

void PrefixSource::Load(RequestId id, std::span<const TokenId> tokens, int64_t begin, int64_t count,
                        std::span<const PageId> pages) {
  LoadState load;
  load.keys = KeysOf(id, tokens).keys;
  load.begin = begin;
  load.count = count;
  load.pages.assign(pages.begin(), pages.end());
  load.next_block = begin / block_tokens_;
  load.end_block = CeilDiv<int64_t>(begin + count, block_tokens_);
  const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(load.end_block * block_tokens_);
  load.tokens.assign(tokens.begin(), end);
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

// Blocks are read in order. After one that is not to be had, those under way are waited for,
// because they still write their pages.
bool PrefixSource::Advance(LoadState* load) {
  while (!load->jobs.empty() && load->jobs.front()->is_done) {
    Job& job = *load->jobs.front();
    if (load->is_stopped || !job.is_good) {
      load->is_stopped = true;
      for (const auto& later : load->jobs) later->is_skipped = true;
      job.copy.reset();
    } else {
      engine_->WritePages(std::move(job.copy));
      const int64_t end = std::min((job.block + 1) * block_tokens_, load->begin + load->count);
      load->good = end - load->begin;
    }
    load->jobs.pop_front();
    --num_reading_;
  }
  while (!load->is_stopped && load->next_block < load->end_block) {
    auto job = std::make_shared<Job>();
    job->block = load->next_block;
    job->copy = engine_->BeginWrite(PagesOf(job->block, load->begin, load->count, load->pages));
    if (job->copy == nullptr) {  // again when others have ended
      load->is_stopped = load->jobs.empty() && IsRefused();
      break;
    }
    num_refusals_ = 0;
    ++num_reading_;
    ++load->next_block;
    load->jobs.push_back(job);
    PostRead(load, job);
  }
  return load->jobs.empty() && (load->is_stopped || load->next_block == load->end_block);
}

// The load lives until its jobs have ended.
void PrefixSource::PostRead(const LoadState* load, const std::shared_ptr<Job>& job) {
  job->is_posted = true;
  work_->Post(/*is_urgent=*/true, [this, load, job] {
    try {
      if (!job->is_skipped) {
        buffer_.resize(static_cast<size_t>(block_bytes_));
        job->is_good = store_->Read(PathTo(load->keys, job->block),
                                    TokensOf(load->tokens, job->block), buffer_);
        if (job->is_good) job->copy->PutBlock(buffer_);
      }
    } catch (const std::exception&) {
      job->is_good = false;  // no memory: the block is computed
    }
    job->is_done = true;
  });
}

KvSaveOffer PrefixSource::Save(KvSaveId id, RequestId request, std::span<const TokenId> tokens,
                               std::span<const PageId> pages) {
  const auto num_blocks = static_cast<int64_t>(tokens.size()) / block_tokens_;
  Known& known = KeysOf(request, tokens);
  const int64_t num_found = FindBlocks(&known, num_blocks);
  if (num_found > 0) Touch(known.keys, num_found);
  SaveState save;
  for (int64_t block = num_found; block < num_blocks; ++block) {
    if (!saving_.contains((*known.keys)[static_cast<size_t>(block)])) save.waiting.push_back(block);
  }
  if (save.waiting.empty()) return {};
  if (!store_->accepts_blocks()) return {false, std::ssize(save.waiting) * block_tokens_};
  save.keys = known.keys;
  save.first_block = save.waiting.front();
  const std::ptrdiff_t first = save.first_block * block_tokens_;
  save.tokens.assign(tokens.begin() + first, tokens.end());
  save.pages.assign(pages.begin() + first / engine_->limits().page_size, pages.end());
  save.result.id = id;
  for (const int64_t block : save.waiting) {
    saving_.insert((*save.keys)[static_cast<size_t>(block)]);
  }
  saves_.emplace(id, std::move(save));
  return {.is_taken = true};
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
  for (const int64_t block : save->waiting) {
    saving_.erase((*save->keys)[static_cast<size_t>(block)]);
    save->result.dropped_tokens += block_tokens_;
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
    (job->is_good ? save->result.saved_tokens : save->result.dropped_tokens) += block_tokens_;
    saving_.erase((*save->keys)[static_cast<size_t>(job->block)]);
    job->copy.reset();
    return true;
  });
}

void PrefixSource::BeginWrites(SaveState* save) {
  while (num_writing_ < kSavesAtOnce && !save->waiting.empty()) {
    auto job = std::make_shared<Job>();
    job->block = save->waiting.front();
    job->copy = engine_->ReadPages(PagesOf(job->block, save->first_block * block_tokens_,
                                           static_cast<int64_t>(save->tokens.size()), save->pages));
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
  work_->Post(/*is_urgent=*/false, [this, save, job] {
    try {
      if (!job->is_skipped) {
        buffer_.resize(static_cast<size_t>(block_bytes_));
        job->is_good =
            job->copy->TakeBlock(buffer_).ok() &&
            store_->Write(PathTo(save->keys, job->block),
                          TokensOf(save->tokens, job->block - save->first_block), buffer_);
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
  work_->Post(/*is_urgent=*/false, [this, keys, num_blocks] {
    store_->Touch(PathTo(keys, num_blocks - 1));
    --num_touches_;
  });
}

}  // namespace minisgl::runtime
