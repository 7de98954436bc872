// The engine of a real model on the CPU, and the memory plan of both engines.
//
// Launched steps run on the engine's own thread, so that planning overlaps computing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/engine/kv_kind.h"
#include "minisgl/model/model_list.h"
#include "minisgl/model/ranks.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

struct ModelEngineOptions {
  int num_threads = 1;    // of the CPU's operations, on all ranks
  int32_t num_ranks = 1;  // each has a device, or threads of the CPU
  int32_t max_running_requests = 256;
  int32_t max_prefill_tokens = 512;  // of one step, not counting decode rows
  // Upper bound on the drafted tokens of one step. They are part of max_prefill_tokens, and each
  // costs a row of logits. Values above max_prefill_tokens count as max_prefill_tokens.
  int32_t max_step_drafts = 0;
  // Embeddings of pictures that are kept, if there is a tower (SchedulerOptions::encoder_cache).
  int64_t encoder_cache = 16384;
  int64_t max_seq_len = 0;  // 0: the least of the model's, 8,192 (on the CPU) and what fits
  int32_t page_size = 16;
  KvKind kv_kind = KvKind::kAuto;
  int32_t num_pages = 0;  // 0: planned from memory
  // Share of the available memory: for keys and values on the CPU, for everything on a device.
  double memory_ratio = 0.25;
  // The largest graphs that a device keeps memory for (DeviceEngineOptions).
  int32_t graph_max_rows = 0;
  int32_t graph_max_tokens = 0;
  std::optional<DType> weight_dtype;  // unset: as stored
  Quantization quantization = Quantization::kNone;
  bool packs_6_bits = false;  // CpuPacks6Bits, for the CPU's memory plan
  // The layers of the target whose experts are in the host's memory, on a device: the last ones
  // with experts. More than there are count as all; kAutoHostLayers: as few as fit.
  int32_t num_host_layers = 0;
};
inline constexpr int32_t kAutoHostLayers = -1;

// The threads of a rank of the CPU: nearly the same number for each, at least one.
int ThreadsOfRank(int num_threads, const Rank& rank);

// What one model has of a plan.
struct PlannedModel {
  ModelRole role = ModelRole::kTarget;
  std::string name;  // of its architecture
  WeightFormat weight_format;
  uint64_t weight_bytes = 0;
  uint64_t workspace_bytes = 0;     // with what operations take for themselves
  uint64_t kv_bytes_per_token = 0;  // of its share of each page; 0: it has none
  bool is_cut = true;               // each rank has a share of it; false: all of it
};

// How memory is divided. Computed before anything is loaded; `minisgl info` prints it. Sizes are of
// all models and all ranks together; on devices, of the one that has the most.
struct MemoryPlan {
  WeightFormat weight_format;  // of the target
  bool codes_to_fit = false;   // a device keeps codes, because the expanded weights do not fit
  uint64_t available_bytes = 0;
  uint64_t weight_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t kv_bytes_per_token = 0;      // of all layers of all models
  uint64_t window_bytes_per_token = 0;  // of layers in window pages; 0 without such pages
  uint64_t kv_bytes = 0;
  KvKind kv_kind = KvKind::kAuto;
  // Layers of all models with keys and values of their own, and how many of them have codes.
  int32_t kv_layers = 0, coded_kv_layers = 0;
  uint64_t state_bytes = 0;  // of layers with a state, in all slots
  uint64_t graph_bytes = 0;  // reserved for captured graphs, on a device
  EngineLimits limits;
  int64_t kept_embeddings = 0;  // of pictures: a device has room for so many; 0: there is no tower
  std::string max_seq_len_reason;  // "the model's", "what fits", "the CPU default", or the setting
  std::vector<PlannedModel> models;  // in the order of the list
  // Experts in the host's memory, of all ranks together, which is not part of the sums above; 0:
  // none are there.
  int32_t num_host_layers = 0;
  WeightFormat host_format;
  uint64_t host_weight_bytes = 0;
  uint64_t host_workspace_bytes = 0;
};

// What one rank has of all models, computed from their configurations alone.
struct RankBytes {
  uint64_t weights = 0;
  uint64_t kv_per_token = 0;  // keys and values of its heads in all layers
};
// Returns the bytes of each of options.num_ranks ranks on the CPU, or the errors of CheckRanks.
Result<std::vector<RankBytes>> CountRankBytes(const ModelList& models,
                                              const ModelEngineOptions& options);

// Plans the memory of an engine: the CPU's, or `device`'s if one is given. `available_bytes` 0: as
// much as the machine, or the device, has available. kOutOfMemory if one request of the wanted
// length does not fit; the message names what each model takes, if there are several, and up to
// three settings that fit.
//
// On a device weights have its dtype, or are codes (DeviceOps::KeepsCodes), and memory_ratio is the
// share of its free memory that everything together takes. With several ranks `device` is the first
// one's, and `available_bytes` what each of the devices has. Experts on the host are refused beside
// several ranks and beside adapters that change them (kUsage), and kOutOfMemory if `host_bytes` (0:
// what the machine has available) are too few for them.
Result<MemoryPlan> PlanMemory(const ModelList& models, const ModelEngineOptions& options,
                              uint64_t available_bytes = 0, DeviceOps* device = nullptr,
                              uint64_t host_bytes = 0);

// The operations of each rank (minisgl/model/ranks.h), the first rank's first, with HostRank in the
// same order.
struct EngineRanks {
  std::vector<std::unique_ptr<Ops>> ops;
  std::shared_ptr<Rendezvous> rendezvous;  // where they meet; null: there is one rank
  // The logical CPUs that the thread of each rank may run on, near whose memory the rank then has
  // its weights, keys and values; empty: all.
  std::vector<std::vector<int>> cpus = {};
};

// Loads the models from `files`, which may be closed afterwards, the target first. `ops` moves in.
// Several ranks run each step at the same time, each on threads of its own; a fault on one is the
// result of the step, as with one rank. REQUIRES a plan for the same models and as many ranks.
Result<std::unique_ptr<Engine>> MakeModelEngine(const ModelList& models, const ModelFiles& files,
                                                const MemoryPlan& plan, std::unique_ptr<Ops> ops);
Result<std::unique_ptr<Engine>> MakeModelEngine(const ModelList& models, const ModelFiles& files,
                                                const MemoryPlan& plan, EngineRanks ranks);

// Logits of every position of `ids`, [n, V], from one uncached forward pass in a context of the
// model's length. For tests against references.
Result<std::vector<float>> ComputeLogits(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const WeightFormat& weight_format, Ops* ops,
                                         const std::vector<TokenId>& ids);
Result<std::vector<float>> ComputeLogits(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const WeightFormat& weight_format,
                                         const EngineRanks& ranks, const std::vector<TokenId>& ids);

}  // namespace minisgl
