// See host_layers.h.
#include "engine/host_layers.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"
#include "minisgl/model/decoder.h"

namespace minisgl::engine {
namespace {

// Names of PEFT's files end or go on after "experts", those of GGUF files have "_exps".
bool IsOfExperts(const AdapterChange& change) {
  const std::string_view name = change.module;
  return change.rank_of_expert > 0 || name.find(".experts.") != std::string_view::npos ||
         name.ends_with(".experts") || name.find("_exps") != std::string_view::npos;
}

// Bytes of the buffers that a step's tokens cross through: inputs and sums, experts and shares.
std::optional<uint64_t> BufferBytes(const ModelConfig& config, int64_t num_tokens, DType dtype) {
  const ExpertsConfig& experts = config.experts;
  const int64_t width = experts.latent_size > 0 ? experts.latent_size : config.hidden_size;
  const auto rows = CheckedMul(static_cast<uint64_t>(width), 2 * DTypeBytes(dtype));
  const uint64_t choices =
      static_cast<uint64_t>(experts.num_chosen) * (sizeof(int32_t) + sizeof(float));
  const auto of_token = rows ? CheckedAdd(*rows, choices) : std::nullopt;
  return of_token ? CheckedMul(*of_token, static_cast<uint64_t>(num_tokens)) : std::nullopt;
}

// What a rank has on the host: its cuts of the weights, and what computes with them.
struct HostBytes {
  std::optional<uint64_t> weights, beside;
};

HostBytes HostBytesOf(const ModelList& models, const PlanOptions& options, const Rank& rank,
                      const MemoryPlan& plan) {
  DecoderOptions decoder = {.weight_format = plan.host_format,
                            .max_step_tokens = plan.limits.max_step_tokens,
                            .max_logit_rows = 1,
                            .max_seq_len = 1,
                            .rank = rank,
                            .packs_6_bits = options.packs_6_bits,
                            .num_host_layers = options.num_host_layers,
                            .host_format = plan.host_format};
  const auto weights = CountHostExpertWeights(models.target(), decoder);
  const auto workspace = CountHostExpertWorkspace(models.target(), decoder);
  const auto buffers =
      BufferBytes(models.target(), decoder.max_step_tokens, options.activation_dtype());
  decoder.max_step_tokens = std::min(decoder.max_step_tokens, kHostExpertTokens);
  const auto scratch = models[0].ScratchBytes(decoder, ThreadsOfRank(options.num_threads, rank));
  const auto space = workspace && scratch ? CheckedAdd(*workspace, *scratch) : std::nullopt;
  return {weights, space && buffers ? CheckedAdd(*space, *buffers) : std::nullopt};
}

}  // namespace

Status CheckHostLayers(const ModelList& models, const PlanOptions& options) {
  if (options.num_host_layers == 0) return Status();
  const char* const name = SettingName(Setting::kCpuExperts);
  if (options.device == nullptr) {
    return UsageError("{} divides a model between a GPU and the CPU; the CPU has all of it here",
                      name);
  }
  if (CountExpertLayers(models.target()) == 0) {
    return UsageError("{}: {} has no experts", name, Visible(models.target().architecture, 200));
  }
  for (const auto& adapter : models.adapters()) {
    if (std::any_of(adapter->changes.begin(), adapter->changes.end(), IsOfExperts)) {
      return UsageError("{}: the adapter {} changes experts, which needs all of them on the GPU",
                        name, Visible(adapter->dir, 400));
    }
  }
  return Status();
}

Status PlanHostLayers(const ModelList& models, const PlanOptions& options, uint64_t host_bytes,
                      MemoryPlan* plan) {
  if (options.num_host_layers == 0) return Status();
  plan->host_format = models[0].FormatFor(options.weight_dtype, options.quantization);
  std::optional<uint64_t> weights = 0, beside = 0;
  for (int32_t index = 0; index < options.num_ranks; ++index) {
    const HostBytes rank = HostBytesOf(models, options, {index, options.num_ranks}, *plan);
    weights = weights && rank.weights ? CheckedAdd(*weights, *rank.weights) : std::nullopt;
    beside = beside && rank.beside ? CheckedAdd(*beside, *rank.beside) : std::nullopt;
  }
  const auto all = weights && beside ? CheckedAdd(*weights, *beside) : std::nullopt;
  if (!all || *all > host_bytes) {
    constexpr double kGiB = 1 << 30;
    return MakeStatus(
        StatusCode::kOutOfMemory,
        "the experts of {} layers take {:.1f} GiB of the machine's memory ({:.1f} GiB are "
        "available); give a smaller {}, or use a smaller model",
        options.num_host_layers, all ? static_cast<double>(*all) / kGiB : 1e10,
        static_cast<double>(host_bytes) / kGiB, SettingName(Setting::kCpuExperts));
  }
  plan->num_host_layers = options.num_host_layers;
  plan->host_weight_bytes = *weights;
  plan->host_workspace_bytes = *beside;
  return Status();
}

}  // namespace minisgl::engine
