// See info_plan.h.
#include "cli/info_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "batch/row_prompt.h"
#include "cli/gguf_info.h"
#include "minisgl/base/checked_math.h"
#include "term/progress.h"

namespace minisgl::cli {
namespace {

// Says whether the codes of a quantized checkpoint are kept or converted.
std::string FateOfCodes(const QuantizationConfig& quantization, const MemoryPlan& plan) {
  if (quantization.empty()) return "";
  const WeightFormat& format = plan.weight_format;
  if (format.quantization == Quantization::kStored) {
    std::string fate = "codes stay in memory, products compute their weights";
    if (plan.codes_to_fit) {
      fate += fmt::format("; in {} they do not fit", DTypeName(format.dtype));
    }
    const bool has_order = std::any_of(quantization.schemes.begin(), quantization.schemes.end(),
                                       [](const QuantScheme& scheme) { return scheme.has_order; });
    if (has_order) fate += "; matrices in activation order are expanded";
    return fate;
  }
  return fmt::format("codes are converted to {} as they are loaded", format.Name());
}

// True if codes of 8 bits are integers without zero points.
bool AreIntegers(const QuantScheme& scheme) {
  switch (scheme.layout) {
    case QuantLayout::kRowBlocks:
      return true;  // those that are not fit in 6 bits
    case QuantLayout::kInt8:
    case QuantLayout::kPackedInt:
      return !scheme.has_zeros && !scheme.has_order;
    default:
      return false;
  }
}

// Describes how the engine treats quantized weights.
void DescribeQuantization(const ModelConfig& config, const load::EngineSetup& engine,
                          std::string* out) {
  const std::vector<QuantScheme>& schemes = config.quantization.schemes;
  const Quantization kind = engine.plan.weight_format.quantization;
  const bool rounds = load::RoundsActivationsToInt8(engine);
  const bool rounds_all = rounds && (kind == Quantization::kInt8 || kind == Quantization::kInt4);
  const bool rounds_integers = load::RoundsInputsOfIntegers(engine);
  const auto is_small_and_rounded = [&](const QuantScheme& scheme) {
    return rounds_all || (rounds && scheme.bits == 4);
  };
  const auto is_large_and_rounded = [&](const QuantScheme& scheme) {
    return rounds_integers && scheme.bits == 8 && AreIntegers(scheme);
  };
  const auto is_rounded = [&](const QuantScheme& scheme) {
    return is_small_and_rounded(scheme) || is_large_and_rounded(scheme);
  };
  const auto follows = [&](const QuantScheme& scheme) {
    return scheme.int8_inputs && load::RoundsInt8Inputs(engine);
  };
  const bool has_e4m3 = load::RoundsE4M3Inputs(engine);
  const auto rounds_e4m3 = [&](const QuantScheme& scheme) {
    return has_e4m3 && scheme.e4m3_inputs != InputRounding::kNone;
  };
  std::string text = FateOfCodes(config.quantization, engine.plan);
  const auto add = [&](const char* sentence) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", sentence);
  };
  if (rounds && kind == Quantization::kInt8) {
    add("products with weights of int8 round activations to int8");
  } else if (std::any_of(schemes.begin(), schemes.end(), is_large_and_rounded)) {
    add("products with weights of integers round activations to int8");
  } else if (rounds_all || std::any_of(schemes.begin(), schemes.end(), is_small_and_rounded)) {
    add("products with weights of 4 bits round activations to int8");
  }
  if (std::any_of(schemes.begin(), schemes.end(), follows)) {
    add("products with weights of int8 round activations to int8, as the publisher rounds them");
  }
  if (std::any_of(schemes.begin(), schemes.end(), rounds_e4m3)) {
    add("products of many tokens round activations to e4m3, as the publisher rounds them (w8a8)");
  }
  const bool differs = std::any_of(schemes.begin(), schemes.end(), [&](const QuantScheme& scheme) {
    return scheme.rounds_activations && !is_rounded(scheme) && !follows(scheme) &&
           !rounds_e4m3(scheme);
  });
  if (differs) add("activations are not rounded to 8 bits, as the publisher rounds them");
  if (!text.empty()) InfoLine("", text, out);
}

// ", fp8 in 6 of 28 layers", if some have codes.
std::string CodedLayersText(const MemoryPlan& plan) {
  if (plan.coded_kv_layers == 0) return "";
  return fmt::format(", fp8 in {} of {} layers", plan.coded_kv_layers, plan.kv_layers);
}

}  // namespace

void DescribePlan(const load::EngineSetup& engine, const ModelConfig& config, std::string* out) {
  const load::EngineOptions& options = engine.options;
  const MemoryPlan& plan = engine.plan;
  const EngineLimits& limits = plan.limits;
  const int threads = load::NumThreads(options);
  std::string device = engine.device.cuda != nullptr
                           ? load::DeviceName(engine.device)
                           : fmt::format("cpu, {} thread{}", threads, threads == 1 ? "" : "s");
  if (!engine.device.fallback.empty()) {
    device += fmt::format("; not on CUDA: {}", engine.device.fallback);
  }
  InfoLine("device", device, out);
  if (engine.device.cuda == nullptr) {
    const CpuKernels kernels = CpuKernelsOfBuild();
    const std::string missing = fmt::format("{}", fmt::join(kernels.not_built, ", "));
    InfoLine("  kernels",
             fmt::format("{}{}", fmt::join(kernels.usable, ", "),
                         missing.empty() ? "" : fmt::format("; built without {}", missing)),
             out);
  }
  const std::string ranks = load::RanksText(engine);
  if (!ranks.empty()) InfoLine("", ranks, out);
  InfoLine("memory", term::FormatBytes(plan.available_bytes) + " available", out);
  InfoLine("  weights",
           fmt::format("{} as {}", term::FormatBytes(plan.weight_bytes), plan.weight_format.Name()),
           out);
  DescribeQuantization(config, engine, out);
  InfoLine("  workspace", term::FormatBytes(plan.workspace_bytes), out);
  InfoLine("  KV cache",
           fmt::format("{}: {} pages of {} tokens, {} a token{}", term::FormatBytes(plan.kv_bytes),
                       limits.num_pages, limits.page_size,
                       term::FormatBytes(plan.kv_bytes_per_token - plan.window_bytes_per_token),
                       CodedLayersText(plan)),
           out);
  if (limits.num_state_slots > 0) {
    const uint64_t slot_bytes = plan.state_bytes / static_cast<uint64_t>(limits.num_state_slots);
    InfoLine("  states",
             fmt::format("{}: {} slots of {}", term::FormatBytes(plan.state_bytes),
                         limits.num_state_slots, term::FormatBytes(slot_bytes)),
             out);
  }
  if (limits.num_window_pages > 0) {
    InfoLine(
        "    windows",
        fmt::format("{} window pages, {} a token, for layers that see the last {} tokens or fewer",
                    limits.num_window_pages, term::FormatBytes(plan.window_bytes_per_token),
                    limits.sliding_window),
        out);
  }
  for (const load::ModelLine& line : load::ModelLines(engine)) {
    InfoLine("  " + line.role, line.text, out);
  }
  const int64_t capacity = batch::ContextCapacity(limits);
  const int64_t pages = std::max<int64_t>(CeilDiv<int64_t>(capacity - 1, limits.page_size), 1);
  InfoLine("longest",
           fmt::format("{} tokens, prompt and answer ({})", capacity, plan.max_seq_len_reason),
           out);
  InfoLine("requests",
           fmt::format("{} at once, {} of the longest", limits.max_running_requests,
                       std::min<int64_t>(limits.max_running_requests, limits.num_pages / pages)),
           out);
  if (options.drafts.max_drafts == 0) return;
  InfoLine("drafts",
           fmt::format("{} tokens of a request in a step, {} of all", options.drafts.max_drafts,
                       limits.max_step_drafts),
           out);
}

}  // namespace minisgl::cli
