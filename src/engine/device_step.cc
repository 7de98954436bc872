// See device_step.h.
#include "engine/device_step.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "minisgl/base/checked_math.h"

namespace minisgl::engine {
namespace {

// Room behind the front for the writes of most steps: 8,192 tokens and their pages many times over.
constexpr size_t kTailBytes = size_t{256} << 10;

// Doubles beyond float's range are still what they were meant to be: very hot or very cold.
float ToFloatInRange(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

// A temperature above zero stays above zero: zero means greedy.
float ToTemperature(double value) {
  if (!(value > 0)) return 0;
  return std::max(ToFloatInRange(value), std::numeric_limits<float>::min());
}

template <typename T>
void CopyTo(std::byte* to, const std::vector<T>& from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof(T));
}

template <typename T>
T* At(std::byte* memory, size_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}

DeviceSampling Neutral(int32_t table_row) {
  DeviceSampling sampling = {};
  sampling.top_p = 1;
  sampling.repetition_penalty = 1;
  sampling.table_row = table_row;
  sampling.prompt_len = 1;
  sampling.history_len = 1;
  sampling.num_logprobs = -1;
  return sampling;
}

}  // namespace

Result<std::unique_ptr<DeviceStep>> DeviceStep::Make(const ModelConfig& config,
                                                     const Checkpoint& checkpoint,
                                                     const WeightFormat& weight_format,
                                                     const EngineLimits& limits, DeviceOps* ops) {
  std::unique_ptr<DeviceStep> step(new DeviceStep(limits));
  step->config_ = config;
  step->ops_ = ops;
  step->pages_per_row_ = CeilDiv<int64_t>(limits.max_seq_len, limits.page_size);
  step->grouper_ =
      std::make_unique<PrefixGrouper>(limits.max_running_requests + 1, limits.page_size);
  MINISGL_RETURN_IF_ERROR(ops->Reserve({.max_rows = limits.max_running_requests,
                                        .max_tokens = limits.max_step_tokens,
                                        .max_seq_len = limits.max_seq_len,
                                        .num_heads = config.num_heads,
                                        .num_kv_heads = config.num_kv_heads,
                                        .head_dim = config.head_dim,
                                        .num_experts = config.experts.num_experts,
                                        .num_chosen = config.experts.num_chosen}));
  const DecoderOptions options{.weight_format = weight_format,
                               .activation_dtype = ops->activation_dtype(),
                               .max_step_tokens = limits.max_step_tokens,
                               .max_logit_rows = step->layout_.max_places,
                               .max_seq_len = limits.max_seq_len};
  MINISGL_ASSIGN_OR_RETURN(step->decoder_, Decoder::Load(config, checkpoint, options, ops));
  MINISGL_RETURN_IF_ERROR(step->TakeTables());
  MINISGL_RETURN_IF_ERROR(step->TakeArrays());
  return step;
}

Status DeviceStep::TakeTables() {
  const auto rows = static_cast<uint64_t>(limits_.max_running_requests) + 1;
  MINISGL_ASSIGN_OR_RETURN(
      page_table_, DeviceArray<int32_t>::Make(ops_, {rows, static_cast<uint64_t>(pages_per_row_)}));
  if (has_windows_) {
    MINISGL_ASSIGN_OR_RETURN(
        window_table_,
        DeviceArray<int32_t>::Make(ops_, {rows, static_cast<uint64_t>(pages_per_row_)}));
  }
  MINISGL_ASSIGN_OR_RETURN(
      token_pool_,
      DeviceArray<int32_t>::Make(ops_, {rows, static_cast<uint64_t>(limits_.max_seq_len)}));
  return Status();
}

Status DeviceStep::TakeArrays() {
  const auto tokens = static_cast<uint64_t>(limits_.max_step_tokens);
  const auto places = static_cast<uint64_t>(layout_.max_places);
  const auto vocab = static_cast<uint64_t>(limits_.vocab_size);
  MINISGL_ASSIGN_OR_RETURN(meta_,
                           DeviceArray<std::byte>::Make(ops_, {layout_.front_bytes + kTailBytes}));
  MINISGL_ASSIGN_OR_RETURN(results_, DeviceArray<std::byte>::Make(ops_, {result_layout_.bytes}));
  MINISGL_ASSIGN_OR_RETURN(token_ids_, DeviceArray<int32_t>::Make(ops_, {tokens}));
  MINISGL_ASSIGN_OR_RETURN(positions_, DeviceArray<int32_t>::Make(ops_, {tokens}));
  MINISGL_ASSIGN_OR_RETURN(slots_, DeviceArray<int64_t>::Make(ops_, {tokens}));
  if (has_windows_) {
    MINISGL_ASSIGN_OR_RETURN(window_slots_, DeviceArray<int64_t>::Make(ops_, {tokens}));
  }
  MINISGL_ASSIGN_OR_RETURN(counts_, DeviceArray<uint32_t>::Make(ops_, {places, vocab}));
  MINISGL_ASSIGN_OR_RETURN(raw_logits_, DeviceArray<float>::Make(ops_, {places, vocab}));
  return Status();
}

std::optional<uint64_t> DeviceStepBytes(const EngineLimits& limits, bool has_windows) {
  const StepLayout layout(limits);
  const ResultLayout results(layout);
  const auto tokens = static_cast<uint64_t>(limits.max_step_tokens);
  const uint64_t vocab_factors[] = {static_cast<uint64_t>(layout.max_places),
                                    static_cast<uint64_t>(limits.vocab_size), 8};
  const auto vocab = CheckedProduct(vocab_factors);
  if (!vocab) return std::nullopt;
  const auto in_flight = static_cast<uint64_t>(limits.max_in_flight);
  return CheckedAdd(*vocab, tokens * (has_windows ? 24 : 16) + layout.front_bytes + kTailBytes +
                                results.bytes * (1 + in_flight));
}

// The padding row reads and writes the dummy page alone.
Status DeviceStep::FillDummyRow(const DeviceArray<int32_t>& table, int32_t dummy_page) {
  const std::vector<int32_t> row(static_cast<size_t>(pages_per_row_), dummy_page);
  return ops_->Upload(table.data() + limits_.max_running_requests * pages_per_row_, row.data(),
                      row.size() * sizeof(int32_t));
}

Status DeviceStep::TakePages(int32_t num_pages, int32_t num_window_pages) {
  kv_ = KvStorage();
  MINISGL_ASSIGN_OR_RETURN(kv_, KvStorage::Make(config_, ops_->activation_dtype(), num_pages,
                                                limits_.page_size, ops_, num_window_pages));
  limits_.num_pages = num_pages;
  limits_.num_window_pages = num_window_pages;
  if (has_windows_) MINISGL_RETURN_IF_ERROR(FillDummyRow(window_table_, num_window_pages));
  return FillDummyRow(page_table_, num_pages);
}

Result<HostStep> DeviceStep::MakeHostStep() {
  HostStep step;
  MINISGL_RETURN_IF_ERROR(GrowHost(layout_.front_bytes + kTailBytes, &step));
  MINISGL_ASSIGN_OR_RETURN(step.results, ops_->AllocateHost(result_layout_.bytes));
  MINISGL_ASSIGN_OR_RETURN(step.device_results,
                           DeviceArray<std::byte>::Make(ops_, {result_layout_.bytes}));
  MINISGL_ASSIGN_OR_RETURN(step.done, ops_->MakeEvent());
  return step;
}

Status DeviceStep::GrowHost(size_t num_bytes, HostStep* step) {
  if (num_bytes <= step->meta_bytes) return Status();
  MINISGL_ASSIGN_OR_RETURN(step->meta, ops_->AllocateHost(num_bytes));
  step->meta_bytes = num_bytes;
  return Status();
}

bool DeviceStep::IsPlainDecode(const BatchPlan& plan) const {
  const int num_rows = plan.num_rows();
  if (num_rows == 0 || plan.num_tokens() != num_rows) return false;
  size_t num_biased = 0, num_banned = 0;
  for (int row = 0; row < num_rows; ++row) {
    if (!plan.wants_token[row] || plan.num_drafts[row] != 0) return false;
    num_biased += plan.sampling[row]->logit_bias.size();
    num_banned += plan.sampling[row]->banned_until_min.size();
  }
  return num_biased <= kBiasMax && num_banned <= kBiasMax;
}

Status DeviceStep::Upload(HostStep* step, int32_t padded_rows) {
  static const BatchPlan kNoRows{.row_begin = {0}};
  const BatchPlan& plan = step->plan == nullptr ? kNoRows : *step->plan;
  adjustments_.Clear();
  FillRows(plan, step, padded_rows);
  grouper_->ApplyWrites(plan);
  FillGroups(plan, step->shape, static_cast<std::byte*>(step->meta.get()));
  const bool front = adjustments_.FitFront();
  tail_ = StepTail(plan, layout_.front_bytes, front ? 0 : std::ssize(adjustments_.bias_ids),
                   front ? 0 : std::ssize(adjustments_.banned_ids));
  if (tail_.end > step->meta_bytes) {
    // What FillRows wrote moves along.
    const std::shared_ptr<void> filled = step->meta;
    MINISGL_RETURN_IF_ERROR(GrowHost(tail_.end + tail_.end / 2, step));
    std::memcpy(step->meta.get(), filled.get(), layout_.front_bytes);
  }
  auto* const meta = static_cast<std::byte*>(step->meta.get());
  FillWrites(plan, meta);
  FillAdjustments(meta);
  step->needs_no_tail = front;

  tail_apart_ = tail_.end > layout_.front_bytes + kTailBytes;
  const size_t tail_bytes = tail_.end - layout_.front_bytes;
  if (tail_apart_ && tail_bytes > overflow_bytes_) {
    overflow_ = DeviceArray<std::byte>();
    overflow_bytes_ = 0;
    MINISGL_ASSIGN_OR_RETURN(overflow_,
                             DeviceArray<std::byte>::Make(ops_, {tail_bytes + tail_bytes / 2}));
    overflow_bytes_ = tail_bytes + tail_bytes / 2;
  }
  ops_->CopyToDevice(meta_.data(), meta, tail_apart_ ? layout_.front_bytes : tail_.end);
  if (tail_apart_) {
    ops_->CopyToDevice(overflow_.data(), meta + layout_.front_bytes, tail_bytes);
  }
  ApplyWrites(plan);
  return Status();
}

void DeviceStep::FillRows(const BatchPlan& plan, HostStep* step, int32_t padded_rows) {
  auto* const meta = static_cast<std::byte*>(step->meta.get());
  auto* const table_row = At<int32_t>(meta, layout_.table_row);
  auto* const row_begin = At<int32_t>(meta, layout_.row_begin);
  auto* const kv_len = At<int32_t>(meta, layout_.kv_len);
  auto* const place_begin = At<int32_t>(meta, layout_.place_begin);
  CopyTo(meta + layout_.table_row, plan.table_row);
  CopyTo(meta + layout_.row_begin, plan.row_begin);
  CopyTo(meta + layout_.kv_len, plan.kv_len);
  const int32_t num_rows = plan.num_rows();
  int32_t num_places = 0, num_decode_rows = 0;
  step->wants_top_logprobs = false;
  for (int32_t row = 0; row < num_rows; ++row) {
    place_begin[row] = num_places;
    if (num_decode_rows == row && plan.extend_len(row) == 1) ++num_decode_rows;
    if (!plan.wants_token[row]) continue;
    step->wants_top_logprobs |= plan.sampling[row]->num_logprobs > 0;
    for (int32_t from_end = plan.num_drafts[row]; from_end >= 0; --from_end) {
      FillPlace(plan, row, from_end, num_places++, meta);
    }
  }
  step->shape = {num_rows, num_decode_rows, plan.num_tokens(), num_places};
  for (int32_t row = num_rows; row < padded_rows; ++row) {
    table_row[row] = limits_.max_running_requests;
    row_begin[row + 1] = row_begin[row] + 1;
    kv_len[row] = 1;
    place_begin[row] = num_places;
    At<int32_t>(meta, layout_.logit_tokens)[num_places] = row_begin[row];
    At<DeviceSampling>(meta, layout_.places)[num_places] = Neutral(limits_.max_running_requests);
    ++num_places;
  }
  if (padded_rows > num_rows) step->shape = {padded_rows, padded_rows, padded_rows, padded_rows};
  place_begin[step->shape.num_rows] = num_places;
}

// Rows of padding are in no group, nor is any row of a model with a sliding window.
void DeviceStep::FillGroups(const BatchPlan& plan, const StepShape& shape, std::byte* meta) {
  const int32_t decode_rows = std::min(shape.num_decode_rows, plan.num_rows());
  const bool windows = std::any_of(config_.layers.begin(), config_.layers.end(),
                                   [](const LayerConfig& l) { return l.sliding_window > 0; });
  const int32_t rows_max = windows ? 1 : SharedRowsMax(config_.num_heads, config_.num_kv_heads);
  const PrefixGroups& groups = grouper_->Group(plan, decode_rows, rows_max);
  *At<int32_t>(meta, layout_.num_groups) = groups.num_groups();
  CopyTo(meta + layout_.group_begin, groups.group_begin);
  CopyTo(meta + layout_.group_rows, groups.rows);
  CopyTo(meta + layout_.shared_splits, groups.shared_splits);
  std::fill_n(At<int32_t>(meta, layout_.shared_splits) + decode_rows,
              shape.num_decode_rows - decode_rows, 0);
}

void DeviceStep::FillPlace(const BatchPlan& plan, int32_t row, int32_t from_end, int32_t place,
                           std::byte* meta) {
  const SamplingParams& from = *plan.sampling[row];
  const int32_t history_len = plan.kv_len[row] - from_end;
  Adjustments& adjust = adjustments_;
  DeviceSampling to = Neutral(plan.table_row[row]);
  to.seed = from.seed;
  to.temperature = ToTemperature(from.temperature);
  to.top_p = static_cast<float>(from.top_p);
  to.min_p = static_cast<float>(from.min_p);
  to.repetition_penalty = ToFloatInRange(from.repetition_penalty);
  to.presence_penalty = ToFloatInRange(from.presence_penalty);
  to.frequency_penalty = ToFloatInRange(from.frequency_penalty);
  to.top_k = from.top_k;
  to.prompt_len = plan.prompt_len[row];
  to.history_len = history_len;
  to.num_logprobs = std::min(from.num_logprobs, kTopLogprobsMax);
  to.bias_begin = static_cast<int32_t>(adjust.bias_ids.size());
  for (const auto& [id, bias] : from.logit_bias) {
    adjust.bias_ids.push_back(id);
    adjust.bias_values.push_back(bias);
  }
  to.bias_end = static_cast<int32_t>(adjust.bias_ids.size());
  to.banned_begin = static_cast<int32_t>(adjust.banned_ids.size());
  if (history_len - plan.prompt_len[row] < from.min_tokens) {
    adjust.banned_ids.insert(adjust.banned_ids.end(), from.banned_until_min.begin(),
                             from.banned_until_min.end());
  }
  to.banned_end = static_cast<int32_t>(adjust.banned_ids.size());
  At<int32_t>(meta, layout_.logit_tokens)[place] = plan.row_begin[row + 1] - 1 - from_end;
  At<DeviceSampling>(meta, layout_.places)[place] = to;
}

void DeviceStep::FillWrites(const BatchPlan& plan, std::byte* meta) {
  CopyTo(meta + tail_.page_table_writes, plan.page_table_writes);
  CopyTo(meta + tail_.pages, plan.pages);
  CopyTo(meta + tail_.window_pages, plan.window_pages);
  CopyTo(meta + tail_.token_pool_writes, plan.token_pool_writes);
  CopyTo(meta + tail_.tokens, plan.tokens);
}

void DeviceStep::FillAdjustments(std::byte* meta) {
  const bool front = adjustments_.FitFront();
  CopyTo(meta + (front ? layout_.bias_ids : tail_.bias_ids), adjustments_.bias_ids);
  CopyTo(meta + (front ? layout_.bias_values : tail_.bias_values), adjustments_.bias_values);
  CopyTo(meta + (front ? layout_.banned_ids : tail_.banned_ids), adjustments_.banned_ids);
}

void DeviceStep::ApplyWrites(const BatchPlan& plan) {
  if (plan.page_table_writes.empty() && plan.token_pool_writes.empty()) return;
  ops_->ApplyPlanWrites(
      {.page_table_writes = Meta<PageTableWrite>(tail_.page_table_writes),
       .pages = Meta<int32_t>(tail_.pages),
       .token_pool_writes = Meta<TokenPoolWrite>(tail_.token_pool_writes),
       .tokens = Meta<int32_t>(tail_.tokens),
       .num_page_table_writes = static_cast<int32_t>(plan.page_table_writes.size()),
       .num_token_pool_writes = static_cast<int32_t>(plan.token_pool_writes.size()),
       .page_table = page_table_.data(),
       .page_table_stride = pages_per_row_,
       .token_pool = token_pool_.data(),
       .token_pool_stride = limits_.max_seq_len});
  if (!has_windows_ || plan.page_table_writes.empty()) return;
  ops_->ApplyPlanWrites(
      {.page_table_writes = Meta<PageTableWrite>(tail_.page_table_writes),
       .pages = Meta<int32_t>(tail_.window_pages),
       .token_pool_writes = nullptr,
       .tokens = nullptr,
       .num_page_table_writes = static_cast<int32_t>(plan.page_table_writes.size()),
       .num_token_pool_writes = 0,
       .page_table = window_table_.data(),
       .page_table_stride = pages_per_row_,
       .token_pool = token_pool_.data(),
       .token_pool_stride = limits_.max_seq_len});
}

// Ids and positions of the step's tokens, and their slots by `table`.
void DeviceStep::PrepareTokens(const HostStep& step, const DeviceArray<int32_t>& table,
                               int64_t* slots) {
  ops_->PrepareTokens({.table_row = Meta<int32_t>(layout_.table_row),
                       .row_begin = Meta<int32_t>(layout_.row_begin),
                       .kv_len = Meta<int32_t>(layout_.kv_len),
                       .num_rows = step.shape.num_rows,
                       .num_tokens = step.shape.num_tokens,
                       .page_table = table.data(),
                       .page_table_stride = pages_per_row_,
                       .page_size = limits_.page_size,
                       .token_pool = token_pool_.data(),
                       .token_pool_stride = limits_.max_seq_len,
                       .token_ids = token_ids_.data(),
                       .positions = positions_.data(),
                       .slots = slots});
}

void DeviceStep::Run(const HostStep& step) {
  const StepShape& shape = step.shape;
  const auto* const table_row = Meta<int32_t>(layout_.table_row);
  const auto* const row_begin = Meta<int32_t>(layout_.row_begin);
  const auto* const kv_len = Meta<int32_t>(layout_.kv_len);
  PrepareTokens(step, page_table_, slots_.data());
  if (has_windows_) PrepareTokens(step, window_table_, window_slots_.data());
  ops_->PlanAttention({.row_begin = row_begin,
                       .kv_len = kv_len,
                       .num_rows = shape.num_rows,
                       .num_decode_rows = shape.num_decode_rows,
                       .num_tokens = shape.num_tokens,
                       .num_heads = config_.num_heads,
                       .num_kv_heads = config_.num_kv_heads,
                       .head_dim = config_.head_dim,
                       .shared = {.num_groups = Meta<int32_t>(layout_.num_groups),
                                  .group_begin = Meta<int32_t>(layout_.group_begin),
                                  .rows = Meta<int32_t>(layout_.group_rows),
                                  .shared_splits = Meta<int32_t>(layout_.shared_splits)}});
  float* const logits = decoder_->Forward({.num_tokens = shape.num_tokens,
                                           .num_rows = shape.num_rows,
                                           .num_decode_rows = shape.num_decode_rows,
                                           .token_ids = token_ids_.data(),
                                           .positions = positions_.data(),
                                           .slots = slots_.data(),
                                           .table_row = table_row,
                                           .row_begin = row_begin,
                                           .kv_len = kv_len,
                                           .page_table = page_table_.data(),
                                           .page_table_stride = pages_per_row_,
                                           .window_page_table = window_table_.data(),
                                           .window_slots = window_slots_.data(),
                                           .kv = kv_.layers(),
                                           .logit_tokens = Meta<int32_t>(layout_.logit_tokens),
                                           .num_logit_tokens = shape.num_places});
  if (shape.num_places == 0) return;
  const bool front = step.needs_no_tail;
  ops_->SamplePlaces({.logits = logits,
                      .num_places = shape.num_places,
                      .vocab_size = limits_.vocab_size,
                      .places = Meta<DeviceSampling>(layout_.places),
                      .token_pool = token_pool_.data(),
                      .token_pool_stride = limits_.max_seq_len,
                      .bias_ids = Meta<int32_t>(front ? layout_.bias_ids : tail_.bias_ids),
                      .bias_values = Meta<float>(front ? layout_.bias_values : tail_.bias_values),
                      .banned_ids = Meta<int32_t>(front ? layout_.banned_ids : tail_.banned_ids),
                      .counts = counts_.data(),
                      .raw_logits = raw_logits_.data(),
                      .max_logprobs = kTopLogprobsMax,
                      .sampled = InResults<DeviceToken>(result_layout_.sampled),
                      .top_logprobs = InResults<TokenLogprob>(result_layout_.top_logprobs)});
  ops_->AcceptTokens({.table_row = table_row,
                      .kv_len = kv_len,
                      .place_begin = Meta<int32_t>(layout_.place_begin),
                      .num_rows = shape.num_rows,
                      .sampled = InResults<DeviceToken>(result_layout_.sampled),
                      .token_pool = token_pool_.data(),
                      .token_pool_stride = limits_.max_seq_len,
                      .num_accepted = InResults<int32_t>(result_layout_.num_accepted)});
}

// The results move aside on the device first: the next step writes its own while these are still on
// their way to the host.
void DeviceStep::Download(HostStep* step) {
  if (step->shape.num_places > 0) {
    const size_t num_bytes =
        step->wants_top_logprobs ? result_layout_.bytes : result_layout_.front_bytes;
    ops_->CopyOnDevice(step->device_results.data(), results_.data(), num_bytes);
    ops_->CopyToHost(step->results.get(), step->device_results.data(), num_bytes);
  }
  ops_->Record(step->done.get());
}

std::vector<RowResult> DeviceStep::Results(const HostStep& step) const {
  const BatchPlan& plan = *step.plan;
  const auto* const memory = static_cast<const std::byte*>(step.results.get());
  const auto* const sampled = reinterpret_cast<const DeviceToken*>(memory + result_layout_.sampled);
  const auto* const accepted =
      reinterpret_cast<const int32_t*>(memory + result_layout_.num_accepted);
  const auto* const ranks =
      reinterpret_cast<const TokenLogprob*>(memory + result_layout_.top_logprobs);
  const auto result_of = [&](int32_t place, const SamplingParams& sampling) {
    RowResult result;
    result.outcome = static_cast<RowResult::Outcome>(sampled[place].outcome);
    result.token = sampled[place].token;
    if (sampling.num_logprobs >= 0) result.logprob = sampled[place].logprob;
    if (sampling.num_logprobs > 0) {
      const TokenLogprob* const first = ranks + int64_t{place} * kTopLogprobsMax;
      result.top_logprobs.assign(first, first + sampled[place].num_ranks);
    }
    return result;
  };
  std::vector<RowResult> rows(static_cast<size_t>(plan.num_rows()));
  int32_t place = 0;
  for (int32_t row = 0; row < plan.num_rows(); ++row) {
    if (!plan.wants_token[row]) continue;
    const SamplingParams& sampling = *plan.sampling[row];
    RowResult& result = rows[static_cast<size_t>(row)];
    result = result_of(place, sampling);
    for (int32_t i = 1; i <= accepted[row]; ++i) {
      result.more.push_back(result_of(place + i, sampling));
    }
    place += 1 + plan.num_drafts[row];
  }
  return rows;
}

}  // namespace minisgl::engine
