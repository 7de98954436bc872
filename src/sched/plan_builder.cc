#include "sched/plan_builder.h"

#include <algorithm>

#include "minisgl/base/check.h"
#include "sched/constrained_rows.h"

namespace minisgl::sched {

PlanBuilder::PlanBuilder(StepId step, int32_t page_size, StateLedger* states,
                         const WindowPool* windows)
    : page_size_(page_size),
      states_(states),
      windows_(windows),
      plan_(std::make_shared<BatchPlan>()) {
  plan_->step = step;
  plan_->row_begin.push_back(0);
}

// Adds the writes after which the device's page table has all pages of `state`, and the window
// pages of those that it claims.
void PlanBuilder::WritePageTable(RequestState* state) {
  const auto num_pages = static_cast<int32_t>(state->pages.size());
  if (state->clean_pages >= num_pages) return;
  BatchPlan& plan = *plan_;
  plan.page_table_writes.push_back({state->table_row, state->clean_pages,
                                    num_pages - state->clean_pages,
                                    static_cast<int32_t>(plan.pages.size())});
  plan.pages.insert(plan.pages.end(), state->pages.begin() + state->clean_pages,
                    state->pages.end());
  if (windows_ != nullptr) {
    for (int32_t index = state->clean_pages; index < num_pages; ++index) {
      const WindowPageId held = windows_->WindowOf(state->pages[static_cast<size_t>(index)]);
      plan.window_pages.push_back(held < 0 ? windows_->num_window_pages() : held);
    }
  }
  state->clean_pages = num_pages;
}

int64_t PlanBuilder::WindowSlot(PageId page, int64_t position) const {
  const WindowPageId held = windows_->WindowOf(page);
  MINISGL_CHECK(held >= 0, "I4: position {} is written to page {}, a hole", position, page);
  return int64_t{held} * page_size_ + position % page_size_;
}

// `end`: position after the last token that the row scores.
void PlanBuilder::AddScored(const RequestState& state, int32_t count, int64_t end) {
  BatchPlan& plan = *plan_;
  if (count == 0 && plan.num_scored.empty()) return;
  plan.num_scored.resize(plan.table_row.size());
  if (count == 0) return;
  plan.num_scored.back() = count;
  const auto last = state.tokens.begin() + static_cast<std::ptrdiff_t>(end);
  plan.scored_ids.insert(plan.scored_ids.end(), last - count, last);
}

void PlanBuilder::AddPositions(const RequestState& state, int64_t count, int32_t token) {
  const GivenPositions& given = state.request.extras->positions;
  PlanExtras& extras = plan_->extras;
  extras.positions.push_back(
      {token, static_cast<int32_t>(count), static_cast<int32_t>(extras.rope_positions.size())});
  const int64_t end = state.launched_len + count;
  for (int64_t place = state.launched_len; place < end; ++place) {
    if (place < state.prompt_len()) {
      extras.rope_positions.push_back(given.of_prompt[static_cast<size_t>(place)]);
    } else {
      const auto position = static_cast<int32_t>(place) + given.shift;
      extras.rope_positions.push_back({position, position, position});
    }
  }
}

void PlanBuilder::AddPooling(const RequestState& state, int64_t count, int32_t token) {
  const RowExtras& row = *state.request.extras;
  const Pooling pooling = *row.pooling;
  const int64_t begin = state.launched_len;
  PoolingSpan span = {token, static_cast<int32_t>(count), pooling};
  span.begins = begin == 0;
  span.ends = begin + count == state.prompt_len();
  span.num_skipped = static_cast<int32_t>(std::clamp<int64_t>(row.pooled_from - begin, 0, count));
  if (row.second_text) {
    span.num_second =
        static_cast<int32_t>(std::clamp<int64_t>(begin + count - *row.second_text, 0, count));
  }
  if (pooling == Pooling::kLast) {  // that token alone, whatever came before
    if (!span.ends) return;
    span = {token + static_cast<int32_t>(count) - 1, 1, pooling, true, true};
  }
  plan_->extras.pooling.push_back(span);
}

void PlanBuilder::AddExtras(const RequestState& state, int64_t count, int32_t token) {
  const RowExtras& row = *state.request.extras;
  PlanExtras& extras = plan_->extras;
  const int64_t begin = state.launched_len, end = begin + count;
  for (const ReplacedEmbeddings& run : row.embeddings) {
    const int64_t from = std::max(begin, run.token), to = std::min(end, run.token + run.count);
    if (from >= to) continue;
    const EmbeddingSource source =
        row.inputs.empty() ? run.source : state.inputs[static_cast<size_t>(run.source)].source;
    extras.embeddings.push_back({token + (from - begin), static_cast<int32_t>(to - from),
                                 run.first + static_cast<int32_t>(from - run.token), source});
  }
  if (!row.positions.empty()) AddPositions(state, count, token);
  if (row.adapter != kNoAdapter) {
    extras.adapters.push_back({token, static_cast<int32_t>(count), row.adapter});
  }
  if (row.hidden && row.hidden->from < end) {
    const int64_t from = std::max(begin, row.hidden->from);
    extras.hidden.push_back(
        {token + static_cast<int32_t>(from - begin), static_cast<int32_t>(end - from)});
  }
  if (row.pooling) AddPooling(state, count, token);
}

void PlanBuilder::AddRow(RequestState* state, int64_t count, bool wants_token,
                         std::span<const TokenId> drafts, bool is_made) {
  const auto num_drafts = static_cast<int64_t>(drafts.size());
  MINISGL_CHECK(count >= 1 + num_drafts, "a row of drafts without a known token");
  BatchPlan& plan = *plan_;
  const int32_t row = state->table_row;
  const auto num_pages = static_cast<int32_t>(state->pages.size());
  MINISGL_CHECK(state->launched_len + count <= int64_t{num_pages} * page_size_,
                "a row of {} tokens past its {} pages", state->launched_len + count, num_pages);
  if (!state->in_token_pool) {
    plan.token_pool_writes.push_back({row, 0, static_cast<int32_t>(state->tokens.size()),
                                      static_cast<int32_t>(plan.tokens.size())});
    plan.tokens.insert(plan.tokens.end(), state->tokens.begin(), state->tokens.end());
    state->in_token_pool = true;
  }
  if (num_drafts > 0) {
    plan.token_pool_writes.push_back(
        {row, static_cast<int32_t>(state->launched_len + count - num_drafts),
         static_cast<int32_t>(num_drafts), static_cast<int32_t>(plan.tokens.size())});
    plan.tokens.insert(plan.tokens.end(), drafts.begin(), drafts.end());
  }
  WritePageTable(state);
  for (int64_t position = state->launched_len; position < state->launched_len + count; ++position) {
    const PageId page = state->pages[static_cast<size_t>(position / page_size_)];
    plan.positions.push_back(static_cast<int32_t>(position));
    plan.slots.push_back(int64_t{page} * page_size_ + position % page_size_);
    if (windows_ != nullptr) plan.window_slots.push_back(WindowSlot(page, position));
  }
  if (state->request.extras != nullptr) AddExtras(*state, count, plan.row_begin.back());
  states_->AddSegments(state, count, num_drafts,
                       wants_token && state->request.constraint != nullptr, plan.num_rows(),
                       &plan.state_segments);
  const bool needs_masks =
      is_made ? state->request.constraint != nullptr
              : NeedsMasks(*state, state->launched_len + count - num_drafts, drafts);
  const bool is_masked = wants_token && needs_masks;
  const int32_t num_scored = state->NumScored(count);
  const int64_t scored_end = state->launched_len + count + (wants_token ? 0 : 1);
  state->launched_len += count;
  if (wants_token) state->device_len = state->launched_len + 1;
  ++state->in_flight;
  rows_.push_back(state);

  plan.table_row.push_back(row);
  plan.row_begin.push_back(static_cast<int32_t>(plan.positions.size()));
  plan.kv_len.push_back(static_cast<int32_t>(state->launched_len));
  plan.wants_token.push_back(wants_token ? 1 : 0);
  plan.num_drafts.push_back(static_cast<int32_t>(num_drafts));
  if (!plan.makes_drafts.empty()) plan.makes_drafts.push_back(0);
  AddScored(*state, num_scored, scored_end);
  if (is_masked) {
    plan.is_masked.resize(plan.table_row.size());
    plan.is_masked.back() = 1;
  } else if (plan.has_masks()) {
    plan.is_masked.push_back(0);
  }
  plan.prompt_len.push_back(static_cast<int32_t>(state->prompt_len()));
  plan.sampling.push_back(&state->request.sampling);
}

void PlanBuilder::FeedDrafter(bool makes_drafts) {
  BatchPlan& plan = *plan_;
  const int row = plan.num_rows() - 1;
  plan.extras.hidden.push_back({plan.row_begin[static_cast<size_t>(row)], plan.extend_len(row)});
  if (!makes_drafts && plan.makes_drafts.empty()) return;
  plan.makes_drafts.resize(plan.table_row.size());
  plan.makes_drafts.back() = makes_drafts ? 1 : 0;
}

}  // namespace minisgl::sched
