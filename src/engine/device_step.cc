// See device_step.h.
#include "engine/device_step.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "engine/device_pictures.h"
#include "engine/state_spans.h"
#include "engine/step_places.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"

namespace minisgl::engine {
namespace {

// Room after the front for the writes of most steps: several times those of 8,192 tokens.
constexpr size_t kTailBytes = size_t{256} << 10;

// Bytes of one scored token in the tail, with its results.
constexpr uint64_t kScoredTokenBytes = 2 * sizeof(int32_t) + sizeof(float) +
                                       sizeof(DeviceSampling) + sizeof(DeviceToken) +
                                       kTopLogprobsMax * sizeof(TokenLogprob);

// Bytes of a token in the tail, of models that read pictures.
constexpr uint64_t kPictureTokenBytes = sizeof(RopePosition) + sizeof(int32_t);

template <typename T>
void CopyTo(std::byte* to, const std::vector<T>& from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof(T));
}

int32_t TokensWithPadding(const BatchPlan& plan, StepPadding padding) {
  return std::max({plan.num_tokens(), padding.rows, padding.tokens});
}

template <typename T>
T* At(std::byte* memory, size_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}

}  // namespace

std::optional<uint64_t> DeviceStepBytes(const EngineLimits& limits, bool has_windows) {
  const StepLayout layout(limits);
  const ResultLayout results(layout);
  const auto tokens = static_cast<uint64_t>(limits.max_step_tokens);
  const uint64_t vocab_factors[] = {static_cast<uint64_t>(layout.max_places),
                                    static_cast<uint64_t>(limits.vocab_size), 8};
  const auto vocab = CheckedProduct(vocab_factors);
  if (!vocab) return std::nullopt;
  const auto in_flight = static_cast<uint64_t>(limits.max_in_flight);
  // Bytes of a step that scores all of its tokens, with the half more that TakeMeta takes.
  const uint64_t scored_bytes = tokens * kScoredTokenBytes * 3 / 2;
  const uint64_t picture_bytes = !ReadsPictures(limits) ? 0 : tokens * kPictureTokenBytes;
  const uint64_t step_bytes =
      layout.front_bytes + kTailBytes + picture_bytes + results.top_logprobs_bytes + scored_bytes;
  // The arrays of pictures have twice 4 bytes for each token, and a position.
  return CheckedAdd(*vocab, tokens * (has_windows ? 24 : 16) + picture_bytes * 2 +
                                layout.front_bytes + results.bytes + step_bytes * in_flight);
}

Result<std::unique_ptr<DeviceStep>> DeviceStep::Make(const ModelList& models,
                                                     const ModelFiles& files,
                                                     const MemoryPlan& plan, const Rank& rank,
                                                     DeviceOps* ops,
                                                     std::shared_ptr<Ops> host_ops) {
  MINISGL_RETURN_IF_ERROR(
      ops->Reserve(DeviceLimitsOf(models, rank, plan.limits, plan.kv_kind, plan.num_host_layers)));
  MINISGL_ASSIGN_OR_RETURN(auto model,
                           ModelState::Make(models, files, plan, rank, ops, std::move(host_ops)));
  const std::string expanded = ops->ExpandedCodesText();
  if (rank.is_first() && !expanded.empty()) Log(LogLevel::kInfo, expanded);
  MINISGL_ASSIGN_OR_RETURN(auto state, StepState::Make(RankConfig(models.target(), rank),
                                                       std::move(model), plan.limits, ops));
  std::unique_ptr<DeviceStep> step(new DeviceStep(std::move(state), ops));
  MINISGL_RETURN_IF_ERROR(step->TakeArrays());
  MINISGL_RETURN_IF_ERROR(step->TakeAdapters(models, files));
  MINISGL_RETURN_IF_ERROR(step->TakePictureArrays(models, plan, rank.count));
  MINISGL_ASSIGN_OR_RETURN(step->drafter_,
                           DeviceDrafter::Make(models, step->state_.get(), step->counts_.data(),
                                               step->raw_logits_.data(), ops));
  return step;
}

DeviceStep::DeviceStep(std::unique_ptr<StepState> state, DeviceOps* ops)
    : layout_(state->limits()),
      result_layout_(layout_),
      ops_(ops),
      state_(std::move(state)),
      grouper_(limits().max_running_requests + 1, limits().page_size) {
  const ModelConfig& config = state_->config();
  heads_ = HeadsOfLayers(config, state_->model().kv_kind());
  for (const LayerConfig& layer : config.layers) {
    groups_rows_ = groups_rows_ || layer.sliding_window == 0;
  }
}

Status DeviceStep::TakeArrays() {
  const auto tokens = static_cast<uint64_t>(limits().max_step_tokens);
  const auto places = static_cast<uint64_t>(layout_.max_places);
  const auto vocab = static_cast<uint64_t>(limits().vocab_size);
  MINISGL_ASSIGN_OR_RETURN(front_, DeviceArray<std::byte>::Make(ops_, {layout_.front_bytes}));
  MINISGL_ASSIGN_OR_RETURN(results_, DeviceArray<std::byte>::Make(ops_, {result_layout_.bytes}));
  MINISGL_ASSIGN_OR_RETURN(token_ids_, DeviceArray<int32_t>::Make(ops_, {tokens}));
  MINISGL_ASSIGN_OR_RETURN(positions_, DeviceArray<int32_t>::Make(ops_, {tokens}));
  MINISGL_ASSIGN_OR_RETURN(slots_, DeviceArray<int64_t>::Make(ops_, {tokens}));
  if (state_->has_windows()) {
    MINISGL_ASSIGN_OR_RETURN(window_slots_, DeviceArray<int64_t>::Make(ops_, {tokens}));
  }
  MINISGL_ASSIGN_OR_RETURN(counts_, DeviceArray<uint32_t>::Make(ops_, {places, vocab}));
  MINISGL_ASSIGN_OR_RETURN(raw_logits_, DeviceArray<float>::Make(ops_, {places, vocab}));
  return Status();
}

Result<InFlightStep> DeviceStep::MakeInFlightStep() {
  InFlightStep step;
  const size_t picture_bytes =
      ReadsPictures(limits()) ? static_cast<size_t>(limits().max_step_tokens) * kPictureTokenBytes
                              : 0;
  MINISGL_RETURN_IF_ERROR(TakeMeta(layout_.front_bytes + kTailBytes + picture_bytes, &step));
  MINISGL_ASSIGN_OR_RETURN(step.results, ops_->AllocateHost(result_layout_.bytes));
  MINISGL_ASSIGN_OR_RETURN(step.device_top_logprobs,
                           DeviceArray<std::byte>::Make(ops_, {result_layout_.top_logprobs_bytes}));
  MINISGL_ASSIGN_OR_RETURN(step.done, ops_->MakeEvent());
  if (drafter_ != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(step.drafts, drafter_->MakeStep());
  }
  return step;
}

bool DeviceStep::IsPlainDecode(const BatchPlan& plan) const {
  const int num_rows = plan.num_rows();
  if (num_rows == 0 || plan.num_tokens() != num_rows || plan.has_masks()) return false;
  size_t num_biased = 0, num_banned = 0;
  for (int row = 0; row < num_rows; ++row) {
    if (!plan.wants_token[row] || plan.num_drafts[row] != 0) return false;
    num_biased += plan.sampling[row]->logit_bias.size();
    num_banned += plan.sampling[row]->banned_until_min.size();
  }
  return num_biased <= kBiasMax && num_banned <= kBiasMax;
}

// Sizes first, then room for them, then the contents.
Status DeviceStep::Upload(InFlightStep* step, StepPadding padding) {
  static const BatchPlan kNoRows{.row_begin = {0}};
  const BatchPlan& plan = step->plan == nullptr ? kNoRows : *step->plan;
  places_.List(plan, padding.rows, limits().max_running_requests);
  SetShape(plan, padding, step);
  const int32_t slot_tokens = step->shape.has_adapters ? TokensWithPadding(plan, padding) : 0;
  step->front_bytes = UsedFrontBytes(layout_, plan.state_segments.size(), slot_tokens);
  step->tail = MakeTail(plan, padding, step->front_bytes);
  const StepTail& tail = step->tail;
  if (tail.results_end > step->meta_bytes) {
    MINISGL_RETURN_IF_ERROR(quiet_());
    MINISGL_RETURN_IF_ERROR(TakeMeta(tail.results_end + tail.results_end / 2, step));
    MINISGL_RETURN_IF_ERROR(quiet_());
  }

  auto* const meta = static_cast<std::byte*>(step->meta.get());
  FillRows(plan, padding, meta);
  *At<int32_t>(meta, layout_.decode_rows) = step->shape.num_decode_rows;
  *At<int32_t>(meta, layout_.num_tokens) = plan.num_tokens();
  auto* const results = static_cast<std::byte*>(step->results.get());
  *At<HostResults>(meta, layout_.host_results) = {
      .sampled = At<DeviceToken>(results, result_layout_.sampled),
      .num_accepted = At<int32_t>(results, result_layout_.num_accepted)};
  if (slot_tokens > 0) FillTokenSlots(plan, slot_tokens, meta);
  FillPlaces(tail, meta);
  FillScored(plan, tail, meta);
  FillSpans(plan, meta);
  FillGroups(plan, step->shape, meta);
  FillWrites(plan, tail, meta);
  if (tail.num_positions > 0) {
    FillRopePositions(plan, tail.num_positions, At<RopePosition>(meta, tail.rope_positions));
  }
  if (tail.num_key_ends > 0) FillKeyEnds(plan, At<int32_t>(meta, tail.key_ends));
  if (drafter_ != nullptr) {
    const bool reads_pictures = !plan.extras.embeddings.empty();
    drafter_->List(plan,
                   reads_pictures ? std::span<const PlacedEmbeddings>(step->placed)
                                  : std::span<const PlacedEmbeddings>(),
                   &step->drafts);
  }
  ops_->CopyToDevice(step->device_meta.data(), meta, tail.end);
  ApplyWrites(plan, *step);
  if (tail.num_positions > 0) {  // to where graphs read them
    ops_->CopyOnDevice(rope_positions_.data(), step->device_meta.data() + tail.rope_positions,
                       static_cast<size_t>(tail.num_positions) * sizeof(RopePosition));
  }
  return UploadTexts(step);
}

// Positions of three parts are there in every step of a model that has them, because its graphs
// read them: most of them are places.
StepTail DeviceStep::MakeTail(const BatchPlan& plan, StepPadding padding, size_t begin) const {
  const bool front = BiasFitsFront();
  const bool has_positions = rope_positions_.data() != nullptr;
  const bool sees_pictures = !plan.extras.embeddings.empty() &&
                             state_->config().picture_attention != PictureAttention::kCausal;
  return StepTail(plan, begin, front ? 0 : std::ssize(places_.bias_ids),
                  front ? 0 : std::ssize(places_.banned_ids), places_.num_scored_ranks(),
                  has_positions ? TokensWithPadding(plan, padding) : 0,
                  sees_pictures ? plan.num_tokens() : 0);
}

Status DeviceStep::UploadMasks(const StepMasks& masks, InFlightStep* step) {
  const size_t num_places = step->mask_of.size();
  const size_t first = (num_places * sizeof(int32_t) + 15) / 16 * 16;
  const size_t end = first + masks.words.size() * sizeof(uint32_t);
  if (end > step->masks_bytes) {
    MINISGL_RETURN_IF_ERROR(quiet_());
    MINISGL_RETURN_IF_ERROR(TakeMasks(end + end / 2, step));
    MINISGL_RETURN_IF_ERROR(quiet_());
  }
  step->first_mask = first;
  auto* const memory = static_cast<std::byte*>(step->masks.get());
  CopyTo(memory, step->mask_of);
  CopyTo(memory + first, masks.words);
  ops_->CopyToDevice(step->device_masks.data(), memory, end);
  return ops_->status();
}

StepShape DeviceStep::ShapeOf(const BatchPlan& plan) const {
  StepShape shape = {.num_rows = plan.num_rows(), .num_tokens = plan.num_tokens()};
  int32_t* const decode_rows = &shape.num_decode_rows;
  while (*decode_rows < shape.num_rows && plan.extend_len(*decode_rows) == 1) ++*decode_rows;
  return shape;
}

void DeviceStep::SetShape(const BatchPlan& plan, StepPadding padding, InFlightStep* step) const {
  const int32_t padded_rows = padding.rows;
  step->shape = ShapeOf(plan);
  step->shape.num_places = places_.num_places();
  if (padded_rows > plan.num_rows()) {
    step->shape = {padded_rows, padded_rows, padded_rows, padded_rows};
  }
  step->shape.has_adapters = padding.adapters || !plan.extras.adapters.empty();
  step->wants_top_logprobs = places_.wants_top_logprobs();
  step->samples_first_tokens = places_.AreFirstTokens();
  step->needs_no_tail = BiasFitsFront();
  step->mask_of = places_.mask_of;
}

bool DeviceStep::BiasFitsFront() const {
  return places_.bias_ids.size() <= kBiasMax && places_.banned_ids.size() <= kBiasMax;
}

Status DeviceStep::TakeRoom(size_t num_bytes, std::shared_ptr<void>* host,
                            DeviceArray<std::byte>* device, size_t* size) {
  *size = 0;
  *device = DeviceArray<std::byte>();  // first, to make room
  MINISGL_ASSIGN_OR_RETURN(*host, ops_->AllocateHost(num_bytes));
  MINISGL_ASSIGN_OR_RETURN(*device, DeviceArray<std::byte>::Make(ops_, {num_bytes}));
  *size = num_bytes;
  return Status();
}

Status DeviceStep::TakeMeta(size_t num_bytes, InFlightStep* step) {
  return TakeRoom(num_bytes, &step->meta, &step->device_meta, &step->meta_bytes);
}

Status DeviceStep::TakeMasks(size_t num_bytes, InFlightStep* step) {
  return TakeRoom(num_bytes, &step->masks, &step->device_masks, &step->masks_bytes);
}

void DeviceStep::FillRows(const BatchPlan& plan, StepPadding padding, std::byte* meta) const {
  CopyTo(meta + layout_.table_row, plan.table_row);
  CopyTo(meta + layout_.row_begin, plan.row_begin);
  CopyTo(meta + layout_.kv_len, plan.kv_len);
  auto* const row_begin = At<int32_t>(meta, layout_.row_begin);
  for (int32_t row = plan.num_rows(); row < padding.rows; ++row) {
    At<int32_t>(meta, layout_.table_row)[row] = limits().max_running_requests;
    row_begin[row + 1] = row_begin[row] + 1;
    At<int32_t>(meta, layout_.kv_len)[row] = 1;
  }
  if (padding.tokens > 0) FillPaddingTokens(plan, padding.tokens, meta);
}

// A row of the dummy has the tokens up to `num_tokens`. The rows after it are empty, for graphs
// that have an upper bound of the number of rows.
void DeviceStep::FillPaddingTokens(const BatchPlan& plan, int32_t num_tokens,
                                   std::byte* meta) const {
  const int32_t row = plan.num_rows(), spare = num_tokens - plan.num_tokens();
  MINISGL_CHECK(spare >= 0 && spare <= limits().max_seq_len, "{} tokens padded to {}",
                plan.num_tokens(), num_tokens);
  auto* const row_begin = At<int32_t>(meta, layout_.row_begin);
  if (spare > 0) {
    At<int32_t>(meta, layout_.table_row)[row] = limits().max_running_requests;
    At<int32_t>(meta, layout_.kv_len)[row] = spare;
  }
  std::fill(row_begin + row + 1, row_begin + layout_.max_rows + 1, num_tokens);
}

void DeviceStep::FillPlaces(const StepTail& tail, std::byte* meta) const {
  CopyTo(meta + layout_.place_begin, places_.place_begin);
  CopyTo(meta + layout_.logit_tokens, places_.tokens);
  CopyTo(meta + layout_.places, places_.sampling);
  const bool front = BiasFitsFront();
  CopyTo(meta + (front ? layout_.bias_ids : tail.bias_ids), places_.bias_ids);
  CopyTo(meta + (front ? layout_.bias_values : tail.bias_values), places_.bias_values);
  CopyTo(meta + (front ? layout_.banned_ids : tail.banned_ids), places_.banned_ids);
}

// Rows of padding have no states.
void DeviceStep::FillSpans(const BatchPlan& plan, std::byte* meta) const {
  if (limits().num_state_slots == 0) return;
  MINISGL_CHECK(std::ssize(plan.state_segments) <= MaxStateSpans(limits()),
                "step {}: {} state segments", plan.step, plan.state_segments.size());
  ListStateSpans(plan, At<StateSpan>(meta, layout_.spans));
  ListSpansOfRows(plan, layout_.max_rows, At<int32_t>(meta, layout_.span_of_row));
}

// Rows of padding are in no group, nor is any row of a model whose layers all have a window.
void DeviceStep::FillGroups(const BatchPlan& plan, const StepShape& shape, std::byte* meta) {
  const int32_t decode_rows = std::min(shape.num_decode_rows, plan.num_rows());
  grouper_.ApplyWrites(plan);
  const PrefixGroups& groups = grouper_.Group(plan, groups_rows_ ? decode_rows : 0);
  const auto num_grouped = static_cast<int32_t>(groups.shared_splits.size());
  *At<int32_t>(meta, layout_.num_groups) = groups.num_groups();
  CopyTo(meta + layout_.group_begin, groups.group_begin);
  CopyTo(meta + layout_.group_rows, groups.rows);
  CopyTo(meta + layout_.shared_splits, groups.shared_splits);
  std::fill_n(At<int32_t>(meta, layout_.shared_splits) + num_grouped,
              shape.num_decode_rows - num_grouped, 0);
}

void DeviceStep::FillScored(const BatchPlan& plan, const StepTail& tail, std::byte* meta) const {
  CopyTo(meta + tail.scored_tokens, places_.scored_tokens);
  CopyTo(meta + tail.scored_places, places_.scored_sampling);
  CopyTo(meta + tail.scored_ids, plan.scored_ids);
  CopyTo(meta + tail.scored_bias, places_.scored_bias);
}

void DeviceStep::FillWrites(const BatchPlan& plan, const StepTail& tail, std::byte* meta) const {
  CopyTo(meta + tail.page_table_writes, plan.page_table_writes);
  CopyTo(meta + tail.pages, plan.pages);
  CopyTo(meta + tail.window_pages, plan.window_pages);
  CopyTo(meta + tail.token_pool_writes, plan.token_pool_writes);
  CopyTo(meta + tail.tokens, plan.tokens);
}

// With the front, so that a step begins with one kernel.
void DeviceStep::ApplyWrites(const BatchPlan& plan, const InFlightStep& step) {
  ApplyTableWrites(plan,
                   {.page_table_writes = InStep<PageTableWrite>(step, step.tail.page_table_writes),
                    .pages = InStep<int32_t>(step, step.tail.pages),
                    .window_pages = InStep<int32_t>(step, step.tail.window_pages),
                    .token_pool_writes = InStep<TokenPoolWrite>(step, step.tail.token_pool_writes),
                    .tokens = InStep<int32_t>(step, step.tail.tokens),
                    .front = step.device_meta.data(),
                    .front_copy = front_.data(),
                    .front_bytes = static_cast<int64_t>(step.front_bytes)},
                   state_->tables(),
                   [&](const PlanWritesParams& params) { ops_->ApplyPlanWrites(params); });
}

// Ids and positions of the step's tokens, and their slots by `page_table`.
void DeviceStep::PrepareTokens(const StepShape& shape, const int32_t* page_table, int64_t* slots) {
  const StepTables& tables = state_->tables();
  ops_->PrepareTokens({.table_row = Meta<int32_t>(layout_.table_row),
                       .row_begin = Meta<int32_t>(layout_.row_begin),
                       .kv_len = Meta<int32_t>(layout_.kv_len),
                       .num_rows = shape.num_rows,
                       .num_tokens = shape.num_tokens,
                       .page_table = page_table,
                       .page_table_stride = tables.page_table_stride,
                       .page_size = limits().page_size,
                       .token_pool = tables.token_pool,
                       .token_pool_stride = tables.token_pool_stride,
                       .token_ids = token_ids_.data(),
                       .positions = positions_.data(),
                       .slots = slots});
}

void DeviceStep::Run(const InFlightStep& step) {
  RunLayers(step.shape, limits().attends_both_ways ? &step : nullptr);
  RunPlaces(step);
}

void DeviceStep::RunLayers(const StepShape& shape, const InFlightStep* alone) {
  const auto* const table_row = Meta<int32_t>(layout_.table_row);
  const auto* const row_begin = Meta<int32_t>(layout_.row_begin);
  const auto* const kv_len = Meta<int32_t>(layout_.kv_len);
  const StepTables& tables = state_->tables();
  PrepareTokens(shape, tables.page_table, slots_.data());
  if (state_->has_windows()) PrepareTokens(shape, tables.window_table, window_slots_.data());
  for (const PlannedHeads& planned : heads_) PlanAttention(shape, planned);
  ForwardInput input = {.num_tokens = shape.num_tokens,
                        .num_rows = shape.num_rows,
                        .num_decode_rows = shape.num_decode_rows,
                        .rows_known = shape.rows_known,
                        .token_ids = token_ids_.data(),
                        .positions = positions_.data(),
                        .slots = slots_.data(),
                        .table_row = table_row,
                        .row_begin = row_begin,
                        .kv_len = kv_len,
                        .window_slots = window_slots_.data(),
                        .state_segments = StateSegmentsOf(shape),
                        .rope_positions = rope_positions_.data(),
                        .num_real_tokens = Meta<int32_t>(layout_.num_tokens),
                        .slot_of = TokenSlots(shape)};
  if (alone != nullptr) {
    const bool has_plan = alone->plan != nullptr;
    if (has_plan && !alone->plan->extras.embeddings.empty()) SetPictures(*alone, &input);
    SetTexts(*alone, &input);
  }
  state_->RunLayers(input);
}

StateSegments DeviceStep::StateSegmentsOf(const StepShape& shape) const {
  if (limits().num_state_slots == 0) return {};
  const bool decodes =
      shape.rows_known == RowsKnown::kExactly && shape.num_tokens == shape.num_rows;
  return {.spans = Meta<StateSpan>(layout_.spans),
          .count = decodes ? shape.num_rows : 0,
          .of_row = Meta<int32_t>(layout_.span_of_row),
          .num_rows = shape.num_rows};
}

void DeviceStep::PlanAttention(const StepShape& shape, const PlannedHeads& planned) {
  const AttentionHeads& heads = planned.heads;
  ops_->PlanAttention({.row_begin = Meta<int32_t>(layout_.row_begin),
                       .kv_len = Meta<int32_t>(layout_.kv_len),
                       .num_rows = shape.num_rows,
                       .num_decode_rows = shape.num_decode_rows,
                       .num_tokens = shape.num_tokens,
                       .num_heads = heads.num_heads,
                       .num_kv_heads = heads.num_kv_heads,
                       .head_dim = heads.head_dim,
                       .sliding_window = planned.window,
                       .shared = {.num_groups = Meta<int32_t>(layout_.num_groups),
                                  .group_begin = Meta<int32_t>(layout_.group_begin),
                                  .rows = Meta<int32_t>(layout_.group_rows),
                                  .shared_splits = Meta<int32_t>(layout_.shared_splits)},
                       .rows_known = shape.rows_known,
                       .decode_rows = shape.rows_known == RowsKnown::kExactly
                                          ? nullptr
                                          : Meta<int32_t>(layout_.decode_rows),
                       .v_head_dim = heads.v_head_dim,
                       .values_in_keys = heads.values_in_keys,
                       .has_codes = heads.has_codes});
}

void DeviceStep::RunDrafts(const InFlightStep& step) {
  if (!FeedsDrafter(step)) return;
  step.drafts.is_guided ? drafter_->BeginDrafts(step.drafts) : drafter_->Propose(step.drafts);
}

// Computes logits, samples, and the accepted tokens of the step that was uploaded last.
void DeviceStep::RunPlaces(const InFlightStep& step) {
  RunScored(step);
  RunPooled(step);
  if (FeedsDrafter(step)) drafter_->TakeStates(*step.plan);
  if (step.shape.num_places > 0) SampleAndAccept(step);
}

void DeviceStep::FeedDrafter(InFlightStep* step) {
  if (!FeedsDrafter(*step)) return;
  drafter_->Feed(InResults<int32_t>(result_layout_.num_accepted), &step->drafts);
}

void DeviceStep::SampleAndAccept(const InFlightStep& step) {
  const StepShape& shape = step.shape;
  const StepTables& tables = state_->tables();
  const int32_t* const places = Meta<int32_t>(layout_.logit_tokens);
  float* const logits =
      state_->Logits({.slot_of = TokenSlots(shape),
                      .logit_tokens = step.samples_first_tokens ? nullptr : places,
                      .num_logit_tokens = shape.num_places});
  // Biased and banned tokens that the front has no room for are in the tail.
  const auto* bias_ids = Meta<int32_t>(layout_.bias_ids);
  const auto* bias_values = Meta<float>(layout_.bias_values);
  const auto* banned_ids = Meta<int32_t>(layout_.banned_ids);
  if (!step.needs_no_tail) {
    bias_ids = InStep<int32_t>(step, step.tail.bias_ids);
    bias_values = InStep<float>(step, step.tail.bias_values);
    banned_ids = InStep<int32_t>(step, step.tail.banned_ids);
  }
  const bool masked = !step.mask_of.empty();
  ops_->SamplePlaces({.logits = logits,
                      .num_places = shape.num_places,
                      .vocab_size = limits().vocab_size,
                      .places = Meta<DeviceSampling>(layout_.places),
                      .token_pool = tables.token_pool,
                      .token_pool_stride = tables.token_pool_stride,
                      .bias_ids = bias_ids,
                      .bias_values = bias_values,
                      .banned_ids = banned_ids,
                      .counts = counts_.data(),
                      .raw_logits = raw_logits_.data(),
                      .max_logprobs = kTopLogprobsMax,
                      .sampled = InResults<DeviceToken>(result_layout_.sampled),
                      .top_logprobs = InResults<TokenLogprob>(result_layout_.top_logprobs),
                      .mask_of = masked ? MasksIn<int32_t>(step, 0) : nullptr,
                      .masks = masked ? MasksIn<uint32_t>(step, step.first_mask) : nullptr});
  ops_->AcceptTokens({.table_row = Meta<int32_t>(layout_.table_row),
                      .kv_len = Meta<int32_t>(layout_.kv_len),
                      .place_begin = Meta<int32_t>(layout_.place_begin),
                      .num_rows = shape.num_rows,
                      .sampled = InResults<DeviceToken>(result_layout_.sampled),
                      .token_pool = tables.token_pool,
                      .token_pool_stride = tables.token_pool_stride,
                      .num_accepted = InResults<int32_t>(result_layout_.num_accepted),
                      .host = Meta<HostResults>(layout_.host_results)});
}

// Copies the likely tokens aside on the device first, because the next step writes its own before
// these have reached the host.
void DeviceStep::Download(InFlightStep* step) {
  if (step->shape.num_places > 0 && step->wants_top_logprobs) {
    std::byte* const aside = step->device_top_logprobs.data();
    const size_t num_bytes =
        static_cast<size_t>(step->shape.num_places) * kTopLogprobsMax * sizeof(TokenLogprob);
    ops_->CopyOnDevice(aside, results_.data() + result_layout_.top_logprobs, num_bytes);
    ops_->CopyToHost(static_cast<std::byte*>(step->results.get()) + result_layout_.top_logprobs,
                     aside, num_bytes);
  }
  if (const StepTail& tail = step->tail; tail.num_scored > 0) {
    // From the step's own memory, which later steps leave alone.
    ops_->CopyToHost(static_cast<std::byte*>(step->meta.get()) + tail.scored_sampled,
                     step->device_meta.data() + tail.scored_sampled,
                     tail.results_end - tail.scored_sampled);
  }
  DownloadTexts(step);
  ops_->Record(step->done.get());
}

std::vector<RowResult> DeviceStep::Results(const InFlightStep& step) {
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
  std::vector<RowResult> rows = MakeRowResults(plan, accepted, result_of);
  AddScored(plan, ScoredResults(step), &rows);
  AddVectors(plan, PooledVectors(step), &rows);
  return rows;
}

}  // namespace minisgl::engine
