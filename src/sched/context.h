// What every part of the scheduler reads (limits and options) and counts (statistics and notes).
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/engine/engine.h"
#include "minisgl/sched/scheduler.h"

namespace minisgl::sched {

struct SchedulerContext {
  // REQUIRES limits in which at least one request can run, and a drafter if drafts are asked for.
  SchedulerContext(const EngineLimits& engine_limits, const SchedulerOptions& scheduler_options);

  void Note(SchedNote::Kind kind, RequestId id, int64_t value) {
    if (options.record_notes) notes.push_back({kind, id, value});
  }

  // True if the engine drafts, and reads what it computes for that.
  bool engine_drafts() const { return options.max_drafts > 0 && options.drafter == nullptr; }

  const EngineLimits limits;
  const SchedulerOptions options;
  SchedulerStats stats;
  std::vector<SchedNote> notes;
};

}  // namespace minisgl::sched
