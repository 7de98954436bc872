// The operations of one device, timed: what a benchmark of single operations runs on, and where the
// ceilings of every benchmark are measured.
//
// On a device with memory of its own, times are between two events of its compute stream; on the
// CPU they are of the clock. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bench/bench_limits.h"
#include "bench/bench_report.h"
#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::bench {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr float kUnitSpread = 1.732f;  // of even numbers around 0 with deviation 1

class BenchDevice {
 public:
  // kUnavailable for a device that cannot be used. `config` as ChooseDevice takes it.
  static Result<BenchDevice> Open(const load::EngineOptions& options, const ModelConfig& config);
  static Result<BenchDevice> FromDevice(std::unique_ptr<DeviceOps> device);
  // Once, before the first operation.
  Status Reserve(const DeviceLimits& limits);

  Ops* ops() const { return ops_.get(); }
  DeviceOps* device() const { return device_; }  // null on the CPU
  bool on_gpu() const { return device_ != nullptr; }
  int num_threads() const { return num_threads_; }  // of the CPU engine

  // Seconds that the device needs for what `work` calls: the least of `repeats` times, after one
  // that is not counted.
  Result<double> Time(int repeats, const std::function<void()>& work);
  // Seconds of one of `count` calls of `launch`, which gets their numbers: the median of `repeats`
  // times that all of them run back to back. On a device they are captured once as a graph.
  Result<double> TimeLaunches(int count, int repeats, const std::function<void(int)>& launch);

  // `count` activations of the device as floats.
  Result<std::vector<float>> Download(ConstActivationPtr from, size_t count);

 private:
  // As long as they take on the clock, or between events.
  Result<double> TimeOnce(const std::function<void()>& work);

  std::unique_ptr<Ops> ops_;
  DeviceOps* device_ = nullptr;
  int num_threads_ = 1;
  std::unique_ptr<DeviceEvent> begin_, end_;
};

// Sizes of what the ceilings are measured with; 0: as the device needs.
struct CeilingSizes {
  int64_t copy_mib = 0;     // 1,024 on a GPU, 128 on a CPU
  int64_t matrix_size = 0;  // N of N x N x N: 8,192 on a GPU, 1,024 on a CPU
};

struct MeasuredCeilings {
  Ceilings rates;
  CeilingSizes sizes;  // those used
  WeightFormat matrix_format;
};
// Copying counts bytes read and bytes written. On a CPU, where a copy also reads what it writes
// over, reading alone is measured too, and the better of the two rates is taken.
Result<MeasuredCeilings> MeasureCeilings(const CeilingSizes& sizes, const WeightFormat& format,
                                         BenchDevice* device);

// Tells where it runs and what that allows.
void ReportCeilings(const BenchDevice& device, const MeasuredCeilings& measured,
                    BenchReport* report);

// What a device that measures nothing but ceilings reserves for.
inline constexpr DeviceLimits kCeilingLimits = {.max_rows = 1,
                                                .max_tokens = 8192,
                                                .max_seq_len = 1,
                                                .num_heads = 1,
                                                .num_kv_heads = 1,
                                                .head_dim = 128};

// The middle of `values` (the mean of the middle two). REQUIRES at least one.
double Median(std::vector<double> values);

}  // namespace minisgl::bench
