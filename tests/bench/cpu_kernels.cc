// Kernels of the CPU engine compared to the limits of this processor.
//
// bench_cpu_kernels [--threads 1,2] [--shapes NAME,...] [--formats bf16,f16,f32,int8,int4,fp8,w8a8,
//                   nvfp4,q4_k,q6_k,q4_0,q8_0]
//                   [--rows 1,2,8,64,512] [--kernels linear,norm,rope,activate,decode,prefill]
//                   [--target NAME] [--cold-mib N] [--repeats N] [--json FILE]
//
// For each number of threads, measures the limits first (cpu_ceilings.h), then every kernel through
// the Ops interface: the best and the median of several runs, as a rate and as shares of the limit.
// - A matrix product is compared to reading its weights at the read bandwidth, or to its operations
//   at the rate of the fastest instruction for its operands, whichever takes longer. (bf16: tiles,
//   dot product or f32 multiply-add, whichever is fastest here; f16, f32: multiply-add; int8: tiles
//   or integer dot product.) Of tiles there are two rates, of operands in registers and of
//   operands that are read from the second-level cache; the first is the limit.
// - Up to 8 rows, distinct copies of the matrix alternate, so that they come from memory.
// - With --target, instructions that the target lacks do not count.
// - "step" is the sum of all matrices of the model (the head for up to 64 rows).
// - Norms, rotations and activations work on data that a step has just written, so they may exceed
//   the bandwidth of memory.
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/bench_attention_case.h"
#include "bench/bench_device.h"
#include "bench/cpu_ceilings.h"
#include "bench_formats.h"
#include "engine/kv_storage.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/json.h"
#include "minisgl/base/system_info.h"
#include "minisgl/device_array.h"
#include "weights/random_checkpoint.h"

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;

// Sizes from config.json of the model.
struct Shape {
  const char* name;
  int64_t layers, hidden, num_heads, num_kv_heads, head_dim, intermediate, vocab;
  bool qk_norm;
  int64_t latent = 0;  // bench::AttentionHeads; others: attention alone

  int64_t qkv_width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  // Operations of attention for a token and a key that it sees: 2 for each query head and element
  // of the key and its value.
  double operations_of_pair() const {
    return 2.0 * static_cast<double>(num_heads * (head_dim + heads().value_dim()));
  }
  bench::AttentionHeads heads() const {
    return {static_cast<int32_t>(num_heads), static_cast<int32_t>(num_kv_heads),
            static_cast<int32_t>(head_dim), static_cast<int32_t>(latent)};
  }
};

constexpr Shape kShapes[] = {
    {"qwen3-0.6b", 28, 1024, 16, 8, 128, 3072, 151936, true},
    {"llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, false},
    {"tinyllama-1.1b", 22, 2048, 32, 4, 64, 5632, 32000, false},
    {"glm-4.7-flash", 47, 2048, 20, 1, 576, 10240, 154880, false, 512},
    {"deepseek-v3", 61, 7168, 128, 1, 576, 18432, 129280, false, 512},
};

std::vector<NamedMatrix> MatricesOf(const Shape& shape) {
  return {{"qkv", shape.qkv_width(), shape.hidden, shape.layers},
          {"o", shape.hidden, shape.num_heads * shape.head_dim, shape.layers},
          {"gate_up", 2 * shape.intermediate, shape.hidden, shape.layers},
          {"down", shape.hidden, shape.intermediate, shape.layers},
          {"head", shape.vocab, shape.hidden, 1}};
}

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSeed = 1;
constexpr float kUnitSpread = 1.732f;  // uniform around 0 with standard deviation 1
constexpr int64_t kFewRowsMax = 8;     // up to this, a product may be bound by reading its weights
constexpr int64_t kHeadRowsMax = 64;   // the head gets only the last row of each prompt
constexpr int64_t kDecodeKeys = 4096, kPrefillTokens = 512;
constexpr int32_t kPageSize = 16;
// Minimum length of a run, so that the clock's resolution does not matter. All runs of a kernel
// together take about kAllRunsSeconds, but there are at least three.
constexpr double kRunSeconds = 2e-3, kAllRunsSeconds = 2;
constexpr int kRunsMin = 3;

struct Options {
  std::vector<int64_t> threads = {1, 2}, rows = {1, 2, 8, 64, 512};
  std::vector<std::string> shapes, formats, kernels;  // empty means all
  std::string target, json;
  uint64_t cold_bytes = ColdBytes(512 * kMiB);
  int repeats = 7;
};

template <typename T>
T OrDie(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fputs((result.status().message() + "\n").c_str(), stderr);
  std::exit(ExitCode(result.status().code()));
}

[[noreturn]] void Usage(const std::string& message) {
  std::fputs((message + "\n").c_str(), stderr);
  std::exit(ExitCode(StatusCode::kUsage));
}

bool Chosen(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the widest vectors of an instruction set of the engine, and whether it has the dot
// product of a kind; "" is the best set.
int VectorBits(std::string_view target) {
  if (target.empty() || target == "amx") return 16 * 512;  // a tile
  if (target.starts_with("avx512")) return 512;
  return target.starts_with("avx") ? 256 : 128;
}
bool HasDot(std::string_view target, OperandKind kind) {
  if (target.empty() || target == "amx" || target.ends_with("bf16")) return true;
  return target.ends_with("vnni") && kind == OperandKind::kInt8;
}

struct Times {
  double best_s, median_s;
};

// Returns the seconds of one launch. A run consists of `launches` launches, or more if they are too
// short.
Times Measure(int launches, int repeats, const std::function<void(int)>& launch) {
  const auto run = [&](int count) {
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) launch(i);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  double seconds = run(launches);
  if (seconds < kRunSeconds) {
    launches = static_cast<int>(std::ceil(launches * kRunSeconds / std::max(seconds, 1e-7)));
    seconds = run(launches);
  }
  const auto affordable = static_cast<int>(kAllRunsSeconds / seconds);
  std::vector<double> all;
  for (int i = std::clamp(affordable, kRunsMin, std::max(repeats, kRunsMin)); i > 0; --i) {
    all.push_back(run(launches) / launches);
  }
  return {*std::min_element(all.begin(), all.end()), bench::Median(all)};
}

// Lower bound on the work of a launch, and the limit that it is compared to.
struct Work {
  double amount = 0;      // bytes or operations
  const char* unit = "";  // "GB/s", "GFLOP/s", "GOP/s"
  std::string ceiling_name;
  double ceiling = 0;  // per second; 0 if not measured

  double limit_s() const { return ceiling == 0 ? 0 : amount / ceiling; }
};

// Sum over all matrices of a step with some number of rows.
struct StepSum {
  int64_t rows = 0;
  Times times = {0, 0};
  Work work;

  void Add(int64_t count, const Times& one, const Work& of_one) {
    const auto times_over = static_cast<double>(count);
    const double before = work.amount;
    work = of_one;
    work.amount = before + times_over * of_one.amount;
    times.best_s += times_over * one.best_s;
    times.median_s += times_over * one.median_s;
  }
};

class KernelBench {
 public:
  KernelBench(const Options& options, int num_threads) : options_(options) {
    load::EngineOptions engine;
    engine.device = *load::ParseDevice("cpu");
    engine.threads = num_threads;
    engine.cpu_target = options.target;
    device_ = OrDie(bench::BenchDevice::Open(engine, bench::AttentionConfig(kShapes[0].heads())));
    ceilings_ = MeasureCpuCeilings(num_threads);
  }

  void Run() {
    PrintCeilings();
    for (const Shape& shape : kShapes) {
      if (!Chosen(options_.shapes, shape.name)) continue;
      if (shape.latent == 0 && Chosen(options_.kernels, "linear")) Linears(shape);
      for (const int64_t rows : options_.rows) {
        if (shape.latent > 0) break;
        if (Chosen(options_.kernels, "norm")) Norm(shape, rows);
        if (Chosen(options_.kernels, "rope")) RopeKvWrite(shape, rows);
        if (Chosen(options_.kernels, "activate")) Activate(shape, rows);
      }
      if (Chosen(options_.kernels, "decode")) AttentionDecode(shape);
      if (Chosen(options_.kernels, "prefill")) AttentionPrefill(shape);
    }
  }

  Json TakeJson() {
    Json json;
    json.Set("threads", ceilings_.num_threads).Set("device", device_.ops()->Name());
    json.Set("read_bytes_per_s", ceilings_.read_bytes_per_s);
    Json rates = Json(Json::Object());
    for (const InstructionRate& rate : ceilings_.rates) rates.Set(rate.name, rate.per_s);
    json.Set("operations_per_s", std::move(rates));
    json.Set("results", std::move(results_));
    return json;
  }

 private:
  Ops* ops() { return device_.ops(); }
  DType dtype() { return ops()->activation_dtype(); }

  ActivationArray Random(uint64_t count) {
    auto array = OrDie(ActivationArray::Make(ops(), dtype(), {count}));
    const uint64_t num_bytes = count * DTypeBytes(dtype());
    const auto values = OrDie(weights::MakeRandomMemory(num_bytes, dtype(), 0, kUnitSpread, kSeed));
    if (const Status status = ops()->Upload(array.ptr().data, values.get(), num_bytes);
        !status.ok()) {
      Usage(status.message());
    }
    return array;
  }
  DeviceArray<float> Floats(int64_t count, float value) {
    const std::vector<float> values(static_cast<size_t>(count), value);
    return OrDie(Upload<float>(ops(), values));
  }

  void PrintCeilings();
  void Report(const Shape& shape, const std::string& kernel, const char* format, int64_t rows,
              const Times& times, const Work& work);
  Work Bytes(double amount) const { return {amount, "GB/s", "read", ceilings_.read_bytes_per_s}; }
  Work Operations(double amount, std::initializer_list<OperandKind> kinds) const;

  void Linears(const Shape& shape);
  // Adds to `steps`, which has an element for each number of rows.
  void Linear(const Shape& shape, const NamedMatrix& matrix, const NamedFormat& format,
              std::vector<StepSum>* steps);
  std::vector<Matrix> PackCopies(const NamedMatrix& matrix, const NamedFormat& named);
  void Norm(const Shape& shape, int64_t rows);
  void RopeKvWrite(const Shape& shape, int64_t rows);
  void Activate(const Shape& shape, int64_t rows);
  void AttentionDecode(const Shape& shape);
  void AttentionPrefill(const Shape& shape);

  const Options& options_;
  CpuCeilings ceilings_;
  bench::BenchDevice device_;
  Json results_ = Json(Json::Array());
};

void KernelBench::PrintCeilings() {
  fmt::print("{}: reads {:.1f} GB/s (over {} MiB)\n", ops()->Name(),
             ceilings_.read_bytes_per_s / 1e9, ceilings_.read_bytes / kMiB);
  constexpr std::pair<OperandKind, const char*> kKinds[] = {
      {OperandKind::kF32, "f32"}, {OperandKind::kBf16, "bf16"}, {OperandKind::kInt8, "int8"}};
  for (const auto& [kind, name] : kKinds) {
    std::string line;
    for (const InstructionRate& rate : ceilings_.rates) {
      if (rate.kind != kind) continue;
      line += fmt::format("{}{} {:.1f}", line.empty() ? "" : ", ", rate.name, rate.per_s / 1e9);
    }
    fmt::print("  {:4} {}\n", name, line.empty() ? "none" : line + " G operations/s");
  }
  fmt::print("{:15}{:9}{:7}{:>5}{:>12}{:>12}{:>18}  {:>6} {:>6}\n", "shape", "kernel", "format",
             "rows", "best", "median", "rate", "best", "median");
}

void KernelBench::Report(const Shape& shape, const std::string& kernel, const char* format,
                         int64_t rows, const Times& times, const Work& work) {
  const auto share = [&](double seconds) { return work.limit_s() / seconds; };
  const std::string rate = fmt::format("{:.1f} {}", work.amount / times.best_s / 1e9, work.unit);
  fmt::print("{:15}{:9}{:7}{:5}{:>12}{:>12}{:>18}  {:5.1f}% {:5.1f}% of {}\n", shape.name, kernel,
             format, rows, bench::FormatSeconds(times.best_s), bench::FormatSeconds(times.median_s),
             rate, 100 * share(times.best_s), 100 * share(times.median_s), work.ceiling_name);
  std::fflush(stdout);
  Json json;
  json.Set("shape", shape.name).Set("kernel", kernel).Set("format", format).Set("rows", rows);
  json.Set("best_s", times.best_s).Set("median_s", times.median_s);
  json.Set("amount", work.amount).Set("unit", work.unit).Set("ceiling", work.ceiling_name);
  json.Set("best_share", share(times.best_s)).Set("median_share", share(times.median_s));
  results_.Append(std::move(json));
}

Work KernelBench::Operations(double amount, std::initializer_list<OperandKind> kinds) const {
  const InstructionRate* best = nullptr;
  for (const OperandKind kind : kinds) {
    const InstructionRate* rate =
        ceilings_.Best(kind, VectorBits(options_.target), HasDot(options_.target, kind));
    if (rate != nullptr && (best == nullptr || rate->per_s > best->per_s)) best = rate;
  }
  const bool integer = *kinds.begin() == OperandKind::kInt8;
  return {amount, integer ? "GOP/s" : "GFLOP/s", best == nullptr ? "none" : best->name,
          best == nullptr ? 0 : best->per_s};
}

// --- matrix products -----------------------------------------------------------------------------

void KernelBench::Linears(const Shape& shape) {
  for (const NamedFormat& format : kFormats) {
    if (!Chosen(options_.formats, format.name)) continue;
    std::vector<StepSum> steps;
    for (const int64_t rows : options_.rows) steps.push_back({.rows = rows});
    for (const NamedMatrix& matrix : MatricesOf(shape)) Linear(shape, matrix, format, &steps);
    for (const StepSum& step : steps) {
      if (step.work.amount == 0) continue;
      Report(shape, "step", format.name, step.rows, step.times, step.work);
    }
  }
}

// Enough copies to exceed all caches together. Each begins at another place of the same generated
// numbers, so that no two copies are equal.
std::vector<Matrix> KernelBench::PackCopies(const NamedMatrix& matrix, const NamedFormat& named) {
  const WeightFormat& format = named.format;
  const auto count = static_cast<uint64_t>(matrix.num_out * matrix.num_in);
  const uint64_t matrix_bytes = MatrixBytes(matrix, named);
  const uint64_t copies = std::max<uint64_t>(2, CeilDiv(options_.cold_bytes, matrix_bytes));
  const uint64_t element = DTypeBytes(format.dtype);
  const auto values = OrDie(weights::MakeRandomMemory((count + copies) * element, format.dtype, 0,
                                                      kUnitSpread / 32, kSeed));
  std::vector<Matrix> packed;
  for (uint64_t i = 0; i < copies; ++i) {
    const TensorView view = {
        values.get() + i * element, format.dtype, {matrix.num_out, matrix.num_in}};
    constexpr std::byte kScale[] = {std::byte{0x38}, std::byte{0x3B}};  // in bf16; of e4m3, 1
    const auto* bytes = reinterpret_cast<const std::byte*>(view.data);
    std::vector<std::byte> e4m3;
    if (named.name == std::string_view("fp8")) {
      e4m3 = E4M3Codes(bytes, count);
      bytes = e4m3.data();
    }
    const WeightTensor tensor = format.quantization == Quantization::kStored
                                    ? Codes(matrix, named, bytes, kScale)
                                    : WeightTensor(view);
    packed.push_back(OrDie(ops()->PackMatrix({&tensor, 1}, format)));
    if (packed[0].quantization != format.quantization) break;
  }
  return packed;
}

void KernelBench::Linear(const Shape& shape, const NamedMatrix& matrix, const NamedFormat& format,
                         std::vector<StepSum>* steps) {
  const std::vector<Matrix> copies = PackCopies(matrix, format);
  if (copies[0].quantization != format.format.quantization) {
    fmt::print("{:15}{:9}{:7} not quantized by this engine; passed over\n", shape.name, matrix.name,
               format.name);
    return;
  }
  const auto weights = static_cast<double>(matrix.num_out) * static_cast<double>(matrix.num_in);
  const auto bytes = static_cast<double>(MatrixBytes(matrix, format));
  for (StepSum& step : *steps) {
    const int64_t rows = step.rows;
    const ActivationArray x = Random(static_cast<uint64_t>(rows * matrix.num_in));
    const auto out = OrDie(ActivationArray::Make(
        ops(), dtype(), {static_cast<uint64_t>(rows), static_cast<uint64_t>(matrix.num_out)}));
    const auto num_copies = static_cast<int>(copies.size());
    // With many rows, a run is one product; the copies still alternate.
    const bool few = rows <= kFewRowsMax;
    int turn = 0;
    const Times times = Measure(few ? num_copies : 1, options_.repeats, [&](int) {
      ops()->Linear({.x = x.ptr(),
                     .weight = &copies[static_cast<size_t>(turn++ % num_copies)],
                     .bias = nullptr,
                     .out = out.ptr(),
                     .num_tokens = rows});
    });
    const double operations = 2 * weights * static_cast<double>(rows);
    const bool bf16 = format.format.dtype == DType::kBF16;
    const bool integers = RoundsInputs(options_.target, format);
    const Work computing = integers ? Operations(operations, {OperandKind::kInt8})
                           : bf16 ? Operations(operations, {OperandKind::kF32, OperandKind::kBf16})
                                  : Operations(operations, {OperandKind::kF32});
    const Work reading = Bytes(bytes);
    const Work& work = reading.limit_s() >= computing.limit_s() ? reading : computing;
    Report(shape, matrix.name, format.name, rows, times, work);
    if (matrix.count > 1 || rows <= kHeadRowsMax) step.Add(matrix.count, times, work);
  }
}

// --- what stands between them --------------------------------------------------------------------

// Reads x, reads and writes the residual stream, writes the normalised rows.
void KernelBench::Norm(const Shape& shape, int64_t rows) {
  const auto count = static_cast<uint64_t>(rows * shape.hidden);
  const ActivationArray x = Random(count), out = Random(count);
  const DeviceArray<float> residual = Floats(rows * shape.hidden, 1),
                           weight = Floats(shape.hidden, 1);
  const Times times = Measure(1, options_.repeats, [&](int) {
    ops()->Norm({.x = x.ptr(),
                 .residual = residual.data(),
                 .weight = weight.data(),
                 .out = out.ptr(),
                 .num_tokens = rows,
                 .width = shape.hidden,
                 .eps = 1e-6f,
                 .x_scale = 1e-6f});  // keeps the residual stream near 1 over all runs
  });
  const double element = 2.0 * static_cast<double>(DTypeBytes(dtype())) + 2 * sizeof(float);
  Report(shape, "norm", "", rows, times, Bytes(static_cast<double>(count) * element));
}

// Reads q, k and v; writes q in place, and keys and values to their pages.
void KernelBench::RopeKvWrite(const Shape& shape, int64_t rows) {
  const auto pages = static_cast<int32_t>(CeilDiv<int64_t>(rows, kPageSize));
  const auto kv = OrDie(engine::KvStorage::Make(bench::AttentionConfig(shape.heads()),
                                                bench::BenchKvFormat(shape.heads(), *ops()), pages,
                                                kPageSize, ops()));
  const auto count = static_cast<uint64_t>(rows * shape.qkv_width());
  const ActivationArray qkv = Random(count);
  const DeviceArray<float> cos = Floats(rows * shape.head_dim / 2, 1);
  const DeviceArray<float> sin = Floats(rows * shape.head_dim / 2, 0);
  const DeviceArray<float> norm = Floats(shape.head_dim, 1);
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int64_t> slots(positions.begin(), positions.end());
  const Times times = Measure(1, options_.repeats, [&](int) {
    ops()->RopeKvWrite({.qkv = qkv.ptr(),
                        .positions = positions.data(),
                        .slots = slots.data(),
                        .cos = cos.data(),
                        .sin = sin.data(),
                        .kv = kv.layers()[0],
                        .num_tokens = rows,
                        .num_heads = static_cast<int32_t>(shape.num_heads),
                        .num_kv_heads = static_cast<int32_t>(shape.num_kv_heads),
                        .head_dim = static_cast<int32_t>(shape.head_dim),
                        .rotary_dim = static_cast<int32_t>(shape.head_dim),
                        .q_norm = shape.qk_norm ? norm.data() : nullptr,
                        .k_norm = shape.qk_norm ? norm.data() : nullptr,
                        .norm_eps = 1e-6f});
  });
  const int64_t touched = shape.qkv_width() + shape.num_heads * shape.head_dim;
  const uint64_t token_bytes =
      static_cast<uint64_t>(touched) * DTypeBytes(dtype()) +
      bench::KvTokenBytes(shape.heads(), bench::BenchKvFormat(shape.heads(), *ops()));
  Report(shape, "rope", "", rows, times,
         Bytes(static_cast<double>(static_cast<uint64_t>(rows) * token_bytes)));
}

void KernelBench::Activate(const Shape& shape, int64_t rows) {
  const auto count = static_cast<uint64_t>(rows * shape.intermediate);
  const ActivationArray gate_up = Random(2 * count), out = Random(count);
  const Times times = Measure(1, options_.repeats, [&](int) {
    ops()->Activate({.gate_up = gate_up.ptr(),
                     .out = out.ptr(),
                     .num_tokens = rows,
                     .width = shape.intermediate,
                     .activation = Activation::kSilu});
  });
  const double element = 3.0 * static_cast<double>(DTypeBytes(dtype()));
  Report(shape, "activate", "", rows, times, Bytes(static_cast<double>(count) * element));
}

// --- attention -----------------------------------------------------------------------------------

// One row with kDecodeKeys keys, from copies that exceed all caches together.
void KernelBench::AttentionDecode(const Shape& shape) {
  const bench::AttentionSize size = {.page_size = kPageSize, .num_rows = 1, .kv_len = kDecodeKeys};
  const uint64_t bytes =
      kDecodeKeys * bench::KvTokenBytes(shape.heads(), bench::BenchKvFormat(shape.heads(), *ops()));
  const auto copies = static_cast<int>(CeilDiv(options_.cold_bytes, bytes));
  const auto attention =
      OrDie(bench::AttentionCase::Make(size, shape.heads(), copies, kSeed, &device_));
  int turn = 0;
  const Times times =
      Measure(copies, options_.repeats, [&](int) { attention->Launch(turn++ % copies); });
  // All heads share the keys of latent attention: products take longer than reading.
  const double operations = kDecodeKeys * shape.operations_of_pair();
  Report(shape, "decode", DTypeName(dtype()), 1, times,
         shape.latent > 0 ? Operations(operations, {OperandKind::kF32, OperandKind::kBf16})
                          : Bytes(static_cast<double>(bytes)));
}

// A prompt of kPrefillTokens tokens.
void KernelBench::AttentionPrefill(const Shape& shape) {
  const bench::AttentionSize size = {
      .page_size = kPageSize, .extend_len = kPrefillTokens, .kv_len = kPrefillTokens};
  const auto attention = OrDie(bench::AttentionCase::Make(size, shape.heads(), 1, kSeed, &device_));
  const Times times = Measure(1, options_.repeats, [&](int) { attention->Launch(0); });
  const auto pairs = static_cast<double>(bench::CausalPairs(0, kPrefillTokens));
  const double operations = pairs * shape.operations_of_pair();
  Report(shape, "prefill", DTypeName(dtype()), kPrefillTokens, times,
         Operations(operations, {OperandKind::kF32}));
}

// --- the command line ----------------------------------------------------------------------------

std::vector<std::string> SplitNames(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

int64_t ParseNumber(std::string_view option, std::string_view text) {
  constexpr int64_t kMax = 1 << 20;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMax) {
    Usage(fmt::format("{}: a number from 1 to {} is wanted (found '{}')", option, kMax, text));
  }
  return value;
}

std::vector<int64_t> ParseNumbers(std::string_view option, std::string_view text) {
  std::vector<int64_t> numbers;
  for (const std::string& name : SplitNames(text)) numbers.push_back(ParseNumber(option, name));
  return numbers;
}

std::vector<std::string> ParseNames(std::string_view option, std::string_view text,
                                    const std::vector<std::string>& known) {
  std::vector<std::string> names = SplitNames(text);
  for (const std::string& name : names) {
    if (Chosen(known, name)) continue;
    Usage(fmt::format("{}: '{}' is none of {}", option, name, fmt::join(known, ", ")));
  }
  return names;
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  std::vector<std::string> shapes, formats;
  for (const Shape& shape : kShapes) shapes.push_back(shape.name);
  for (const NamedFormat& format : kFormats) formats.push_back(format.name);
  const std::vector<std::string> kernels = {"linear",   "norm",   "rope",
                                            "activate", "decode", "prefill"};
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc) Usage(fmt::format("{}: unknown, or without its value", option));
    const std::string_view value = argv[i + 1];
    if (option == "--threads") {
      options.threads = ParseNumbers(option, value);
    } else if (option == "--rows") {
      options.rows = ParseNumbers(option, value);
    } else if (option == "--shapes") {
      options.shapes = ParseNames(option, value, shapes);
    } else if (option == "--formats") {
      options.formats = ParseNames(option, value, formats);
    } else if (option == "--kernels") {
      options.kernels = ParseNames(option, value, kernels);
    } else if (option == "--target") {
      options.target = value;
    } else if (option == "--cold-mib") {
      options.cold_bytes = static_cast<uint64_t>(ParseNumber(option, value)) * kMiB;
    } else if (option == "--repeats") {
      options.repeats = static_cast<int>(ParseNumber(option, value));
    } else if (option == "--json") {
      options.json = value;
    } else {
      Usage(fmt::format("{}: unknown option", option));
    }
  }
  return options;
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  Json json = Json(Json::Array());
  for (const int64_t threads : options.threads) {
    KernelBench bench(options, static_cast<int>(threads));
    bench.Run();
    json.Append(bench.TakeJson());
  }
  if (options.json.empty()) return 0;
  std::FILE* file = std::fopen(options.json.c_str(), "w");
  if (file == nullptr) {
    std::fputs(fmt::format("{}: {}\n", options.json, std::strerror(errno)).c_str(), stderr);
    return ExitCode(StatusCode::kCannotCreate);
  }
  const std::string text = json.Dump(2) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? 0 : ExitCode(StatusCode::kIoError);
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) { return minisgl::Main(argc, argv); }
