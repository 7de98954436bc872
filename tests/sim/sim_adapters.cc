#include "sim/sim_adapters.h"

#include <fmt/core.h>

#include "sim/sim_engine.h"

namespace minisgl::sim {

void SimAdapters::Load(AdapterSlot adapter) {
  const bool is_known = adapter >= 0 && adapter < plan_.num_adapters;
  const uint64_t hash = Extend(seed_ * 0x9E3779B97F4A7C15ull + ++draws_, -13);
  const auto delay = static_cast<int64_t>(hash % static_cast<uint64_t>(plan_.delay_max + 1));
  const bool is_new = due_.emplace(adapter, now_ + (is_healed_ ? 0 : delay)).second;
  if (is_known && is_new && std::ssize(due_) <= plan_.max_loaded) return;
  violation_ = fmt::format("adapter {} is loaded beside {} others of {}", adapter, due_.size() - 1,
                           plan_.max_loaded);
}

void SimAdapters::Drop(AdapterSlot adapter) {
  const auto found = due_.find(adapter);
  if (found == due_.end() || found->second >= 0) {
    violation_ = fmt::format("adapter {} is dropped, and is not loaded", adapter);
    return;
  }
  due_.erase(found);
}

std::vector<AdapterLoad> SimAdapters::TakeFinished() {
  std::vector<AdapterLoad> finished;
  for (auto& [adapter, due] : due_) {
    if (due < 0 || (due > now_ && !is_healed_)) continue;
    due = -1;
    finished.push_back({adapter, ""});
  }
  return finished;
}

void SimAdapters::Check(const BatchPlan& plan) {
  if (!plan_.exists) return;
  for (const AdapterSpan& span : plan.extras.adapters) {
    const auto found = due_.find(span.slot);
    if (found != due_.end() && found->second < 0) continue;
    violation_ =
        fmt::format("step {} has a row of adapter {}, which is not loaded", plan.step, span.slot);
  }
}

}  // namespace minisgl::sim
