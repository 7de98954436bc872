// Divides memory before anything is loaded.
//
// - CPU: weights and workspace come first. Keys and values get what the running requests can need
//   at their longest, at most `memory_ratio` of the available memory, and at most what is left. A
//   given number of pages is used if it fits what is left.
// - Device: everything together gets `memory_ratio` of the free memory, and keys and values get all
//   that is left of it.
// - Slots of states (SplitStates) are part of the memory for keys and values.
// - KvSplit divides keys and values between layers with and without a sliding window.
//
// Sizes are computed with checked arithmetic, because a configuration may contain any number.
#include <fmt/ranges.h>

#include <algorithm>
#include <bitset>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/host_layers.h"
#include "engine/memory_needs.h"
#include "engine/state_split.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/system_info.h"
#include "minisgl/engine/model_engine.h"

namespace minisgl::engine {
namespace {

constexpr int64_t kCpuSeqLenDefault = 8192;
constexpr int64_t kSeqLenMin = 2;  // one token of prompt, one of answer
constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();

// Upper bound on what a device leaves to its driver at any memory_ratio, for the code of kernels
// that run for the first time. An estimate: this program's has some MB, that of the kernels which
// cuBLAS chooses some tens.
constexpr uint64_t kDriverBytesMax = uint64_t{384} << 20;

// Upper bound on the bytes of keys and values; 0 if weights and workspace leave nothing.
uint64_t KvBytesAllowed(const Needs& needs, const PlanOptions& options, uint64_t available) {
  const auto taken = CheckedAdd(needs.weight_bytes, needs.workspace_bytes);
  if (!taken || *taken >= available) return 0;
  if (options.device != nullptr) {
    const uint64_t most = available - std::min(kDriverBytesMax, available / 20);  // 95 % or more
    const auto share = options.memory_ratio >= 1
                           ? most
                           : std::min(most, static_cast<uint64_t>(options.memory_ratio *
                                                                  static_cast<double>(available)));
    return share > *taken ? share - *taken : 0;
  }
  const uint64_t left = available - *taken;
  if (options.num_pages > 0 || options.memory_ratio >= 1) return left;
  return std::min(left,
                  static_cast<uint64_t>(options.memory_ratio * static_cast<double>(available)));
}

// The slots of states of an engine; nothing if they do not fit.
std::optional<StateSplit> StatesThatFit(const Needs& needs, const PlanOptions& options,
                                        uint64_t available) {
  return SplitStates(needs.slot_bytes, KvBytesAllowed(needs, options, available),
                     options.max_running_requests);
}

// Number of pages, without the dummy, that fit beside an engine for requests of up to `max_seq_len`
// tokens; 0 if none fits.
int64_t PagesThatFit(const ModelList& models, const PlanOptions& options, uint64_t available,
                     int64_t max_seq_len) {
  const auto needs = CountNeeds(models, options, max_seq_len);
  if (!needs) return 0;
  const auto states = StatesThatFit(*needs, options, available);
  if (!states) return 0;
  const int64_t pages =
      needs->kv.PagesWithin(KvBytesAllowed(*needs, options, available) - states->bytes);
  if (options.num_pages == 0) return pages;
  return pages >= options.num_pages ? options.num_pages : 0;
}

bool OneRequestFits(const ModelList& models, const PlanOptions& options, uint64_t available,
                    int64_t max_seq_len) {
  return PagesThatFit(models, options, available, max_seq_len) >=
         CeilDiv<int64_t>(max_seq_len, options.page_size);
}

// The longest request of at most `wanted` tokens that fits; 0 if none does. If a length fits, so
// does every shorter one, because the tables and the pages of one request grow with the length.
int64_t LongestThatFits(const ModelList& models, const PlanOptions& options, uint64_t available,
                        int64_t wanted) {
  if (OneRequestFits(models, options, available, wanted)) return wanted;
  if (wanted <= kSeqLenMin || !OneRequestFits(models, options, available, kSeqLenMin)) return 0;
  int64_t fits = kSeqLenMin, fails = wanted;
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (OneRequestFits(models, options, available, middle) ? fits : fails) = middle;
  }
  return fits;
}

int64_t WantedSeqLen(const ModelList& models, const PlanOptions& options) {
  if (options.max_seq_len > 0) return options.max_seq_len;
  if (options.device != nullptr) return std::min(models.target().max_seq_len, kIntMax);
  return std::min(models.target().max_seq_len, kCpuSeqLenDefault);
}

std::string SeqLenReason(const ModelList& models, const PlanOptions& options, int64_t max_seq_len) {
  if (options.max_seq_len > 0) return SettingName(Setting::kMaxSeqLen);
  if (max_seq_len == models.target().max_seq_len) return "the model's";
  const bool by_default = options.device == nullptr && max_seq_len == kCpuSeqLenDefault;
  return by_default ? "the CPU default" : "what fits";
}

// True if a checkpoint has matrices as codes.
bool HasCodes(const ModelList& models) {
  for (size_t i = 0; i < models.size(); ++i) {
    const ModelConfig* const layers = models[i].layers();
    if (layers != nullptr && !layers->quantization.empty()) return true;
  }
  return false;
}

// The plan for `options`; nothing if one request of the wanted length does not fit.
std::optional<MemoryPlan> TryPlan(const ModelList& models, const PlanOptions& options,
                                  uint64_t available) {
  const int64_t wanted = WantedSeqLen(models, options);
  const int64_t max_seq_len = LongestThatFits(models, options, available, wanted);
  if (max_seq_len == 0 || (options.max_seq_len > 0 && max_seq_len < wanted)) return std::nullopt;
  const Needs needs = *CountNeeds(models, options, max_seq_len);
  const StateSplit states = *StatesThatFit(needs, options, available);
  // Pages that all running requests need at their longest: below 2^62.
  const int64_t useful =
      states.max_running_requests * CeilDiv<int64_t>(max_seq_len, options.page_size);
  const int64_t fit = PagesThatFit(models, options, available, max_seq_len);
  // A device's memory is used up: pages that running requests do not need keep prefixes.
  const bool all = options.num_pages > 0 || options.device != nullptr;
  const int64_t num_pages = all ? fit : std::min(fit, useful);

  MemoryPlan plan;
  plan.weight_format = FormatOf(models[0], options);
  plan.available_bytes = available;
  plan.weight_bytes = needs.weight_bytes;
  plan.workspace_bytes = needs.workspace_bytes;
  const auto page_size = static_cast<uint64_t>(options.page_size);
  plan.kv_bytes_per_token =
      (needs.kv.page_bytes() + needs.kv.window_page_bytes()) / page_size - needs.kept_per_token;
  plan.kv_bytes = *needs.kv.Bytes(num_pages);  // <= available
  plan.graph_bytes = needs.graph_bytes;
  plan.limits = LimitsOf(models, options, max_seq_len);
  plan.limits.num_pages = static_cast<int32_t>(num_pages);
  plan.limits.max_running_requests = states.max_running_requests;
  plan.limits.num_state_slots = states.num_slots;
  plan.state_bytes = states.bytes;
  // If every page has a window page (a small pool), all layers share pages instead.
  const int64_t num_window_pages = needs.kv.WindowPages(num_pages);
  if (num_window_pages < num_pages) {
    plan.window_bytes_per_token = needs.kv.window_page_bytes() / page_size;
    plan.limits.num_window_pages = static_cast<int32_t>(num_window_pages);
    plan.limits.sliding_window = needs.kv.window();
  }
  if (models.tower() != nullptr) plan.kept_embeddings = options.encoder_cache;
  plan.max_seq_len_reason = SeqLenReason(models, options, max_seq_len);
  plan.models = needs.models;
  plan.kv_kind = options.kv_kind;
  std::tie(plan.kv_layers, plan.coded_kv_layers) = CountKvLayersOf(models, options);
  return plan;
}

std::string FormatBytes(uint64_t bytes) {
  const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 || value >= 100 ? 0 : 1, kUnits[unit]);
}

// The settings that make room. Each can be moved by a notch at a time, towards less memory.
enum class Lever : uint8_t {
  kSeqLen,
  kMemoryRatio,
  kCpuExperts,
  kNumPages,
  kDType,
  kQuantize,
  kPrefill,
  kRunning
};
constexpr int kNumLevers = 8;

using LeverSet = std::bitset<kNumLevers>;

LeverSet Only(int lever) { return LeverSet().set(static_cast<size_t>(lever)); }

// True if experts of the models may be on the host.
bool CanHaveHostLayers(const ModelList& models, PlanOptions options) {
  options.num_host_layers = 1;
  return CheckHostLayers(models, options).ok();
}

// Moves the quantization from `from` to `to`. False if it is another or does not apply.
bool Quantize(const ModelList& models, Quantization from, Quantization to, PlanOptions* options) {
  if (options->device != nullptr && options->device->KeepsCodes() == CodesKept::kNever)
    return false;
  if (options->quantization != from) return false;
  if (!models.target().quantization.empty()) return false;  // the codes may take less
  options->quantization = to;
  return true;
}

// The length that is to fit before experts leave the device, if none is asked for: with the length
// reduced to what fits, nearly none would have to leave.
constexpr int64_t kUsefulSeqLen = 8192;
int64_t UsefulSeqLen(const ModelList& models, const PlanOptions& options) {
  return std::min(WantedSeqLen(models, options), kUsefulSeqLen);
}

// The fewest layers with experts on the host, more than options.num_host_layers, with which a
// request of a useful length fits, or any request if that never does; nothing if none does.
std::optional<int32_t> FewestHostLayers(const ModelList& models, const PlanOptions& options,
                                        uint64_t available) {
  const int32_t most = CountExpertLayers(models.target());
  PlanOptions tried = options;
  const auto fits = [&](int32_t num_layers) {
    tried.num_host_layers = num_layers;
    return OneRequestFits(models, tried, available, std::max(tried.max_seq_len, kSeqLenMin));
  };
  if (options.max_seq_len == 0) {
    tried.max_seq_len = UsefulSeqLen(models, options);
    if (!fits(most)) tried.max_seq_len = 0;
  }
  if (options.num_host_layers >= most || !fits(most)) return std::nullopt;
  int32_t fails = options.num_host_layers, least = most;
  while (least - fails > 1) {
    const int32_t middle = fails + (least - fails) / 2;
    (fits(middle) ? least : fails) = middle;
  }
  return least;
}

// Moves `lever` by a notch. False if it is at its end or does not apply.
bool Relax(const ModelList& models, Lever lever, uint64_t available, PlanOptions* options) {
  const int64_t least_pages =
      CeilDiv<int64_t>(std::max(options->max_seq_len, kSeqLenMin), options->page_size);
  const int64_t wanted_pages = CeilDiv<int64_t>(WantedSeqLen(models, *options), options->page_size);
  const PlanOptions before = *options;
  switch (lever) {
    case Lever::kSeqLen: {
      const int64_t fits = LongestThatFits(models, *options, available, options->max_seq_len);
      if (options->max_seq_len > 0 && fits > 0) options->max_seq_len = fits;
      return options->max_seq_len != before.max_seq_len;
    }
    case Lever::kMemoryRatio:
      if (options->num_pages > 0 || options->memory_ratio >= 0.95) return false;
      // To the next multiple of 0.05, which reads well.
      options->memory_ratio =
          std::min(0.95, (std::floor(options->memory_ratio * 20 + 1e-6) + 1) / 20);
      return true;
    case Lever::kCpuExperts: {
      if (!CanHaveHostLayers(models, *options)) return false;
      const auto fewest = FewestHostLayers(models, *options, available);
      if (fewest) options->num_host_layers = *fewest;
      return options->num_host_layers != before.num_host_layers;
    }
    case Lever::kNumPages: {
      int64_t pages = options->num_pages == 0 ? wanted_pages : options->num_pages / 2;
      pages = std::min(std::max(pages, least_pages), kIntMax - 1);
      options->num_pages = static_cast<int32_t>(pages);
      return options->num_pages != before.num_pages;
    }
    case Lever::kDType:
      if (options->device != nullptr) return false;
      if (DTypeBytes(FormatOf(models[0], *options).dtype) == DTypeBytes(DType::kBF16)) return false;
      options->weight_dtype = DType::kBF16;
      return true;
    case Lever::kQuantize:
      return Quantize(models, Quantization::kNone, Quantization::kInt8, options);
    case Lever::kPrefill:
      if (options->max_prefill_tokens <= 32) return false;
      options->max_prefill_tokens = std::max(32, options->max_prefill_tokens / 2);
      return true;
    case Lever::kRunning:
      if (options->max_running_requests == 1) return false;
      options->max_running_requests /= 2;
      return true;
  }
  return false;
}

// Moves `levers` until a plan fits; nothing if none does. The length is moved last, because the
// user asked for it.
std::optional<PlanOptions> RelaxUntilItFits(const ModelList& models, LeverSet levers,
                                            uint64_t available, PlanOptions options) {
  constexpr int kSeqLen = static_cast<int>(Lever::kSeqLen);
  while (!TryPlan(models, options, available)) {
    bool moved = false;
    for (int lever = kSeqLen + 1; lever < kNumLevers; ++lever) {
      if (!levers.test(static_cast<size_t>(lever))) continue;
      moved = Relax(models, static_cast<Lever>(lever), available, &options) || moved;
    }
    if (moved) continue;
    if (options.may_become_int4 && levers.test(static_cast<size_t>(Lever::kQuantize)) &&
        Quantize(models, Quantization::kInt8, Quantization::kInt4, &options)) {
      continue;
    }
    if (!levers.test(kSeqLen) || !Relax(models, Lever::kSeqLen, available, &options)) {
      return std::nullopt;
    }
  }
  return options;
}

// Returns the levers that are needed to make room; all of them if they do not suffice. Levers are
// left out one after another, the length first.
LeverSet LeversNeeded(const ModelList& models, LeverSet levers, uint64_t available,
                      const PlanOptions& options) {
  for (int lever = 0; lever < kNumLevers; ++lever) {
    const LeverSet fewer = levers & ~Only(lever);
    if (RelaxUntilItFits(models, fewer, available, options)) levers = fewer;
  }
  return levers;
}

// The settings of `changed` that differ from `options`, each name with its value.
std::string Describe(const PlanOptions& options, const PlanOptions& changed) {
  std::vector<std::string> parts;
  const auto put = [&](Setting setting, const auto& value) {
    parts.push_back(fmt::format("{} {}", SettingName(setting), value));
  };
  const auto add = [&](Setting setting, const auto& was, const auto& is) {
    if (is != was) put(setting, is);
  };
  add(Setting::kMaxSeqLen, options.max_seq_len, changed.max_seq_len);
  add(Setting::kMemoryRatio, options.memory_ratio, changed.memory_ratio);
  add(Setting::kCpuExperts, options.num_host_layers, changed.num_host_layers);
  add(Setting::kNumPages, options.num_pages, changed.num_pages);
  if (changed.weight_dtype != options.weight_dtype) put(Setting::kDType, "bf16");
  if (changed.quantization != options.quantization) {
    put(Setting::kQuantize, changed.quantization == Quantization::kInt8 ? "int8" : "int4");
  }
  add(Setting::kMaxPrefillLength, options.max_prefill_tokens, changed.max_prefill_tokens);
  add(Setting::kMaxRunningRequests, options.max_running_requests, changed.max_running_requests);
  return fmt::format("{}", fmt::join(parts, " "));
}

// Up to three settings that fit: first those that move one lever, then the fewest of the other
// levers that fit together.
std::vector<std::string> SettingsThatFit(const ModelList& models, const PlanOptions& options,
                                         uint64_t available) {
  std::vector<std::string> settings;
  const auto add = [&](LeverSet levers) {
    const auto changed = RelaxUntilItFits(models, levers, available, options);
    if (!changed) return false;
    std::string text = Describe(options, *changed);
    const bool is_new = std::find(settings.begin(), settings.end(), text) == settings.end();
    if (is_new && settings.size() < 3) settings.push_back(std::move(text));
    return true;
  };
  LeverSet others;
  for (int lever = 0; lever < kNumLevers; ++lever) {
    if (!add(Only(lever))) others |= Only(lever);
  }
  // Without kNumPages first: after it has set a number of pages, a shorter request frees none.
  for (const LeverSet levers : {others & ~Only(static_cast<int>(Lever::kNumPages)), others}) {
    add(LeversNeeded(models, levers, available, options));
  }
  return settings;
}

// The length that must fit.
int64_t LeastSeqLen(const PlanOptions& options) {
  return options.max_seq_len > 0 ? options.max_seq_len : kSeqLenMin;
}

// Describes what does not fit, and the memory that it is compared with.
std::string Shortage(const ModelList& models, const PlanOptions& options, uint64_t available) {
  const int64_t wanted = LeastSeqLen(options);
  const auto needs = CountNeeds(models, options, wanted);
  if (!needs) return "the model's sizes exceed any memory";
  const uint64_t allowed = KvBytesAllowed(*needs, options, available);
  if (allowed == 0) {
    return fmt::format("the model{} {} of weights and {} of workspace ({} are available)",
                       models.is_one() ? " takes" : "s take", FormatBytes(needs->weight_bytes),
                       FormatBytes(needs->workspace_bytes), FormatBytes(available));
  }
  const auto states = StatesThatFit(*needs, options, available);
  if (!states) {
    return fmt::format(
        "the states of one request take {} ({} are left for states, keys and values)",
        FormatBytes((kSlotsOfRequest + kSnapshotsMin) * needs->slot_bytes), FormatBytes(allowed));
  }
  const int64_t pages = CeilDiv<int64_t>(wanted, options.page_size);
  if (options.num_pages > 0 && options.num_pages < pages) {
    return fmt::format("a request of {} tokens takes {} pages ({} {})", wanted, pages,
                       SettingName(Setting::kNumPages), options.num_pages);
  }
  const int64_t wanted_pages = std::max<int64_t>(pages, options.num_pages);
  const auto bytes = needs->kv.Bytes(wanted_pages);
  return fmt::format("{} take {} of keys and values ({} are left for them)",
                     options.num_pages > 0 ? fmt::format("{} pages", options.num_pages)
                                           : fmt::format("{} tokens", wanted),
                     bytes ? FormatBytes(*bytes) : "more than 2^64 bytes",
                     FormatBytes(allowed - states->bytes));
}

// What models beside the target take: "" without them.
std::string TakenBeside(const ModelList& models, const PlanOptions& options, uint64_t available) {
  if (models.is_one()) return "";
  const auto needs = CountNeeds(models, options, LeastSeqLen(options));
  if (!needs) return "";
  std::string text;
  for (size_t i = 1; i < models.size(); ++i) {
    const PlannedModel& model = needs->models[i];
    text += fmt::format("; the {} takes {} of weights and {} of workspace", models[i].Title(),
                        FormatBytes(model.weight_bytes), FormatBytes(model.workspace_bytes));
    if (model.kv_bytes_per_token == 0) continue;
    text +=
        fmt::format(", and {} a token of keys and values", FormatBytes(model.kv_bytes_per_token));
  }
  if (TryPlan(models.Alone(), options, available)) text += "; the target alone fits";
  return text;
}

Status DoesNotFit(const ModelList& models, const PlanOptions& options, uint64_t available) {
  const std::string what =
      Shortage(models, options, available) + TakenBeside(models, options, available);
  std::vector<std::string> settings = SettingsThatFit(models, options, available);
  if (settings.empty()) {  // answers of int4 differ more than those of int8
    PlanOptions with_int4 = options;
    with_int4.may_become_int4 = true;
    settings = SettingsThatFit(models, with_int4, available);
  }
  if (settings.empty()) {
    return MakeStatus(StatusCode::kOutOfMemory, "{}; no setting makes room, use a smaller model",
                      what);
  }
  return MakeStatus(StatusCode::kOutOfMemory, "{}; these fit: {}", what,
                    fmt::join(settings, ", or "));
}

// True if a plan has shorter requests than FewestHostLayers makes room for.
bool IsShort(const ModelList& models, const PlanOptions& options, const MemoryPlan& plan) {
  return options.max_seq_len == 0 && plan.limits.max_seq_len < UsefulSeqLen(models, options);
}

Status CheckKvKind(const ModelList& models, const PlanOptions& options) {
  if (options.kv_kind == KvKind::kAuto) return Status();
  const char* const name = SettingName(Setting::kKvDType);
  if (options.device != nullptr && models.target().adds_distances()) {
    return UsageError("{} fp8: this model adds numbers of distances to scores; run it on the CPU",
                      name);
  }
  if (CountKvLayersOf(models, options).second > 0) return Status();
  return UsageError(
      "{} fp8: no layer of this model can keep keys and values in 8 bits: layers with a sliding "
      "window, with latent attention, or with heads whose width is no multiple of 16 cannot",
      name);
}

Status CheckOptions(const ModelList& models, const PlanOptions& options) {
  if (options.page_size < 1 || options.page_size > 64 ||
      (options.page_size & (options.page_size - 1)) != 0) {
    return UsageError("{} must be a power of two up to 64 ({})", SettingName(Setting::kPageSize),
                      options.page_size);
  }
  if (options.max_running_requests < 1) {
    return UsageError("{} must be at least 1 ({})", SettingName(Setting::kMaxRunningRequests),
                      options.max_running_requests);
  }
  if (options.max_prefill_tokens < 1) {
    return UsageError("{} must be at least 1 ({})", SettingName(Setting::kMaxPrefillLength),
                      options.max_prefill_tokens);
  }
  if (int64_t{options.max_prefill_tokens} + options.max_running_requests > kIntMax) {
    return UsageError("{} and {} are too large ({} and {})",
                      SettingName(Setting::kMaxPrefillLength),
                      SettingName(Setting::kMaxRunningRequests), options.max_prefill_tokens,
                      options.max_running_requests);
  }
  if (options.max_step_drafts < 0) {
    return UsageError("{}: drafts must not be negative ({})", SettingName(Setting::kSpeculate),
                      options.max_step_drafts);
  }
  if (options.num_pages < 0 || options.num_pages == kIntMax) {
    return UsageError("{} is out of range ({})", SettingName(Setting::kNumPages),
                      options.num_pages);
  }
  if (!(options.memory_ratio > 0 && options.memory_ratio <= 1)) {
    return UsageError("{} must be above 0 and at most 1 ({})", SettingName(Setting::kMemoryRatio),
                      options.memory_ratio);
  }
  if (options.device != nullptr && options.quantization != Quantization::kNone &&
      options.device->KeepsCodes() == CodesKept::kNever) {
    return UsageError("{} {}: the device computes in bf16 or f16; run on the CPU",
                      SettingName(Setting::kQuantize),
                      WeightFormat(DType::kBF16, options.quantization).Name());
  }
  MINISGL_RETURN_IF_ERROR(CheckKvKind(models, options));
  MINISGL_RETURN_IF_ERROR(CheckAllDivide(models, options.num_ranks));
  MINISGL_RETURN_IF_ERROR(CheckHostLayers(models, options));
  if (options.max_seq_len == 0) return Status();
  const int64_t longest = std::min(models.target().max_seq_len, kIntMax);
  if (options.max_seq_len < kSeqLenMin || options.max_seq_len > longest) {
    return UsageError("{} must be from {} to the model's {} ({})", SettingName(Setting::kMaxSeqLen),
                      kSeqLenMin, longest, options.max_seq_len);
  }
  return Status();
}

}  // namespace
}  // namespace minisgl::engine

namespace minisgl {

Result<MemoryPlan> PlanMemory(const ModelList& models, const ModelEngineOptions& options,
                              uint64_t available_bytes, DeviceOps* device, uint64_t host_bytes) {
  engine::WeightCounts weight_counts;
  engine::PlanOptions wanted{options, device};
  wanted.weight_counts = &weight_counts;
  MINISGL_RETURN_IF_ERROR(engine::CheckOptions(models, wanted));
  const bool is_auto = options.num_host_layers == kAutoHostLayers;
  wanted.num_host_layers =
      is_auto ? 0 : std::min(options.num_host_layers, CountExpertLayers(models.target()));
  uint64_t available = available_bytes;
  if (available == 0) {
    available = device == nullptr ? AvailableMemoryBytes() : device->MemoryInfo().free_bytes;
  }
  const CodesKept kept = device == nullptr ? CodesKept::kNever : device->KeepsCodes();
  wanted.keeps_codes = kept == CodesKept::kAlways;
  auto plan = engine::TryPlan(models, wanted, available);
  const bool may_keep = kept == CodesKept::kWhereNeeded && engine::HasCodes(models);
  if ((!plan || (is_auto && engine::IsShort(models, wanted, *plan))) && may_keep) {
    wanted.keeps_codes = true;
    plan = engine::TryPlan(models, wanted, available);
    if (plan) plan->codes_to_fit = true;
  }
  if (is_auto && (!plan || engine::IsShort(models, wanted, *plan))) {
    if (const auto fewest = engine::FewestHostLayers(models, wanted, available)) {
      wanted.num_host_layers = *fewest;
      plan = engine::TryPlan(models, wanted, available);
      if (plan) plan->codes_to_fit = may_keep && wanted.keeps_codes;
    }
  }
  if (!plan) return engine::DoesNotFit(models, wanted, available);
  const uint64_t host = host_bytes == 0 ? AvailableMemoryBytes() : host_bytes;
  MINISGL_RETURN_IF_ERROR(engine::PlanHostLayers(models, wanted, host, &*plan));
  return *std::move(plan);
}

}  // namespace minisgl
