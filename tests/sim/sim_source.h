// A KvSource with lookups whose result is not known yet, and loads that take time and may fail. Its
// behaviour depends on its seed and its calls, never on time, so a run can be repeated.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "minisgl/sched/kv_source.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {

struct SourcePlan {
  bool exists = false;
  int64_t has_percent = 50;      // of the tokens of a lookup, roughly
  int64_t unknown_percent = 30;  // of lookups
  int64_t delay_max = 10;        // steps
  int64_t fail_percent = 20;     // of loads
};

class SimSource : public KvSource {
 public:
  SimSource(const SourcePlan& plan, uint64_t seed, SimEngine* engine)
      : plan_(plan), seed_(seed), engine_(engine) {}

  std::optional<int64_t> Lookup(RequestId id, const PrefixKey& key, int64_t cached_len) override;
  void Load(RequestId id, const PrefixKey& key, int64_t begin, int64_t count,
            std::span<const PageId> pages, StateSlot state) override;
  void Cancel(RequestId id) override;
  std::vector<KvLoadResult> TakeFinished() override;

  void Tick() { ++now_; }
  // From here on every lookup is known, and every load is immediate and complete.
  void Heal() { is_healed_ = true; }
  size_t num_loading() const { return loads_.size(); }
  // The first call that broke the contract; "" if there was none.
  const std::string& violation() const { return violation_; }

 private:
  struct LoadJob {
    std::vector<TokenId> tokens;
    std::vector<KeyMark> marks;
    int64_t begin = 0, count = 0, good = 0;
    std::vector<PageId> pages;
    int64_t due = 0;
  };
  int64_t Draw(int64_t below);

  SourcePlan plan_;
  uint64_t seed_;
  SimEngine* engine_;
  int64_t now_ = 0;
  uint64_t draws_ = 0;
  bool is_healed_ = false;
  std::map<RequestId, LoadJob> loads_;
  std::string violation_;
};

}  // namespace minisgl::sim
