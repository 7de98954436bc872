// The passes of a step, listed on the host: see device_drafter.h.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/device_drafter.h"
#include "engine/draft_pictures.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::engine {

template <typename T>
size_t DeviceDrafter::Append(const std::vector<T>& values) {
  const size_t at = CeilDiv(list_.size(), kDraftListAlignment) * kDraftListAlignment;
  list_.resize(at + values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(list_.data() + at, values.data(), values.size() * sizeof(T));
  return at;
}

size_t DeviceDrafter::AppendLists(const DraftShape& shape, const DraftLists& lists) {
  const size_t at = CeilDiv(list_.size(), kDraftListAlignment) * kDraftListAlignment;
  list_.resize(at + DraftLayout(shape).bytes);
  WriteLists(lists, shape, list_.data() + at);
  return at;
}

const DraftLists& DeviceDrafter::PadForGraph(const DraftGraphSize& size, DraftLists* lists) const {
  const bool has_own_rows = size.part == DraftPart::kPropose && !is_block();
  PadLists(size.shape, has_own_rows, limits_.max_running_requests,
           reads_before() ? RowOfZeros() : 0, lists);
  return *lists;
}

// A graph chooses drafts among all tokens, unless chooses_apart().
DraftPass DeviceDrafter::AppendPass(DraftPart part, const DraftStep& step, DraftLists* lists) {
  DraftPass pass = {.shape = {.num_rows = static_cast<int32_t>(lists->table_row.size()),
                              .num_tokens = lists->row_begin.back(),
                              .num_places = static_cast<int32_t>(lists->masks.size())}};
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& graph) {
    return graph.size.part == part && graph.size.shape.num_tokens >= pass.shape.num_tokens;
  });
  const bool may_be_graph =
      part == DraftPart::kFeed ? step.placed.empty() : !step.is_guided || chooses_apart();
  if (found != graphs_.end() && pass.shape.num_tokens > 0 && may_be_graph) {
    pass.shape = found->size.shape;
    pass.graph = found->graph.get();
    pass.logits = found->logits;
    PadForGraph(found->size, lists);
  }
  pass.begin = AppendLists(pass.shape, *lists);
  return pass;
}

int32_t DeviceDrafter::RowBefore(int32_t table_row, int32_t place) const {
  const int64_t entry =
      table_row * state_->tables().page_table_stride + (place - 1) / limits_.page_size;
  const int32_t page = page_table_[static_cast<size_t>(entry)];
  return is_loaded_[static_cast<size_t>(page)] != 0 ? RowOfZeros() : page;
}

void DeviceDrafter::List(const BatchPlan& plan, std::span<const PlacedEmbeddings> placed,
                         DraftStep* step) {
  ApplyPlanWrites({.page_table_writes = plan.page_table_writes.data(),
                   .pages = plan.pages.data(),
                   .token_pool_writes = nullptr,
                   .tokens = nullptr,
                   .num_page_table_writes = static_cast<int32_t>(plan.page_table_writes.size()),
                   .num_token_pool_writes = 0,
                   .page_table = page_table_.data(),
                   .page_table_stride = state_->tables().page_table_stride,
                   .token_pool = nullptr,
                   .token_pool_stride = 0});
  step->rows.clear();
  step->drafts.clear();
  step->is_guided = false;
  step->num_writes = 0;
  step->feed = {};
  step->placed.clear();
  step->num_kept = 0;
  if (plan.extras.hidden.empty()) return;
  // A fault is the status of the operations below.
  if (std::exchange(step->is_read, false)) static_cast<void>(ops_->Wait(step->fed.get()));
  list_.clear();
  std::vector<DraftRow>& rows = step->rows;
  for (int32_t row = 0; row < plan.num_rows(); ++row) {
    if (!plan.makes_drafts_of(row)) continue;
    const auto at = static_cast<size_t>(row);
    MINISGL_CHECK(plan.kv_len[at] - plan.num_drafts[at] > 1, "step {}: drafts behind no token",
                  plan.step);
    rows.push_back({.row = row, .count = plan.num_drafts[at], .is_masked = plan.masked(row)});
    step->is_guided |= has_clusters() || plan.masked(row);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const DraftRow& a, const DraftRow& b) { return a.count > b.count; });
  const int32_t num_drafts = step->First(step->NumIndices());
  MINISGL_CHECK(num_drafts <= limits_.max_step_drafts, "step {}: {} drafts", plan.step, num_drafts);
  if (!rows.empty()) is_block() ? ListBlocks(plan, step) : ListDrafts(plan, step);
  ListFeed(plan, placed, step);
  MINISGL_CHECK(list_.size() <= DraftListBytes(limits_), "step {}: {} bytes of drafts", plan.step,
                list_.size());
  std::memcpy(step->meta.get(), list_.data(), list_.size());
  ops_->CopyToDevice(step->device_meta.data(), step->meta.get(), list_.size());
}

// A pass has the first rows of the pass before it.
void DeviceDrafter::ListDrafts(const BatchPlan& plan, DraftStep* step) {
  for (int32_t index = 0; index < step->NumIndices(); ++index) {
    DraftLists lists;
    for (const DraftRow& row : step->rows) {
      const auto at = static_cast<size_t>(row.row);
      const int32_t last = plan.kv_len[at] - row.count - 1;
      if (row.count <= index) break;
      const int32_t place = last + index;
      if (has_parts_) {
        const RopePosition position = RopePositionOf(plan, plan.row_begin[at], last);
        lists.rope.push_back(MovedPosition(position, index - 1));
      }
      lists.table_row.push_back(plan.table_row[at]);
      lists.kv_len.push_back(place + 1);
      // An assistant stays where the last known token is, and reads the keys before it.
      if (is_assistant()) lists.num_seen.push_back(last);
      if (reads_before()) lists.positions.push_back(is_assistant() ? last : place - 1);
      if (reads_before()) lists.states.push_back(RowBefore(plan.table_row[at], last));
      lists.key_end.push_back(place + 1);
      lists.row_begin.push_back(static_cast<int32_t>(lists.table_row.size()));
    }
    step->drafts.push_back(AppendPass(DraftPart::kPropose, *step, &lists));
  }
}

// Each token of a block sees the whole block. Places are listed draft by draft, each draft's in the
// order of rows.
void DeviceDrafter::ListBlocks(const BatchPlan& plan, DraftStep* step) {
  const int32_t first = config_.draft_head.predicts_next ? 0 : 1;  // token with the first draft
  DraftLists lists;
  std::vector<int32_t> ids;
  std::vector<TokenPoolWrite> writes;
  for (const DraftRow& row : step->rows) {
    const auto at = static_cast<size_t>(row.row);
    const int32_t num_masks = row.count - 1 + first, place = plan.kv_len[at] - row.count;
    const int32_t end = place + num_masks;
    writes.push_back({plan.table_row[at], place, num_masks, static_cast<int32_t>(ids.size())});
    ids.resize(ids.size() + static_cast<size_t>(num_masks), config_.draft_head.mask_id);
    lists.key_end.resize(lists.key_end.size() + static_cast<size_t>(num_masks) + 1, end);
    lists.table_row.push_back(plan.table_row[at]);
    lists.row_begin.push_back(static_cast<int32_t>(lists.key_end.size()));
    lists.kv_len.push_back(end);
  }
  for (int32_t index = 0; index < step->NumIndices(); ++index) {
    for (int32_t i = 0; i < step->NumRows(index); ++i) {
      const DraftRow& row = step->rows[static_cast<size_t>(i)];
      const auto at = static_cast<size_t>(row.row);
      lists.masks.push_back(lists.row_begin[static_cast<size_t>(i)] + first + index);
      lists.places_row.push_back(plan.table_row[at]);
      lists.places_len.push_back(plan.kv_len[at] - row.count + index);
    }
  }
  step->drafts.push_back(AppendPass(DraftPart::kPropose, *step, &lists));
  step->num_writes = static_cast<int32_t>(writes.size());
  step->writes = Append(writes);
  step->ids = Append(ids);
}

void DeviceDrafter::ListFeed(const BatchPlan& plan, std::span<const PlacedEmbeddings> placed,
                             DraftStep* step) {
  DraftLists lists;
  int32_t row = 0, num_tokens = 0;
  kept_.clear();
  for (const HiddenSpan& span : plan.extras.hidden) {
    while (plan.row_begin[static_cast<size_t>(row) + 1] <= span.token) ++row;
    const int32_t end = span.token + span.count, own = plan.table_row[static_cast<size_t>(row)];
    // The row of the last known token ran before the drafts, but in a block it has no keys that
    // stay.
    const bool has_first = !is_block() && plan.makes_drafts_of(row);
    const int32_t first = is_assistant() ? end : span.token + (has_first ? 1 : 0);
    for (int32_t token = first; token < end; ++token) {
      const int32_t place = plan.positions[static_cast<size_t>(token)];
      if (is_block()) lists.states.push_back(RowOfToken(token));
      if (reads_before()) {
        if (place == 0) continue;
        const bool is_first = token == plan.row_begin[static_cast<size_t>(row)];
        lists.states.push_back(is_first ? RowBefore(own, place) : RowOfToken(token - 1));
        lists.positions.push_back(place - 1);
        lists.key_end.push_back(place + 1);
      }
      if (has_parts_) lists.rope.push_back(MovedPosition(RopePositionOf(plan, token, place), -1));
      ++num_tokens;
    }
    if (reads_before()) ListKept(plan, row, span.token, end);
    if (num_tokens == lists.row_begin.back()) continue;
    if (IsLayer(config_.prediction)) {
      const int32_t count = num_tokens - lists.row_begin.back();
      AddPlaced(placed, config_.hidden_size, end - count, end, lists.row_begin.back(),
                &step->placed);
    }
    lists.table_row.push_back(own);
    lists.row_begin.push_back(num_tokens);
    lists.kv_len.push_back(plan.positions[static_cast<size_t>(end) - 1] + 1);
  }
  step->feed = AppendPass(DraftPart::kFeed, *step, &lists);
  step->kept = Append(kept_);
  step->num_kept = static_cast<int32_t>(kept_.size());
}

// The state behind the last token of each page. Behind the last known token are drafts, of which
// those stay that will be accepted.
void DeviceDrafter::ListKept(const BatchPlan& plan, int32_t row, int32_t begin, int32_t end) {
  const bool wants_token = plan.wants_token[static_cast<size_t>(row)] != 0;
  const int32_t num_drafts = wants_token ? plan.num_drafts[static_cast<size_t>(row)] : 0;
  const int32_t last_known = end - 1 - num_drafts;
  for (int32_t token = begin; token < end; ++token) {
    const int64_t slot = plan.slots[static_cast<size_t>(token)];
    const auto page = static_cast<int32_t>(slot / limits_.page_size);
    const bool ends_page = slot % limits_.page_size == limits_.page_size - 1;
    if (!ends_page && token < last_known) continue;
    const int32_t draft = std::max(token - last_known, 0);
    kept_.push_back({.from = RowOfToken(token),
                     .to = page,
                     .row = num_drafts == 0 ? -1 : row,
                     .least = draft,
                     .most = ends_page ? std::numeric_limits<int32_t>::max() : draft});
    is_loaded_[static_cast<size_t>(page)] = 0;
  }
}

}  // namespace minisgl::engine
