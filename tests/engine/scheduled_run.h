// Runs requests through a scheduler and an engine. For cases that only a scheduler plans, such as
// pages that are freed and used again.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "minisgl/engine/engine.h"
#include "minisgl/sched/scheduler.h"

namespace minisgl {

struct ScheduledRun {
  std::map<RequestId, std::vector<RowResult>> answers;
  std::map<RequestId, std::vector<RowResult>> scored;  // tokens of prompts
  std::map<RequestId, std::vector<float>> vectors;
  std::map<RequestId, int64_t> cached_tokens;
  SchedulerStats stats;
};

// Submits all requests at once. `depth` steps stay in flight while the next is planned. With a
// source of prefixes it waits for loads, and for saves at the end.
inline ScheduledRun RunScheduled(Engine* engine, SchedulerOptions options,
                                 const std::vector<Request>& requests, int depth) {
  options.check_invariants = true;
  Scheduler scheduler(engine->limits(), options);
  for (const Request& request : requests) scheduler.Submit(request);
  ScheduledRun run;
  int in_flight = 0;
  while (!scheduler.Idle()) {
    const auto step = scheduler.Next();
    const auto supply_masks = [&] {
      if (auto masks = scheduler.TakeMasks(engine)) engine->SupplyMasks(*std::move(masks));
    };
    if (step != nullptr) engine->Launch(step);
    supply_masks();
    in_flight += step != nullptr ? 1 : 0;
    if (step != nullptr && in_flight <= depth) continue;
    if (in_flight == 0 && scheduler.WaitsOutside()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    scheduler.Collect(engine->Collect());
    supply_masks();
    --in_flight;
    for (SchedEvent& event : scheduler.TakeEvents()) {
      EXPECT_NE(event.reason, EndReason::kFailed) << event.error_message;
      if (event.kind == SchedEvent::Kind::kEnd) run.cached_tokens[event.id] = event.cached_tokens;
      auto& scored = run.scored[event.id];
      scored.insert(scored.end(), event.scored.begin(), event.scored.end());
      if (event.kind == SchedEvent::Kind::kVector) run.vectors[event.id] = event.token.vector;
      if (event.kind != SchedEvent::Kind::kToken) continue;
      run.answers[event.id].push_back(std::move(event.token));
    }
  }
  while (scheduler.Saving()) {
    EXPECT_EQ(scheduler.Next(), nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  run.stats = scheduler.Stats();
  return run;
}

// Bit for bit.
inline void ExpectSame(const ScheduledRun& a, const ScheduledRun& b) {
  ASSERT_EQ(a.answers.size(), b.answers.size());
  for (const auto& [id, results] : a.answers) {
    EXPECT_TRUE(SameResults(results, b.answers.at(id))) << "request " << id;
  }
  ASSERT_EQ(a.scored.size(), b.scored.size());
  for (const auto& [id, results] : a.scored) {
    EXPECT_TRUE(SameResults(results, b.scored.at(id))) << "request " << id << ", its prompt";
  }
}

}  // namespace minisgl
