// See device_choice.h.
#include "load/device_choice.h"

#include <unistd.h>

#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::load {
namespace {

// Of a step on CUDA: enough rows for matrix products to reach the peak, few enough that a step of
// prefill stays below some tens of milliseconds.
constexpr int32_t kCudaPrefillLength = 8192;
constexpr int32_t kCpuPrefillLength = 512;
constexpr double kCudaMemoryRatio = 0.9;
constexpr double kCpuMemoryRatio = 0.25;

// N of cuda:N; 0 for cuda. The option's check has seen that N is a number; one past what an int
// holds is no device.
int CudaIndex(std::string_view device) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return 0;
  device.remove_prefix(kPrefix.size());
  int index = 0;
  const auto parsed = std::from_chars(device.data(), device.data() + device.size(), index);
  return parsed.ec == std::errc() ? index : std::numeric_limits<int>::max();
}

Status NotUsable(const std::string& device, const Status& why) {
  return MakeStatus(why.code(), "--device {}: {}; use --device cpu", Visible(device),
                    why.message());
}

DType CudaDType(const EngineOptions& options, DType model_dtype) {
  if (options.dtype == DTypeName(DType::kF16)) return DType::kF16;
  if (options.dtype == DTypeName(DType::kBF16)) return DType::kBF16;
  return model_dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
}

Result<std::unique_ptr<DeviceOps>> OpenCuda(const EngineOptions& options,
                                            const ModelConfig& config) {
  const int index = CudaIndex(options.device);
  MINISGL_RETURN_IF_ERROR(ProbeCuda(index).status());
  MINISGL_ASSIGN_OR_RETURN(auto cuda,
                           MakeCudaOps({.index = index,
                                        .activation_dtype = CudaDType(options, config.dtype),
                                        .deterministic = options.deterministic}));
  const int64_t query_width = int64_t{config.num_heads} * config.head_dim;
  MINISGL_RETURN_IF_ERROR(
      cuda->CheckSupported({.hidden_size = config.hidden_size,
                            .vocab_size = config.vocab_size,
                            .qk_norm_width = config.qk_norm == QkNorm::kWhole ? query_width : 0,
                            .head_dim = config.head_dim,
                            .num_experts = config.experts.num_experts}));
  return cuda;
}

}  // namespace

Status CheckDeviceUsable(const std::string& device) {
  if (device == "auto" || device == "cpu") return Status();
  const auto found = ProbeCuda(CudaIndex(device));
  return found.ok() ? Status() : NotUsable(device, found.status());
}

Result<Device> ChooseDevice(const EngineOptions& options, const ModelConfig& config) {
  Device device;
  if (options.device == "cpu") return device;
  const bool automatic = options.device == "auto";
  if (options.dtype == DTypeName(DType::kF32)) {
    if (!automatic) {
      return UsageError("--dtype f32: CUDA computes in bf16 or f16; use one, or --device cpu");
    }
    device.fallback = "--dtype f32";
    return device;
  }
  if (options.quantize != "none") {
    if (!automatic) {
      return UsageError("--quantize {}: CUDA computes in bf16 or f16; use --device cpu",
                        options.quantize);
    }
    device.fallback = "--quantize " + options.quantize;
    return device;
  }
  if (automatic && !options.cpu_target.empty()) {
    device.fallback = "--cpu-target";
    return device;
  }
  auto cuda = OpenCuda(options, config);
  if (cuda.ok()) {
    device.cuda = std::move(cuda).value();
  } else if (automatic) {
    device.fallback_is_news = access("/dev/nvidiactl", F_OK) == 0;
    const std::string& reason = cuda.status().message();
    // What to do about it is for those who have a GPU.
    device.fallback = device.fallback_is_news ? reason : reason.substr(0, reason.find(';'));
  } else {
    return NotUsable(options.device, cuda.status());
  }
  return device;
}

EngineOptions WithDeviceDefaults(EngineOptions options, const Device& device) {
  const bool cuda = device.cuda != nullptr;
  if (options.max_prefill_length == 0) {
    options.max_prefill_length = cuda ? kCudaPrefillLength : kCpuPrefillLength;
  }
  if (options.memory_ratio == 0) {
    options.memory_ratio = cuda ? kCudaMemoryRatio : kCpuMemoryRatio;
  }
  return options;
}

}  // namespace minisgl::load
