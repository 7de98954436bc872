#include "load/device_choice.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "minisgl/base/environment.h"
#include "minisgl/base/log.h"
#include "minisgl/base/system_info.h"
#include "minisgl/base/utf8.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/ranks.h"
#include "minisgl/ops.h"
#include "term/progress.h"

namespace minisgl::load {
namespace {

bool HasNvidiaDriver() { return access("/dev/nvidiactl", F_OK) == 0; }

// Prompt tokens of a step on CUDA: enough rows for matrix products to reach peak throughput, and
// few enough for a prefill step of a few tens of milliseconds.
constexpr int32_t kCudaPrefillLength = 8192;
constexpr int32_t kCpuPrefillLength = 512;
constexpr int32_t kWholeTextLength = 8192;
// An encoder has long steps, because its layers are small.
constexpr int32_t kEncoderLength = 2048;
constexpr int64_t kCudaEncoderBudget = 4096;
constexpr double kCudaMemoryRatio = 0.9;
constexpr double kCpuMemoryRatio = 0.25;

Status NotUsable(const std::string& device, const Status& why) {
  return MakeStatus(why.code(), "--device {}: {}; use --device cpu", Visible(device),
                    why.message());
}

// Encoders of f32 are computed in f16, which is eight times as exact as bf16: their norms keep the
// numbers small.
DType CudaDType(const EngineOptions& options, const ModelConfig& model) {
  if (!options.dtype && model.is_encoder && model.dtype == DType::kF32) return DType::kF16;
  const DType dtype = options.dtype.value_or(model.dtype);
  return dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
}

// The GPU of each rank. One GPU and --tensor-parallel N: the first N.
Result<std::vector<int>> RankDevices(const EngineOptions& options) {
  const DeviceOption& device = options.device;
  const auto wanted = static_cast<size_t>(options.tensor_parallel);
  std::vector<int> indices = device.indices;
  const bool any = indices.empty() || device.kind == DeviceKind::kAuto || device.name == "cuda";
  if (any && (indices.empty() || wanted > 1)) {
    const int count = CountCudaDevices();
    const size_t number = wanted > 1 ? wanted : static_cast<size_t>(std::max(count, 1));
    if (static_cast<size_t>(count) < number && wanted > 1) {
      return MakeStatus(StatusCode::kUnavailable, "--tensor-parallel {}: {} GPU{} found", wanted,
                        count, count == 1 ? " is" : "s are");
    }
    indices.clear();
    for (size_t i = 0; i < number; ++i) indices.push_back(static_cast<int>(i));
  }
  if (wanted > 1 && indices.size() != wanted) {
    return UsageError(
        "--tensor-parallel {} and --device {}, which names {} device{}; leave one out", wanted,
        Visible(device.name), indices.size(), indices.size() == 1 ? "" : "s");
  }
  if (indices.size() > static_cast<size_t>(kCudaRanksMax)) {
    return UsageError("a model runs on {} GPUs at most (found {})", kCudaRanksMax, indices.size());
  }
  return indices;
}

// Ranks on one device wait for each other's kernels there, which is right and slow.
void WarnOfSharedDevices(std::vector<int> indices) {
  std::sort(indices.begin(), indices.end());
  const auto twice = std::adjacent_find(indices.begin(), indices.end());
  if (twice == indices.end()) return;
  Log(LogLevel::kWarning,
      fmt::format(
          "cuda:{} is named more than once: its ranks share it, which is of use only to try "
          "several ranks out",
          *twice));
}

// Free memory for each rank: a device that several ranks share is divided.
uint64_t BytesOfEachRank(const std::vector<std::unique_ptr<DeviceOps>>& ranks,
                         const std::vector<int>& indices) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto sharing = std::count(indices.begin(), indices.end(), indices[i]);
    least = std::min(least, ranks[i]->MemoryInfo().free_bytes / static_cast<uint64_t>(sharing));
  }
  return least;
}

// Returns an error if the kernels of `cuda` do not run the layers of a rank. `whole`: all ranks.
Status CheckKernelsRun(const ModelConfig& whole, const Rank& rank, DeviceOps* cuda) {
  const ModelConfig config = RankConfig(whole, rank);
  std::vector<AttentionHeads> heads;
  int64_t query_width = 0;
  // Each rank normalises its own heads in a norm over the heads of all ranks.
  const int64_t state_norm_width =
      config.states.num_heads == 0
          ? 0
          : std::min(config.states.norm_group, config.states.inner_width());
  for (const LayerShape& shape : LayerShapes(config)) {
    heads.push_back({shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.value_dim,
                     shape.values_in_keys});
    query_width = std::max(query_width, int64_t{shape.num_heads} * shape.head_dim);
  }
  return cuda->CheckSupported({.hidden_size = config.hidden_size,
                               .vocab_size = whole.vocab_size,
                               .qk_norm_width = config.qk_norm == QkNorm::kWhole ? query_width : 0,
                               .heads = std::move(heads),
                               .adds_distances = config.adds_distances(),
                               .num_experts = config.experts.num_experts,
                               .num_expert_groups = config.experts.routing.num_groups,
                               .state_key_dim = config.states.key_dim,
                               .state_norm_width = state_norm_width});
}

// Opens the GPUs into `device`.
Status OpenCuda(const EngineOptions& options, const ModelList& models,
                std::shared_ptr<KernelProfile> profile, Device* device) {
  MINISGL_ASSIGN_OR_RETURN(const std::vector<int> indices, RankDevices(options));
  CudaOpsConfig ops_config = {.index = indices[0],
                              .activation_dtype = CudaDType(options, models.target()),
                              .deterministic = options.deterministic,
                              .library_products = options.library_products,
                              .profile = std::move(profile),
                              .cache_folder = TimingsFolder(options)};
  const auto num_ranks = static_cast<int32_t>(indices.size());
  std::unique_ptr<DeviceOps> cuda;
  if (num_ranks == 1) {
    MINISGL_RETURN_IF_ERROR(ProbeCuda(indices[0]).status());
    MINISGL_ASSIGN_OR_RETURN(cuda, MakeCudaOps(ops_config));
  } else {
    MINISGL_RETURN_IF_ERROR(CheckRanks(models.target(), num_ranks));
    WarnOfSharedDevices(indices);
    MINISGL_ASSIGN_OR_RETURN(auto ranks,
                             MakeCudaRanks({.ops = std::move(ops_config),
                                            .devices = indices,
                                            .nccl = options.all_reduce == RankSumsBy::kNccl}));
    device->available_bytes = BytesOfEachRank(ranks, indices);
    cuda = std::move(ranks[0]);
    for (size_t i = 1; i < ranks.size(); ++i) device->other_ranks.push_back(std::move(ranks[i]));
  }
  if (models.tower() != nullptr) {
    device->no_tower = cuda->CheckSupported(models.tower()->tower_shape());
  }
  for (size_t i = 0; i < models.size(); ++i) {
    if (models[i].layers() == nullptr) continue;
    const Status runs =
        CheckKernelsRun(*models[i].layers(), models[i].RankOf({0, num_ranks}), cuda.get());
    if (!runs.ok()) return i == 0 ? runs : runs.WithPrefix("the " + models[i].Title());
  }
  device->cuda = std::move(cuda);
  return Status();
}

ModelEngineOptions ToModelEngineOptions(const EngineOptions& options) {
  ModelEngineOptions engine;
  engine.num_threads = NumThreads(options);
  engine.num_ranks = options.tensor_parallel;
  engine.max_running_requests = options.max_running_requests;
  engine.max_prefill_tokens = options.max_prefill_length;
  engine.max_seq_len = options.max_seq_len;
  engine.encoder_cache = options.encoder_cache;
  engine.page_size = options.page_size;
  engine.kv_kind = options.kv_kind;
  engine.num_pages = options.num_pages;
  engine.memory_ratio = options.memory_ratio;
  engine.graph_max_rows = options.cuda_graph_max_rows;
  engine.graph_max_tokens = options.cuda_graph_max_tokens;
  engine.weight_dtype = options.dtype;
  engine.quantization = options.quantize;
  engine.packs_6_bits = CpuPacks6Bits(options.cpu_target);
  engine.num_host_layers = options.cpu_experts;
  // Text that a grammar forces is verified as drafts, also without --speculate.
  engine.max_step_drafts = std::max(options.drafts.max_drafts * kDraftRowsMax, kForcedDraftsMin);
  return engine;
}

}  // namespace

int32_t NumRanks(const EngineOptions& options) {
  if (options.device.kind == DeviceKind::kCuda) {
    const auto devices = RankDevices(options);
    if (devices.ok()) return static_cast<int32_t>(devices->size());
  }
  return options.tensor_parallel;
}

std::string RanksText(const EngineSetup& setup) {
  if (setup.device.cuda == nullptr) return PlacesText(setup.places);
  return setup.device.cuda->SumsText();
}

std::string DeviceName(const Device& device) {
  std::string name = device.cuda->Name();
  for (const auto& rank : device.other_ranks) name += " + " + rank->Name();
  return name;
}

Status CheckDeviceUsable(const DeviceOption& device) {
  if (device.kind != DeviceKind::kCuda) return Status();
  std::vector<int> indices = device.indices;
  if (indices.empty()) indices.push_back(0);
  for (const int index : indices) {
    const auto found = ProbeCuda(index);
    if (!found.ok()) return NotUsable(device.name, found.status());
  }
  return Status();
}

bool RoundsActivationsToInt8(const EngineSetup& engine) {
  return engine.device.cuda == nullptr &&
         CpuRoundsInputsOfCodes(engine.options.cpu_target, engine.plan.weight_format);
}

bool RoundsInputsOfIntegers(const EngineSetup& engine) {
  return engine.device.cuda == nullptr &&
         CpuRoundsInputsOfIntegers(engine.options.cpu_target, engine.plan.weight_format);
}

bool RoundsInt8Inputs(const EngineSetup& engine) {
  return engine.device.cuda == nullptr &&
         CpuRoundsInt8Inputs(engine.options.cpu_target, engine.plan.weight_format);
}

bool RoundsE4M3Inputs(const EngineSetup& engine) {
  return engine.device.cuda != nullptr && engine.device.cuda->RoundsE4M3Inputs() &&
         engine.plan.weight_format.quantization == Quantization::kStored;
}

std::string TimingsFolder(const EngineOptions& options) {
  if (!options.pack_cache.empty()) return options.pack_cache;
  const std::string cache = UserFolder("XDG_CACHE_HOME", ".cache");
  return cache.empty() ? "" : cache + "/minisgl";
}

Result<Device> ChooseDevice(const EngineOptions& options, const ModelList& models) {
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
  if (automatic && !options.cpu_target.empty()) {
    device.fallback = "--cpu-target";
    return device;
  }
  auto profile =
      options.profile_kernels ? std::make_shared<KernelProfile>(NumRanks(options)) : nullptr;
  const Status opened = OpenCuda(options, models, profile, &device);
  if (opened.ok()) {
    device.profile = std::move(profile);
    return device;
  }
  device.other_ranks.clear();
  device.no_tower = Status();
  if (opened.code() == StatusCode::kUsage) {
    return opened;  // not of the device: it would be found on every machine with a GPU
  }
  if (automatic) {
    const std::string& reason = opened.message();
    // The advice after the ";" only helps on a machine with a GPU.
    device.fallback = device.fallback_is_news ? reason : reason.substr(0, reason.find(';'));
  } else {
    return NotUsable(options.device.name, opened);
  }
  return device;
}

// A text that one step computes is longer than a chunk may be.
int32_t PrefillLengthFor(const ModelConfig& config, bool cuda) {
  const int32_t of_cpu = config.is_encoder ? kEncoderLength : kCpuPrefillLength;
  const int32_t usual = cuda ? kCudaPrefillLength : of_cpu;
  if (!config.attends_both_ways) return usual;
  return static_cast<int32_t>(std::clamp<int64_t>(config.max_seq_len, usual, kWholeTextLength));
}

EngineOptions WithDeviceDefaults(EngineOptions options, const Device& device,
                                 const ModelConfig& config) {
  const bool cuda = device.cuda != nullptr;
  if (options.max_prefill_length == 0) {
    const int32_t usual = PrefillLengthFor(config, cuda);
    options.max_prefill_length = options.max_step_tokens > 0 ? options.max_step_tokens : usual;
  } else if (options.max_step_tokens > 0) {
    options.max_prefill_length = std::min(options.max_prefill_length, options.max_step_tokens);
  }
  // On the CPU a picture's embedding takes about as long as a token of a prompt.
  if (options.encoder_budget == 0) {
    options.encoder_budget = cuda ? kCudaEncoderBudget : options.max_prefill_length;
  }
  if (options.memory_ratio == 0) {
    options.memory_ratio = cuda ? kCudaMemoryRatio : kCpuMemoryRatio;
  }
  if (options.cuda_graph_max_rows == 0) options.cuda_graph_max_tokens = 0;
  return options;
}

Result<EngineSetup> ResolveEngine(const EngineOptions& options, const ModelList& models,
                                  const std::string& model_dir) {
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
  if (options.deterministic && options.all_reduce == RankSumsBy::kNccl) {
    return UsageError(
        "--deterministic and --all-reduce nccl exclude each other: NCCL adds in an order that "
        "depends on how many tokens a step has");
  }
  MINISGL_ASSIGN_OR_RETURN(setup.device, ChooseDevice(options, models));
  setup.options = WithDeviceDefaults(options, setup.device, models.target());
  MINISGL_RETURN_IF_ERROR(
      ResolveCpuExperts(models.target(), setup.device.cuda != nullptr, &setup.options));
  if (models.drafter() == nullptr) {
    MINISGL_ASSIGN_OR_RETURN(setup.drafter,
                             ChooseDrafter(models.target(), model_dir, setup.device.cuda != nullptr,
                                           &setup.options.drafts));
  }
  if (options.all_reduce == RankSumsBy::kNccl && setup.device.other_ranks.empty()) {
    Log(LogLevel::kWarning,
        "--all-reduce nccl: without several GPUs there is nothing to add; NCCL is not used");
    setup.options.all_reduce = RankSumsBy::kOwn;
  }
  if (setup.device.cuda != nullptr) {
    setup.options.tensor_parallel = setup.device.num_ranks();
  }
  if (setup.device.cuda == nullptr || setup.options.cpu_experts != 0) {
    setup.places = PlaceRanksHere(setup.options.tensor_parallel, NumThreads(options));
  }
  MINISGL_ASSIGN_OR_RETURN(
      setup.plan, PlanMemory(ModelsThatRun(setup, models), ToModelEngineOptions(setup.options),
                             setup.device.available_bytes, setup.device.cuda.get()));
  if (setup.device.cuda == nullptr && options.has_few_rows && options.cpu_target.empty()) {
    setup.options.cpu_target = CpuTargetForFewRows(setup.plan.weight_format);
  }
  return setup;
}

ModelList ModelsThatRun(const EngineSetup& setup, const ModelList& models) {
  ModelList run = setup.device.no_tower.ok() ? models : models.WithoutTower();
  if (setup.drafter != nullptr) {
    const Status added = run.Add(setup.drafter);
    MINISGL_CHECK(added.ok(), "{}", added.message());
  }
  return run;
}

Result<std::vector<RankBytes>> BytesOfRanks(const EngineOptions& options, const ModelList& models) {
  return CountRankBytes(models, ToModelEngineOptions(options));
}

Status ResolveCpuExperts(const ModelConfig& model, bool has_cuda, EngineOptions* options) {
  const int32_t wanted = options->cpu_experts;
  if (wanted == 0) return Status();
  if (options->device.kind == DeviceKind::kCpu) {
    return UsageError("--cpu-experts and --device cpu exclude each other: the CPU has all experts");
  }
  const int32_t count = CountExpertLayers(model);
  if (count == 0 && wanted != kAutoHostLayers) {
    return UsageError("--cpu-experts: {} has no experts; leave it out",
                      Visible(model.architecture, 200));
  }
  if (!has_cuda || count == 0) {
    options->cpu_experts = 0;
    if (count > 0)
      Log(LogLevel::kInfo, "--cpu-experts: without CUDA all of the model is on the CPU");
    return Status();
  }
  if (wanted > count && wanted != std::numeric_limits<int32_t>::max()) {
    Log(LogLevel::kInfo,
        fmt::format("--cpu-experts {}: {} layers have experts; all are on the CPU", wanted, count));
  }
  return Status();
}

std::string CpuExpertsText(const EngineSetup& engine) {
  const MemoryPlan& plan = engine.plan;
  if (plan.num_host_layers == 0) return "";
  const bool rounds = CpuRoundsInputsOfCodes(engine.options.cpu_target, plan.host_format);
  return fmt::format("of {} layers on the CPU: {} of weights as {}, {} of workspace, {} threads{}",
                     plan.num_host_layers, term::FormatBytes(plan.host_weight_bytes),
                     plan.host_format.Name(), term::FormatBytes(plan.host_workspace_bytes),
                     NumThreads(engine.options),
                     rounds ? "; weights of 4 bits, or of int8 by --quantize, round activations to "
                              "int8 there"
                            : "");
}

std::vector<ModelLine> ModelLines(const EngineSetup& engine) {
  std::vector<ModelLine> lines;
  const std::string experts = CpuExpertsText(engine);
  if (!experts.empty()) lines.push_back({"experts", experts});
  if (engine.plan.models.size() < 2) return lines;
  const bool has_ranks = engine.options.tensor_parallel > 1;
  for (const PlannedModel& model : engine.plan.models) {
    const std::string pages = model.kv_bytes_per_token == 0
                                  ? "no keys and values in pages"
                                  : fmt::format("{} of keys and values a token",
                                                term::FormatBytes(model.kv_bytes_per_token));
    lines.push_back(
        {ModelRoleName(model.role),
         fmt::format("{}: {} of weights as {}, {} of workspace, {}{}", Visible(model.name, 200),
                     term::FormatBytes(model.weight_bytes), model.weight_format.Name(),
                     term::FormatBytes(model.workspace_bytes), pages,
                     has_ranks && !model.is_cut ? "; whole on each rank" : "")});
  }
  return lines;
}

int NumThreads(const EngineOptions& options) {
  return options.threads > 0 ? options.threads : UsableCores();
}

}  // namespace minisgl::load
