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
  return config.is_prediction_layer() ? config.hidden_size : 0;
}

// Rows that draft in a step, at most.
int32_t DraftRows(const ModelConfig& config, const EngineLimits& limits) {
  return static_cast<int32_t>(
      DrafterRows(config, limits.max_running_requests, limits.max_step_drafts));
}

// An upper bound on the bytes that a step's passes read: of each token that they read its position,
// the state before it and what is kept of it, of each row three numbers, and likewise of drafts.
size_t ListBytes(const EngineLimits& limits) {
  const auto tokens = static_cast<size_t>(limits.max_step_tokens);
  const auto rows = static_cast<size_t>(limits.max_running_requests) + 1;
  const auto drafts = static_cast<size_t>(limits.max_step_drafts);
  const size_t arrays = 8 + 2 * drafts;  // of two a draft, at most
  return tokens * (2 * sizeof(int32_t) + sizeof(KeptState)) + rows * 5 * sizeof(int32_t) +
         drafts * 2 * sizeof(int32_t) + arrays * kListAlignment;
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
  const uint64_t of_rows =
      static_cast<uint64_t>(DraftRows(config, limits)) * (sizeof(int32_t) + sizeof(DeviceSampling));
  return CheckedAdd(*of_states, static_cast<uint64_t>(limits.max_in_flight) * of_step + of_rows +
                                    tokens * (3 * sizeof(int32_t) + sizeof(int64_t)) + 4);
}

std::optional<uint64_t> DeviceDrafter::PageBytes(const ModelConfig& config, DType dtype) {
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
  const uint64_t rows =
      static_cast<uint64_t>(num_pages) + 2 + static_cast<uint64_t>(limits_.max_step_tokens);
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
  step->feed = {};
  step->num_kept = 0;
  if (plan.extras.hidden.empty()) return;
  list_.clear();
  ListDrafts(plan, step);
  ListFeed(plan, step);
  MINISGL_CHECK(list_.size() <= ListBytes(limits_), "step {}: {} bytes of drafts", plan.step,
                list_.size());
  std::memcpy(step->meta.get(), list_.data(), list_.size());
  ops_->CopyToDevice(step->device_meta.data(), step->meta.get(), list_.size());
}

// The rows with most drafts come first, so that those of each pass are the first of the one before.
void DeviceDrafter::ListDrafts(const BatchPlan& plan, DraftStep* step) {
  std::vector<int32_t> rows;
  for (int32_t row = 0; row < plan.num_rows(); ++row) {
    if (plan.makes_drafts_of(row)) rows.push_back(row);
  }
  if (rows.empty()) return;
  const auto count_of = [&](int32_t row) { return plan.num_drafts[static_cast<size_t>(row)]; };
  std::vector<int32_t> order = rows;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return count_of(a) > count_of(b); });
  for (const int32_t row : rows) {
    if (!plan.masked(row)) continue;
    const auto at = std::find(order.begin(), order.end(), row) - order.begin();
    step->masked.push_back({static_cast<int32_t>(at), count_of(row)});
  }
  std::vector<int32_t> table_row, places, before;
  for (const int32_t row : order) {
    const int32_t place = plan.kv_len[static_cast<size_t>(row)] - count_of(row) - 1;
    MINISGL_CHECK(place > 0, "step {}: drafts behind the first token", plan.step);
    table_row.push_back(plan.table_row[static_cast<size_t>(row)]);
    places.push_back(place);
    if (width_ > 0) before.push_back(RowBefore(table_row.back(), place));
  }
  const size_t table_rows = Append(table_row), befores = Append(before);
  int32_t first = 0;
  for (int32_t index = 0; index < count_of(order[0]); ++index) {
    DraftPass pass = {.table_row = table_rows, .before = befores, .first = first};
    while (pass.num_rows < std::ssize(order) &&
           count_of(order[static_cast<size_t>(pass.num_rows)]) > index) {
      ++pass.num_rows;
    }
    pass.num_tokens = pass.num_rows;
    first += pass.num_rows;
    std::vector<int32_t> lengths(places.begin(), places.begin() + pass.num_rows);
    for (int32_t& length : lengths) length += index - 1;
    if (width_ > 0) pass.positions = Append(lengths);
    for (int32_t& length : lengths) length += 2;
    pass.kv_len = Append(lengths);
    step->drafts.push_back(pass);
  }
  MINISGL_CHECK(first <= limits_.max_step_drafts, "step {}: {} drafts", plan.step, first);
}

void DeviceDrafter::ListFeed(const BatchPlan& plan, DraftStep* step) {
  std::vector<int32_t> table_row, row_begin = {0}, kv_len, positions, before;
  int32_t row = 0, num_tokens = 0;
  kept_.clear();
  for (const HiddenSpan& span : plan.extras.hidden) {
    while (plan.row_begin[static_cast<size_t>(row) + 1] <= span.token) ++row;
    const int32_t end = span.token + span.count, own = plan.table_row[static_cast<size_t>(row)];
    // The row of the last known token ran before the drafts.
    for (int32_t token = span.token + (plan.makes_drafts_of(row) ? 1 : 0); token < end; ++token) {
      const int32_t place = plan.positions[static_cast<size_t>(token)];
      if (width_ > 0) {
        if (place == 0) continue;
        const bool is_first = token == plan.row_begin[static_cast<size_t>(row)];
        before.push_back(is_first ? RowBefore(own, place) : RowOfToken(token - 1));
        positions.push_back(place - 1);
      }
      ++num_tokens;
    }
    if (width_ > 0) ListKept(plan, row, span.token, end);
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
  feed.before = Append(before);
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

void DeviceDrafter::RunPass(const DraftStep& step, const DraftPass& pass, bool decodes) {
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
  const int32_t num_decode_rows = decodes && width_ == 0 ? pass.num_rows : 0;
  for (const PlannedHeads& planned : heads_) {
    ops_->PlanAttention({.row_begin = row_begin,
                         .kv_len = at(pass.kv_len),
                         .num_rows = pass.num_rows,
                         .num_decode_rows = num_decode_rows,
                         .num_tokens = pass.num_tokens,
                         .num_heads = planned.heads.num_heads,
                         .num_kv_heads = planned.heads.num_kv_heads,
                         .head_dim = planned.heads.head_dim,
                         .sliding_window = planned.window,
                         .v_head_dim = planned.heads.v_head_dim,
                         .values_in_keys = planned.heads.values_in_keys});
  }
  state_->model().RunDrafter(
      {.num_tokens = pass.num_tokens,
       .num_rows = pass.num_rows,
       .num_decode_rows = num_decode_rows,
       .token_ids = token_ids_.data(),
       .positions = width_ > 0 ? at(pass.positions) : positions_.data(),
       .slots = slots_.data(),
       .table_row = at(pass.table_row),
       .row_begin = row_begin,
       .kv_len = at(pass.kv_len),
       .states_before = width_ > 0 ? ConstActivationPtr(inputs_.ptr()) : ConstActivationPtr(),
       .first_key = width_ > 0 ? 1 : 0},
      tables);
}

// Each pass leaves its states for the next one, and its tokens in the token pool.
void DeviceDrafter::Propose(const DraftStep& step) {
  if (step.drafts.empty()) return;
  const size_t state_bytes = static_cast<size_t>(width_) * DTypeBytes(ops_->activation_dtype());
  Decoder* const drafter = state_->model().drafter();
  for (const DraftPass& pass : step.drafts) {
    if (width_ > 0 && pass.first == 0) {
      ops_->GatherRows({.x = states_.ptr(),
                        .rows = InMemory<int32_t>(step.device_meta, pass.before),
                        .out = inputs_.ptr(),
                        .num_rows = pass.num_rows,
                        .width = width_});
    }
    RunPass(step, pass, /*decodes=*/true);
    const ForwardInput wanted = {.logit_tokens = all_.data(), .num_logit_tokens = pass.num_rows};
    if (width_ > 0) {
      ops_->CopyOnDevice(inputs_.ptr().data, drafter->States(wanted).data,
                         static_cast<size_t>(pass.num_rows) * state_bytes);
    }
    DeviceToken* const sampled = step.sampled.data() + pass.first;
    ops_->SamplePlaces({.logits = drafter->Logits(wanted),
                        .num_places = pass.num_rows,
                        .vocab_size = config_.vocab_size,
                        .places = greedy_.data(),
                        .token_pool = state_->tables().token_pool,
                        .token_pool_stride = state_->tables().token_pool_stride,
                        .bias_ids = nullptr,
                        .bias_values = nullptr,
                        .banned_ids = nullptr,
                        .counts = counts_,
                        .raw_logits = raw_logits_,
                        .max_logprobs = 0,
                        .sampled = sampled,
                        .top_logprobs = nullptr});
    ops_->AcceptTokens({.table_row = InMemory<int32_t>(step.device_meta, pass.table_row),
                        .kv_len = InMemory<int32_t>(step.device_meta, pass.kv_len),
                        .place_begin = all_.data(),
                        .num_rows = pass.num_rows,
                        .sampled = sampled,
                        .token_pool = state_->tables().token_pool,
                        .token_pool_stride = state_->tables().token_pool_stride,
                        .num_accepted = accepted_.data()});
  }
  if (step.masked.empty()) return;
  const DraftPass& last = step.drafts.back();
  ops_->CopyToHost(step.host_sampled.get(), step.sampled.data(),
                   static_cast<size_t>(last.first + last.num_rows) * sizeof(DeviceToken));
  ops_->Record(step.drafted.get());
}

void DeviceDrafter::TakeStates(const BatchPlan& plan) {
  if (width_ == 0) return;
  const int32_t piece = static_cast<int32_t>(MaxPlaces(limits_));
  for (const HiddenSpan& span : plan.extras.hidden) {
    for (int32_t begin = 0; begin < span.count; begin += piece) {
      const int32_t first = span.token + begin, count = std::min(piece, span.count - begin);
      const ConstActivationPtr states =
          state_->States({.logit_tokens = all_.data() + first, .num_logit_tokens = count});
      ops_->CopyOnDevice(states_.ptr().At(RowOfToken(first) * width_).data, states.data,
                         static_cast<size_t>(count * width_) * DTypeBytes(states.dtype));
    }
  }
}

void DeviceDrafter::Feed(const DraftStep& step, const int32_t* num_accepted) {
  if (width_ > 0 && step.feed.num_tokens > 0) {
    ops_->GatherRows({.x = states_.ptr(),
                      .rows = InMemory<int32_t>(step.device_meta, step.feed.before),
                      .out = inputs_.ptr(),
                      .num_rows = step.feed.num_tokens,
                      .width = width_});
  }
  if (step.feed.num_tokens > 0) RunPass(step, step.feed, /*decodes=*/false);
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
  for (const DraftStep::Masked& row : step.masked) {
    std::vector<TokenId>& own = drafts.emplace_back();
    for (int32_t index = 0; index < row.count; ++index) {
      const DeviceToken& token = sampled[step.drafts[static_cast<size_t>(index)].first + row.row];
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
  if (drafter.is_draft_head()) {
    return BadInput("{} is no model that a device drafts with so far", drafter.architecture);
  }
  if (drafter.vocab_size > target.vocab_size) {
    return BadInput("its vocabulary of {} tokens is larger than the model's of {}",
                    drafter.vocab_size, target.vocab_size);
  }
  return Status();
}

}  // namespace minisgl
