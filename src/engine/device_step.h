// One step on a device: what the plan says goes into pinned memory and over in one copy, the
// forward pass and the sampling follow, and the results come back in one copy.
//
// Holds everything that lasts between steps: weights, KV storage, page table, token pool and the
// arrays of a step, each at an address that does not change, so that graphs may hold it. Used by
// one thread. The memory of the host that a step uses (HostStep) is its own until it is collected.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/kv_storage.h"
#include "engine/prefix_groups.h"
#include "engine/step_layout.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/model/decoder.h"
#include "model/device_array.h"

namespace minisgl::engine {

// How many rows, tokens and places a step has: all that a graph is captured for.
struct StepShape {
  int32_t num_rows = 0;
  int32_t num_decode_rows = 0;
  int32_t num_tokens = 0;
  int32_t num_places = 0;
};

// A step on its way: pinned memory, the place of its results on the device, and an event behind it.
struct HostStep {
  std::shared_ptr<const BatchPlan> plan;
  StepShape shape;
  Status fault;  // why it was not queued
  bool wants_top_logprobs = false;
  bool needs_no_tail = true;      // all that Run reads stands in the fixed front
  std::shared_ptr<void> meta;     // pinned
  size_t meta_bytes = 0;          // its size
  std::shared_ptr<void> results;  // pinned, ResultLayout
  DeviceArray<std::byte> device_results;
  std::unique_ptr<DeviceEvent> done;
};

class DeviceStep {
 public:
  // Loads the model and takes all memory but that of keys and values.
  static Result<std::unique_ptr<DeviceStep>> Make(const ModelConfig& config,
                                                  const Checkpoint& checkpoint,
                                                  const WeightFormat& weight_format,
                                                  const EngineLimits& limits, DeviceOps* ops);
  // Takes keys and values for so many pages and window pages (0 where layers lie together) and the
  // dummies; again: the old ones go first.
  Status TakePages(int32_t num_pages, int32_t num_window_pages);

  const EngineLimits& limits() const { return limits_; }
  Result<HostStep> MakeHostStep();

  // Whether `plan` is a step that a graph can run: one token a row, each sampled.
  bool IsPlainDecode(const BatchPlan& plan) const;

  // Copies what `step->plan` says, padded with rows of the dummy to `padded_rows` (0: not at all),
  // and applies its table writes. Sets step->shape. kOutOfMemory where the step is larger than any
  // before and there is no memory for it: its writes are then lost, and the engine must stop.
  Status Upload(HostStep* step, int32_t padded_rows);
  // Everything between Upload and Download; reads no memory of the host, so it can be captured
  // where step.needs_no_tail.
  void Run(const HostStep& step);
  void Download(HostStep* step);
  // REQUIRES the step to be done.
  std::vector<RowResult> Results(const HostStep& step) const;

 private:
  // Biased and banned tokens of the step being filled.
  struct Adjustments {
    std::vector<int32_t> bias_ids, banned_ids;
    std::vector<float> bias_values;
    void Clear() {
      bias_ids.clear();
      banned_ids.clear();
      bias_values.clear();
    }
    bool FitFront() const { return bias_ids.size() <= kBiasMax && banned_ids.size() <= kBiasMax; }
  };

  explicit DeviceStep(const EngineLimits& limits)
      : limits_(limits),
        has_windows_(limits.num_window_pages > 0),
        layout_(limits),
        result_layout_(layout_) {}
  Status TakeTables();
  Status TakeArrays();
  Status FillDummyRow(const DeviceArray<int32_t>& table, int32_t dummy_page);
  Status GrowHost(size_t num_bytes, HostStep* step);
  void FillRows(const BatchPlan& plan, HostStep* step, int32_t padded_rows);
  void FillGroups(const BatchPlan& plan, const StepShape& shape, std::byte* meta);
  void FillPlace(const BatchPlan& plan, int32_t row, int32_t from_end, int32_t place,
                 std::byte* meta);
  void FillWrites(const BatchPlan& plan, std::byte* meta);
  void FillAdjustments(std::byte* meta);
  void ApplyWrites(const BatchPlan& plan);
  void PrepareTokens(const HostStep& step, const DeviceArray<int32_t>& table, int64_t* slots);
  // Where byte `offset` of the step stands on the device.
  std::byte* OnDevice(size_t offset) const {
    return offset < layout_.front_bytes || !tail_apart_
               ? meta_.data() + offset
               : overflow_.data() + (offset - layout_.front_bytes);
  }
  template <typename T>
  T* Meta(size_t offset) const {
    return reinterpret_cast<T*>(OnDevice(offset));
  }
  template <typename T>
  T* InResults(size_t offset) const {
    return reinterpret_cast<T*>(results_.data() + offset);
  }

  EngineLimits limits_;
  const bool has_windows_;  // before TakePages too, when limits_ has none of either
  const StepLayout layout_;
  const ResultLayout result_layout_;
  int64_t pages_per_row_ = 0;
  ModelConfig config_;
  DeviceOps* ops_ = nullptr;
  std::unique_ptr<Decoder> decoder_;
  KvStorage kv_;
  DeviceArray<int32_t> page_table_;    // [max_running_requests + 1, pages_per_row_]
  DeviceArray<int32_t> window_table_;  // the same by window page, where there are any
  DeviceArray<int32_t> token_pool_;    // [max_running_requests + 1, max_seq_len]
  DeviceArray<std::byte> meta_;        // StepLayout, then most steps' tail
  DeviceArray<std::byte> overflow_;    // a tail that is longer
  size_t overflow_bytes_ = 0;
  DeviceArray<std::byte> results_;     // ResultLayout
  DeviceArray<int32_t> token_ids_;     // [max_step_tokens]
  DeviceArray<int32_t> positions_;     // [max_step_tokens]
  DeviceArray<int64_t> slots_;         // [max_step_tokens]
  DeviceArray<int64_t> window_slots_;  // [max_step_tokens], where there are window pages
  DeviceArray<uint32_t> counts_;       // [max_places, V]
  DeviceArray<float> raw_logits_;      // [max_places, V]
  std::unique_ptr<PrefixGrouper> grouper_;
  // Of the step that was uploaded last.
  Adjustments adjustments_;
  StepTail tail_{BatchPlan{}, 0, 0, 0};
  bool tail_apart_ = false;
};

// Bytes of what DeviceStep takes beside the decoder, the tables and the keys and values; nothing
// where that is past 2^64.
std::optional<uint64_t> DeviceStepBytes(const EngineLimits& limits, bool has_windows);

}  // namespace minisgl::engine
