// Sweeps over problem sizes of the attention operation alone. Limits are per launch: reading keys
// and values once, or 4 operations for each query head, element, and pair of token and key,
// whichever takes longer.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "bench/bench_attention_case.h"
#include "bench/bench_model.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/system_info.h"

namespace minisgl::bench {
namespace {

constexpr int64_t kGpuColdMib = 3072, kCpuColdMib = 64;  // much larger than the caches
constexpr int kCopiesMax = 1024;
constexpr int kGpuLaunchesMin = 20, kCpuLaunchesMin = 4;
// Fractions of free memory that the keys and values of one size may use.
constexpr double kGpuMemoryShare = 0.6, kCpuMemoryShare = 0.25;

using List = std::vector<int32_t>;

List Or(const List& given, const List& otherwise) { return given.empty() ? otherwise : given; }

int32_t Most(const List& list) { return *std::max_element(list.begin(), list.end()); }

Result<AttentionHeads> ChooseHeads(const BenchOptions& options, const AttentionOptions& sizes) {
  AttentionHeads heads;
  if (!options.shape.empty() || !options.model.empty()) {
    MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, LoadBenchConfig(options));
    heads = {config.num_heads, config.num_kv_heads, config.head_dim, config.latent.rank};
  }
  heads = {sizes.num_heads.value_or(heads.query), sizes.num_kv_heads.value_or(heads.kv),
           sizes.head_dim.value_or(heads.dim), sizes.head_dim ? 0 : heads.latent};
  if (heads.query % heads.kv != 0) {
    return UsageError("--kv-heads must divide --heads (found {} and {})", heads.kv, heads.query);
  }
  heads.kv_kind = options.engine.kv_kind;
  const ModelConfig made = AttentionConfig(heads);
  if (heads.kv_kind == KvKind::kFp8 &&
      !engine::IsCodedLayer(LayerConfig(), LayerShapeOf(made, 0))) {
    return UsageError("--kv-dtype fp8 is for heads whose width is a multiple of 16 (found {})",
                      heads.dim);
  }
  if (heads.dim % 2 != 0) return UsageError("--head-dim must be even (found {})", heads.dim);
  return heads;
}

// State common to all sizes of a sweep.
class Sweep {
 public:
  static Result<Sweep> Open(const BenchOptions& options, const AttentionOptions& sizes) {
    Sweep sweep;
    sweep.repeat_ = options.repeat;
    sweep.seed_ = options.seed;
    MINISGL_ASSIGN_OR_RETURN(sweep.heads_, ChooseHeads(options, sizes));
    MINISGL_ASSIGN_OR_RETURN(sweep.device_,
                             BenchDevice::Open(options.engine, AttentionConfig(sweep.heads_)));
    const int64_t cold_mib =
        sizes.cold_mib.value_or(sweep.device_.on_gpu() ? kGpuColdMib : kCpuColdMib);
    sweep.cold_bytes_ = static_cast<uint64_t>(cold_mib) * kMiB;
    return sweep;
  }

  // Call before the first size. `largest` bounds the rows, tokens and keys of all sizes.
  Status Begin(const BenchOptions& options, const AttentionSize& largest, BenchReport* report) {
    MINISGL_RETURN_IF_ERROR(
        device_.Reserve({.max_rows = largest.num_rows,
                         .max_tokens = std::max(largest.num_tokens(), kCeilingLimits.max_tokens),
                         .max_seq_len = largest.kv_len,
                         .num_heads = heads_.query,
                         .num_kv_heads = heads_.kv,
                         .head_dim = heads_.dim,
                         .v_head_dim = heads_.latent,
                         .values_in_keys = heads_.latent > 0,
                         .has_codes = heads_.kv_kind == KvKind::kFp8}));
    MINISGL_ASSIGN_OR_RETURN(ceilings_, MeasureCeilings(options.ceilings, DType::kBF16, &device_));
    ReportCeilings(device_, ceilings_, report);
    const char* dtype = DTypeName(device_.ops()->activation_dtype());
    const char* kv_dtype = KvFormatName(BenchKvFormat(heads_, *device_.ops()));
    Json json;
    json.Set("num_heads", heads_.query);
    json.Set("num_kv_heads", heads_.kv);
    json.Set("head_dim", heads_.dim);
    json.Set("dtype", dtype);
    json.Set("kv_dtype", kv_dtype);
    json.Set("cold_bytes", cold_bytes_);
    report->json().Set("attention", std::move(json));
    report->Line("attention",
                 fmt::format("{} query and {} KV heads of {}, {}, keys and values in {}",
                             heads_.query, heads_.kv, heads_.dim, dtype, kv_dtype));
    return Status();
  }

  // Returns the seconds of one launch, or nullopt if its keys and values do not fit.
  Result<std::optional<double>> Measure(const AttentionSize& size) {
    const uint64_t copy_bytes = static_cast<uint64_t>(size.num_pages()) * size.page_size *
                                KvTokenBytes(heads_, BenchKvFormat(heads_, *device_.ops()));
    // A prefill needs no copies: the cache forgets its keys before they are read again.
    const uint64_t wanted = size.extend_len > 1 ? 1 : CeilDiv(cold_bytes_, copy_bytes);
    const int copies = static_cast<int>(std::clamp<uint64_t>(wanted, 1, kCopiesMax));
    if (copy_bytes > MemoryLeft() / static_cast<uint64_t>(copies) ||
        copies * size.num_pages() >= std::numeric_limits<int32_t>::max()) {
      return std::optional<double>();
    }
    MINISGL_ASSIGN_OR_RETURN(const auto attention,
                             AttentionCase::Make(size, heads_, copies, seed_, &device_));
    const int least = device_.on_gpu() ? kGpuLaunchesMin : kCpuLaunchesMin;
    const int launches = size.extend_len > 1 ? std::min(least, 4) : std::max(copies, least);
    MINISGL_ASSIGN_OR_RETURN(
        const double seconds,
        device_.TimeLaunches(launches, repeat_, [&](int i) { attention->Launch(i % copies); }));
    MINISGL_RETURN_IF_ERROR(attention->CheckFinite());
    return std::optional<double>(seconds);
  }

  double Bytes(const AttentionSize& size) const {
    const engine::KvFormat format = BenchKvFormat(heads_, *device_.ops());
    return static_cast<double>(size.num_keys()) * static_cast<double>(KvTokenBytes(heads_, format));
  }
  double Flops(const AttentionSize& size) const {
    const int64_t pairs =
        size.num_rows * CausalPairs(size.kv_len - size.extend_len, size.extend_len);
    return 4.0 * heads_.query * heads_.dim * static_cast<double>(pairs);
  }
  double Limit(const AttentionSize& size) const {
    return std::max(Bytes(size) / ceilings_.rates.bytes_per_s,
                    Flops(size) / ceilings_.rates.flops_per_s);
  }
  bool on_gpu() const { return device_.on_gpu(); }

 private:
  uint64_t MemoryLeft() {
    const double left =
        device_.on_gpu()
            ? kGpuMemoryShare * static_cast<double>(device_.device()->MemoryInfo().free_bytes)
            : kCpuMemoryShare * static_cast<double>(AvailableMemoryBytes());
    return static_cast<uint64_t>(left);
  }

  int repeat_ = 1;
  uint64_t seed_ = 0;
  uint64_t cold_bytes_ = 0;
  AttentionHeads heads_;
  MeasuredCeilings ceilings_;
  BenchDevice device_;
};

// Returns the figures of one size, to which the caller adds.
Json ResultJson(const Sweep& sweep, const AttentionSize& size, double seconds) {
  Json json;
  json.Set("page_size", size.page_size);
  json.Set("batch", size.num_rows);
  json.Set("tokens", size.extend_len);
  json.Set("context", size.kv_len);
  json.Set("seconds", seconds);
  json.Set("bytes_per_s", sweep.Bytes(size) / seconds);
  json.Set("flops_per_s", sweep.Flops(size) / seconds);
  json.Set("limit_s", sweep.Limit(size));
  json.Set("ratio_to_limit", sweep.Limit(size) / seconds);
  return json;
}

void ReportSkipped(const std::string& name, BenchReport* report) {
  report->Line(name, "skipped: its keys and values do not fit");
}

}  // namespace

Status BenchAttentionDecode(const BenchOptions& options, const AttentionOptions& sizes,
                            BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(Sweep sweep, Sweep::Open(options, sizes));
  const bool gpu = sweep.on_gpu();
  const List pages = Or(sizes.page_sizes, {1, 16, 64});
  const List batches = Or(sizes.batches, gpu ? List{1, 8, 64, 256} : List{1, 8});
  const List contexts = Or(sizes.contexts, gpu ? List{128, 1024, 4096, 32768} : List{128, 1024});
  const AttentionSize largest = {.num_rows = Most(batches), .kv_len = Most(contexts)};
  MINISGL_RETURN_IF_ERROR(sweep.Begin(options, largest, report));
  Json results = Json(Json::Array());
  for (const int32_t page_size : pages) {
    for (const int32_t batch : batches) {
      for (const int32_t context : contexts) {
        const AttentionSize size = {.page_size = page_size, .num_rows = batch, .kv_len = context};
        const std::string name = fmt::format("{}x{} p{}", batch, context, page_size);
        MINISGL_ASSIGN_OR_RETURN(const auto seconds, sweep.Measure(size));
        if (!seconds) {
          ReportSkipped(name, report);
          continue;
        }
        results.Append(ResultJson(sweep, size, *seconds));
        report->Line(name, fmt::format("{:>10}  {:>10}  {} of the limit", FormatSeconds(*seconds),
                                       FormatBytesPerSecond(sweep.Bytes(size) / *seconds),
                                       FormatPercent(sweep.Limit(size) / *seconds)));
      }
    }
  }
  report->json().Set("results", std::move(results));
  return Status();
}

Status BenchAttentionPrefill(const BenchOptions& options, const AttentionOptions& sizes,
                             BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(Sweep sweep, Sweep::Open(options, sizes));
  const bool gpu = sweep.on_gpu();
  const List pages = Or(sizes.page_sizes, {1, 16, 64});
  const List lengths = Or(sizes.contexts, gpu ? List{4096, 8192} : List{256, 512});
  const List cached = Or(sizes.cached, gpu ? List{0, 8192} : List{0, 512});
  const AttentionSize largest = {.extend_len = Most(lengths),
                                 .kv_len = Most(lengths) + Most(cached)};
  MINISGL_RETURN_IF_ERROR(sweep.Begin(options, largest, report));
  Json results = Json(Json::Array());
  for (const int32_t page_size : pages) {
    for (const int32_t length : lengths) {
      for (const int32_t before : cached) {
        const AttentionSize size = {
            .page_size = page_size, .extend_len = length, .kv_len = before + length};
        const std::string name = fmt::format("{}+{} p{}", before, length, page_size);
        MINISGL_ASSIGN_OR_RETURN(const auto seconds, sweep.Measure(size));
        if (!seconds) {
          ReportSkipped(name, report);
          continue;
        }
        results.Append(ResultJson(sweep, size, *seconds).Set("cached", before));
        report->Line(name, fmt::format("{:>10}  {:>12}  {} of the limit", FormatSeconds(*seconds),
                                       FormatFlopsPerSecond(sweep.Flops(size) / *seconds),
                                       FormatPercent(sweep.Limit(size) / *seconds)));
      }
    }
  }
  report->json().Set("results", std::move(results));
  return Status();
}

Status BenchCascade(const BenchOptions& options, const AttentionOptions& sizes,
                    BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(Sweep sweep, Sweep::Open(options, sizes));
  const bool gpu = sweep.on_gpu();
  const List pages = Or(sizes.page_sizes, {1, 16, 64});
  const List batches = Or(sizes.batches, gpu ? List{64} : List{16});
  const List prefixes =
      Or(sizes.prefixes, gpu ? List{256, 512, 2048, 8192, 32768} : List{512, 2048});
  const AttentionSize largest = {.num_rows = Most(batches),
                                 .kv_len = Most(prefixes) + sizes.suffix};
  MINISGL_RETURN_IF_ERROR(sweep.Begin(options, largest, report));
  Json results = Json(Json::Array());
  for (const int32_t page_size : pages) {
    for (const int32_t batch : batches) {
      for (const int32_t prefix : prefixes) {
        AttentionSize size = {
            .page_size = page_size, .num_rows = batch, .kv_len = prefix + sizes.suffix};
        const std::string name = fmt::format("{}x{} p{}", batch, prefix, page_size);
        MINISGL_ASSIGN_OR_RETURN(const auto own, sweep.Measure(size));
        size.shared_len = prefix;
        MINISGL_ASSIGN_OR_RETURN(const auto shared, sweep.Measure(size));
        if (!own || !shared) {
          ReportSkipped(name, report);
          continue;
        }
        Json json = ResultJson(sweep, size, *shared);
        json.Set("prefix", prefix).Set("suffix", sizes.suffix);
        json.Set("own_seconds", *own).Set("speedup", *own / *shared);
        results.Append(std::move(json));
        report->Line(name, fmt::format("{:>10} shared, {:>10} apart, {:.2f} times faster, {} of "
                                       "the limit",
                                       FormatSeconds(*shared), FormatSeconds(*own), *own / *shared,
                                       FormatPercent(sweep.Limit(size) / *shared)));
      }
    }
  }
  report->json().Set("results", std::move(results));
  return Status();
}

}  // namespace minisgl::bench
