// See memory_needs.h. Sizes are computed with checked arithmetic, because a configuration may
// contain any number.
#include "engine/memory_needs.h"

#include <algorithm>
#include <vector>

#include "engine/decode_graphs.h"
#include "engine/device_step.h"
#include "engine/kv_storage.h"
#include "engine/layer_graphs.h"
#include "engine/state_storage.h"
#include "minisgl/base/checked_math.h"
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

// Scratch bytes of the CPU's operations on a rank, whose configuration is `config`.
std::optional<uint64_t> CpuBytes(const ModelConfig& config, const PlanOptions& options,
                                 const EngineLimits& limits, int num_threads) {
  const ExpertsConfig& experts = config.experts;
  const std::vector<LayerShape> shapes = LayerShapes(config);
  int64_t max_inputs = std::max(
      {config.hidden_size, experts.shared_intermediate_size, int64_t{config.per_layer_width},
       config.states.conv_width, config.states.inner_width(), int64_t{config.latent.query_rank},
       int64_t{config.num_heads} * config.latent.value_dim, experts.latent_size});
  for (const LayerShape& shape : shapes) {
    // heads * value_dim: two 31-bit numbers
    max_inputs =
        std::max({max_inputs, shape.intermediate_size, int64_t{shape.num_heads} * shape.value_dim});
  }
  CpuScratchLimits scratch = {
      .num_threads = num_threads,
      .weight_format = FormatOf(config, options),
      .max_tokens = limits.max_step_tokens,
      .max_logit_rows = int64_t{limits.max_running_requests} + limits.max_step_drafts,
      .vocab_size = limits.vocab_size,
      .max_inputs = max_inputs,
      .num_chosen = experts.num_experts > 0 ? experts.num_chosen : 0,
      .expert_inputs = experts.intermediate_size,
      .head_inputs = std::max(config.latent.plain_dim, config.latent.rank)};
  uint64_t most = 0;
  for (const LayerShape& shape : shapes) {
    scratch.num_heads = shape.num_heads;
    scratch.num_kv_heads = shape.num_kv_heads;
    scratch.head_dim = shape.head_dim;
    scratch.value_dim = shape.value_dim;
    const auto bytes = CpuScratchBytes(scratch);
    if (!bytes) return std::nullopt;
    most = std::max(most, *bytes);
  }
  return most;
}

// Estimate of the bytes of all graphs.
uint64_t GraphBytes(const PlanOptions& options, const EngineLimits& limits) {
  const int32_t max_rows = options.max_running_requests;
  const int32_t max_tokens = LayerGraphTokensMax(options.graph_max_tokens, limits);
  const size_t count = GraphBatchSizes(std::min(options.graph_max_rows, max_rows)).size() +
                       LayerGraphShapes(max_tokens, max_rows + 1).size();
  return count * kGraphBytes;
}

// What all ranks need apart from pages and tables; on devices, the most of each that one needs.
struct RankNeeds {
  uint64_t weight_bytes = 0;
  uint64_t workspace_bytes = 0;  // of decoders
  uint64_t scratch_bytes = 0;    // of the CPU's operations
  uint64_t slot_bytes = 0;
};

// Nothing if a size exceeds 2^64.
std::optional<RankNeeds> CountRankNeeds(const ModelConfig& config, const PlanOptions& options,
                                        int64_t max_seq_len) {
  const EngineLimits limits = LimitsOf(config, options, max_seq_len);
  RankNeeds sum;
  for (int32_t index = 0; index < options.num_ranks; ++index) {
    const Rank rank = {index, options.num_ranks};
    const ModelConfig own = RankConfig(config, rank);
    const DecoderOptions decoder = {
        .weight_format = FormatOf(config, options),
        .activation_dtype = options.activation_dtype(),
        .max_step_tokens = int64_t{options.max_prefill_tokens} + options.max_running_requests,
        .max_logit_rows = int64_t{options.max_running_requests} + StepDrafts(options),
        .max_seq_len = max_seq_len,
        .rank = rank,
        .logits_on_all_ranks = options.device != nullptr};
    const auto weights = options.weight_counts == nullptr
                             ? CountDecoderWeights(config, decoder)
                             : options.weight_counts->Of(config, decoder);
    const auto add = [&](std::optional<uint64_t> bytes, uint64_t* to) {
      if (bytes) {
        bytes = options.device != nullptr ? std::max(*bytes, *to) : CheckedAdd(*bytes, *to);
      }
      *to = bytes.value_or(0);
      return bytes.has_value();
    };
    const auto scratch =
        options.device != nullptr
            ? 0
            : CpuBytes(own, options, limits, ThreadsOfRank(options.num_threads, rank));
    if (!add(weights, &sum.weight_bytes) ||
        !add(CountDecoderWorkspace(config, decoder), &sum.workspace_bytes) ||
        !add(scratch, &sum.scratch_bytes) || !add(StateBytesPerSlot(own), &sum.slot_bytes)) {
      return std::nullopt;
    }
  }
  return sum;
}

// Bytes of a device's engine, not counting the decoder and the tables.
std::optional<uint64_t> DeviceBytes(const ModelConfig& config, const PlanOptions& options,
                                    int64_t max_seq_len, bool has_windows) {
  if (options.device == nullptr) return 0;
  EngineLimits limits = LimitsOf(config, options, max_seq_len);
  limits.num_state_slots = HasStates(config) ? 1 : 0;  // how many there are changes nothing here
  const auto step = DeviceStepBytes(limits, has_windows);
  if (!step) return std::nullopt;
  const ModelConfig own = RankConfig(config, {0, options.num_ranks});
  return CheckedAdd(*step, options.device->ReservedBytes(DeviceLimitsOf(own, limits)));
}

std::optional<uint64_t> SumOf(const std::vector<std::optional<uint64_t>>& parts) {
  std::optional<uint64_t> sum = 0;
  for (const auto& part : parts) sum = sum && part ? CheckedAdd(*sum, *part) : std::nullopt;
  return sum;
}

}  // namespace

std::optional<uint64_t> WeightCounts::Of(const ModelConfig& config, const DecoderOptions& options) {
  for (const Count& count : counts_) {
    if (count.format == options.weight_format && count.rank == options.rank) return count.bytes;
  }
  counts_.push_back({options.weight_format, options.rank, CountDecoderWeights(config, options)});
  return counts_.back().bytes;
}

WeightFormat FormatOf(const ModelConfig& config, const PlanOptions& options) {
  if (options.device != nullptr) return options.device->activation_dtype();
  const bool keeps_codes =
      !config.quantization.empty() && options.quantization == Quantization::kNone;
  return {options.weight_dtype.value_or(config.dtype),
          keeps_codes ? Quantization::kStored : options.quantization};
}

EngineLimits LimitsOf(const ModelConfig& config, const PlanOptions& options, int64_t max_seq_len) {
  EngineLimits limits;
  limits.vocab_size = config.vocab_size;
  limits.page_size = options.page_size;
  limits.max_running_requests = options.max_running_requests;
  limits.max_seq_len = static_cast<int32_t>(max_seq_len);
  limits.max_step_tokens = options.max_prefill_tokens + options.max_running_requests;
  limits.max_step_drafts = StepDrafts(options);
  return limits;
}

std::optional<Needs> CountNeeds(const ModelConfig& config, const PlanOptions& options,
                                int64_t max_seq_len) {
  const auto ranks = CountRankNeeds(config, options, max_seq_len);
  const auto kv =
      KvSplit::Make(RankConfig(config, {0, options.num_ranks}),
                    LimitsOf(config, options, max_seq_len), options.max_prefill_tokens,
                    KvDType(options.activation_dtype(), FormatOf(config, options).dtype),
                    options.device != nullptr ? 1 : options.num_ranks);
  if (!kv || !ranks) return std::nullopt;
  const auto tables = TableBytes(options, max_seq_len, kv->window() > 0);
  const auto device = DeviceBytes(config, options, max_seq_len, kv->window() > 0);
  const uint64_t graph_bytes = GraphBytes(options, LimitsOf(config, options, max_seq_len));
  const auto workspace =
      SumOf({tables, device, graph_bytes, ranks->workspace_bytes, ranks->scratch_bytes});
  if (!workspace) return std::nullopt;
  return Needs{ranks->weight_bytes, *workspace, graph_bytes, *kv, ranks->slot_bytes};
}

}  // namespace minisgl::engine

namespace minisgl {

int ThreadsOfRank(int num_threads, const Rank& rank) {
  const int more = rank.index < num_threads % rank.count ? 1 : 0;
  return std::max(1, num_threads / rank.count + more);
}

Result<std::vector<RankBytes>> CountRankBytes(const ModelConfig& config,
                                              const ModelEngineOptions& options) {
  MINISGL_RETURN_IF_ERROR(CheckRanks(config, options.num_ranks));
  const WeightFormat format = engine::FormatOf(config, engine::PlanOptions{options});
  std::vector<RankBytes> ranks;
  for (int32_t index = 0; index < options.num_ranks; ++index) {
    const Rank rank = {index, options.num_ranks};
    const auto weights = CountDecoderWeights(config, {.weight_format = format, .rank = rank});
    const auto kv =
        engine::KvBytesPerToken(RankConfig(config, rank), KvDType(DType::kF32, format.dtype));
    if (!weights || !kv) return BadInput("the configuration's sizes are too large");
    ranks.push_back({*weights, *kv});
  }
  return ranks;
}

}  // namespace minisgl
