// The pipeline around StepRunner. Plans wait in one queue for the engine's thread, and stay in it
// with their results until they are collected. The thread sleeps while the queue has no new plan.
// It allocates no memory itself, so that only a step can fail.
#include "minisgl/engine/model_engine.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "engine/kv_block.h"
#include "engine/step_runner.h"
#include "minisgl/base/check.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"

namespace minisgl::engine {
namespace {

// The state in a slot: read straight from it, and written to it in the order of the steps, because
// a step in flight may still read what was there.
class HostStateCopy final : public KvBlockCopy {
 public:
  HostStateCopy(std::vector<const ModelState*> models, StateSlot slot,
                std::function<bool()> is_ready)
      : models_(std::move(models)), slot_(slot), is_ready_(std::move(is_ready)) {}

  bool IsReady() override { return is_ready_(); }
  Status TakeBlock(std::span<std::byte> block) override {
    std::byte* to = block.data();
    ForEachPiece([&](const float* floats, size_t bytes) {
      std::memcpy(to, floats, bytes);
      to += bytes;
    });
    return Status();
  }
  void PutBlock(std::span<const std::byte> block) override {
    state_.assign(block.begin(), block.end());
  }
  // What was put reaches the slot.
  void Write() noexcept {
    const std::byte* from = state_.data();
    ForEachPiece([&](float* floats, size_t bytes) {
      std::memcpy(floats, from, bytes);
      from += bytes;
    });
  }

 private:
  // Visits the pieces of one rank after the other.
  template <typename Visit>
  void ForEachPiece(const Visit& visit) const {
    for (const ModelState* model : models_) model->states().ForEachPiece(slot_, visit);
  }

  const std::vector<const ModelState*> models_;
  const StateSlot slot_;
  const std::function<bool()> is_ready_;
  std::vector<std::byte> state_;
};

// A plan in flight. The caller prepares the report of a failure at launch, because the engine's
// thread could not if memory has run out.
struct Step {
  explicit Step(std::shared_ptr<const BatchPlan> launched) : plan(std::move(launched)) {
    result.status = MakeStatus(StatusCode::kOutOfMemory,
                               "step {} ran out of memory; run fewer requests at once", plan->step);
    result.rows.resize(plan->table_row.size());
  }
  std::shared_ptr<const BatchPlan> plan;
  StepMasks masks;
  StepResult result;
  bool has_masks = false;
  // `made` has the drafts of masked rows that the engine makes. While `asks`, its thread waits for
  // the caller to fill the mask of the token after `drafts` of `row`.
  std::vector<std::vector<TokenId>> made;
  bool has_made = false;
  bool asks = false;
  int32_t row = 0;
  std::span<const TokenId> drafts;
  std::span<uint32_t> mask;
  bool is_filled = false;
  // An adapter that is loaded, or dropped (an empty list), after the step and before it is done.
  struct AdapterChange {
    AdapterSlot adapter = kNoAdapter;
    RankAdapters packed;
  };
  std::vector<AdapterChange> adapters;
  // States to write after the step, and before it is done. Destroyed when it is collected.
  std::vector<std::unique_ptr<HostStateCopy>> writes;
  bool done = false;
};

void SetFault(const char* what, Step* step) noexcept {
  try {
    step->result.status =
        MakeStatus(StatusCode::kInternal, "step {} failed ({})", step->plan->step, Visible(what));
  } catch (...) {
    // No memory for this message: the prepared result is reported.
  }
}

// A fault inside a step is the result of that step only. The engine goes on.
void RunGuarded(StepRunner* runner, const StepRunner::Sources& sources, Step* step) noexcept {
  try {
    step->result = runner->Run(*step->plan, sources);
  } catch (const std::bad_alloc&) {
    // The prepared result says so.
  } catch (const std::exception& error) {
    SetFault(error.what(), step);
  } catch (...) {
    SetFault("of an unknown kind", step);
  }
}

// Pages of the CPU are memory of the host: a block is copied by the thread that wants it, straight
// from its pages or to them.
class HostBlockCopy final : public KvBlockCopy {
 public:
  HostBlockCopy(std::span<const KvBlockLayout> layouts, std::span<const PageId> pages,
                std::function<bool()> is_ready)
      : layouts_(layouts), pages_(pages.begin(), pages.end()), is_ready_(std::move(is_ready)) {}

  bool IsReady() override { return is_ready_(); }
  Status TakeBlock(std::span<std::byte> block) override {
    Copy(KvBlockLayout::Direction::kToBlock, block.data());
    return Status();
  }
  void PutBlock(std::span<const std::byte> block) override {
    // Not written: the direction says so.
    Copy(KvBlockLayout::Direction::kFromBlock, const_cast<std::byte*>(block.data()));
  }

 private:
  void Copy(KvBlockLayout::Direction direction, std::byte* block) {
    const auto num_pages = static_cast<int32_t>(pages_.size());
    for (const KvBlockLayout& layout : layouts_) {
      const auto page_at = [&](int32_t layer, int32_t i) {
        const PageId page = pages_[static_cast<size_t>(i)];
        return page == kNoPage ? nullptr : layout.PageAt(layer, page);
      };
      layout.Copy(direction, num_pages, page_at, block);
      block += layout.BlockBytes(num_pages);
    }
  }

  const std::span<const KvBlockLayout> layouts_;  // of each rank
  const std::vector<PageId> pages_;
  const std::function<bool()> is_ready_;
};

class ModelEngine final : public Engine {
 public:
  explicit ModelEngine(std::unique_ptr<StepRunner> runner)
      : runner_(std::move(runner)),
        models_(runner_->models()),
        blocks_(LayoutsOf(models_, runner_->limits().page_size)),
        adapters_(MakeAdapters()),
        thread_([this] { Work(); }) {}

  // Plans that have not begun are dropped: no caller is left to collect them.
  ~ModelEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const EngineLimits& limits() const override { return runner_->limits(); }

  void Launch(std::shared_ptr<const BatchPlan> plan) override {
    {
      const std::lock_guard lock(mutex_);
      MINISGL_CHECK(std::ssize(steps_) < limits().max_in_flight, "{} plans are in flight",
                    steps_.size());
      steps_.emplace_back(std::move(plan));
    }
    changed_.notify_all();
  }

  void SupplyMasks(StepMasks masks) override {
    {
      const std::lock_guard lock(mutex_);
      MINISGL_CHECK(!steps_.empty() && steps_.back().plan->has_masks() && !steps_.back().has_masks,
                    "masks that no step waits for");
      steps_.back().masks = std::move(masks);
      steps_.back().has_masks = true;
    }
    changed_.notify_all();
  }

  std::vector<std::vector<TokenId>> GuideDrafts(const DraftGuide& guide) override {
    std::unique_lock lock(mutex_);
    MINISGL_CHECK(!steps_.empty() && steps_.back().plan->guides_drafts(), "no drafts to guide");
    Step& step = steps_.back();
    while (true) {
      changed_.wait(lock, [&] { return step.asks || step.has_made || step.done; });
      if (!step.asks) break;
      lock.unlock();
      const bool is_filled = guide(step.row, step.drafts, step.mask);
      lock.lock();
      step.is_filled = is_filled;
      step.asks = false;
      changed_.notify_all();
    }
    // A step that failed before it had its drafts reports that when it is collected.
    if (step.has_made) return std::move(step.made);
    std::vector<std::vector<TokenId>> none;
    for (int row = 0; row < step.plan->num_rows(); ++row) {
      if (!step.plan->masked(row) || !step.plan->makes_drafts_of(row)) continue;
      none.emplace_back(static_cast<size_t>(step.plan->num_drafts[row]));
    }
    return none;
  }

  StepResult Collect() override {
    std::unique_lock lock(mutex_);
    MINISGL_CHECK(!steps_.empty(), "nothing is in flight");
    changed_.wait(lock, [this] { return steps_.front().done; });
    StepResult result = std::move(steps_.front().result);
    steps_.pop_front();
    --num_begun_;
    ++num_collected_;
    return result;
  }

  AdapterSource* adapter_source() override { return adapters_.get(); }

  int64_t KvBlockBytes(int32_t block_tokens) const override {
    if (limits().num_window_pages > 0) return 0;
    int64_t bytes = 0;
    for (const KvBlockLayout& blocks : blocks_) {
      bytes += blocks.BlockBytes(block_tokens / limits().page_size);
    }
    return bytes;
  }

  std::unique_ptr<KvBlockCopy> ReadPages(std::span<const PageId> pages) override {
    const std::lock_guard lock(mutex_);
    return std::make_unique<HostBlockCopy>(
        blocks_, pages, [this, end = num_collected_ + steps_.size()] { return HasRun(end); });
  }

  std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId> pages) override {
    runner_->TakeLoaded(pages);  // no step uses them now
    return std::make_unique<HostBlockCopy>(blocks_, pages, [] { return true; });
  }

  // The block is in its pages since PutBlock.
  void WritePages(std::unique_ptr<KvBlockCopy>) override {}

  int64_t StateBytes() const override {
    int64_t bytes = 0;
    for (const ModelState* model : models_) bytes += model->states().slot_bytes();
    return bytes;
  }

  std::unique_ptr<KvBlockCopy> ReadState(StateSlot slot) override {
    const std::lock_guard lock(mutex_);
    return std::make_unique<HostStateCopy>(
        models_, slot, [this, end = num_collected_ + steps_.size()] { return HasRun(end); });
  }

  std::unique_ptr<KvBlockCopy> BeginStateWrite(StateSlot slot) override {
    return std::make_unique<HostStateCopy>(models_, slot, [] { return true; });
  }

  void WriteState(std::unique_ptr<KvBlockCopy> copy) override {
    std::unique_ptr<HostStateCopy> write(static_cast<HostStateCopy*>(copy.release()));
    const std::lock_guard lock(mutex_);
    if (steps_.empty() || steps_.back().done) {
      write->Write();  // nothing runs
    } else {
      steps_.back().writes.push_back(std::move(write));
    }
  }

 private:
  static std::vector<KvBlockLayout> LayoutsOf(const std::vector<const ModelState*>& models,
                                              int32_t page_size) {
    std::vector<KvBlockLayout> layouts;
    for (const ModelState* model : models) {
      layouts.emplace_back(model->kv(), model->ops(), page_size);
    }
    return layouts;
  }

  std::unique_ptr<AdapterStore> MakeAdapters() {
    const auto make = [this](int32_t num_adapters, int32_t max_loaded, AdapterStore::Pack pack) {
      return std::make_unique<AdapterStore>(num_adapters, max_loaded, std::move(pack),
                                            [this](AdapterSlot adapter, RankAdapters packed) {
                                              ChangeAdapter({adapter, std::move(packed)});
                                            });
    };
    return runner_->MakeAdapterStore(make);
  }

  // After all launched steps.
  void ChangeAdapter(Step::AdapterChange change) {
    const std::lock_guard lock(mutex_);
    if (steps_.empty() || steps_.back().done) {
      Apply(change);  // nothing runs
    } else {
      steps_.back().adapters.push_back(std::move(change));
    }
  }

  void Apply(const Step::AdapterChange& change) {
    runner_->SetAdapter(change.adapter, change.packed);
    if (change.packed.empty()) adapters_->Freed();
  }

  // True if the first `count` steps since the start have run.
  bool HasRun(size_t count) {
    const std::lock_guard lock(mutex_);
    if (count <= num_collected_) return true;
    const size_t waited = count - num_collected_;
    return waited <= steps_.size() && steps_[waited - 1].done;
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || num_begun_ < steps_.size(); });
      if (stopping_) return;
      Step& step = steps_[num_begun_++];  // keeps its address until it is collected
      lock.unlock();
      RunGuarded(
          runner_.get(),
          {.masks = [&]() -> const StepMasks& { return WaitForMasks(step); },
           .guide = [&](int32_t row, std::span<const TokenId> drafts,
                        std::span<uint32_t> mask) { return AskForMask(row, drafts, mask, &step); },
           .give_drafts = [&](auto drafts) { GiveDrafts(std::move(drafts), &step); }},
          &step);
      lock.lock();
      // A write may be added while another is under way.
      for (size_t i = 0; i < step.writes.size(); ++i) {
        HostStateCopy* const write = step.writes[i].get();
        lock.unlock();
        write->Write();
        lock.lock();
      }
      // Another one may be added while nothing of the step is left to do.
      for (const Step::AdapterChange& change : step.adapters) Apply(change);
      step.adapters.clear();
      step.done = true;
      changed_.notify_all();
    }
  }

  // On the engine's thread. Throws if the engine ends first.
  const StepMasks& WaitForMasks(const Step& step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || step.has_masks; });
    if (!step.has_masks) throw std::runtime_error("the engine ends before the step has its masks");
    return step.masks;
  }

  // The same: of a draft. False if the engine ends.
  bool AskForMask(int32_t row, std::span<const TokenId> drafts, std::span<uint32_t> mask,
                  Step* step) {
    std::unique_lock lock(mutex_);
    step->row = row;
    step->drafts = drafts;
    step->mask = mask;
    step->asks = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return stopping_ || !step->asks; });
    return !step->asks && step->is_filled;
  }

  void GiveDrafts(std::vector<std::vector<TokenId>> drafts, Step* step) {
    const std::lock_guard lock(mutex_);
    step->made = std::move(drafts);
    step->has_made = true;
    changed_.notify_all();
  }

  const std::unique_ptr<StepRunner> runner_;      // used by the thread only, after it starts
  const std::vector<const ModelState*> models_;   // of each rank
  const std::vector<KvBlockLayout> blocks_;       // likewise
  const std::unique_ptr<AdapterStore> adapters_;  // null: all adapters are loaded
  std::mutex mutex_;                              // guards all below except thread_
  std::condition_variable changed_;
  std::deque<Step> steps_;  // in flight, the oldest first
  size_t num_begun_ = 0;    // of steps_, by the thread
  size_t num_collected_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last, because it uses the members above
};

}  // namespace
}  // namespace minisgl::engine

namespace minisgl {

Result<std::unique_ptr<Engine>> MakeModelEngine(const ModelList& models, const ModelFiles& files,
                                                const MemoryPlan& plan, std::unique_ptr<Ops> ops) {
  EngineRanks ranks;
  ranks.ops.push_back(std::move(ops));
  return MakeModelEngine(models, files, plan, std::move(ranks));
}

Result<std::unique_ptr<Engine>> MakeModelEngine(const ModelList& models, const ModelFiles& files,
                                                const MemoryPlan& plan, EngineRanks ranks) {
  try {
    MINISGL_ASSIGN_OR_RETURN(auto runner,
                             engine::StepRunner::Make(models, files, plan, std::move(ranks)));
    return std::unique_ptr<Engine>(new engine::ModelEngine(std::move(runner)));
  } catch (const std::bad_alloc&) {
    return MakeStatus(StatusCode::kOutOfMemory,
                      "out of memory while loading the model; try {} bf16 or a smaller {}",
                      SettingName(Setting::kDType), SettingName(Setting::kMaxPrefillLength));
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, "the engine cannot start ({})", Visible(error.what()));
  }
}

}  // namespace minisgl
