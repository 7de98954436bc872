// Chooses the device of a model, the options that depend on the device, and the memory plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "load/options.h"
#include "load/rank_places.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/model_list.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

struct Device {
  std::unique_ptr<DeviceOps> cuda;                      // of the first rank; null: the CPU
  std::vector<std::unique_ptr<DeviceOps>> other_ranks;  // --device cuda:0,1: of the ranks after it
  Status no_tower;                         // why the kernels of CUDA do not run the models' tower
  uint64_t available_bytes = 0;            // of each rank's device, if there are several ranks
  std::shared_ptr<KernelProfile> profile;  // of its kernels; null unless --profile-kernels

  // The number of CUDA's ranks.
  int32_t num_ranks() const { return static_cast<int32_t>(1 + other_ranks.size()); }

  std::string fallback;           // reason why `auto` chose the CPU; "" if it did not
  bool fallback_is_news = false;  // the machine has an NVIDIA driver, so say it
};

// Opens the device; loads no weights. kUnavailable, with the reason, if --device names a device
// that cannot be used. `auto` always succeeds: if CUDA cannot be used, Device::fallback is the
// reason. CUDA computes in the target's dtype, or in bf16 if that is f32.
Result<Device> ChooseDevice(const EngineOptions& options, const ModelList& models);

// The number of ranks that `options` ask for, without opening a device: --tensor-parallel, or the
// GPUs that --device names. Where ChooseDevice refuses them, any number.
int32_t NumRanks(const EngineOptions& options);

// The name of its GPU, or the names of several ranks' GPUs. REQUIRES CUDA.
std::string DeviceName(const Device& device);

// Returns the same error without opening the device.
Status CheckDeviceUsable(const DeviceOption& device);

// Returns `options` with the defaults of the device, and of the model `config` on it, for
// max_prefill_length and memory_ratio.
EngineOptions WithDeviceDefaults(EngineOptions options, const Device& device,
                                 const ModelConfig& config = ModelConfig());

struct EngineSetup {
  Device device;          // moved into the engine when it starts
  EngineOptions options;  // with the defaults of the device
  MemoryPlan plan;
  RankPlaces places;                           // of the CPU's ranks, or of GPUs' experts on it
  std::shared_ptr<const ListedModel> drafter;  // beside the models that were given; null: none
};
// How several ranks work together: what adds over GPUs, or where the CPU's ranks run; else "".
std::string RanksText(const EngineSetup& setup);

// Chooses the device and plans the memory for the models, as far as they run on it; loads no
// weights. `model_dir`: where a layer that drafts is looked for (--speculate); "": there is none.
Result<EngineSetup> ResolveEngine(const EngineOptions& options, const ModelList& models,
                                  const std::string& model_dir = "");
// The models that the plan of `setup` is for: with its drafter, and without a tower that its device
// does not run.
ModelList ModelsThatRun(const EngineSetup& setup, const ModelList& models);

// True if products with weights of 4 bits, or of int8 by --quantize, round activations to int8.
bool RoundsActivationsToInt8(const EngineSetup& engine);
// True if products with 8-bit integers of the checkpoint round activations to int8, whether the
// publisher does or not.
bool RoundsInputsOfIntegers(const EngineSetup& engine);
// True if products with 8-bit integers round activations to int8, where the publisher does.
bool RoundsInt8Inputs(const EngineSetup& engine);
// True if a device's products with FP8 weights round activations to e4m3, where the publisher does.
bool RoundsE4M3Inputs(const EngineSetup& engine);

// Where choices that were timed on a GPU are kept: the directory of --pack-cache, or the user's
// cache. "" if there is none.
std::string TimingsFolder(const EngineOptions& options);

// Returns what each rank of --tensor-parallel has; an error if a model does not divide.
Result<std::vector<RankBytes>> BytesOfRanks(const EngineOptions& options, const ModelList& models);

// Sets options->cpu_experts to 0 if there is nothing to divide, which a line says: without a GPU
// that --device auto could use, or if a model without experts gets auto. kUsage for a number of
// layers of such a model, and beside --device cpu.
Status ResolveCpuExperts(const ModelConfig& model, bool has_cuda, EngineOptions* options);

// What --cpu-experts has on the CPU, "of 20 layers on the CPU: ..."; "": nothing.
std::string CpuExpertsText(const EngineSetup& engine);

// A line of a memory plan for experts on the CPU, if there are some, and for each model, "target"
// and what it takes; none for a target alone, whose plan says it all.
struct ModelLine {
  std::string role, text;
};
std::vector<ModelLine> ModelLines(const EngineSetup& engine);

// Returns the number of compute threads on the CPU: --threads, or the usable cores.
int NumThreads(const EngineOptions& options);

}  // namespace minisgl::load
