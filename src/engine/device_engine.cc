// The pipeline over DeviceStep: a queue of steps in flight.
//
// At the start memory is allocated in this order, because a captured graph holds the addresses of
// keys and values:
// 1. The largest graph of either class is captured over a pool without pages, to measure what
//    graphs take. What steps load when they run first is loaded before
//    (DeviceEngineOptions::warms_up).
// 2. They are dropped, and keys and values are allocated.
// 3. All graphs are captured.
#include "minisgl/engine/device_engine.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <limits>
#include <new>
#include <utility>

#include "engine/decode_graphs.h"
#include "engine/device_kv_copies.h"
#include "engine/device_step.h"
#include "engine/kv_split.h"
#include "engine/layer_graphs.h"
#include "engine/plan_check.h"
#include "engine/warm_up.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"

namespace minisgl::engine {
namespace {

class DeviceEngine final : public Engine {
 public:
  DeviceEngine(std::unique_ptr<DeviceOps> ops, std::unique_ptr<DeviceStep> step)
      : ops_(std::move(ops)),
        step_(std::move(step)),
        graphs_(step_.get(), ops_.get()),
        layer_graphs_(step_.get(), ops_.get()),
        kv_copies_(step_.get(), ops_.get(), [this] { return !in_flight_.empty(); }) {}

  // Waits, because the device may still use memory that is about to be freed.
  ~DeviceEngine() override { (void)ops_->Synchronize(); }

  Status Start(const ModelConfig& config, const MemoryPlan& plan,
               const DeviceEngineOptions& options);

  const EngineLimits& limits() const override { return step_->limits(); }

  void Launch(std::shared_ptr<const BatchPlan> plan) override {
    MINISGL_CHECK(!free_.empty(), "{} plans are in flight", in_flight_.size());
    const auto find_fault = kDebugBuild ? FindPlanShapeFault : FindPlanSizeFault;
    const std::string fault = find_fault(*plan, limits());
    MINISGL_CHECK(fault.empty(), "step {}: {}", plan->step, fault);
    in_flight_.push_back(std::move(free_.back()));
    free_.pop_back();
    InFlightStep& step = in_flight_.back();
    step.plan = std::move(plan);
    if (fault_.ok()) fault_ = Queue(&step);
    step.fault = fault_;
  }

  void SupplyMasks(StepMasks masks) override {
    MINISGL_CHECK(!in_flight_.empty() && in_flight_.back().plan->has_masks(),
                  "masks that no step waits for");
    InFlightStep& step = in_flight_.back();
    if (fault_.ok()) fault_ = QueuePlaces(masks, &step);
    step.fault = fault_;
  }

  int64_t KvBlockBytes(int32_t block_tokens) const override {
    return kv_copies_.BlockBytes(block_tokens);
  }
  std::unique_ptr<KvBlockCopy> ReadPages(std::span<const PageId> pages) override {
    return kv_copies_.Read(pages);
  }
  std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId> pages) override {
    return kv_copies_.BeginWrite(pages);
  }
  void WritePages(std::unique_ptr<KvBlockCopy> copy) override { kv_copies_.Write(std::move(copy)); }
  int64_t StateBytes() const override { return kv_copies_.StateBytes(); }
  std::unique_ptr<KvBlockCopy> ReadState(StateSlot slot) override {
    return kv_copies_.ReadState(slot);
  }
  std::unique_ptr<KvBlockCopy> BeginStateWrite(StateSlot slot) override {
    return kv_copies_.BeginStateWrite(slot);
  }
  void WriteState(std::unique_ptr<KvBlockCopy> copy) override { kv_copies_.Write(std::move(copy)); }

  StepResult Collect() override {
    MINISGL_CHECK(!in_flight_.empty(), "nothing is in flight");
    InFlightStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    StepResult result;
    if (step.fault.ok()) step.fault = ops_->Wait(step.done.get());
    if (step.fault.ok()) {
      result.rows = step_->Results(step);
    } else {
      if (fault_.ok()) fault_ = step.fault;
      result.status = step.fault.WithPrefix(fmt::format("step {}", step.plan->step));
      result.rows.resize(step.plan->table_row.size());
    }
    step.plan.reset();
    free_.push_back(std::move(step));
    return result;
  }

 private:
  Status Queue(InFlightStep* step);
  // The rest of a step with masks.
  Status QueuePlaces(const StepMasks& masks, InFlightStep* step);
  template <typename Graphs, typename Size>
  Status AddGraphBytes(Graphs* graphs, const std::vector<Size>& sizes, uint64_t* num_bytes);
  void CaptureAll(const std::vector<int32_t>& sizes, const std::vector<StepShape>& shapes);

  const std::unique_ptr<DeviceOps> ops_;  // outlives what it made, below
  const std::unique_ptr<DeviceStep> step_;
  DecodeGraphs graphs_;
  LayerGraphs layer_graphs_;
  DeviceKvCopies kv_copies_;
  std::deque<InFlightStep> in_flight_;  // the oldest first
  std::vector<InFlightStep> free_;
  // The first fault. Nothing is queued after it, because it would read what was not written.
  Status fault_;
};

Status DeviceEngine::Queue(InFlightStep* step) {
  const BatchPlan& plan = *step->plan;
  const int32_t padded_rows = step_->IsPlainDecode(plan) ? graphs_.PaddedRows(plan.num_rows()) : 0;
  const StepShape* const layers =
      padded_rows > 0 || plan.num_rows() == 0 ? nullptr : layer_graphs_.Find(step_->ShapeOf(plan));
  const int32_t padded_tokens = layers == nullptr ? 0 : layers->num_tokens;
  MINISGL_RETURN_IF_ERROR(step_->Upload(step, {.rows = padded_rows, .tokens = padded_tokens}));
  if (padded_rows > 0) {
    graphs_.Replay(padded_rows);
  } else if (layers != nullptr) {
    layer_graphs_.Replay(*layers);
  } else if (plan.num_rows() > 0) {
    step_->RunLayers(step->shape);
  }
  if (plan.has_masks()) return ops_->status();  // its places wait for SupplyMasks
  if (padded_rows == 0 && plan.num_rows() > 0) step_->RunPlaces(*step);
  step_->Download(step);
  return ops_->status();
}

Status DeviceEngine::QueuePlaces(const StepMasks& masks, InFlightStep* step) {
  MINISGL_RETURN_IF_ERROR(step_->UploadMasks(masks, step));
  step_->RunPlaces(*step);
  step_->Download(step);
  return ops_->status();
}

// Estimates the bytes of the graphs of `sizes` from the largest: others hold as many operations.
// The device says only how much memory is free to all processes, so another one that starts or
// grows meanwhile would count as a graph: the smaller of two measurements is taken.
template <typename Graphs, typename Size>
Status DeviceEngine::AddGraphBytes(Graphs* graphs, const std::vector<Size>& sizes,
                                   uint64_t* num_bytes) {
  if (sizes.empty()) return Status();
  uint64_t graph_bytes = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < 2; ++i) {
    const uint64_t before = ops_->MemoryInfo().free_bytes;
    const Status captured = graphs->Capture(sizes.back());
    if (!captured.ok()) return ops_->status();  // OK unless the fault is sticky: no graphs then
    const uint64_t after = ops_->MemoryInfo().free_bytes;
    graphs->Clear();
    graph_bytes = std::min(graph_bytes, before > after ? before - after : 0);
  }
  *num_bytes += graph_bytes * sizes.size();
  return Status();
}

void DeviceEngine::CaptureAll(const std::vector<int32_t>& sizes,
                              const std::vector<StepShape>& shapes) {
  for (const int32_t num_rows : sizes) {
    const Status captured = graphs_.Capture(num_rows);
    if (captured.ok()) continue;
    Log(LogLevel::kWarning,
        fmt::format("decode graphs stop at {} rows, larger batches run without: {}",
                    graphs_.max_rows(), captured.message()));
    return;
  }
  for (const StepShape& shape : shapes) {
    const Status captured = layer_graphs_.Capture(shape);
    if (captured.ok()) continue;
    Log(LogLevel::kWarning, fmt::format("graphs stop at {} tokens, longer steps run without: {}",
                                        layer_graphs_.max_tokens(), captured.message()));
    return;
  }
}

struct PageCounts {
  int64_t pages, window_pages;
};

// The pages of the plan, or fewer if graphs take `short_bytes` more than the plan reserves for
// them; at least those of one request.
PageCounts PagesBeside(const ModelConfig& config, const MemoryPlan& plan, uint64_t short_bytes,
                       DType dtype) {
  const EngineLimits& limits = plan.limits;
  PageCounts counts = {limits.num_pages, limits.num_window_pages};
  if (short_bytes == 0) return counts;
  const int64_t least = CeilDiv<int64_t>(limits.max_seq_len, limits.page_size);
  if (limits.num_window_pages > 0) {
    const auto split =
        KvSplit::Make(config, limits, limits.max_step_tokens - limits.max_running_requests, dtype);
    MINISGL_CHECK(split, "a plan of keys and values past 2^64 bytes");
    const uint64_t left = plan.kv_bytes - std::min(short_bytes, plan.kv_bytes);
    counts.pages = std::max(least, std::min(counts.pages, split->PagesWithin(left)));
    counts.window_pages = split->WindowPages(counts.pages);
    return counts;
  }
  const uint64_t page_bytes = plan.kv_bytes_per_token * static_cast<uint64_t>(limits.page_size);
  if (page_bytes == 0) return counts;
  const uint64_t short_pages =
      std::min(short_bytes / page_bytes + 1, static_cast<uint64_t>(counts.pages));
  counts.pages = std::max(least, counts.pages - static_cast<int64_t>(short_pages));
  return counts;
}

Status DeviceEngine::Start(const ModelConfig& config, const MemoryPlan& plan,
                           const DeviceEngineOptions& options) {
  const int32_t graph_max_rows = ops_->RunsGraphs() ? options.graph_max_rows : 0;
  const std::vector<int32_t> sizes =
      GraphBatchSizes(std::min(graph_max_rows, plan.limits.max_running_requests));
  const int32_t graph_max_tokens = ops_->RunsGraphs() ? options.graph_max_tokens : 0;
  const std::vector<StepShape> shapes = LayerGraphShapes(
      LayerGraphTokensMax(graph_max_tokens, plan.limits), plan.limits.max_running_requests + 1);
  for (int32_t i = 0; i < plan.limits.max_in_flight; ++i) {
    MINISGL_ASSIGN_OR_RETURN(InFlightStep step, step_->MakeInFlightStep());
    free_.push_back(std::move(step));
  }
  MINISGL_RETURN_IF_ERROR(step_->TakePages(0, 0));
  if (options.warms_up) {
    const int32_t decode_rows = sizes.empty() ? 1 : sizes.back();
    MINISGL_RETURN_IF_ERROR(WarmUp(decode_rows, step_.get(), &free_.front(), ops_.get()));
  }
  uint64_t graph_bytes = 0;
  MINISGL_RETURN_IF_ERROR(AddGraphBytes(&graphs_, sizes, &graph_bytes));
  MINISGL_RETURN_IF_ERROR(AddGraphBytes(&layer_graphs_, shapes, &graph_bytes));

  const uint64_t short_bytes = graph_bytes - std::min(graph_bytes, plan.graph_bytes);
  const PageCounts pages = PagesBeside(config, plan, short_bytes, ops_->activation_dtype());
  MINISGL_RETURN_IF_ERROR(step_->TakePages(static_cast<int32_t>(pages.pages),
                                           static_cast<int32_t>(pages.window_pages)));
  CaptureAll(sizes, shapes);
  return ops_->status();
}

// Adds suggestions to an out-of-memory error: the plan fitted the free memory, which has shrunk
// since. Suggests half of each setting that takes the most.
Status WithSuggestions(const Status& status, const MemoryPlan& plan) {
  if (status.code() != StatusCode::kOutOfMemory) return status;
  const EngineLimits& limits = plan.limits;
  return MakeStatus(StatusCode::kOutOfMemory,
                    "{}; less memory is free than was planned with. Try again, or give {} {}, {} "
                    "{} or {} {}",
                    status.message(), SettingName(Setting::kNumPages),
                    std::max(limits.num_pages / 2, 1), SettingName(Setting::kMaxRunningRequests),
                    std::max(limits.max_running_requests / 2, 1), SettingName(Setting::kMaxSeqLen),
                    std::max(limits.max_seq_len / 2, 2));
}

}  // namespace
}  // namespace minisgl::engine

namespace minisgl {

Result<std::unique_ptr<Engine>> MakeDeviceEngine(const ModelConfig& config,
                                                 const Checkpoint& checkpoint,
                                                 const MemoryPlan& plan,
                                                 std::unique_ptr<DeviceOps> ops,
                                                 const DeviceEngineOptions& options) {
  try {
    auto made =
        engine::DeviceStep::Make(config, checkpoint, plan.weight_format, plan.limits, ops.get());
    MINISGL_RETURN_IF_ERROR(engine::WithSuggestions(made.status(), plan));
    std::unique_ptr<engine::DeviceStep> step = std::move(made).value();
    auto engine = std::make_unique<engine::DeviceEngine>(std::move(ops), std::move(step));
    MINISGL_RETURN_IF_ERROR(engine::WithSuggestions(engine->Start(config, plan, options), plan));
    return std::unique_ptr<Engine>(std::move(engine));
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "the host ran out of memory while loading the model");
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, "the engine cannot start ({})", Visible(error.what()));
  }
}

}  // namespace minisgl
