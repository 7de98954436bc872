// See device_drafter.h.
#include "engine/device_drafter.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/device_places.h"
#include "engine/step_places.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl::engine {
namespace {

constexpr size_t kListAlignment = 16;

// Floats of a state that it reads; 0: it reads none.
int64_t DraftStateWidth(const ModelConfig& config) {
  if (config.prediction == PredictionLayer::kAssistant) return config.draft_head.target_width;
  return config.is_prediction_layer() ? config.hidden_size : 0;
}

// Rows that draft in a step, at most.
int32_t DraftRows(const ModelConfig& config, const EngineLimits& limits) {
  return static_cast<int32_t>(
      DrafterRows(config, limits.max_running_requests, limits.max_step_drafts));
}

// An upper bound on the bytes that a step's passes read: of each token that they read its position,
// the state that it reads and what is kept of it, of each row three numbers, and likewise of drafts
// and of blocks.
size_t ListBytes(const EngineLimits& limits) {
  const auto tokens = static_cast<size_t>(limits.max_step_tokens);
  const auto rows = static_cast<size_t>(limits.max_running_requests) + 1;
  const auto drafts = static_cast<size_t>(limits.max_step_drafts);
  const size_t arrays = 16 + 2 * drafts;  // of two a draft, at most
  return tokens * (4 * sizeof(int32_t) + sizeof(KeptState)) +
         rows * (8 * sizeof(int32_t) + sizeof(TokenPoolWrite)) + drafts * 4 * sizeof(int32_t) +
         arrays * kListAlignment;
}

template <typename T>
const T* InMemory(const DeviceArray<std::byte>& memory, size_t offset) {
  return reinterpret_cast<const T*>(memory.data() + offset);
}

}  // namespace

std::optional<uint64_t> DeviceDrafter::StepBytes(const EngineLimits& limits,
                                                 const ModelConfig& config, DType dtype) {
  const auto tokens = static_cast<uint64_t>(limits.max_step_tokens);
  const uint64_t states[] = {2 * tokens + 2, static_cast<uint64_t>(DraftStateWidth(config)),
                             DTypeBytes(dtype)};
  const auto of_states = CheckedProduct(states);
  if (!of_states) return std::nullopt;
  const uint64_t of_step =
      ListBytes(limits) + static_cast<uint64_t>(limits.max_step_drafts) * sizeof(DeviceToken);
  const uint64_t of_ids = config.draft_head.row_ids == nullptr
                              ? 0
                              : config.draft_head.row_ids->size() * sizeof(int32_t);
  const uint64_t of_rows = static_cast<uint64_t>(DraftRows(config, limits)) *
                               (sizeof(int32_t) + sizeof(DeviceSampling)) +
                           of_ids;
  return CheckedAdd(*of_states, static_cast<uint64_t>(limits.max_in_flight) * of_step + of_rows +
                                    tokens * (3 * sizeof(int32_t) + sizeof(int64_t)) + 4);
}

std::optional<uint64_t> DeviceDrafter::PageBytes(const ModelConfig& config, DType dtype) {
  if (config.prediction == PredictionLayer::kBlock) return 0;
  const uint64_t factors[] = {static_cast<uint64_t>(DraftStateWidth(config)), DTypeBytes(dtype)};
  return CheckedProduct(factors);
}

DeviceDrafter::DeviceDrafter(const ModelConfig& whole, StepState* state, uint32_t* counts,
                             float* raw_logits, DeviceOps* ops)
    : state_(state),
      ops_(ops),
      config_(whole),
      limits_(state->limits()),
      width_(DraftStateWidth(config_)),
      heads_(HeadsOfLayers(state->model().drafter()->config())),
      counts_(counts),
      raw_logits_(raw_logits) {}

Result<std::unique_ptr<DeviceDrafter>> DeviceDrafter::Make(const ModelList& models,
                                                           StepState* state, uint32_t* counts,
                                                           float* raw_logits, DeviceOps* ops) {
  std::unique_ptr<DeviceDrafter> drafter;
  if (models.drafter() == nullptr) return drafter;
  drafter.reset(new DeviceDrafter(*models.drafter()->layers(), state, counts, raw_logits, ops));
  MINISGL_RETURN_IF_ERROR(drafter->TakeArrays());
  return drafter;
}

Status DeviceDrafter::TakeArrays() {
  const auto tokens = static_cast<uint64_t>(limits_.max_step_tokens);
  const auto rows = static_cast<uint64_t>(DraftRows(config_, limits_));
  if (width_ > 0) {
    MINISGL_ASSIGN_OR_RETURN(inputs_,
                             ActivationArray::Make(ops_, ops_->activation_dtype(),
                                                   {tokens, static_cast<uint64_t>(width_)}));
  }
  std::vector<int32_t> all(tokens + 1);
  std::iota(all.begin(), all.end(), 0);
  MINISGL_ASSIGN_OR_RETURN(all_, Upload<int32_t>(ops_, all));
  MINISGL_ASSIGN_OR_RETURN(token_ids_, DeviceArray<int32_t>::Make(ops_, {tokens}));
  MINISGL_ASSIGN_OR_RETURN(positions_, DeviceArray<int32_t>::Make(ops_, {tokens}));
  MINISGL_ASSIGN_OR_RETURN(slots_, DeviceArray<int64_t>::Make(ops_, {tokens}));
  MINISGL_ASSIGN_OR_RETURN(accepted_, DeviceArray<int32_t>::Make(ops_, {rows}));
  const std::vector<DeviceSampling> greedy(rows, NeutralSampling(limits_.max_running_requests));
  MINISGL_ASSIGN_OR_RETURN(greedy_, Upload<DeviceSampling>(ops_, greedy));
  if (config_.draft_head.row_ids != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(row_ids_, Upload<int32_t>(ops_, *config_.draft_head.row_ids));
  }
  const int64_t pages = state_->tables().page_table_stride;
  page_table_.resize(static_cast<size_t>((limits_.max_running_requests + 1) * pages));
  return Status();
}

Result<DraftStep> DeviceDrafter::MakeStep() const {
  DraftStep step;
  const size_t num_bytes = ListBytes(limits_);
  const auto drafts = static_cast<uint64_t>(std::max(limits_.max_step_drafts, 1));
  MINISGL_ASSIGN_OR_RETURN(step.meta, ops_->AllocateHost(num_bytes));
  MINISGL_ASSIGN_OR_RETURN(step.device_meta, DeviceArray<std::byte>::Make(ops_, {num_bytes}));
  MINISGL_ASSIGN_OR_RETURN(step.sampled, DeviceArray<DeviceToken>::Make(ops_, {drafts}));
  MINISGL_ASSIGN_OR_RETURN(step.host_sampled, ops_->AllocateHost(drafts * sizeof(DeviceToken)));
  MINISGL_ASSIGN_OR_RETURN(step.drafted, ops_->MakeEvent());
  return step;
}

// All zero at first, as the row of zeros stays.
Status DeviceDrafter::TakePages(int32_t num_pages) {
  num_pages_ = num_pages;
  is_loaded_.assign(static_cast<size_t>(num_pages) + 1, 0);
  if (width_ == 0) return Status();
  states_ = ActivationArray();
  const auto rows = static_cast<uint64_t>(RowOfToken(limits_.max_step_tokens));
  MINISGL_ASSIGN_OR_RETURN(states_, ActivationArray::Make(ops_, ops_->activation_dtype(),
                                                          {rows, static_cast<uint64_t>(width_)}));
  return Status();
}

template <typename T>
size_t DeviceDrafter::Append(const std::vector<T>& values) {
  const size_t at = CeilDiv(list_.size(), kListAlignment) * kListAlignment;
  list_.resize(at + values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(list_.data() + at, values.data(), values.size() * sizeof(T));
  return at;
}

int32_t DeviceDrafter::RowBefore(int32_t table_row, int32_t place) const {
  const int64_t entry =
      table_row * state_->tables().page_table_stride + (place - 1) / limits_.page_size;
  const int32_t page = page_table_[static_cast<size_t>(entry)];
  return is_loaded_[static_cast<size_t>(page)] != 0 ? RowOfZeros() : page;
}

void DeviceDrafter::List(const BatchPlan& plan, DraftStep* step) {
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
  step->drafts.clear();
  step->masked.clear();
  step->num_sampled = 0;
  step->blocks = {};
  step->feed = {};
  step->num_kept = 0;
  if (plan.extras.hidden.empty()) return;
  list_.clear();
  std::vector<int32_t> rows;
  for (int32_t row = 0; row < plan.num_rows(); ++row) {
    if (!plan.makes_drafts_of(row)) continue;
    const auto at = static_cast<size_t>(row);
    MINISGL_CHECK(plan.kv_len[at] - plan.num_drafts[at] > 1, "step {}: drafts behind no token",
                  plan.step);
    rows.push_back(row);
  }
  if (!rows.empty()) is_block() ? ListBlocks(plan, rows, step) : ListDrafts(plan, rows, step);
  MINISGL_CHECK(step->num_sampled <= limits_.max_step_drafts, "step {}: {} drafts", plan.step,
                step->num_sampled);
  ListFeed(plan, step);
  MINISGL_CHECK(list_.size() <= ListBytes(limits_), "step {}: {} bytes of drafts", plan.step,
                list_.size());
  std::memcpy(step->meta.get(), list_.data(), list_.size());
  ops_->CopyToDevice(step->device_meta.data(), step->meta.get(), list_.size());
}

// Sorts the rows by their number of drafts, the largest first. A pass then has the first rows of
// the pass before it.
void DeviceDrafter::ListDrafts(const BatchPlan& plan, const std::vector<int32_t>& rows,
                               DraftStep* step) {
  const auto count_of = [&](int32_t row) { return plan.num_drafts[static_cast<size_t>(row)]; };
  std::vector<int32_t> order = rows;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return count_of(a) > count_of(b); });
  std::vector<int32_t> table_row, places, states;
  for (const int32_t row : order) {
    table_row.push_back(plan.table_row[static_cast<size_t>(row)]);
    places.push_back(plan.kv_len[static_cast<size_t>(row)] - count_of(row) - 1);
    if (reads_before()) states.push_back(RowBefore(table_row.back(), places.back()));
  }
  const size_t table_rows = Append(table_row), own_states = Append(states);
  for (int32_t index = 0; index < count_of(order[0]); ++index) {
    DraftPass pass = {.table_row = table_rows, .states = own_states, .first = step->num_sampled};
    while (pass.num_rows < std::ssize(order) &&
           count_of(order[static_cast<size_t>(pass.num_rows)]) > index) {
      ++pass.num_rows;
    }
    pass.num_tokens = pass.num_rows;
    step->num_sampled += pass.num_rows;
    std::vector<int32_t> numbers(places.begin(), places.begin() + pass.num_rows);
    // An assistant stays where the last known token is, and reads the keys before it.
    if (is_assistant()) pass.num_seen = pass.positions = Append(numbers);
    for (int32_t& number : numbers) number += index - 1;
    if (stands_before()) pass.positions = Append(numbers);
    for (int32_t& number : numbers) number += 2;
    pass.kv_len = pass.key_end = Append(numbers);
    step->drafts.push_back(pass);
  }
  for (const int32_t row : rows) {
    if (!plan.masked(row)) continue;
    const auto at = std::find(order.begin(), order.end(), row) - order.begin();
    std::vector<int32_t>& sampled = step->masked.emplace_back();
    for (int32_t index = 0; index < count_of(row); ++index) {
      sampled.push_back(step->drafts[static_cast<size_t>(index)].first + static_cast<int32_t>(at));
    }
  }
}

// Each place of a block after the first predicts its own token, and sees the whole block.
void DeviceDrafter::ListBlocks(const BatchPlan& plan, const std::vector<int32_t>& rows,
                               DraftStep* step) {
  std::vector<int32_t> table_row, row_begin = {0}, kv_len, key_end;
  std::vector<int32_t> masks, mask_row, mask_place, ids;
  std::vector<TokenPoolWrite> writes;
  for (const int32_t row : rows) {
    const auto at = static_cast<size_t>(row);
    const int32_t count = plan.num_drafts[at], end = plan.kv_len[at], own = plan.table_row[at];
    std::vector<int32_t> sampled;
    writes.push_back({own, end - count, count, static_cast<int32_t>(ids.size())});
    ids.resize(ids.size() + static_cast<size_t>(count), config_.draft_head.mask_id);
    for (int32_t place = end - count; place < end; ++place) {
      sampled.push_back(static_cast<int32_t>(masks.size()));
      masks.push_back(static_cast<int32_t>(key_end.size()) + 1 + place - (end - count));
      mask_row.push_back(own);
      mask_place.push_back(place);
    }
    key_end.resize(key_end.size() + static_cast<size_t>(count) + 1, end);
    table_row.push_back(own);
    row_begin.push_back(static_cast<int32_t>(key_end.size()));
    kv_len.push_back(end);
    if (plan.masked(row)) step->masked.push_back(std::move(sampled));
  }
  DraftPass pass = {.num_rows = static_cast<int32_t>(rows.size()),
                    .num_tokens = static_cast<int32_t>(key_end.size())};
  pass.table_row = Append(table_row);
  pass.row_begin = Append(row_begin);
  pass.kv_len = Append(kv_len);
  DraftBlocks& blocks = step->blocks;
  blocks = {.num_drafts = static_cast<int32_t>(masks.size()),
            .num_writes = static_cast<int32_t>(writes.size())};
  blocks.key_end = Append(key_end);
  blocks.masks = Append(masks);
  blocks.table_row = Append(mask_row);
  blocks.kv_len = Append(mask_place);
  blocks.writes = Append(writes);
  blocks.ids = Append(ids);
  step->num_sampled = blocks.num_drafts;
  step->drafts.push_back(pass);
}

void DeviceDrafter::ListFeed(const BatchPlan& plan, DraftStep* step) {
  std::vector<int32_t> table_row, row_begin = {0}, kv_len, positions, states;
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
      if (is_block()) states.push_back(RowOfToken(token));
      if (reads_before()) {
        if (place == 0) continue;
        const bool is_first = token == plan.row_begin[static_cast<size_t>(row)];
        states.push_back(is_first ? RowBefore(own, place) : RowOfToken(token - 1));
        positions.push_back(place - 1);
      }
      ++num_tokens;
    }
    if (reads_before()) ListKept(plan, row, span.token, end);
    if (num_tokens == row_begin.back()) continue;
    table_row.push_back(own);
    row_begin.push_back(num_tokens);
    kv_len.push_back(plan.positions[static_cast<size_t>(end) - 1] + 1);
  }
  DraftPass& feed = step->feed;
  feed = {.num_rows = static_cast<int32_t>(table_row.size()), .num_tokens = num_tokens};
  feed.table_row = Append(table_row);
  feed.row_begin = Append(row_begin);
  feed.kv_len = Append(kv_len);
  feed.positions = Append(positions);
  for (int32_t& position : positions) position += 2;  // what a token at the next place sees
  feed.key_end = Append(positions);
  feed.states = Append(states);
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

void DeviceDrafter::GatherStates(const DraftStep& step, const DraftPass& pass) {
  ops_->GatherRows({.x = states_.ptr(),
                    .rows = InMemory<int32_t>(step.device_meta, pass.states),
                    .out = inputs_.ptr(),
                    .num_rows = pass.num_tokens,
                    .width = width_});
}

ForwardInput DeviceDrafter::Prepare(const DraftStep& step, const DraftPass& pass, bool decodes) {
  const auto at = [&](size_t offset) { return InMemory<int32_t>(step.device_meta, offset); };
  const int32_t* const row_begin = pass.row_begin == kOwnRows ? all_.data() : at(pass.row_begin);
  const StepTables& tables = state_->tables();
  ops_->PrepareTokens({.table_row = at(pass.table_row),
                       .row_begin = row_begin,
                       .kv_len = at(pass.kv_len),
                       .num_rows = pass.num_rows,
                       .num_tokens = pass.num_tokens,
                       .page_table = tables.page_table,
                       .page_table_stride = tables.page_table_stride,
                       .page_size = limits_.page_size,
                       .token_pool = tables.token_pool,
                       .token_pool_stride = tables.token_pool_stride,
                       .token_ids = token_ids_.data(),
                       .positions = positions_.data(),
                       .slots = slots_.data()});
  return {.num_tokens = pass.num_tokens,
          .num_rows = pass.num_rows,
          .num_decode_rows = decodes && !stands_before() ? pass.num_rows : 0,
          .token_ids = token_ids_.data(),
          .positions = reads_before() ? at(pass.positions) : positions_.data(),
          .slots = slots_.data(),
          .table_row = at(pass.table_row),
          .row_begin = row_begin,
          .kv_len = at(is_assistant() ? pass.num_seen : pass.kv_len),
          .key_end = stands_before() ? at(pass.key_end) : nullptr,
          .states_before = width_ > 0 ? ConstActivationPtr(inputs_.ptr()) : ConstActivationPtr(),
          .first_key = stands_before() ? 1 : 0};
}

void DeviceDrafter::PlanAttention(const ForwardInput& input) {
  for (const PlannedHeads& planned : heads_) {
    ops_->PlanAttention({.row_begin = input.row_begin,
                         .kv_len = input.kv_len,
                         .num_rows = input.num_rows,
                         .num_decode_rows = input.num_decode_rows,
                         .num_tokens = input.num_tokens,
                         .num_heads = planned.heads.num_heads,
                         .num_kv_heads = planned.heads.num_kv_heads,
                         .head_dim = planned.heads.head_dim,
                         .sliding_window = planned.window,
                         .v_head_dim = planned.heads.v_head_dim,
                         .values_in_keys = planned.heads.values_in_keys});
  }
}

void DeviceDrafter::Choose(float* logits, int32_t count, const int32_t* table_row,
                           const int32_t* kv_len, DeviceToken* sampled) {
  const StepTables& tables = state_->tables();
  ops_->SamplePlaces({.logits = logits,
                      .num_places = count,
                      .vocab_size = config_.vocab_size,
                      .places = greedy_.data(),
                      .token_pool = tables.token_pool,
                      .token_pool_stride = tables.token_pool_stride,
                      .bias_ids = nullptr,
                      .bias_values = nullptr,
                      .banned_ids = nullptr,
                      .counts = counts_,
                      .raw_logits = raw_logits_,
                      .max_logprobs = 0,
                      .sampled = sampled,
                      .top_logprobs = nullptr});
  if (row_ids_.data() != nullptr) ops_->MapTokens({sampled, count, row_ids_.data()});
  ops_->AcceptTokens({.table_row = table_row,
                      .kv_len = kv_len,
                      .place_begin = all_.data(),
                      .num_rows = count,
                      .sampled = sampled,
                      .token_pool = tables.token_pool,
                      .token_pool_stride = tables.token_pool_stride,
                      .num_accepted = accepted_.data()});
}

void DeviceDrafter::ProposeBlocks(const DraftStep& step) {
  const DraftBlocks& blocks = step.blocks;
  const auto at = [&](size_t offset) { return InMemory<int32_t>(step.device_meta, offset); };
  const StepTables& tables = state_->tables();
  ops_->ApplyPlanWrites(
      {.page_table_writes = nullptr,
       .pages = nullptr,
       .token_pool_writes = InMemory<TokenPoolWrite>(step.device_meta, blocks.writes),
       .tokens = at(blocks.ids),
       .num_page_table_writes = 0,
       .num_token_pool_writes = blocks.num_writes,
       .page_table = tables.page_table,
       .page_table_stride = tables.page_table_stride,
       .token_pool = tables.token_pool,
       .token_pool_stride = tables.token_pool_stride});
  ForwardInput input = Prepare(step, step.drafts[0], /*decodes=*/false);
  input.key_end = at(blocks.key_end);
  PlanAttention(input);
  state_->model().RunDrafter(input, tables);
  float* const logits = state_->model().drafter()->Logits(
      {.logit_tokens = at(blocks.masks), .num_logit_tokens = blocks.num_drafts});
  Choose(logits, blocks.num_drafts, at(blocks.table_row), at(blocks.kv_len), step.sampled.data());
}

// Each pass leaves its states for the next one, and its tokens in the token pool.
void DeviceDrafter::ProposeInTurn(const DraftStep& step) {
  const size_t state_bytes = static_cast<size_t>(width_) * DTypeBytes(ops_->activation_dtype());
  Decoder* const drafter = state_->model().drafter();
  for (const DraftPass& pass : step.drafts) {
    if (reads_before() && pass.first == 0) GatherStates(step, pass);
    const ForwardInput input = Prepare(step, pass, /*decodes=*/true);
    PlanAttention(input);
    state_->model().RunDrafter(input, state_->tables());
    const ForwardInput wanted = {.logit_tokens = all_.data(), .num_logit_tokens = pass.num_rows};
    if (reads_before()) {
      ops_->CopyOnDevice(inputs_.ptr().data, drafter->States(wanted).data,
                         static_cast<size_t>(pass.num_rows) * state_bytes);
    }
    Choose(drafter->Logits(wanted), pass.num_rows, input.table_row,
           InMemory<int32_t>(step.device_meta, pass.kv_len), step.sampled.data() + pass.first);
  }
}

void DeviceDrafter::Propose(const DraftStep& step) {
  if (step.drafts.empty()) return;
  is_block() ? ProposeBlocks(step) : ProposeInTurn(step);
  if (step.masked.empty()) return;
  ops_->CopyToHost(step.host_sampled.get(), step.sampled.data(),
                   static_cast<size_t>(step.num_sampled) * sizeof(DeviceToken));
  ops_->Record(step.drafted.get());
}

void DeviceDrafter::TakeStates(const BatchPlan& plan) {
  if (width_ == 0) return;
  const auto take = [&](ConstActivationPtr states, int32_t first, int32_t count) {
    ops_->CopyOnDevice(states_.ptr().At(RowOfToken(first) * width_).data, states.data,
                       static_cast<size_t>(count * width_) * DTypeBytes(states.dtype));
  };
  const auto piece = static_cast<int32_t>(MaxPlaces(limits_));
  for (const HiddenSpan& span : plan.extras.hidden) {
    if (config_.is_draft_head() && !is_assistant()) {
      take(state_->model().MixedStates(span.token, span.count), span.token, span.count);
      continue;
    }
    for (int32_t begin = 0; begin < span.count; begin += piece) {
      const int32_t first = span.token + begin, count = std::min(piece, span.count - begin);
      take(state_->States({.logit_tokens = all_.data() + first, .num_logit_tokens = count}), first,
           count);
    }
  }
}

void DeviceDrafter::Feed(const DraftStep& step, const int32_t* num_accepted) {
  if (step.feed.num_tokens > 0) {
    if (width_ > 0) GatherStates(step, step.feed);
    const ForwardInput input = Prepare(step, step.feed, /*decodes=*/false);
    if (is_block()) {
      state_->model().WriteDrafterKeys(input, state_->tables());
    } else {
      PlanAttention(input);
      state_->model().RunDrafter(input, state_->tables());
    }
  }
  if (step.num_kept == 0) return;
  ops_->KeepStates({.states = states_.ptr(),
                    .width = width_,
                    .items = InMemory<KeptState>(step.device_meta, step.kept),
                    .num_items = step.num_kept,
                    .num_accepted = num_accepted});
}

// A place without a token has left the pool as the plan wrote it.
Result<std::vector<std::vector<TokenId>>> DeviceDrafter::WaitForDrafts(
    const DraftStep& step) const {
  std::vector<std::vector<TokenId>> drafts;
  if (step.masked.empty()) return drafts;
  MINISGL_RETURN_IF_ERROR(ops_->Wait(step.drafted.get()));
  const auto* const sampled = static_cast<const DeviceToken*>(step.host_sampled.get());
  for (const std::vector<int32_t>& row : step.masked) {
    std::vector<TokenId>& own = drafts.emplace_back();
    for (const int32_t index : row) {
      const DeviceToken& token = sampled[index];
      const bool is_token = token.outcome == static_cast<int32_t>(RowResult::Outcome::kToken);
      own.push_back(is_token ? token.token : 0);
    }
  }
  return drafts;
}

void DeviceDrafter::TakeLoaded(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    if (page != kNoPage) is_loaded_[static_cast<size_t>(page)] = 1;
  }
}

}  // namespace minisgl::engine

namespace minisgl {

Status CheckDeviceDrafts(const ModelConfig& drafter, const ModelConfig& target) {
  if (drafter.draft_head.num_clusters > 0) {
    return BadInput("no device drafts by clusters of tokens, as {} does", drafter.architecture);
  }
  if (drafter.vocab_size > target.vocab_size) {
    return BadInput("its vocabulary of {} tokens is larger than the model's of {}",
                    drafter.vocab_size, target.vocab_size);
  }
  return Status();
}

}  // namespace minisgl
