// The pipeline over the ranks' DeviceSteps: a queue of steps in flight.
//
// At the start memory is allocated in this order, because a captured graph holds the addresses of
// keys and values:
// 1. The largest graph of either class is captured over a pool without pages, to measure what
//    graphs take. What steps load when they run first is loaded before
//    (DeviceEngineOptions::warms_up, DeviceOps::WarmsUpSums).
// 2. They are dropped, and keys and values are allocated.
// 3. All graphs are captured.
//
// Each of several ranks is called on a thread of its own, and no call returns before all have
// ended: work that one rank queues may wait on its device for work that another queues, and a
// thread that queues for a device waits if the device has much to do. All ranks get the same plan,
// compute the same logits and choose the same tokens; results are the first rank's. Nothing takes
// or frees memory while a kernel may wait for another rank (DeviceStep::SetQuiet).
#include "minisgl/engine/device_engine.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include "engine/adapter_store.h"
#include "engine/device_rank.h"
#include "engine/kv_split.h"
#include "engine/plan_check.h"
#include "engine/rank_kv_copies.h"
#include "engine/rank_threads.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"

namespace minisgl::engine {
namespace {

std::shared_ptr<Rendezvous> MeetingPlace(size_t num_ranks) {
  if (num_ranks == 1) return nullptr;
  return std::make_shared<Rendezvous>(static_cast<int32_t>(num_ranks), /*spins=*/false);
}

// Drafts of the rows with masks of a step that does not run.
std::vector<std::vector<TokenId>> NoDrafts(const BatchPlan& plan) {
  std::vector<std::vector<TokenId>> drafts;
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (!plan.masked(row) || !plan.makes_drafts_of(row)) continue;
    drafts.emplace_back(static_cast<size_t>(plan.num_drafts[static_cast<size_t>(row)]));
  }
  return drafts;
}

// True if the plan encodes, reads or drops pictures.
bool HasPictures(const PlanExtras& extras) {
  return (extras.parts() & (kHasInputs | kReplacesEmbeddings)) != 0;
}

class DeviceEngine final : public Engine {
 public:
  explicit DeviceEngine(std::vector<std::unique_ptr<DeviceRank>> ranks)
      : ranks_(std::move(ranks)),
        rendezvous_(MeetingPlace(ranks_.size())),
        kv_copies_(
            ranks_, [this] { return !in_flight_.empty(); }, [this] { Settle(); }),
        threads_(rendezvous_, [this] { FailRanks(); }) {}

  Status Start(const ModelConfig& config, const MemoryPlan& plan,
               const DeviceEngineOptions& options);
  // Called after Start if not all adapters are loaded. Keeps copies of both.
  void LoadAdaptersLater(const ModelList& models, const ModelFiles& files);
  AdapterSource* adapter_source() override { return adapters_.get(); }

  const EngineLimits& limits() const override { return first().step()->limits(); }

  void Launch(std::shared_ptr<const BatchPlan> plan) override {
    MINISGL_CHECK(first().num_free() > 0, "{} plans are in flight", in_flight_.size());
    const auto find_fault = kDebugBuild ? FindPlanShapeFault : FindPlanSizeFault;
    const std::string fault = find_fault(*plan, limits());
    MINISGL_CHECK(fault.empty(), "step {}: {}", plan->step, fault);
    in_flight_.push_back({.plan = plan, .fault = Status(), .unreadable = Status()});
    for (const auto& rank : ranks_) rank->Begin(plan);
    Status unreadable;
    if (fault_.ok() && HasPictures(plan->extras)) fault_ = TakePictures(&unreadable);
    const bool runs = unreadable.ok();
    if (fault_.ok()) {
      fault_ = OnRanks([&](DeviceRank* rank) { return runs ? rank->Queue() : rank->Skip(); });
    }
    // Drafts of clusters, which the host finds. Those of rows with masks wait for GuideDrafts.
    if (fault_.ok() && runs && first().is_guided() && !plan->guides_drafts()) {
      fault_ = ChooseDrafts(nullptr, nullptr);
    }
    in_flight_.back().unreadable = unreadable;
    in_flight_.back().fault = fault_;
  }

  std::vector<std::vector<TokenId>> GuideDrafts(const DraftGuide& guide) override {
    LaunchedStep& step = in_flight_.back();
    std::vector<std::vector<TokenId>> drafts;
    if (fault_.ok() && step.unreadable.ok()) {
      fault_ = ChooseDrafts(&guide, &drafts);
      step.fault = fault_;
      if (fault_.ok()) return drafts;
    }
    return NoDrafts(*step.plan);
  }

  void SupplyMasks(StepMasks masks) override {
    MINISGL_CHECK(!in_flight_.empty() && in_flight_.back().plan->has_masks(),
                  "masks that no step waits for");
    if (fault_.ok() && in_flight_.back().unreadable.ok()) {
      fault_ = OnRanks([&](DeviceRank* rank) { return rank->QueuePlaces(masks); });
    }
    in_flight_.back().fault = fault_;
  }

  int64_t KvBlockBytes(int32_t block_tokens) const override {
    return kv_copies_.BlockBytes(block_tokens);
  }
  std::unique_ptr<KvBlockCopy> ReadPages(std::span<const PageId> pages) override {
    return kv_copies_.Read(pages);
  }
  std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId> pages) override {
    for (const auto& rank : ranks_) rank->step()->TakeLoaded(pages);  // no step uses them now
    return kv_copies_.BeginWrite(pages);
  }
  // A drafter may still write into pages of rows that have ended.
  void WritePages(std::unique_ptr<KvBlockCopy> copy) override {
    for (const auto& rank : ranks_) {
      if (fault_.ok()) fault_ = rank->step()->WaitForDrafter();
    }
    kv_copies_.Write(std::move(copy));
  }
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
    LaunchedStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    StepResult result;
    if (step.fault.ok()) step.fault = OnRanks([](DeviceRank* rank) { return rank->Wait(); });
    if (step.fault.ok() && step.unreadable.ok()) {
      result.rows = first().Results();
    } else if (step.fault.ok()) {
      result.status = step.unreadable;
    } else {
      if (fault_.ok()) fault_ = step.fault;
      result.status = step.fault.WithPrefix(fmt::format("step {}", step.plan->step));
      result.rows.resize(step.plan->table_row.size());
    }
    for (const auto& rank : ranks_) rank->End();
    for (const AdapterSlot adapter : step.dropped) DropAdapter(adapter);
    return result;
  }

 private:
  struct LaunchedStep {
    std::shared_ptr<const BatchPlan> plan;
    Status fault;       // why it was not queued
    Status unreadable;  // why its pictures could not be encoded; a fault of this step alone
    std::vector<AdapterSlot> dropped = {};  // adapters, after it
  };

  DeviceRank& first() const { return *ranks_[0]; }
  bool has_ranks() const { return ranks_.size() > 1; }

  Status OnRanks(const std::function<Status(DeviceRank*)>& work);
  // Makes the drafts of the newest step, whose layers it then queues. Waits for the device. With a
  // guide, *drafts has the drafts of the rows with masks.
  Status ChooseDrafts(const DraftGuide* guide, std::vector<std::vector<TokenId>>* drafts);
  // Has all ranks take the pictures of the newest step. *unreadable: the fault of the first rank
  // that has one. Returns a fault of a device.
  Status TakePictures(Status* unreadable);
  void SetAdapter(AdapterSlot adapter, const RankAdapters& packed);
  void DropAdapter(AdapterSlot adapter);
  void FailRanks() { first().ops()->FailRanks(); }
  // Waits until nothing runs on any rank, on the thread of rank `index`: all ranks call it.
  Status BeQuiet(int32_t index);
  // The same from outside, before memory is taken.
  void Settle() {
    if (has_ranks() && fault_.ok()) {
      fault_ = OnRanks([](DeviceRank* rank) { return rank->ops()->Synchronize(); });
    }
  }
  GraphSizes SizesOf(const EngineLimits& limits, const DeviceEngineOptions& options) const;
  size_t IndexOf(const DeviceRank* rank) const {
    const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                    [&](const auto& other) { return other.get() == rank; });
    return static_cast<size_t>(found - ranks_.begin());
  }
  Status WarmUp(const GraphSizes& sizes);
  Status WarmUpSums(const ModelConfig& config);
  Status TakePages(int64_t num_pages, int64_t num_window_pages);
  Status CountGraphBytes(const GraphSizes& sizes, uint64_t* num_bytes);
  Status CaptureAll(const GraphSizes& sizes);

  const std::vector<std::unique_ptr<DeviceRank>> ranks_;
  const std::shared_ptr<Rendezvous> rendezvous_;  // null: there is one rank
  RankKvCopies kv_copies_;
  std::deque<LaunchedStep> in_flight_;  // the oldest first
  // The first fault. Nothing is queued after it, because it would read what was not written.
  Status fault_;
  RankThreads threads_;  // their work uses the members above
  std::unique_ptr<AdapterStore>
      adapters_;  // last, likewise; null: all are loaded, or there are none
};

// The status of the rank whose fault is no consequence of another's.
Status DeviceEngine::OnRanks(const std::function<Status(DeviceRank*)>& work) {
  if (!has_ranks()) return work(ranks_[0].get());
  std::vector<Status> results(ranks_.size());
  threads_.Run([&](int32_t index) {
    Status& result = results[static_cast<size_t>(index)];
    try {
      result = work(ranks_[static_cast<size_t>(index)].get());
    } catch (const RankFailed&) {
      return;  // in BeQuiet; the other rank's status says why
    }
    if (result.ok()) return;
    FailRanks();
    rendezvous_->Fail();
  });
  Status consequence;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].ok()) continue;
    if (!ranks_[i]->ops()->FailedWithOthers()) return results[i];
    consequence = results[i];
  }
  return consequence;
}

Status DeviceEngine::ChooseDrafts(const DraftGuide* guide,
                                  std::vector<std::vector<TokenId>>* drafts) {
  for (int32_t index = 0; index < first().num_draft_indices(); ++index) {
    auto masks = first().MakeDraftMasks(index, guide);
    if (!masks.ok()) FailRanks();
    MINISGL_RETURN_IF_ERROR(masks.status());
    MINISGL_RETURN_IF_ERROR(
        OnRanks([&](DeviceRank* rank) { return rank->ChooseDrafts(index, *masks); }));
  }
  if (guide != nullptr) {
    auto chosen = first().TakeDrafts();
    if (!chosen.ok()) FailRanks();
    MINISGL_ASSIGN_OR_RETURN(*drafts, std::move(chosen));
  }
  return OnRanks([](DeviceRank* rank) { return rank->QueueLayers(); });
}

Status DeviceEngine::TakePictures(Status* unreadable) {
  std::vector<Status> faults(ranks_.size());
  MINISGL_RETURN_IF_ERROR(
      OnRanks([&](DeviceRank* rank) { return rank->TakePictures(&faults[IndexOf(rank)]); }));
  const auto found =
      std::find_if(faults.begin(), faults.end(), [](const Status& fault) { return !fault.ok(); });
  if (found != faults.end()) *unreadable = *found;
  return Status();
}

Status DeviceEngine::BeQuiet(int32_t index) {
  MINISGL_RETURN_IF_ERROR(ranks_[static_cast<size_t>(index)]->ops()->Synchronize());
  rendezvous_->Meet(index, nullptr);
  return Status();
}

GraphSizes DeviceEngine::SizesOf(const EngineLimits& limits,
                                 const DeviceEngineOptions& options) const {
  for (const auto& rank : ranks_) {
    if (!rank->ops()->RunsGraphs() || limits.attends_both_ways) return {};
  }
  const int32_t max_rows = std::min(options.graph_max_rows, limits.max_running_requests);
  const int32_t max_tokens = LayerGraphTokensMax(options.graph_max_tokens, limits);
  GraphSizes sizes = {.rows = GraphBatchSizes(max_rows),
                      .shapes = LayerGraphShapes(max_tokens, limits.max_running_requests + 1)};
  if (const DeviceDrafter* const drafter = first().step()->drafter()) {
    sizes.drafts = drafter->GraphSizes(options.graph_max_rows, options.graph_max_tokens);
  }
  return sizes;
}

// One rank after the other, each by itself: what runs first on one may wait for its device.
Status DeviceEngine::WarmUp(const GraphSizes& sizes) {
  for (const auto& rank : ranks_) {
    rank->ops()->RunAlone(true);
    const Status status = rank->WarmUp(sizes);
    rank->ops()->RunAlone(false);
    MINISGL_RETURN_IF_ERROR(status);
  }
  return Status();
}

// Once in every power of two up to the longest, which is that of all tokens' activations.
Status DeviceEngine::WarmUpSums(const ModelConfig& config) {
  const int64_t num_tokens = limits().max_step_tokens;
  const DType dtype = first().ops()->activation_dtype();
  for (const auto& [of, most] :
       {std::pair(dtype, num_tokens * config.hidden_size), std::pair(DType::kF32, num_tokens)}) {
    std::vector<ActivationArray> arrays;
    for (const auto& rank : ranks_) {
      MINISGL_ASSIGN_OR_RETURN(
          arrays.emplace_back(),
          ActivationArray::Make(rank->ops(), of, {static_cast<uint64_t>(most)}));
    }
    MINISGL_RETURN_IF_ERROR(OnRanks([&](DeviceRank* rank) {
      const ActivationPtr x = arrays[IndexOf(rank)].ptr();
      for (int64_t count = 1; count < most; count *= 2) rank->ops()->AllReduce({x, count});
      rank->ops()->AllReduce({x, most});
      return rank->ops()->Synchronize();
    }));
  }
  return Status();
}

Status DeviceEngine::TakePages(int64_t num_pages, int64_t num_window_pages) {
  for (const auto& rank : ranks_) {
    MINISGL_RETURN_IF_ERROR(rank->step()->TakePages(static_cast<int32_t>(num_pages),
                                                    static_cast<int32_t>(num_window_pages)));
    if (has_ranks()) MINISGL_RETURN_IF_ERROR(rank->ops()->Synchronize());
  }
  return Status();
}

// The bytes of the rank whose graphs take most.
Status DeviceEngine::CountGraphBytes(const GraphSizes& sizes, uint64_t* num_bytes) {
  std::vector<uint64_t> bytes(ranks_.size());
  MINISGL_RETURN_IF_ERROR(
      OnRanks([&](DeviceRank* rank) { return rank->AddGraphBytes(sizes, &bytes[IndexOf(rank)]); }));
  *num_bytes = *std::max_element(bytes.begin(), bytes.end());
  return Status();
}

// A graph that cannot be captured ends the start of several ranks: they would go on with different
// graphs.
Status DeviceEngine::CaptureAll(const GraphSizes& sizes) {
  for (const int32_t num_rows : sizes.rows) {
    const Status captured = OnRanks([&](DeviceRank* rank) { return rank->CaptureRows(num_rows); });
    if (captured.ok()) continue;
    if (has_ranks()) return captured;
    Log(LogLevel::kWarning,
        fmt::format("decode graphs stop at {} rows, larger batches run without: {}",
                    first().max_graph_rows(), captured.message()));
    return Status();
  }
  for (const StepShape& shape : sizes.shapes) {
    const Status captured = OnRanks([&](DeviceRank* rank) { return rank->CaptureShape(shape); });
    if (captured.ok()) continue;
    if (has_ranks()) return captured;
    Log(LogLevel::kWarning, fmt::format("graphs stop at {} tokens, longer steps run without: {}",
                                        first().max_graph_tokens(), captured.message()));
    return Status();
  }
  for (const DraftGraphSize& size : sizes.drafts) {
    const Status captured = OnRanks([&](DeviceRank* rank) { return rank->CaptureDrafts(size); });
    if (captured.ok()) continue;
    if (has_ranks()) return captured;
    Log(LogLevel::kWarning,
        fmt::format("some passes that draft run without graphs: {}", captured.message()));
    return Status();
  }
  return Status();
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
    uint64_t beside_per_token = 0;
    for (size_t i = 1; i < plan.models.size(); ++i) {
      beside_per_token += plan.models[i].kv_bytes_per_token;
    }
    const auto split =
        KvSplit::Make(config, limits, limits.max_step_tokens - limits.max_running_requests, dtype,
                      /*num_ranks=*/1, beside_per_token);
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
  const GraphSizes sizes = SizesOf(plan.limits, options);
  for (const auto& rank : ranks_) {
    MINISGL_RETURN_IF_ERROR(rank->TakeSteps(plan.limits.max_in_flight));
  }
  MINISGL_RETURN_IF_ERROR(TakePages(0, 0));
  if (options.warms_up) MINISGL_RETURN_IF_ERROR(WarmUp(sizes));
  if (first().ops()->WarmsUpSums()) MINISGL_RETURN_IF_ERROR(WarmUpSums(config));
  uint64_t graph_bytes = 0;
  MINISGL_RETURN_IF_ERROR(CountGraphBytes(sizes, &graph_bytes));

  const uint64_t short_bytes = graph_bytes - std::min(graph_bytes, plan.graph_bytes);
  const PageCounts pages =
      PagesBeside(config, plan, short_bytes, first().ops()->activation_dtype());
  MINISGL_RETURN_IF_ERROR(TakePages(pages.pages, pages.window_pages));
  MINISGL_RETURN_IF_ERROR(CaptureAll(sizes));
  for (size_t i = 0; has_ranks() && i < ranks_.size(); ++i) {
    ranks_[i]->step()->SetQuiet([this, i] { return BeQuiet(static_cast<int32_t>(i)); });
  }
  return OnRanks([](DeviceRank* rank) { return rank->ops()->status(); });
}

void DeviceEngine::LoadAdaptersLater(const ModelList& models, const ModelFiles& files) {
  const auto pack = [this, models, files](AdapterSlot adapter) -> Result<RankAdapters> {
    RankAdapters packed;
    for (const auto& rank : ranks_) {
      MINISGL_ASSIGN_OR_RETURN(
          auto own, rank->step()->adapters()->Pack(models.adapters()[static_cast<size_t>(adapter)],
                                                   files[0]));
      packed.push_back(std::move(own));
    }
    return packed;
  };
  adapters_ = std::make_unique<AdapterStore>(
      static_cast<int32_t>(models.adapters().size()), models.max_adapters(), pack,
      [this](AdapterSlot adapter, const RankAdapters& packed) { SetAdapter(adapter, packed); });
}

// An adapter is dropped after all launched steps. One that is loaded has a slot that none of them
// reads.
void DeviceEngine::SetAdapter(AdapterSlot adapter, const RankAdapters& packed) {
  if (packed.empty()) {
    if (in_flight_.empty()) return DropAdapter(adapter);
    return in_flight_.back().dropped.push_back(adapter);
  }
  if (!fault_.ok()) return;
  fault_ = OnRanks(
      [&](DeviceRank* rank) { return rank->SetAdapter(adapter, packed[IndexOf(rank)].get()); });
}

void DeviceEngine::DropAdapter(AdapterSlot adapter) {
  for (const auto& rank : ranks_) rank->step()->adapters()->Drop(adapter);
  adapters_->Freed();
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

Result<std::unique_ptr<Engine>> MakeDeviceEngine(const ModelList& models, const ModelFiles& files,
                                                 const MemoryPlan& plan,
                                                 std::unique_ptr<DeviceOps> ops,
                                                 const DeviceEngineOptions& options) {
  std::vector<std::unique_ptr<DeviceOps>> ranks;
  ranks.push_back(std::move(ops));
  return MakeDeviceEngine(models, files, plan, std::move(ranks), options);
}

Result<std::unique_ptr<Engine>> MakeDeviceEngine(const ModelList& models, const ModelFiles& files,
                                                 const MemoryPlan& plan,
                                                 std::vector<std::unique_ptr<DeviceOps>> ops,
                                                 const DeviceEngineOptions& options) {
  try {
    std::vector<std::unique_ptr<engine::DeviceRank>> ranks;
    const auto count = static_cast<int32_t>(ops.size());
    for (auto& own : ops) {
      const Rank rank = {static_cast<int32_t>(ranks.size()), count};
      auto host_ops = options.host_ops.empty() ? nullptr : options.host_ops[ranks.size()];
      auto step =
          engine::DeviceStep::Make(models, files, plan, rank, own.get(), std::move(host_ops));
      MINISGL_RETURN_IF_ERROR(engine::WithSuggestions(step.status(), plan));
      ranks.push_back(std::make_unique<engine::DeviceRank>(std::move(own), std::move(step).value(),
                                                           count == 1));
    }
    auto engine = std::make_unique<engine::DeviceEngine>(std::move(ranks));
    MINISGL_RETURN_IF_ERROR(
        engine::WithSuggestions(engine->Start(models.target(), plan, options), plan));
    if (!models.loads_all_adapters()) engine->LoadAdaptersLater(models, files);
    return std::unique_ptr<Engine>(std::move(engine));
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "the host ran out of memory while loading the model");
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, "the engine cannot start ({})", Visible(error.what()));
  }
}

}  // namespace minisgl
