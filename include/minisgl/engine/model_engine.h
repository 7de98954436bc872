// The engine of a real model: decoder + operations + KV storage + sampler, with launched steps run
// by a thread of its own, so that planning overlaps computing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

struct ModelEngineOptions {
  int num_threads = 1;  // of the CPU's operations
  int32_t max_running_requests = 256;
  int32_t max_prefill_tokens = 512;  // of one step; decode rows come on top
  // Drafted tokens of one step: part of max_prefill_tokens, and each costs a row of logits. At most
  // max_prefill_tokens are used.
  int32_t max_step_drafts = 0;
  int64_t max_seq_len = 0;  // 0: the model's, or 8,192, or what fits, whichever is least
  int32_t page_size = 16;
  int32_t num_pages = 0;  // 0: planned from memory
  // Of available memory: on the CPU for KV, on a device for everything.
  double memory_ratio = 0.25;
  int32_t graph_max_rows = 0;         // decode graphs that a device is to keep memory for
  std::optional<DType> weight_dtype;  // as stored where unset
  Quantization quantization = Quantization::kNone;  // on a device none is possible
};

// Where the memory goes: shown by `minisgl info`, computed before anything is loaded.
struct MemoryPlan {
  WeightFormat weight_format;
  uint64_t available_bytes = 0;
  uint64_t weight_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t kv_bytes_per_token = 0;      // of all layers
  uint64_t window_bytes_per_token = 0;  // of those in window pages; 0 where there are none
  uint64_t kv_bytes = 0;
  uint64_t graph_bytes = 0;  // kept for captured graphs, on a device
  EngineLimits limits;
  std::string max_seq_len_reason;  // "the model's", "what fits", "the CPU default", "--max-seq-len"
};

// Too little memory for one request of the wanted length: kOutOfMemory naming three settings that
// would fit. `available_bytes` 0: as this machine says, or the device where one is given.
// `device`: the plan is of its memory, weights have its dtype, and memory_ratio is the share of
// what is free that everything together may take; all of it is taken.
Result<MemoryPlan> PlanMemory(const ModelConfig& config, const ModelEngineOptions& options,
                              uint64_t available_bytes = 0, DeviceOps* device = nullptr);

// `ops` moves in. Weights are read from `checkpoint`, which may close afterwards.
Result<std::unique_ptr<Engine>> MakeModelEngine(const ModelConfig& config,
                                                const Checkpoint& checkpoint,
                                                const MemoryPlan& plan, std::unique_ptr<Ops> ops);

// Logits of every position of `ids`, [n, V], by one uncached forward pass in a context of the
// model's length: for tests against references.
Result<std::vector<float>> ComputeLogits(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const WeightFormat& weight_format, Ops* ops,
                                         const std::vector<TokenId>& ids);

}  // namespace minisgl
