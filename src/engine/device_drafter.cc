// See device_drafter.h.
#include "engine/device_drafter.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/device_places.h"
#include "engine/draft_pictures.h"
#include "engine/step_places.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl::engine {
namespace {

// Floats of a state that it reads; 0: it reads none.
int64_t DraftStateWidth(const ModelConfig& config) {
  if (config.prediction == PredictionLayer::kAssistant) return config.draft_head.target_width;
  return config.is_prediction_layer() ? config.hidden_size : 0;
}

// Rows of logits of a pass, at most.
int32_t DraftRows(const ModelConfig& config, const EngineLimits& limits) {
  return static_cast<int32_t>(
      DrafterRows(config, limits.max_running_requests, limits.max_step_drafts));
}

}  // namespace

std::optional<uint64_t> DeviceDrafter::StepBytes(const EngineLimits& limits,
                                                 const ModelConfig& config, DType dtype) {
  const auto tokens = static_cast<uint64_t>(limits.max_step_tokens);
  const uint64_t states[] = {2 * tokens + 2, static_cast<uint64_t>(DraftStateWidth(config)),
                             DTypeBytes(dtype)};
  const auto of_states = CheckedProduct(states);
  if (!of_states) return std::nullopt;
  const uint64_t of_step = DraftListBytes(limits);
  const uint64_t of_ids = config.draft_head.row_ids == nullptr
                              ? 0
                              : config.draft_head.row_ids->size() * sizeof(int32_t);
  const uint64_t of_rows = static_cast<uint64_t>(DraftRows(config, limits)) *
                               (sizeof(int32_t) + sizeof(DeviceSampling) + sizeof(DeviceToken)) +
                           DraftFrontBytes(config, limits) + DraftMasksBytes(config, limits) +
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
      has_parts_(TurnsByParts(config_) && (limits_.extras & kGivesPositions) != 0),
      heads_(HeadsOfLayers(state->model().drafter()->config(), state->model().kv_kind())),
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
  MINISGL_ASSIGN_OR_RETURN(sampled_, DeviceArray<DeviceToken>::Make(ops_, {rows}));
  MINISGL_ASSIGN_OR_RETURN(fed_, ops_->MakeEvent());
  MINISGL_RETURN_IF_ERROR(TakeGuidedArrays());
  if (const size_t num_bytes = DraftFrontBytes(config_, limits_); num_bytes > 0) {
    MINISGL_ASSIGN_OR_RETURN(front_, DeviceArray<std::byte>::Make(ops_, {num_bytes}));
  }
  if (config_.draft_head.row_ids != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(row_ids_, Upload<int32_t>(ops_, *config_.draft_head.row_ids));
  }
  const int64_t pages = state_->tables().page_table_stride;
  page_table_.resize(static_cast<size_t>((limits_.max_running_requests + 1) * pages));
  return Status();
}

Result<DraftStep> DeviceDrafter::MakeStep() const {
  DraftStep step;
  const size_t num_bytes = DraftListBytes(limits_);
  MINISGL_ASSIGN_OR_RETURN(step.meta, ops_->AllocateHost(num_bytes));
  MINISGL_ASSIGN_OR_RETURN(step.device_meta, DeviceArray<std::byte>::Make(ops_, {num_bytes}));
  MINISGL_ASSIGN_OR_RETURN(step.fed, ops_->MakeEvent());
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

Status DeviceDrafter::Capture(const DraftGraphSize& size, DraftStep* padding) {
  list_.clear();
  DraftLists lists;
  const size_t begin = AppendLists(size.shape, PadForGraph(size, &lists));
  MINISGL_CHECK(begin == 0, "a pass that is not listed first");
  std::memcpy(padding->meta.get(), list_.data(), list_.size());
  ops_->CopyToDevice(padding->device_meta.data(), padding->meta.get(), list_.size());
  ops_->CopyOnDevice(front_.data(), padding->device_meta.data(), list_.size());
  RunPart(size.part, size.shape, front_.data());
  MINISGL_RETURN_IF_ERROR(ops_->Synchronize());
  MINISGL_RETURN_IF_ERROR(ops_->BeginCapture());
  float* const logits = RunPart(size.part, size.shape, front_.data());
  MINISGL_ASSIGN_OR_RETURN(auto graph, ops_->EndCapture());
  graphs_.push_back({size, std::move(graph), logits});
  return Status();
}

void DeviceDrafter::GatherStates(const DraftStep& step, const DraftPass& pass) {
  const DraftLayout layout(pass.shape);
  ops_->GatherRows(
      {.x = states_.ptr(),
       .rows = InDraftMemory<int32_t>(step.device_meta.data() + pass.begin, layout.states),
       .out = inputs_.ptr(),
       .num_rows = pass.shape.num_tokens,
       .width = width_});
}

void DeviceDrafter::PrepareTokens(const int32_t* table_row, const int32_t* row_begin,
                                  const int32_t* kv_len, int32_t num_rows, int32_t num_tokens) {
  const StepTables& tables = state_->tables();
  ops_->PrepareTokens({.table_row = table_row,
                       .row_begin = row_begin,
                       .kv_len = kv_len,
                       .num_rows = num_rows,
                       .num_tokens = num_tokens,
                       .page_table = tables.page_table,
                       .page_table_stride = tables.page_table_stride,
                       .page_size = limits_.page_size,
                       .token_pool = tables.token_pool,
                       .token_pool_stride = tables.token_pool_stride,
                       .token_ids = token_ids_.data(),
                       .positions = positions_.data(),
                       .slots = slots_.data()});
}

ForwardInput DeviceDrafter::Prepare(const DraftShape& shape, const std::byte* memory,
                                    bool decodes) {
  const DraftLayout layout(shape);
  const auto at = [&](size_t offset) { return InDraftMemory<int32_t>(memory, offset); };
  PrepareTokens(at(layout.table_row), at(layout.row_begin), at(layout.kv_len), shape.num_rows,
                shape.num_tokens);
  return {.num_tokens = shape.num_tokens,
          .num_rows = shape.num_rows,
          .num_decode_rows = decodes && !stands_before() ? shape.num_rows : 0,
          .token_ids = token_ids_.data(),
          .positions = reads_before() ? at(layout.positions) : positions_.data(),
          .slots = slots_.data(),
          .table_row = at(layout.table_row),
          .row_begin = at(layout.row_begin),
          .kv_len = at(is_assistant() ? layout.num_seen : layout.kv_len),
          .key_end = stands_before() ? at(layout.key_end) : nullptr,
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
                         .values_in_keys = planned.heads.values_in_keys,
                         .has_codes = planned.heads.has_codes});
  }
}

void DeviceDrafter::Choose(float* logits, int32_t count, const int32_t* table_row,
                           const int32_t* kv_len, const int32_t* mask_of, const uint32_t* masks) {
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
                      .sampled = sampled_.data(),
                      .top_logprobs = nullptr,
                      .mask_of = mask_of,
                      .masks = masks});
  if (row_ids_.data() != nullptr) ops_->MapTokens({sampled_.data(), count, row_ids_.data()});
  ops_->AcceptTokens({.table_row = table_row,
                      .kv_len = kv_len,
                      .place_begin = all_.data(),
                      .num_rows = count,
                      .sampled = sampled_.data(),
                      .token_pool = tables.token_pool,
                      .token_pool_stride = tables.token_pool_stride,
                      .num_accepted = accepted_.data()});
}

// A pass of one draft of each row leaves its states for the next one.
float* DeviceDrafter::RunLayers(DraftPart part, const DraftShape& shape, const std::byte* memory,
                                std::span<const PlacedEmbeddings> placed) {
  const StepTables& tables = state_->tables();
  const DraftLayout layout(shape);
  const auto at = [&](size_t offset) { return InDraftMemory<int32_t>(memory, offset); };
  const bool is_feed = part == DraftPart::kFeed;
  ForwardInput input = Prepare(shape, memory, /*decodes=*/!is_feed && !is_block());
  if (is_feed && is_block()) {
    state_->model().WriteDrafterKeys(input, tables);
    return nullptr;
  }
  if (is_block()) input.key_end = at(layout.key_end);
  input.placed = placed;
  if (has_parts_) input.rope_positions = InDraftMemory<RopePosition>(memory, layout.rope);
  PlanAttention(input);
  state_->model().RunDrafter(input, tables);
  if (is_feed) return nullptr;
  Decoder* const drafter = state_->model().drafter();
  if (is_block()) {
    return drafter->Logits(
        {.logit_tokens = at(layout.masks), .num_logit_tokens = shape.num_places});
  }
  const ForwardInput wanted = {.logit_tokens = all_.data(), .num_logit_tokens = shape.num_rows};
  if (reads_before()) {
    const int64_t count = shape.num_rows * width_;
    ops_->CopyOnDevice(inputs_.ptr().data, drafter->States(wanted).data,
                       static_cast<size_t>(count) * DTypeBytes(ops_->activation_dtype()));
  }
  if (has_clusters()) scores_ = drafter->ClusterScores(wanted);
  return drafter->Logits(wanted);
}

float* DeviceDrafter::RunPart(DraftPart part, const DraftShape& shape, const std::byte* memory,
                              std::span<const PlacedEmbeddings> placed) {
  float* const logits = RunLayers(part, shape, memory, placed);
  if (logits == nullptr || chooses_apart()) return logits;
  const DraftLayout layout(shape);
  const auto at = [&](size_t offset) { return InDraftMemory<int32_t>(memory, offset); };
  if (is_block()) {
    Choose(logits, shape.num_places, at(layout.places_row), at(layout.places_len));
  } else {
    Choose(logits, shape.num_rows, at(layout.table_row), at(layout.kv_len));
  }
  return logits;
}

float* DeviceDrafter::RunPass(DraftPart part, const DraftStep& step, const DraftPass& pass) {
  const std::byte* const memory = step.device_meta.data() + pass.begin;
  if (pass.graph == nullptr) {
    const bool is_feed = part == DraftPart::kFeed;
    return RunPart(part, pass.shape, memory,
                   is_feed ? std::span<const PlacedEmbeddings>(step.placed)
                           : std::span<const PlacedEmbeddings>());
  }
  ops_->CopyOnDevice(front_.data(), memory, DraftLayout(pass.shape).bytes);
  ops_->Replay(pass.graph);
  return pass.logits;
}

void DeviceDrafter::WriteMasks(const DraftStep& step) {
  const StepTables& tables = state_->tables();
  const std::byte* const memory = step.device_meta.data();
  ops_->ApplyPlanWrites({.page_table_writes = nullptr,
                         .pages = nullptr,
                         .token_pool_writes = InDraftMemory<TokenPoolWrite>(memory, step.writes),
                         .tokens = InDraftMemory<int32_t>(memory, step.ids),
                         .num_page_table_writes = 0,
                         .num_token_pool_writes = step.num_writes,
                         .page_table = tables.page_table,
                         .page_table_stride = tables.page_table_stride,
                         .token_pool = tables.token_pool,
                         .token_pool_stride = tables.token_pool_stride});
}

void DeviceDrafter::Propose(const DraftStep& step) {
  if (step.drafts.empty()) return;
  if (is_block()) WriteMasks(step);
  for (size_t i = 0; i < step.drafts.size(); ++i) {
    if (reads_before() && i == 0) GatherStates(step, step.drafts[i]);
    float* const logits = RunPass(DraftPart::kPropose, step, step.drafts[i]);
    if (!has_transitions()) continue;
    for (int32_t index = 0; index < step.NumIndices(); ++index) ChooseIndex(step, index, logits);
  }
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

void DeviceDrafter::Feed(const int32_t* num_accepted, DraftStep* step) {
  if (step->feed.shape.num_tokens > 0) {
    if (width_ > 0) GatherStates(*step, step->feed);
    RunPass(DraftPart::kFeed, *step, step->feed);
  }
  if (step->num_kept > 0) {
    ops_->KeepStates({.states = states_.ptr(),
                      .width = width_,
                      .items = InDraftMemory<KeptState>(step->device_meta.data(), step->kept),
                      .num_items = step->num_kept,
                      .num_accepted = num_accepted});
  }
  for (DeviceEvent* const event : {step->fed.get(), fed_.get()}) ops_->Record(event);
  step->is_read = was_fed_ = true;
}

void DeviceDrafter::TakeLoaded(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    if (page != kNoPage) is_loaded_[static_cast<size_t>(page)] = 1;
  }
}

}  // namespace minisgl::engine

namespace minisgl {

Status CheckDeviceDrafts(const ModelConfig& drafter, const ModelConfig& target) {
  if (drafter.vocab_size > target.vocab_size) {
    return BadInput("its vocabulary of {} tokens is larger than the model's of {}",
                    drafter.vocab_size, target.vocab_size);
  }
  return Status();
}

}  // namespace minisgl
