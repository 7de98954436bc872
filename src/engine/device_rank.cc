// See device_rank.h.
#include "engine/device_rank.h"

#include <algorithm>
#include <limits>

#include "engine/warm_up.h"

namespace minisgl::engine {

Status DeviceRank::TakeSteps(int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    MINISGL_ASSIGN_OR_RETURN(InFlightStep step, step_->MakeInFlightStep());
    free_.push_back(std::move(step));
  }
  return Status();
}

Status DeviceRank::WarmUp(const GraphSizes& sizes) {
  const int32_t decode_rows = sizes.rows.empty() ? 1 : sizes.rows.back();
  return engine::WarmUp(decode_rows, step_.get(), &free_.front(), ops_.get());
}

// Estimates the bytes of the graphs of `sizes` from the largest: others hold as many operations.
// The device says only how much memory is free to all processes, so another one that starts or
// grows meanwhile would count as a graph: the smaller of two measurements is taken.
template <typename Graphs, typename Size>
Status DeviceRank::AddBytesOf(Graphs* graphs, const std::vector<Size>& sizes, uint64_t* num_bytes) {
  if (sizes.empty()) return Status();
  uint64_t graph_bytes = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < 2; ++i) {
    const uint64_t before = ops_->MemoryInfo().free_bytes;
    const Status captured = graphs->Capture(sizes.back(), &free_.front());
    // OK unless the fault is sticky: no graphs then. Other ranks may wait for this one.
    if (!captured.ok()) return is_alone_ ? ops_->status() : captured;
    const uint64_t after = ops_->MemoryInfo().free_bytes;
    graphs->Clear();
    graph_bytes = std::min(graph_bytes, before > after ? before - after : 0);
  }
  *num_bytes += graph_bytes * sizes.size();
  return Status();
}

namespace {

struct DraftGraphs {
  DeviceDrafter* drafter;
  Status Capture(const DraftGraphSize& size, InFlightStep* padding) const {
    return drafter->Capture(size, &padding->drafts);
  }
  void Clear() const { drafter->ClearGraphs(); }
};

}  // namespace

Status DeviceRank::AddGraphBytes(const GraphSizes& sizes, uint64_t* num_bytes) {
  DraftGraphs drafts = {step_->drafter()};
  MINISGL_RETURN_IF_ERROR(AddBytesOf(&drafts, sizes.drafts, num_bytes));
  MINISGL_RETURN_IF_ERROR(AddBytesOf(&graphs_, sizes.rows, num_bytes));
  MINISGL_RETURN_IF_ERROR(AddBytesOf(&layer_graphs_, sizes.shapes, num_bytes));
  if (step_->adapters() == nullptr) return Status();
  MINISGL_RETURN_IF_ERROR(AddBytesOf(&adapted_graphs_, sizes.rows, num_bytes));
  return AddBytesOf(&adapted_layer_graphs_, sizes.shapes, num_bytes);
}

Status DeviceRank::CaptureRows(int32_t num_rows) {
  MINISGL_RETURN_IF_ERROR(graphs_.Capture(num_rows, &free_.front()));
  if (step_->adapters() == nullptr) return Status();
  return adapted_graphs_.Capture(num_rows, &free_.front());
}

Status DeviceRank::CaptureShape(const StepShape& shape) {
  MINISGL_RETURN_IF_ERROR(layer_graphs_.Capture(shape, &free_.front()));
  if (step_->adapters() == nullptr) return Status();
  return adapted_layer_graphs_.Capture(shape, &free_.front());
}

Status DeviceRank::SetAdapter(AdapterSlot adapter, const model::PackedAdapter* packed) {
  if (packed == nullptr) {
    step_->adapters()->Drop(adapter);
  } else {
    step_->adapters()->Load(adapter, *packed);
  }
  return ops_->status();
}

void DeviceRank::Begin(std::shared_ptr<const BatchPlan> plan) {
  // The step that was collected first: the drafter may still read what the last one has.
  in_flight_.push_back(std::move(free_.front()));
  free_.pop_front();
  in_flight_.back().plan = std::move(plan);
}

Status DeviceRank::Queue() {
  InFlightStep* const step = &in_flight_.back();
  const BatchPlan& plan = *step->plan;
  const bool runs_alone = step_->RunsAlone(plan);
  step_->SharePictures(*step);
  const bool is_adapted = !plan.extras.adapters.empty();
  const DecodeGraphs& graphs = is_adapted ? adapted_graphs_ : graphs_;
  const LayerGraphs& layer_graphs = is_adapted ? adapted_layer_graphs_ : layer_graphs_;
  // A graph of a whole step leaves no states for a drafter.
  const bool may_be_graph = !runs_alone && plan.extras.hidden.empty();
  padded_rows_ =
      step_->IsPlainDecode(plan) && may_be_graph ? graphs.PaddedRows(plan.num_rows()) : 0;
  padded_layers_ = padded_rows_ > 0 || plan.num_rows() == 0 || runs_alone
                       ? nullptr
                       : layer_graphs.Find(step_->ShapeOf(plan));
  const int32_t padded_tokens = padded_layers_ == nullptr ? 0 : padded_layers_->num_tokens;
  MINISGL_RETURN_IF_ERROR(step_->Upload(step, {.rows = padded_rows_, .tokens = padded_tokens}));
  step_->RunDrafts(*step);
  return is_guided() ? ops_->status() : QueueLayers();
}

Status DeviceRank::QueueLayers() {
  InFlightStep* const step = &in_flight_.back();
  const BatchPlan& plan = *step->plan;
  const bool is_adapted = !plan.extras.adapters.empty();
  if (padded_rows_ > 0) {
    (is_adapted ? adapted_graphs_ : graphs_).Replay(padded_rows_);
  } else if (padded_layers_ != nullptr) {
    (is_adapted ? adapted_layer_graphs_ : layer_graphs_).Replay(*padded_layers_);
  } else if (plan.num_rows() > 0) {
    step_->RunLayers(step->shape, step_->RunsAlone(plan) ? step : nullptr);
  }
  if (plan.has_masks()) return ops_->status();  // its places wait for QueuePlaces
  if (padded_rows_ == 0 && plan.num_rows() > 0) step_->RunPlaces(*step);
  step_->Download(step);
  step_->FeedDrafter(step);
  return ops_->status();
}

Result<std::vector<std::vector<TokenId>>> DeviceRank::TakeDrafts() {
  DraftStep* const step = &in_flight_.back().drafts;
  MINISGL_RETURN_IF_ERROR(step_->drafter()->TakeChosen(step->NumIndices() - 1, step));
  std::vector<const DraftRow*> masked;
  for (const DraftRow& row : step->rows) {
    if (row.is_masked) masked.push_back(&row);
  }
  std::sort(masked.begin(), masked.end(),
            [](const DraftRow* a, const DraftRow* b) { return a->row < b->row; });
  std::vector<std::vector<TokenId>> drafts;
  for (const DraftRow* const row : masked) drafts.push_back(row->chosen);
  return drafts;
}

Status DeviceRank::Skip() {
  InFlightStep* const step = &in_flight_.back();
  step_->ForgetPictures(*step);
  MINISGL_RETURN_IF_ERROR(step_->Upload(step, {}));
  ops_->Record(step->done.get());
  return ops_->status();
}

Status DeviceRank::QueuePlaces(const StepMasks& masks) {
  InFlightStep* const step = &in_flight_.back();
  MINISGL_RETURN_IF_ERROR(step_->UploadMasks(masks, step));
  step_->RunPlaces(*step);
  step_->Download(step);
  step_->FeedDrafter(step);
  return ops_->status();
}

void DeviceRank::End() {
  in_flight_.front().plan.reset();
  free_.push_back(std::move(in_flight_.front()));
  in_flight_.pop_front();
}

}  // namespace minisgl::engine
