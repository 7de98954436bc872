// One rank of a device's engine: a device with its part of the model, its graphs and its steps in
// flight. An engine without tensor parallelism has one.
//
// All ranks of an engine get the same calls in the same order, each on a thread of its own if there
// are several: their operations wait for each other on the devices (Ops::AllReduce).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/decode_graphs.h"
#include "engine/device_step.h"
#include "engine/layer_graphs.h"
#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

// The graphs of an engine, by their sizes.
struct GraphSizes {
  std::vector<int32_t> rows;      // of decode steps
  std::vector<StepShape> shapes;  // of other steps' layers
  std::vector<DraftGraphSize> drafts = {};
};

class DeviceRank {
 public:
  // `is_alone`: there is no other rank.
  DeviceRank(std::unique_ptr<DeviceOps> ops, std::unique_ptr<DeviceStep> step, bool is_alone)
      : is_alone_(is_alone),
        ops_(std::move(ops)),
        step_(std::move(step)),
        graphs_(step_.get(), ops_.get()),
        layer_graphs_(step_.get(), ops_.get()),
        adapted_graphs_(step_.get(), ops_.get(), /*adapters=*/true),
        adapted_layer_graphs_(step_.get(), ops_.get(), /*adapters=*/true) {}

  // Waits, because the device may still use memory that is about to be freed.
  ~DeviceRank() { (void)ops_->Synchronize(); }

  DeviceOps* ops() const { return ops_.get(); }
  DeviceStep* step() const { return step_.get(); }

  // At the start, in this order. Steps in flight are taken first.
  Status TakeSteps(int32_t count);
  // See engine/warm_up.h.
  Status WarmUp(const GraphSizes& sizes);
  // Adds the estimated bytes of all graphs to *num_bytes. Captures the largest of each class, over
  // a pool without pages, and drops it.
  Status AddGraphBytes(const GraphSizes& sizes, uint64_t* num_bytes);
  Status CaptureRows(int32_t num_rows);
  Status CaptureShape(const StepShape& shape);
  Status CaptureDrafts(const DraftGraphSize& size) {
    return step_->drafter()->Capture(size, &free_.front().drafts);
  }
  int32_t max_graph_rows() const { return graphs_.max_rows(); }
  int32_t max_graph_tokens() const { return layer_graphs_.max_tokens(); }

  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  // Takes a step for `plan`: the newest in flight.
  void Begin(std::shared_ptr<const BatchPlan> plan);
  // Encodes the pictures of the newest step and finds those that it reads: see
  // DeviceStep::TakePictures.
  Status TakePictures(Status* unreadable) {
    return step_->TakePictures(&in_flight_.back(), unreadable);
  }
  // Queues the newest step, of which masked places wait for QueuePlaces. If its drafts are guided
  // (DraftStep), its layers wait for QueueLayers.
  Status Queue();
  bool is_guided() const { return in_flight_.back().drafts.is_guided; }
  // The drafts of the newest step, which are guided: see DeviceDrafter.
  int32_t num_draft_indices() const { return in_flight_.back().drafts.NumIndices(); }
  Result<DraftMasks> MakeDraftMasks(int32_t index, const DraftGuide* guide) {
    return step_->drafter()->MakeMasks(index, guide, &in_flight_.back().drafts);
  }
  Status ChooseDrafts(int32_t index, const DraftMasks& masks) {
    step_->drafter()->ChooseDrafts(index, masks, in_flight_.back().drafts);
    return ops_->status();
  }
  // Waits for the last drafts. Returns the drafts of masked rows, in the order of rows.
  Result<std::vector<std::vector<TokenId>>> TakeDrafts();
  Status QueueLayers();
  // Queues only the table writes of the newest step, whose pictures could not be encoded.
  Status Skip();
  Status QueuePlaces(const StepMasks& masks);
  // Waits for the oldest step.
  Status Wait() { return ops_->Wait(in_flight_.front().done.get()); }
  // REQUIRES the oldest step to be done.
  std::vector<RowResult> Results() { return step_->Results(in_flight_.front()); }
  // Queues the copy of an adapter; null drops it (see DeviceAdapters).
  Status SetAdapter(AdapterSlot adapter, const model::PackedAdapter* packed);
  // The oldest step is in flight no more.
  void End();

 private:
  template <typename Graphs, typename Size>
  Status AddBytesOf(Graphs* graphs, const std::vector<Size>& sizes, uint64_t* num_bytes);

  const bool is_alone_;
  const std::unique_ptr<DeviceOps> ops_;  // outlives what it made, below
  const std::unique_ptr<DeviceStep> step_;
  DecodeGraphs graphs_;
  LayerGraphs layer_graphs_;
  // Graphs of steps with rows of adapters, which run more operations. Empty without adapters.
  DecodeGraphs adapted_graphs_;
  LayerGraphs adapted_layer_graphs_;
  // The graph of the newest step: of decode rows, or of layers; 0 and null: neither.
  int32_t padded_rows_ = 0;
  const StepShape* padded_layers_ = nullptr;
  std::deque<InFlightStep> in_flight_;  // the oldest first
  std::deque<InFlightStep> free_;       // likewise
};

}  // namespace minisgl::engine
