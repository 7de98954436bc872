// A source of adapters whose loads take steps. Its behaviour depends on its seed and its calls,
// never on time, so a run can be repeated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/plan/adapter_source.h"

namespace minisgl::sim {

struct AdaptersPlan {
  bool exists = false;
  int32_t num_adapters = 3, max_loaded = 1;
  int64_t delay_max = 5;  // steps
};

class SimAdapters : public AdapterSource {
 public:
  SimAdapters(const AdaptersPlan& plan, uint64_t seed) : plan_(plan), seed_(seed) {}

  // Null if the plan has none.
  AdapterSource* get() { return plan_.exists ? this : nullptr; }
  int32_t num_adapters() const override { return plan_.num_adapters; }
  int32_t max_loaded() const override { return plan_.max_loaded; }
  void Load(AdapterSlot adapter) override;
  void Drop(AdapterSlot adapter) override;
  std::vector<AdapterLoad> TakeFinished() override;

  void Tick() { ++now_; }
  // From here on every load is immediate.
  void Heal() { is_healed_ = true; }
  // Rows of `plan` have adapters that are loaded.
  void Check(const BatchPlan& plan);
  // The first call or plan that broke the contract; "" if there was none.
  const std::string& violation() const { return violation_; }

 private:
  AdaptersPlan plan_;
  uint64_t seed_;
  int64_t now_ = 0;
  uint64_t draws_ = 0;
  bool is_healed_ = false;
  std::map<AdapterSlot, int64_t> due_;  // of loads; of loaded ones -1
  std::string violation_;
};

}  // namespace minisgl::sim
