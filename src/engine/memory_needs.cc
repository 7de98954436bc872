// See memory_needs.h. Sizes are computed with checked arithmetic, because a configuration may
// contain any number.
#include "engine/memory_needs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_graphs.h"
#include "engine/device_adapters.h"
#include "engine/device_drafter.h"
#include "engine/device_encoder.h"
#include "engine/device_step.h"
#include "engine/draft_pass.h"
#include "engine/kv_storage.h"
#include "engine/layer_graphs.h"
#include "engine/state_storage.h"
#include "engine/step_places.h"
#include "engine/step_texts.h"
#include "engine/token_drafter.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/model/adapters.h"
#include "minisgl/model/decoder.h"

namespace minisgl::engine {
namespace {

// Estimate of the bytes of a captured graph: some hundred operations of a few hundred bytes each,
// and the driver's own memory.
constexpr uint64_t kGraphBytes = uint64_t{2} << 20;

int32_t StepDrafts(const PlanOptions& options) {
  return std::min(options.max_step_drafts, options.max_prefill_tokens);
}

// Bytes of page tables, token pool and the ids of a step.
std::optional<uint64_t> TableBytes(const PlanOptions& options, int64_t max_seq_len,
                                   bool has_windows) {
  const auto rows = static_cast<uint64_t>(options.max_running_requests) + 1;
  const auto length = static_cast<uint64_t>(max_seq_len);
  const uint64_t page_tables = has_windows ? 2 : 1;
  const uint64_t entries =
      length + page_tables * CeilDiv(length, static_cast<uint64_t>(options.page_size));
  const auto tables = CheckedMul(rows, entries);  // entries: two 31-bit numbers
  const uint64_t step_ids = rows + static_cast<uint64_t>(options.max_prefill_tokens);
  const auto sum = tables ? CheckedAdd(*tables, step_ids) : std::nullopt;
  return sum ? CheckedMul(*sum, sizeof(int32_t)) : std::nullopt;
}

// Estimate of the bytes of all graphs.
uint64_t GraphBytes(const ModelList& models, const PlanOptions& options,
                    const EngineLimits& limits) {
  if (limits.attends_both_ways) return 0;  // no graph runs its steps
  const int32_t max_rows = options.max_running_requests;
  const int32_t max_tokens = LayerGraphTokensMax(options.graph_max_tokens, limits);
  const size_t count = GraphBatchSizes(std::min(options.graph_max_rows, max_rows)).size() +
                       LayerGraphShapes(max_tokens, max_rows + 1).size();
  size_t of_drafts = 0;
  if (models.drafter() != nullptr) {
    of_drafts = DraftGraphSizes(*models.drafter()->layers(), limits, options.graph_max_rows,
                                options.graph_max_tokens)
                    .size();
  }
  return (count * (limits.num_adapters > 0 ? 2 : 1) + of_drafts) * kGraphBytes;
}

// What a model needs apart from pages, on one or on all ranks.
struct ModelNeeds {
  uint64_t weight_bytes = 0;
  uint64_t workspace_bytes = 0;  // of the model itself
  uint64_t scratch_bytes = 0;    // of the CPU's operations
  uint64_t kv_per_token = 0;     // of its share of each page
  uint64_t slot_bytes = 0;       // of states
};

// The target's keys and values decide the type of all: a page has one.
KvFormat KvFormatOf(const ModelList& models, const PlanOptions& options) {
  return {KvDType(options.activation_dtype(), FormatOf(models[0], options).dtype), options.kv_kind};
}

// Bytes of a token in the layers that `model` has in pages, on `rank`.
std::optional<uint64_t> PageShare(const ListedModel& model, const Rank& rank,
                                  const KvFormat& format) {
  if (model.layers() == nullptr) return 0;
  return KvBytesPerToken(RankConfig(*model.layers(), model.RankOf(rank)), format);
}

// `kept_layers`: of the target.
std::optional<ModelNeeds> CountOnRank(const ListedModel& model, const PlanOptions& options,
                                      int64_t max_seq_len, const Rank& rank,
                                      const KvFormat& kv_format,
                                      const std::vector<int32_t>& kept_layers) {
  DecoderOptions decoder = {
      .weight_format = FormatOf(model, options),
      .activation_dtype = options.activation_dtype(),
      .max_step_tokens = int64_t{options.max_prefill_tokens} + options.max_running_requests,
      .max_logit_rows = int64_t{options.max_running_requests} + StepDrafts(options),
      .max_seq_len = max_seq_len,
      .rank = model.RankOf(rank),
      .logits_on_all_ranks = options.device != nullptr,
      .packs_6_bits = options.packs_6_bits};
  if (model.role() == ModelRole::kDrafter) {
    decoder.max_logit_rows =
        DrafterRows(*model.layers(), options.max_running_requests, StepDrafts(options));
  }
  if (model.role() == ModelRole::kTarget) {
    decoder.kept_layers = kept_layers;
    decoder.num_host_layers = options.num_host_layers;
  }
  const auto weights = options.weight_counts == nullptr ? model.WeightBytes(decoder)
                                                        : options.weight_counts->Of(model, decoder);
  const auto workspace = model.WorkspaceBytes(decoder);
  const auto scratch = options.device != nullptr
                           ? 0
                           : model.ScratchBytes(decoder, ThreadsOfRank(options.num_threads, rank));
  const auto kv = PageShare(model, rank, kv_format);
  const auto slot = model.layers() == nullptr
                        ? 0
                        : StateBytesPerSlot(RankConfig(*model.layers(), model.RankOf(rank)));
  if (!weights || !workspace || !scratch || !kv || !slot) return std::nullopt;
  return ModelNeeds{*weights, *workspace, *scratch, *kv, *slot};
}

// On all ranks; on devices, the most of each that one needs. Nothing if a size exceeds 2^64.
std::optional<ModelNeeds> CountOnRanks(const ListedModel& model, const PlanOptions& options,
                                       int64_t max_seq_len, const KvFormat& kv_format,
                                       const std::vector<int32_t>& kept_layers) {
  ModelNeeds all;
  for (int32_t index = 0; index < options.num_ranks; ++index) {
    const auto one = CountOnRank(model, options, max_seq_len, {index, options.num_ranks}, kv_format,
                                 kept_layers);
    if (!one) return std::nullopt;
    for (const auto part :
         {&ModelNeeds::weight_bytes, &ModelNeeds::workspace_bytes, &ModelNeeds::scratch_bytes,
          &ModelNeeds::kv_per_token, &ModelNeeds::slot_bytes}) {
      const auto sum = options.device != nullptr ? std::max(all.*part, (*one).*part)
                                                 : CheckedAdd(all.*part, (*one).*part);
      if (!sum) return std::nullopt;
      all.*part = *sum;
    }
  }
  return all;
}

// Bytes of a device's engine, not counting models and tables.
std::optional<uint64_t> DeviceBytes(const ModelList& models, const PlanOptions& options,
                                    int64_t max_seq_len, bool has_windows) {
  if (options.device == nullptr) return 0;
  EngineLimits limits = LimitsOf(models, options, max_seq_len);
  limits.num_state_slots = HasStates(models.target()) ? 1 : 0;  // how many changes nothing here
  const auto step = DeviceStepBytes(limits, has_windows);
  const auto texts = StepTextBytes(limits, models.target().hidden_size, options.activation_dtype());
  const auto own = step && texts ? CheckedAdd(*step, *texts) : std::nullopt;
  if (!own) return std::nullopt;
  const uint64_t of_codes = options.has_codes() ? options.device->CodeScratchBytes() : 0;
  return CheckedAdd(*own + of_codes, options.device->ReservedBytes(
                                         DeviceLimitsOf(models, {0, options.num_ranks}, limits,
                                                        options.kv_kind, options.num_host_layers)));
}

// Bytes of the largest adapters that may be loaded at once, on all ranks; of several devices, on
// each.
std::optional<uint64_t> AdapterBytesOf(const ModelList& models, const PlanOptions& options,
                                       const EngineLimits& limits) {
  if (options.device != nullptr) {
    return DeviceAdapters::CountBytes(models, limits.max_step_tokens, MaxPlaces(limits));
  }
  std::vector<uint64_t> bytes;
  for (const auto& adapter : models.adapters()) {
    bytes.push_back(AdapterBytes(models.target(), *adapter));
  }
  std::sort(bytes.rbegin(), bytes.rend());
  std::optional<uint64_t> sum = 0;
  for (size_t i = 0; i < bytes.size() && std::cmp_less(i, models.max_adapters()); ++i) {
    const auto all = CheckedMul(bytes[i], static_cast<uint64_t>(options.num_ranks));
    sum = sum && all ? CheckedAdd(*sum, *all) : std::nullopt;
  }
  return sum;
}

// Bytes of the pictures that are kept; on several devices, of each.
std::optional<uint64_t> PictureBytes(const ModelList& models, const PlanOptions& options) {
  if (models.tower() == nullptr) return 0;
  const int64_t width = models.tower()->embedding_width();
  if (options.device != nullptr) return DeviceEncoder::CountBytes(width, options.encoder_cache);
  const uint64_t factors[] = {static_cast<uint64_t>(options.encoder_cache),
                              static_cast<uint64_t>(width), sizeof(float)};
  return CheckedProduct(factors);
}

// Bytes of what a drafter keeps for each token of a page, rounded up: on each device, and on each
// of the CPU's ranks, though the first one has all of it.
std::optional<uint64_t> KeptPerToken(const ModelList& models, const PlanOptions& options) {
  const ListedModel* const drafter = models.drafter();
  if (drafter == nullptr) return 0;
  if (options.device != nullptr) {
    const auto of_page =
        DeviceDrafter::PageBytes(*drafter->layers(), options.device->activation_dtype());
    if (!of_page) return std::nullopt;
    return CeilDiv(*of_page, static_cast<uint64_t>(options.page_size));
  }
  const auto of_page = TokenDrafter::PageBytes(*drafter->layers());
  if (!of_page) return std::nullopt;
  return CeilDiv(*of_page, static_cast<uint64_t>(options.page_size) *
                               static_cast<uint64_t>(options.num_ranks));
}

// Bytes of a drafter's steps.
std::optional<uint64_t> DrafterBytes(const ModelList& models, const PlanOptions& options,
                                     const EngineLimits& limits) {
  const ListedModel* const drafter = models.drafter();
  if (drafter == nullptr) return 0;
  if (options.device != nullptr) {
    return DeviceDrafter::StepBytes(limits, *drafter->layers(), options.device->activation_dtype());
  }
  return TokenDrafter::StepBytes(limits, *drafter->layers());
}

std::optional<uint64_t> SumOf(const std::vector<std::optional<uint64_t>>& parts) {
  std::optional<uint64_t> sum = 0;
  for (const auto& part : parts) sum = sum && part ? CheckedAdd(*sum, *part) : std::nullopt;
  return sum;
}

}  // namespace

std::optional<uint64_t> WeightCounts::Of(const ListedModel& model, const DecoderOptions& options) {
  for (const Count& count : counts_) {
    if (count.model == &model && count.format == options.weight_format &&
        count.rank == options.rank && count.num_host_layers == options.num_host_layers) {
      return count.bytes;
    }
  }
  counts_.push_back({&model, options.weight_format, options.rank, options.num_host_layers,
                     model.WeightBytes(options)});
  return counts_.back().bytes;
}

WeightFormat FormatOf(const ListedModel& model, const PlanOptions& options) {
  if (options.device != nullptr) {
    const DType dtype = options.device->activation_dtype();
    return options.has_codes() ? model.FormatFor(dtype, options.quantization) : dtype;
  }
  return model.FormatFor(options.weight_dtype, options.quantization);
}

std::pair<int32_t, int32_t> CountKvLayersOf(const ModelList& models, const PlanOptions& options) {
  const KvFormat format = KvFormatOf(models, options);
  int32_t all = 0, coded = 0;
  for (size_t i = 0; i < models.size(); ++i) {
    const ModelConfig* const layers = models[i].layers();
    if (layers == nullptr || !layers->draft_head.kv_layers.empty()) continue;
    CountKvLayers(*layers, format, &all, &coded);
  }
  return {all, coded};
}

EngineLimits LimitsOf(const ModelList& models, const PlanOptions& options, int64_t max_seq_len) {
  EngineLimits limits;
  limits.vocab_size = models.target().vocab_size;
  limits.page_size = options.page_size;
  limits.max_running_requests = options.max_running_requests;
  limits.max_seq_len = static_cast<int32_t>(max_seq_len);
  limits.max_step_tokens = options.max_prefill_tokens + options.max_running_requests;
  limits.max_step_drafts = StepDrafts(options);
  limits.extras = kWantsPooling;
  limits.num_adapters = static_cast<int32_t>(models.adapters().size());
  if (limits.num_adapters > 0) limits.extras |= kHasAdapter;
  limits.makes_drafts = models.drafter() != nullptr;
  if (limits.makes_drafts) {
    limits.extras |= kWantsHidden;
    limits.draft_extras = kReplacesEmbeddings | kGivesPositions | kHasInputs | kHasAdapter;
  }
  limits.lacks_head = models.target().lacks_head;
  limits.attends_both_ways = models.target().attends_both_ways;
  if (models.tower() != nullptr) {
    const auto& ropes = models.target().ropes;
    const bool has_sections = std::any_of(
        ropes.begin(), ropes.end(), [](const RopeConfig& rope) { return rope.has_sections(); });
    limits.extras |= kReplacesEmbeddings | kHasInputs | (has_sections ? kGivesPositions : 0);
    limits.encodes_in_pieces = options.device == nullptr;
  }
  return limits;
}

Status CheckAllDivide(const ModelList& models, int32_t num_ranks) {
  for (size_t i = 0; i < models.size(); ++i) {
    const Status divides = models[i].CheckDivides(num_ranks);
    if (!divides.ok()) return i == 0 ? divides : divides.WithPrefix("the " + models[i].Title());
  }
  return Status();
}

std::optional<Needs> CountNeeds(const ModelList& models, const PlanOptions& options,
                                int64_t max_seq_len) {
  const EngineLimits limits = LimitsOf(models, options, max_seq_len);
  const KvFormat kv_format = KvFormatOf(models, options);
  const Rank first = {0, options.num_ranks};
  Needs needs;
  std::vector<std::optional<uint64_t>> weights, workspaces, beside;
  for (size_t i = 0; i < models.size(); ++i) {
    const ListedModel& model = models[i];
    const auto own = CountOnRanks(model, options, max_seq_len, kv_format, models.KeptLayers());
    if (!own) return std::nullopt;
    const auto workspace = CheckedAdd(own->workspace_bytes, own->scratch_bytes);
    weights.push_back(own->weight_bytes);
    workspaces.push_back(workspace);
    if (i == 0) needs.slot_bytes = own->slot_bytes;
    if (i > 0) beside.push_back(PageShare(model, first, kv_format));
    needs.models.push_back({model.role(), model.name(), FormatOf(model, options), own->weight_bytes,
                            workspace.value_or(0), own->kv_per_token, model.is_cut()});
  }
  const auto kept_per_token = KeptPerToken(models, options);
  beside.push_back(kept_per_token);
  const auto beside_per_token = SumOf(beside);
  if (!beside_per_token) return std::nullopt;
  needs.kept_per_token =
      *kept_per_token * static_cast<uint64_t>(options.device != nullptr ? 1 : options.num_ranks);
  const auto kv = KvSplit::Make(
      RankConfig(models.target(), first), limits, options.max_prefill_tokens, kv_format,
      options.device != nullptr ? 1 : options.num_ranks, *beside_per_token);
  if (!kv) return std::nullopt;
  needs.kv = *kv;
  needs.graph_bytes = GraphBytes(models, options, limits);
  workspaces.insert(workspaces.end(),
                    {TableBytes(options, max_seq_len, kv->window() > 0),
                     DeviceBytes(models, options, max_seq_len, kv->window() > 0),
                     PictureBytes(models, options), DrafterBytes(models, options, limits),
                     AdapterBytesOf(models, options, limits), needs.graph_bytes});
  const auto weight_bytes = SumOf(weights), workspace_bytes = SumOf(workspaces);
  if (!weight_bytes || !workspace_bytes) return std::nullopt;
  needs.weight_bytes = *weight_bytes;
  needs.workspace_bytes = *workspace_bytes;
  return needs;
}

}  // namespace minisgl::engine

namespace minisgl {

int ThreadsOfRank(int num_threads, const Rank& rank) {
  const int more = rank.index < num_threads % rank.count ? 1 : 0;
  return std::max(1, num_threads / rank.count + more);
}

Result<std::vector<RankBytes>> CountRankBytes(const ModelList& models,
                                              const ModelEngineOptions& options) {
  MINISGL_RETURN_IF_ERROR(engine::CheckAllDivide(models, options.num_ranks));
  const engine::PlanOptions plan{options};
  const engine::KvFormat kv_format = engine::KvFormatOf(models, plan);
  std::vector<RankBytes> ranks(static_cast<size_t>(options.num_ranks));
  for (int32_t index = 0; index < options.num_ranks; ++index) {
    const Rank rank = {index, options.num_ranks};
    for (size_t i = 0; i < models.size(); ++i) {
      const auto weights = models[i].WeightBytes(
          {.weight_format = engine::FormatOf(models[i], plan), .rank = models[i].RankOf(rank)});
      const auto kv = engine::PageShare(models[i], rank, kv_format);
      RankBytes* const own = &ranks[static_cast<size_t>(index)];
      const auto weight_sum = weights ? CheckedAdd(own->weights, *weights) : std::nullopt;
      const auto kv_sum = kv ? CheckedAdd(own->kv_per_token, *kv) : std::nullopt;
      if (!weight_sum || !kv_sum) return BadInput("the configuration's sizes are too large");
      *own = {*weight_sum, *kv_sum};
    }
  }
  return ranks;
}

}  // namespace minisgl
