// One step on a device: what the plan holds is copied over in one piece, the forward pass and the
// sampling follow, and the device writes the results to the host.
//
// What the plan holds reaches memory of the step's own while earlier steps run. The step begins by
// copying the part that graphs read (StepLayout) to an address that is always the same. All other
// arrays that a step uses on the device keep their addresses, too. The memory of a step
// (InFlightStep), on both sides, belongs to it until it is collected. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/device_adapters.h"
#include "engine/device_drafter.h"
#include "engine/device_encoder.h"
#include "engine/device_places.h"
#include "engine/planned_heads.h"
#include "engine/pooled_prompts.h"
#include "engine/prefix_groups.h"
#include "engine/step_layout.h"
#include "engine/step_state.h"
#include "engine/step_texts.h"
#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

// The numbers of rows, tokens and places of a step. A graph is captured for one shape, in which
// numbers of rows may be upper bounds.
struct StepShape {
  int32_t num_rows = 0;
  int32_t num_decode_rows = 0;
  int32_t num_tokens = 0;
  int32_t num_places = 0;
  RowsKnown rows_known = RowsKnown::kExactly;
  bool has_adapters = false;  // rows may have one
  bool operator==(const StepShape&) const = default;
};

// What a step is padded with to the size of its graph. One of both at most; 0: nothing.
struct StepPadding {
  int32_t rows = 0;       // decode rows of the dummy, each with a place, up to so many rows
  int32_t tokens = 0;     // one row of the dummy, without a place, up to so many tokens
  bool adapters = false;  // it runs as a step with adapters
};

// A step that is queued: its memory on the host and on the device, and the event that ends it.
struct InFlightStep {
  std::shared_ptr<const BatchPlan> plan;
  StepShape shape;  // exactly, with rows of padding
  bool wants_top_logprobs = false;
  bool samples_first_tokens = false;  // as if logit_tokens were 0, 1, ...
  bool needs_no_tail = true;          // Run reads only the fixed front
  size_t front_bytes = 0;             // of StepLayout, what the step uses
  StepTail tail{BatchPlan{}, 0, 0, 0};
  std::vector<PlacedEmbeddings> placed;  // of pictures; empty: the step has none
  StepTexts texts;                       // of prompts that become vectors
  std::shared_ptr<void> meta;            // StepLayout, StepTail
  std::shared_ptr<void> results;         // ResultLayout
  DeviceArray<std::byte> device_meta;
  size_t meta_bytes = 0;                       // size of meta and device_meta
  DeviceArray<std::byte> device_top_logprobs;  // of ResultLayout
  // The masks of a step that has masked rows: i32 [num_places] (DeviceSampleParams::mask_of), then
  // the masks themselves.
  std::shared_ptr<void> masks;
  DeviceArray<std::byte> device_masks;
  size_t masks_bytes = 0;        // size of both
  size_t first_mask = 0;         // offset of the masks
  std::vector<int32_t> mask_of;  // of the places
  std::unique_ptr<DeviceEvent> done;
  DraftStep drafts;  // if there is a drafter
};

class DeviceStep {
 public:
  // Loads the part of `rank` of the models, and takes all memory of `plan` except that of keys and
  // values.
  static Result<std::unique_ptr<DeviceStep>> Make(const ModelList& models, const ModelFiles& files,
                                                  const MemoryPlan& plan, const Rank& rank,
                                                  DeviceOps* ops,
                                                  std::shared_ptr<Ops> host_ops = nullptr);
  // Sets the function that several ranks, after the start, call before and after they take memory
  // for a large step. It waits until nothing runs on any device, because taking memory may wait for
  // a kernel that waits for another rank. All ranks take memory for the same steps.
  void SetQuiet(std::function<Status()> quiet) { quiet_ = std::move(quiet); }
  // See StepState.
  Status TakePages(int32_t num_pages, int32_t num_window_pages) {
    if (drafter_ != nullptr) MINISGL_RETURN_IF_ERROR(drafter_->TakePages(num_pages));
    return state_->TakePages(num_pages, num_window_pages);
  }
  const EngineLimits& limits() const { return state_->limits(); }
  const KvStorage& kv() const { return state_->kv(); }
  const StateStorage& states() const { return state_->states(); }
  Result<InFlightStep> MakeInFlightStep();
  // Null if the list has no adapters.
  DeviceAdapters* adapters() const { return adapters_.get(); }
  // Null if the list has no drafter.
  DeviceDrafter* drafter() const { return drafter_.get(); }

  // True if one graph can run all of `plan`: every row has one token and samples, without a mask.
  bool IsPlainDecode(const BatchPlan& plan) const;
  // The shape of `plan` without padding, except its places.
  StepShape ShapeOf(const BatchPlan& plan) const;
  // Query heads for each KV head.
  int32_t group() const {
    const LayerShape shape = LayerShapeOf(state_->config(), 0);
    return shape.num_heads / shape.num_kv_heads;
  }

  // Drops and encodes the pictures of step->plan, and sets step->placed to those that it reads.
  // *unreadable says why that failed; the step must then be skipped, and ForgetPictures is called
  // on all ranks. Returns a fault of the device.
  Status TakePictures(InFlightStep* step, Status* unreadable);
  void ForgetPictures(const InFlightStep& step);
  // Hands what the first rank has encoded for step.plan to the others.
  void SharePictures(const InFlightStep& step);

  // Queues what makes the step's drafts; of a guided step (DraftStep) what precedes the choice of
  // the first ones. Call it after Upload.
  void RunDrafts(const InFlightStep& step);
  // See DeviceDrafter.
  void TakeLoaded(std::span<const PageId> pages) {
    if (drafter_ != nullptr) drafter_->TakeLoaded(pages);
  }

  // Copies step->plan to the device, padded, and applies its table writes. Sets step->shape.
  // kOutOfMemory if the step is larger than any before and there is no memory for it: its writes
  // are then lost, and the engine must stop. REQUIRES at most max_seq_len tokens of padding.
  Status Upload(InFlightStep* step, StepPadding padding);
  // Everything between Upload and Download. Reads no host memory, so it can be captured if
  // step.needs_no_tail.
  void Run(const InFlightStep& step);
  // The two parts of Run. The first depends on its shape and on device memory alone, so it can be
  // captured for all steps that are padded to num_tokens, with bounds of their rows. `alone`: the
  // step if no graph can run it (RunsAlone).
  void RunLayers(const StepShape& shape, const InFlightStep* alone = nullptr);
  // True if the plan reads pictures, or its tokens attend to later ones.
  bool RunsAlone(const BatchPlan& plan) const {
    return !plan.extras.embeddings.empty() || limits().attends_both_ways;
  }
  void RunPlaces(const InFlightStep& step);
  // Copies the masks of step->plan to the device, for RunPlaces. kOutOfMemory if there is no memory
  // for them.
  Status UploadMasks(const StepMasks& masks, InFlightStep* step);
  void Download(InFlightStep* step);
  // Queues what the drafter reads of the step. It follows Download, so that results do not wait for
  // it: the host plans the next step meanwhile.
  void FeedDrafter(InFlightStep* step);
  // Waits for what the drafter reads of all steps: it writes keys into pages of rows that may have
  // ended.
  Status WaitForDrafter() const { return drafter_ == nullptr ? Status() : drafter_->WaitForFeed(); }
  // REQUIRES the step to be done. Steps are asked in their order.
  std::vector<RowResult> Results(const InFlightStep& step);

 private:
  DeviceStep(std::unique_ptr<StepState> state, DeviceOps* ops);
  Status TakeArrays();
  Status TakePictureArrays(const ModelList& models, const MemoryPlan& plan, int32_t num_ranks);
  Status TakeAdapters(const ModelList& models, const ModelFiles& files);
  // Takes `num_bytes` on the host and on the device, which are then *size.
  Status TakeRoom(size_t num_bytes, std::shared_ptr<void>* host, DeviceArray<std::byte>* device,
                  size_t* size);
  Status TakeMeta(size_t num_bytes, InFlightStep* step);
  Status TakeMasks(size_t num_bytes, InFlightStep* step);
  void SetShape(const BatchPlan& plan, StepPadding padding, InFlightStep* step) const;
  bool BiasFitsFront() const;
  void FillRows(const BatchPlan& plan, StepPadding padding, std::byte* meta) const;
  void FillPaddingTokens(const BatchPlan& plan, int32_t num_tokens, std::byte* meta) const;
  void FillTokenSlots(const BatchPlan& plan, int32_t num_tokens, std::byte* meta) const;
  void FillPlaces(const StepTail& tail, std::byte* meta) const;
  void FillSpans(const BatchPlan& plan, std::byte* meta) const;
  void FillGroups(const BatchPlan& plan, const StepShape& shape, std::byte* meta);
  void FillWrites(const BatchPlan& plan, const StepTail& tail, std::byte* meta) const;
  void FillScored(const BatchPlan& plan, const StepTail& tail, std::byte* meta) const;
  StepTail MakeTail(const BatchPlan& plan, StepPadding padding, size_t begin) const;
  void SetPictures(const InFlightStep& step, ForwardInput* input);
  // Logits and log-probabilities of what the step scores, in pieces that fit the logits' memory.
  void RunScored(const InFlightStep& step);
  std::vector<RowResult> ScoredResults(const InFlightStep& step) const;
  // Prompts that become vectors: see StepTexts. TakeTextRoom takes memory if a step has more of
  // them than any before in the same InFlightStep.
  size_t StateBytes() const;
  Status TakeTextRoom(StepTexts* texts);
  Status UploadTexts(InFlightStep* step);
  static void SetTexts(const InFlightStep& step, ForwardInput* input);
  void RunPooled(const InFlightStep& step);
  void DownloadTexts(InFlightStep* step);
  std::vector<std::vector<float>> PooledVectors(const InFlightStep& step);
  void ApplyWrites(const BatchPlan& plan, const InFlightStep& step);
  void SampleAndAccept(const InFlightStep& step);
  // True if the drafter reads tokens of the step.
  bool FeedsDrafter(const InFlightStep& step) const {
    return drafter_ != nullptr && step.plan != nullptr && !step.plan->extras.hidden.empty();
  }
  void PrepareTokens(const StepShape& shape, const int32_t* page_table, int64_t* slots);
  void PlanAttention(const StepShape& shape, const PlannedHeads& planned);
  StateSegments StateSegmentsOf(const StepShape& shape) const;
  // ForwardInput::slot_of
  const int32_t* TokenSlots(const StepShape& shape) const {
    return shape.has_adapters ? Meta<int32_t>(layout_.token_slots) : nullptr;
  }
  // In the front that graphs read.
  template <typename T>
  T* Meta(size_t offset) const {
    return reinterpret_cast<T*>(front_.data() + offset);
  }
  template <typename T>
  static T* InStep(const InFlightStep& step, size_t offset) {
    return reinterpret_cast<T*>(step.device_meta.data() + offset);
  }
  template <typename T>
  static T* MasksIn(const InFlightStep& step, size_t offset) {
    return reinterpret_cast<T*>(step.device_masks.data() + offset);
  }
  template <typename T>
  T* InResults(size_t offset) const {
    return reinterpret_cast<T*>(results_.data() + offset);
  }

  const StepLayout layout_;
  const ResultLayout result_layout_;
  DeviceOps* const ops_;
  const std::unique_ptr<StepState> state_;
  std::unique_ptr<DeviceAdapters> adapters_;  // in slots that the state's decoder reads
  std::function<Status()> quiet_ = [] { return Status(); };
  PrefixGrouper grouper_;
  bool groups_rows_ = false;           // with a shared prefix: some layer has no window
  std::vector<PlannedHeads> heads_;    // of the layers
  DeviceArray<std::byte> front_;       // StepLayout of the step that runs
  DeviceArray<std::byte> results_;     // ResultLayout
  DeviceArray<int32_t> token_ids_;     // [max_step_tokens]
  DeviceArray<int32_t> positions_;     // [max_step_tokens]
  DeviceArray<int64_t> slots_;         // [max_step_tokens]
  DeviceArray<int64_t> window_slots_;  // [max_step_tokens] if there are window pages
  // Pictures, if there is a tower:
  std::unique_ptr<DeviceEncoder> encoder_;
  DeviceArray<RopePosition> rope_positions_;  // [max_step_tokens] if the model's have three parts
  DeviceArray<int32_t> per_layer_ids_;        // [max_step_tokens] if there are per-layer embeddings
  DeviceArray<int32_t> picture_ids_;          // likewise: the id that stands for a picture's tokens
  DeviceArray<uint32_t> counts_;              // [max_places, V]
  DeviceArray<float> raw_logits_;             // [max_places, V]
  // The places of the step that was uploaded last.
  DevicePlaces places_;
  std::unique_ptr<DeviceDrafter> drafter_;  // null: there is none
  PooledPrompts pooled_;                    // of the steps whose results were asked for
};

// Bytes that DeviceStep takes, not counting the decoder, the tables, and keys and values; nothing
// if that exceeds 2^64.
std::optional<uint64_t> DeviceStepBytes(const EngineLimits& limits, bool has_windows);

}  // namespace minisgl::engine
