#include "load/device_choice.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "minisgl/base/environment.h"
#include "minisgl/base/system_info.h"
#include "minisgl/base/utf8.h"
#include "minisgl/ops.h"

namespace minisgl::load {
namespace {

bool HasNvidiaDriver() { return access("/dev/nvidiactl", F_OK) == 0; }

// Prompt tokens of a step on CUDA: enough rows for matrix products to reach peak throughput, and
// few enough for a prefill step of a few tens of milliseconds.
constexpr int32_t kCudaPrefillLength = 8192;
constexpr int32_t kCpuPrefillLength = 512;
constexpr double kCudaMemoryRatio = 0.9;
constexpr double kCpuMemoryRatio = 0.25;

Status NotUsable(const std::string& device, const Status& why) {
  return MakeStatus(why.code(), "--device {}: {}; use --device cpu", Visible(device),
                    why.message());
}

DType CudaDType(const EngineOptions& options, DType model_dtype) {
  const DType dtype = options.dtype.value_or(model_dtype);
  return dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
}

Result<std::unique_ptr<DeviceOps>> OpenCuda(const EngineOptions& options, const ModelConfig& config,
                                            std::shared_ptr<KernelProfile> profile) {
  const int index = options.device.index;
  MINISGL_RETURN_IF_ERROR(ProbeCuda(index).status());
  MINISGL_ASSIGN_OR_RETURN(auto cuda,
                           MakeCudaOps({.index = index,
                                        .activation_dtype = CudaDType(options, config.dtype),
                                        .deterministic = options.deterministic,
                                        .profile = std::move(profile),
                                        .cache_folder = TimingsFolder(options)}));
  std::vector<AttentionHeads> heads;
  int64_t query_width = 0;
  for (const LayerShape& shape : LayerShapes(config)) {
    heads.push_back({shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.value_dim,
                     shape.values_in_keys});
    query_width = std::max(query_width, int64_t{shape.num_heads} * shape.head_dim);
  }
  MINISGL_RETURN_IF_ERROR(
      cuda->CheckSupported({.hidden_size = config.hidden_size,
                            .vocab_size = config.vocab_size,
                            .qk_norm_width = config.qk_norm == QkNorm::kWhole ? query_width : 0,
                            .heads = std::move(heads),
                            .num_experts = config.experts.num_experts,
                            .num_expert_groups = config.experts.routing.num_groups,
                            .state_key_dim = config.states.key_dim,
                            .state_norm_width = config.states.norm_group,
                            .activation = config.activation}));
  return cuda;
}

ModelEngineOptions ToModelEngineOptions(const EngineOptions& options) {
  ModelEngineOptions engine;
  engine.num_threads = NumThreads(options);
  engine.num_ranks = options.tensor_parallel;
  engine.max_running_requests = options.max_running_requests;
  engine.max_prefill_tokens = options.max_prefill_length;
  engine.max_seq_len = options.max_seq_len;
  engine.page_size = options.page_size;
  engine.num_pages = options.num_pages;
  engine.memory_ratio = options.memory_ratio;
  engine.graph_max_rows = options.cuda_graph_max_rows;
  engine.graph_max_tokens = options.cuda_graph_max_tokens;
  engine.weight_dtype = options.dtype;
  engine.quantization = options.quantize;
  // Text that a grammar forces is verified as drafts, also without --speculate.
  engine.max_step_drafts = std::max(options.max_drafts * kDraftRowsMax, kForcedDraftsMin);
  return engine;
}

}  // namespace

Status CheckDeviceUsable(const DeviceOption& device) {
  if (device.kind != DeviceKind::kCuda) return Status();
  const auto found = ProbeCuda(device.index);
  return found.ok() ? Status() : NotUsable(device.name, found.status());
}

bool RoundsActivationsToInt8(const EngineSetup& engine) {
  return engine.device.cuda == nullptr &&
         CpuRoundsInputsOfCodes(engine.options.cpu_target, engine.plan.weight_format);
}

std::string TimingsFolder(const EngineOptions& options) {
  if (!options.pack_cache.empty()) return options.pack_cache;
  const std::string cache = UserFolder("XDG_CACHE_HOME", ".cache");
  return cache.empty() ? "" : cache + "/minisgl";
}

Result<Device> ChooseDevice(const EngineOptions& options, const ModelConfig& config) {
  Device device;
  if (options.device.kind == DeviceKind::kCpu) return device;
  device.fallback_is_news = HasNvidiaDriver();
  const bool automatic = options.device.kind == DeviceKind::kAuto;
  if (options.dtype == DType::kF32) {
    if (!automatic) {
      return UsageError("--dtype f32: CUDA computes in bf16 or f16; use one, or --device cpu");
    }
    device.fallback = "--dtype f32";
    return device;
  }
  if (options.quantize != Quantization::kNone) {
    const std::string given =
        fmt::format("--quantize {}", ChoiceName(kQuantizationChoices, options.quantize));
    if (!automatic) {
      return UsageError("{}: CUDA computes in bf16 or f16; use --device cpu", given);
    }
    device.fallback = given;
    return device;
  }
  if (options.tensor_parallel > 1) {
    const std::string given = fmt::format("--tensor-parallel {}", options.tensor_parallel);
    if (!automatic) {
      return UsageError("{}: CUDA computes on one device; use --device cpu", given);
    }
    device.fallback = given;
    return device;
  }
  if (automatic && !options.cpu_target.empty()) {
    device.fallback = "--cpu-target";
    return device;
  }
  auto profile = options.profile_kernels ? std::make_shared<KernelProfile>() : nullptr;
  auto cuda = OpenCuda(options, config, profile);
  if (cuda.ok()) {
    device.cuda = std::move(cuda).value();
    device.profile = std::move(profile);
  } else if (cuda.status().code() == StatusCode::kUsage) {
    return cuda.status();  // not of the device: it would be found on every machine with a GPU
  } else if (automatic) {
    const std::string& reason = cuda.status().message();
    // The advice after the ";" only helps on a machine with a GPU.
    device.fallback = device.fallback_is_news ? reason : reason.substr(0, reason.find(';'));
  } else {
    return NotUsable(options.device.name, cuda.status());
  }
  return device;
}

EngineOptions WithDeviceDefaults(EngineOptions options, const Device& device) {
  const bool cuda = device.cuda != nullptr;
  if (options.max_prefill_length == 0) {
    const int32_t usual = cuda ? kCudaPrefillLength : kCpuPrefillLength;
    options.max_prefill_length = options.max_step_tokens > 0 ? options.max_step_tokens : usual;
  } else if (options.max_step_tokens > 0) {
    options.max_prefill_length = std::min(options.max_prefill_length, options.max_step_tokens);
  }
  if (options.memory_ratio == 0) {
    options.memory_ratio = cuda ? kCudaMemoryRatio : kCpuMemoryRatio;
  }
  if (options.cuda_graph_max_rows == 0) options.cuda_graph_max_tokens = 0;
  return options;
}

Result<EngineSetup> ResolveEngine(const EngineOptions& options, const ModelConfig& config) {
  EngineSetup setup;
  if (options.max_step_tokens > 0 && options.max_step_tokens < options.max_running_requests) {
    return UsageError(
        "--max-step-tokens must be at least --max-running-requests, since each has a token in a "
        "step (found {} and {})",
        options.max_step_tokens, options.max_running_requests);
  }
  if (options.tensor_parallel > 1 && options.pin_threads) {
    return UsageError("--pin-threads and --tensor-parallel exclude each other");
  }
  MINISGL_ASSIGN_OR_RETURN(setup.device, ChooseDevice(options, config));
  setup.options = WithDeviceDefaults(options, setup.device);
  MINISGL_ASSIGN_OR_RETURN(setup.plan, PlanMemory(config, ToModelEngineOptions(setup.options), 0,
                                                  setup.device.cuda.get()));
  return setup;
}

Result<std::vector<RankBytes>> BytesOfRanks(const EngineOptions& options,
                                            const ModelConfig& config) {
  return CountRankBytes(config, ToModelEngineOptions(options));
}

int NumThreads(const EngineOptions& options) {
  return options.threads > 0 ? options.threads : UsableCores();
}

}  // namespace minisgl::load
