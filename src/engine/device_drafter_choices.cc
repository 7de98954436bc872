// Drafts of guided steps (DraftStep::is_guided): see device_drafter.h.
#include <algorithm>
#include <cstring>

#include "engine/device_drafter.h"
#include "engine/draft_candidates.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::engine {
namespace {

bool Has(std::span<const uint32_t> mask, TokenId id) {
  return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

size_t AlignedBytes(size_t count) {
  return CeilDiv(count * sizeof(int32_t), kDraftListAlignment) * kDraftListAlignment;
}

}  // namespace

Status DeviceDrafter::TakeGuidedArrays() {
  const auto rows = static_cast<uint64_t>(
      std::max(std::min(limits_.max_running_requests, limits_.max_step_drafts), 1));
  const auto clusters = static_cast<uint64_t>(config_.draft_head.num_clusters);
  const uint64_t num_bytes = DraftMasksBytes(config_, limits_);
  MINISGL_ASSIGN_OR_RETURN(masks_, DeviceArray<std::byte>::Make(ops_, {num_bytes}));
  MINISGL_ASSIGN_OR_RETURN(host_masks_, ops_->AllocateHost(num_bytes));
  MINISGL_ASSIGN_OR_RETURN(host_sampled_, ops_->AllocateHost(rows * sizeof(DeviceToken)));
  if (clusters > 0) {
    MINISGL_ASSIGN_OR_RETURN(host_scores_, ops_->AllocateHost(rows * clusters * sizeof(float)));
  }
  MINISGL_ASSIGN_OR_RETURN(scored_, ops_->MakeEvent());
  MINISGL_ASSIGN_OR_RETURN(drafted_, ops_->MakeEvent());
  return Status();
}

void DeviceDrafter::RunGuided(const DraftStep& step, int32_t index) {
  const DraftPass& pass = step.drafts[static_cast<size_t>(index)];
  if (reads_before() && index == 0) GatherStates(step, pass);
  if (pass.graph == nullptr) {
    logits_ = RunLayers(DraftPart::kPropose, pass.shape, step.device_meta.data() + pass.begin);
  } else {
    RunPass(DraftPart::kPropose, step, pass);
    logits_ = pass.logits;
  }
  if (!has_clusters()) return;
  const int64_t count = int64_t{step.NumRows(index)} * config_.draft_head.num_clusters;
  ops_->CopyToHost(host_scores_.get(), scores_, static_cast<size_t>(count) * sizeof(float));
  ops_->Record(scored_.get());
}

void DeviceDrafter::BeginDrafts(const DraftStep& step) {
  if (is_block()) WriteMasks(step);
  RunGuided(step, 0);
}

void DeviceDrafter::AddMask(std::span<const TokenId> candidates, std::span<const uint32_t> allowed,
                            DraftMasks* masks) const {
  const auto num_words = static_cast<size_t>(MaskWords(config_.vocab_size));
  const size_t first = masks->words.size();
  bool is_empty = true;
  const auto add = [&](int64_t row) {
    masks->words[first + static_cast<size_t>(row) / 32] |= uint32_t{1} << (row % 32);
    is_empty = false;
  };
  masks->words.resize(first + num_words);
  if (!allowed.empty() && candidates.empty()) {
    const auto* const ids = config_.draft_head.row_ids.get();
    for (int64_t row = 0; row < config_.vocab_size; ++row) {
      const auto id = ids == nullptr ? static_cast<TokenId>(row) : (*ids)[static_cast<size_t>(row)];
      if (Has(allowed, id)) add(row);
    }
  }
  for (const TokenId id : candidates) {
    if (!allowed.empty() && Has(allowed, id)) add(id);
  }
  if (is_empty) {
    for (const TokenId id : candidates) add(id);
  }
  masks->mask_of.push_back(is_empty ? -1 : static_cast<int32_t>(first / num_words));
  if (is_empty) masks->words.resize(first);
}

Result<DraftMasks> DeviceDrafter::MakeMasks(int32_t index, const DraftGuide* guide,
                                            DraftStep* step) {
  if (has_clusters()) MINISGL_RETURN_IF_ERROR(ops_->Wait(scored_.get()));
  if (guide != nullptr && index > 0) MINISGL_RETURN_IF_ERROR(TakeChosen(index - 1, step));
  DraftMasks masks;
  for (int32_t i = 0; i < step->NumRows(index); ++i) {
    const DraftRow& row = step->rows[static_cast<size_t>(i)];
    std::vector<TokenId> candidates;
    if (has_clusters()) {
      const auto* const scores = static_cast<const float*>(host_scores_.get());
      candidates = ClusterCandidates(config_.draft_head,
                                     scores + int64_t{i} * config_.draft_head.num_clusters);
    }
    std::vector<uint32_t> allowed;
    if (guide != nullptr && row.is_masked) {
      allowed.resize(static_cast<size_t>(MaskWords(limits_.vocab_size)));
      if (!(*guide)(row.row, row.chosen, allowed)) allowed.clear();
    }
    AddMask(candidates, allowed, &masks);
  }
  return masks;
}

// The transitions are from the tokens at the places before, which the pool has.
void DeviceDrafter::ChooseIndex(const DraftStep& step, int32_t index, float* logits,
                                const int32_t* mask_of, const uint32_t* masks) {
  const int32_t count = step.NumRows(index);
  const DraftPass& pass = step.drafts[is_block() ? 0 : static_cast<size_t>(index)];
  const DraftLayout layout(pass.shape);
  const int32_t skipped = is_block() ? step.First(index) : 0;
  const auto at = [&](size_t offset) {
    return InDraftMemory<int32_t>(step.device_meta.data() + pass.begin, offset) + skipped;
  };
  const int32_t* const table_row = at(is_block() ? layout.places_row : layout.table_row);
  const int32_t* const kv_len = at(is_block() ? layout.places_len : layout.kv_len);
  float* const own = logits + skipped * config_.vocab_size;
  if (has_transitions()) {
    PrepareTokens(table_row, all_.data(), kv_len, count, count);
    state_->model().drafter()->AddTransitions(token_ids_.data(), count, own);
  }
  Choose(own, count, table_row, kv_len, mask_of, masks);
}

// Waits until the masks before are not read any more. The first rank has waited in MakeMasks.
void DeviceDrafter::ChooseDrafts(int32_t index, const DraftMasks& masks, const DraftStep& step) {
  if (was_drafted_) static_cast<void>(ops_->Wait(drafted_.get()));  // a fault is the status below
  const int32_t count = step.NumRows(index);
  auto* const host = static_cast<std::byte*>(host_masks_.get());
  const size_t of_words = masks.words.size() * sizeof(uint32_t);
  const size_t first = AlignedBytes(masks.mask_of.size());
  std::memcpy(host, masks.mask_of.data(), masks.mask_of.size() * sizeof(int32_t));
  if (of_words > 0) std::memcpy(host + first, masks.words.data(), of_words);
  ops_->CopyToDevice(masks_.data(), host, first + of_words);

  ChooseIndex(step, index, logits_, InDraftMemory<int32_t>(masks_.data(), 0),
              InDraftMemory<uint32_t>(masks_.data(), first));
  ops_->CopyToHost(host_sampled_.get(), sampled_.data(),
                   static_cast<size_t>(count) * sizeof(DeviceToken));
  ops_->Record(drafted_.get());
  was_drafted_ = true;
  if (!is_block() && index + 1 < step.NumIndices()) RunGuided(step, index + 1);
}

// A place without a token has left the pool as the plan wrote it.
Status DeviceDrafter::TakeChosen(int32_t index, DraftStep* step) {
  MINISGL_RETURN_IF_ERROR(ops_->Wait(drafted_.get()));
  const auto* const sampled = static_cast<const DeviceToken*>(host_sampled_.get());
  for (int32_t i = 0; i < step->NumRows(index); ++i) {
    const bool is_token = sampled[i].outcome == static_cast<int32_t>(RowResult::Outcome::kToken);
    step->rows[static_cast<size_t>(i)].chosen.push_back(is_token ? sampled[i].token : 0);
  }
  return Status();
}

}  // namespace minisgl::engine
