#include "bench/bench_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "load/device_choice.h"
#include "load/model_loader.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/device_array.h"
#include "weights/random_checkpoint.h"

namespace minisgl::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCeilingRepeats = 5;
constexpr uint64_t kSeed = 1;

// Row length of the copy that replaces memcpy on a CPU.
constexpr int64_t kCopyRowFloats = 1 << 14;

// Returns the seconds to copy `num_bytes`, rounded down to whole rows.
Result<double> TimeCopy(uint64_t num_bytes, BenchDevice* device) {
  Ops* ops = device->ops();
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> from, ops->Allocate(num_bytes));
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> to, ops->Allocate(num_bytes));
  if (device->on_gpu()) {
    return device->Time(kCeilingRepeats,
                        [&] { device->device()->CopyOnDevice(to.get(), from.get(), num_bytes); });
  }
  std::vector<int32_t> rows(num_bytes / (sizeof(float) * kCopyRowFloats));
  std::iota(rows.begin(), rows.end(), 0);
  return device->Time(kCeilingRepeats, [&] {
    ops->GatherRows({.x = static_cast<const float*>(from.get()),
                     .rows = rows.data(),
                     .out = static_cast<float*>(to.get()),
                     .num_rows = static_cast<int64_t>(rows.size()),
                     .width = kCopyRowFloats});
  });
}

// Returns the seconds to read `num_bytes` of host memory with `num_threads` threads.
double TimeRead(uint64_t num_bytes, int num_threads) {
  constexpr uint64_t kChunkWords = uint64_t{1} << 17;
  const std::vector<uint64_t> words(num_bytes / sizeof(uint64_t), 1);
  ThreadPool pool(num_threads);
  std::vector<uint64_t> sums(static_cast<size_t>(pool.num_threads()));
  const auto chunks = static_cast<int64_t>(CeilDiv<uint64_t>(words.size(), kChunkWords));
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kCeilingRepeats; ++i) {
    const auto begin = Clock::now();
    pool.ParallelFor(chunks, [&](int64_t chunk, int thread) {
      const size_t first = static_cast<size_t>(chunk) * kChunkWords;
      const size_t last = std::min<size_t>(first + kChunkWords, words.size());
      sums[static_cast<size_t>(thread)] = std::accumulate(
          words.begin() + static_cast<ptrdiff_t>(first),
          words.begin() + static_cast<ptrdiff_t>(last), sums[static_cast<size_t>(thread)]);
    });
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  // Use the sums, so that the reads are not optimized away.
  const uint64_t total = std::accumulate(sums.begin(), sums.end(), uint64_t{0});
  return total == words.size() * kCeilingRepeats ? best : 0;
}

// Returns the seconds of one product [n, n] x [n, n] by Linear.
Result<double> TimeMatrix(int64_t n, const WeightFormat& format, BenchDevice* device) {
  Ops* ops = device->ops();
  const DType dtype = ops->activation_dtype();
  const auto size = static_cast<uint64_t>(n);
  MINISGL_ASSIGN_OR_RETURN(
      const auto weights,
      weights::MakeRandomMemory(size * size * DTypeBytes(format.dtype), format.dtype, 0, 1, kSeed));
  const TensorView view = {weights.get(), format.dtype, {n, n}};
  MINISGL_ASSIGN_OR_RETURN(const Matrix matrix, ops->PackMatrix({&view, 1}, format));
  MINISGL_ASSIGN_OR_RETURN(const ActivationArray x,
                           ActivationArray::Make(ops, dtype, {size, size}));
  MINISGL_ASSIGN_OR_RETURN(const ActivationArray y,
                           ActivationArray::Make(ops, dtype, {size, size}));
  const uint64_t x_bytes = size * size * DTypeBytes(dtype);
  MINISGL_ASSIGN_OR_RETURN(const auto values,
                           weights::MakeRandomMemory(x_bytes, dtype, 0, kUnitSpread, kSeed + 1));
  MINISGL_RETURN_IF_ERROR(ops->Upload(x.ptr().data, values.get(), x_bytes));
  return device->Time(kCeilingRepeats, [&] {
    ops->Linear(
        {.x = x.ptr(), .weight = &matrix, .bias = nullptr, .out = y.ptr(), .num_tokens = n});
  });
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Result<BenchDevice> BenchDevice::Open(const load::EngineOptions& options,
                                      const ModelConfig& config) {
  BenchDevice opened;
  MINISGL_ASSIGN_OR_RETURN(load::Device device, load::ChooseDevice(options, config));
  if (!device.fallback.empty() && device.fallback_is_news) {
    Log(LogLevel::kInfo, fmt::format("not on CUDA: {}", device.fallback));
  }
  if (device.cuda != nullptr) return FromDevice(std::move(device.cuda));
  opened.num_threads_ = load::NumThreads(options);
  MINISGL_ASSIGN_OR_RETURN(opened.ops_, load::MakeOps(options));
  return opened;
}

Result<BenchDevice> BenchDevice::FromDevice(std::unique_ptr<DeviceOps> device) {
  BenchDevice opened;
  opened.device_ = device.get();
  opened.ops_ = std::move(device);
  MINISGL_ASSIGN_OR_RETURN(opened.begin_, opened.device_->MakeEvent());
  MINISGL_ASSIGN_OR_RETURN(opened.end_, opened.device_->MakeEvent());
  return opened;
}

Status BenchDevice::Reserve(const DeviceLimits& limits) {
  return device_ == nullptr ? Status() : device_->Reserve(limits);
}

Result<double> BenchDevice::TimeOnce(const std::function<void()>& work) {
  if (device_ == nullptr) {
    const auto begin = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  device_->Record(begin_.get());
  work();
  device_->Record(end_.get());
  MINISGL_RETURN_IF_ERROR(device_->Wait(begin_.get()));
  MINISGL_RETURN_IF_ERROR(device_->Wait(end_.get()));
  MINISGL_ASSIGN_OR_RETURN(const double ms, device_->ElapsedMs(begin_.get(), end_.get()));
  return ms / 1e3;
}

Result<double> BenchDevice::Time(int repeats, const std::function<void()>& work) {
  MINISGL_RETURN_IF_ERROR(TimeOnce(work).status());
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    MINISGL_ASSIGN_OR_RETURN(const double seconds, TimeOnce(work));
    best = std::min(best, seconds);
  }
  return best;
}

Result<double> BenchDevice::TimeLaunches(int count, int repeats,
                                         const std::function<void(int)>& launch) {
  std::unique_ptr<DeviceGraph> graph;
  std::function<void()> run = [&] {
    for (int i = 0; i < count; ++i) launch(i);
  };
  if (device_ != nullptr) {
    launch(0);  // warm up before the capture: loads kernels and libraries
    MINISGL_RETURN_IF_ERROR(device_->Synchronize());
    MINISGL_RETURN_IF_ERROR(device_->BeginCapture());
    run();
    MINISGL_ASSIGN_OR_RETURN(graph, device_->EndCapture());
    run = [&] { device_->Replay(graph.get()); };
  }
  MINISGL_RETURN_IF_ERROR(TimeOnce(run).status());
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    MINISGL_ASSIGN_OR_RETURN(const double all, TimeOnce(run));
    seconds.push_back(all / count);
  }
  return Median(std::move(seconds));
}

Result<std::vector<float>> BenchDevice::Download(ConstActivationPtr from, size_t count) {
  const size_t num_bytes = count * DTypeBytes(from.dtype);
  TensorView view = {
      static_cast<const std::byte*>(from.data), from.dtype, {static_cast<int64_t>(count)}};
  std::shared_ptr<void> host;
  if (device_ != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(host, device_->AllocateHost(num_bytes));
    device_->CopyToHost(host.get(), from.data, num_bytes);
    device_->Record(end_.get());
    MINISGL_RETURN_IF_ERROR(device_->Wait(end_.get()));
    view.data = static_cast<const std::byte*>(host.get());
  }
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = view.At(static_cast<int64_t>(i));
  return values;
}

Result<MeasuredCeilings> MeasureCeilings(const CeilingSizes& sizes, const WeightFormat& format,
                                         BenchDevice* device) {
  MeasuredCeilings measured;
  const bool gpu = device->on_gpu();
  measured.sizes.copy_mib = sizes.copy_mib > 0 ? sizes.copy_mib : gpu ? 1024 : 128;
  measured.sizes.matrix_size = sizes.matrix_size > 0 ? sizes.matrix_size : gpu ? 8192 : 1024;
  measured.matrix_format = gpu ? WeightFormat(device->ops()->activation_dtype()) : format;
  const uint64_t bytes = static_cast<uint64_t>(measured.sizes.copy_mib) * kMiB;
  MINISGL_ASSIGN_OR_RETURN(const double copy_s, TimeCopy(bytes, device));
  measured.rates.bytes_per_s = 2 * static_cast<double>(bytes) / copy_s;
  if (!gpu) {
    const double read_s = TimeRead(bytes, device->num_threads());
    measured.rates.bytes_per_s =
        std::max(measured.rates.bytes_per_s, static_cast<double>(bytes) / read_s);
  }
  MINISGL_ASSIGN_OR_RETURN(const double matrix_s,
                           TimeMatrix(measured.sizes.matrix_size, measured.matrix_format, device));
  const auto n = static_cast<double>(measured.sizes.matrix_size);
  measured.rates.flops_per_s = 2 * n * n * n / matrix_s;
  return measured;
}

void ReportCeilings(const BenchDevice& device, const MeasuredCeilings& measured,
                    BenchReport* report) {
  const std::string name = device.ops()->Name();
  const int64_t n = measured.sizes.matrix_size;
  Json json;
  json.Set("bytes_per_s", measured.rates.bytes_per_s);
  json.Set("flops_per_s", measured.rates.flops_per_s);
  json.Set("copy_mib", measured.sizes.copy_mib);
  json.Set("matrix_size", n);
  json.Set("matrix_dtype", measured.matrix_format.Name());
  report->json().Set("device", name);
  report->json().Set("ceilings", std::move(json));
  report->Line("device", name);
  report->Line("ceilings", fmt::format("memory {} ({} MiB), {} matrix product {} ({}^3)",
                                       FormatBytesPerSecond(measured.rates.bytes_per_s),
                                       measured.sizes.copy_mib, measured.matrix_format.Name(),
                                       FormatFlopsPerSecond(measured.rates.flops_per_s), n));
}

}  // namespace minisgl::bench
