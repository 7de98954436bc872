// What an engine needs of memory: the counts that memory_plan.cc divides memory by.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/kv_split.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/model_list.h"

namespace minisgl::engine {

// The bytes of weights in each format that a search has counted. They depend on no length, and
// their count takes longer than that of all else.
class WeightCounts {
 public:
  // The bytes for `model`, which outlives this, with `options`, whose format and rank tell them
  // from others of the search.
  std::optional<uint64_t> Of(const ListedModel& model, const DecoderOptions& options);

 private:
  struct Count {
    const ListedModel* model;
    WeightFormat format;
    Rank rank;
    int32_t num_host_layers;
    std::optional<uint64_t> bytes;
  };
  std::vector<Count> counts_;
};

// The options, and the device whose memory is planned; null for this machine's. num_host_layers is
// a number of layers that there are.
struct PlanOptions : ModelEngineOptions {
  DeviceOps* device = nullptr;
  bool may_become_int4 = false;           // of settings that are tried
  bool keeps_codes = false;               // a device does, of checkpoints that have them
  WeightCounts* weight_counts = nullptr;  // of the search; null: weights are counted anew

  bool has_codes() const {
    return device != nullptr && (keeps_codes || quantization != Quantization::kNone);
  }
  DType activation_dtype() const {
    return device == nullptr ? DType::kF32 : device->activation_dtype();
  }
};

// Memory that does not depend on the number of pages, and the memory of pages.
struct Needs {
  uint64_t weight_bytes = 0;
  uint64_t workspace_bytes = 0;  // including graphs
  uint64_t graph_bytes = 0;
  KvSplit kv;
  uint64_t kept_per_token = 0;       // of a page, beside keys and values: what a drafter keeps
  uint64_t slot_bytes = 0;           // of states
  std::vector<PlannedModel> models;  // parts of the sums above
};

// The layers of all models with keys and values of their own, and how many of them have codes.
std::pair<int32_t, int32_t> CountKvLayersOf(const ModelList& models, const PlanOptions& options);
// The format of a model's weights in memory.
WeightFormat FormatOf(const ListedModel& model, const PlanOptions& options);

// Without the numbers of pages and slots, which are planned.
EngineLimits LimitsOf(const ModelList& models, const PlanOptions& options, int64_t max_seq_len);

// The errors of CheckRanks, with the model if it is not the target.
Status CheckAllDivide(const ModelList& models, int32_t num_ranks);

// Nothing if a size exceeds 2^64.
std::optional<Needs> CountNeeds(const ModelList& models, const PlanOptions& options,
                                int64_t max_seq_len);

}  // namespace minisgl::engine
