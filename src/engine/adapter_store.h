// Adapters that are loaded and dropped while an engine runs: a thread makes what the decoder of
// each rank keeps of one, and the engine gives it to the decoders between steps.
//
// At most max_loaded() are in memory: a load waits until what was dropped for it is freed.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/model/decoder.h"
#include "minisgl/plan/adapter_source.h"

namespace minisgl::engine {

// What the decoder of each rank keeps of an adapter.
using RankAdapters = std::vector<std::shared_ptr<const model::PackedAdapter>>;

class AdapterStore final : public AdapterSource {
 public:
  // `pack` runs on the store's thread, and may throw. `set` gives an adapter to the decoders after
  // all steps that were launched, or takes it from them (an empty list); it is called by the
  // caller's thread, and tells Freed when an adapter is taken.
  using Pack = std::function<Result<RankAdapters>(AdapterSlot adapter)>;
  using Set = std::function<void(AdapterSlot adapter, RankAdapters packed)>;
  AdapterStore(int32_t num_adapters, int32_t max_loaded, Pack pack, Set set);
  ~AdapterStore() override;

  int32_t num_adapters() const override { return num_adapters_; }
  int32_t max_loaded() const override { return max_loaded_; }
  void Load(AdapterSlot adapter) override;
  void Drop(AdapterSlot adapter) override { set_(adapter, {}); }
  std::vector<AdapterLoad> TakeFinished() override;

  // The memory of one adapter is free. Any thread.
  void Freed();

 private:
  struct Finished {
    AdapterSlot adapter = kNoAdapter;
    Status status;
    RankAdapters packed;
  };
  void Work();
  Finished PackOne(AdapterSlot adapter) const;

  const int32_t num_adapters_, max_loaded_;
  const Pack pack_;
  const Set set_;
  std::mutex mutex_;  // guards all below except thread_
  std::condition_variable changed_;
  std::deque<AdapterSlot> wanted_;
  std::vector<Finished> finished_;
  int32_t num_in_memory_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last, because it uses the members above
};

}  // namespace minisgl::engine
