// Times operations on one device: used by benchmarks of single operations, and by every benchmark
// to measure the limits of the device.
//
// On a GPU, times are between two events on its compute stream; on the CPU, they come from the
// clock. Used by one thread.
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
inline constexpr float kUnitSpread = 1.732f;  // uniform around 0 with standard deviation 1

class BenchDevice {
 public:
  // kUnavailable if the device cannot be used. `config` as for ChooseDevice.
  static Result<BenchDevice> Open(const load::EngineOptions& options, const ModelConfig& config);
  static Result<BenchDevice> FromDevice(std::unique_ptr<DeviceOps> device);
  // Call once, before the first operation.
  Status Reserve(const DeviceLimits& limits);

  Ops* ops() const { return ops_.get(); }
  DeviceOps* device() const { return device_; }  // null on the CPU
  bool on_gpu() const { return device_ != nullptr; }
  int num_threads() const { return num_threads_; }  // of the CPU engine

  // Returns the seconds that the device needs for the operations of `work`: the minimum of
  // `repeats` runs after one warm-up run.
  Result<double> Time(int repeats, const std::function<void()>& work);
  // Returns the seconds of one of `count` calls of `launch`, which gets the index of the call: the
  // median of `repeats` runs of all calls back to back. On a GPU, the calls are captured once as a
  // graph.
  Result<double> TimeLaunches(int count, int repeats, const std::function<void(int)>& launch);

  // Copies `count` activations from the device, as floats.
  Result<std::vector<float>> Download(ConstActivationPtr from, size_t count);

 private:
  // Time by the clock, or between events.
  Result<double> TimeOnce(const std::function<void()>& work);

  std::unique_ptr<Ops> ops_;
  DeviceOps* device_ = nullptr;
  int num_threads_ = 1;
  std::unique_ptr<DeviceEvent> begin_, end_;
};

// Problem sizes for measuring limits; 0 selects the device's default.
struct CeilingSizes {
  int64_t copy_mib = 0;     // default 1,024 on a GPU, 128 on a CPU
  int64_t matrix_size = 0;  // N of N x N x N; default 8,192 on a GPU, 1,024 on a CPU
};

struct MeasuredCeilings {
  Ceilings rates;
  CeilingSizes sizes;  // as used
  WeightFormat matrix_format;
};
// Measures memory bandwidth and matrix throughput. Copying counts bytes read and bytes written. On
// a CPU, a copy also reads the lines that it overwrites, so reading alone is measured too, and the
// higher rate counts.
Result<MeasuredCeilings> MeasureCeilings(const CeilingSizes& sizes, const WeightFormat& format,
                                         BenchDevice* device);

// Reports the device and its limits.
void ReportCeilings(const BenchDevice& device, const MeasuredCeilings& measured,
                    BenchReport* report);

// Limits for a device that only measures ceilings.
inline constexpr DeviceLimits kCeilingLimits = {.max_rows = 1,
                                                .max_tokens = 8192,
                                                .max_seq_len = 1,
                                                .num_heads = 1,
                                                .num_kv_heads = 1,
                                                .head_dim = 128};

// Median of `values`; of an even number, the mean of the middle two. REQUIRES at least one.
double Median(std::vector<double> values);

}  // namespace minisgl::bench
