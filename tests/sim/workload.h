// The workload of one simulated run, drawn from a seed: the shape of the system, the requests with
// their times, aborts, and faults. Plain data, so that a failing run can be shrunk by leaving out
// parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/engine/engine.h"
#include "minisgl/sched/request.h"
#include "minisgl/sched/scheduler.h"
#include "sim/sim_adapters.h"
#include "sim/sim_constraint.h"
#include "sim/sim_drafter.h"
#include "sim/sim_source.h"
#include "sim/sim_store.h"

namespace minisgl::sim {

struct Arrival {
  int64_t step = 0;  // of the driver's loop
  Request request;
  // Steps, counted from the arrival; may repeat, may come after its end.
  std::vector<int64_t> aborts;
  int64_t times_out = -1;   // steps after the arrival; -1: never
  int64_t gate_opens = 0;   // steps after the arrival, for a gated request
  bool gate_fails = false;  // instead
  std::optional<SimGrammar> grammar;
};

// A new constraint of the request's grammar; null if it has none. `maker` outlives it.
std::shared_ptr<TokenConstraint> MakeConstraint(const Arrival& arrival, SimMaskMaker* maker);

struct SessionPlan {
  SessionId id = 0;
  int64_t closes = -1;  // at this step; -1: after all requests ended
};

struct Fault {
  // kNoMemory: the allocation number `row` + 1 of a turn fails; through the runtime only.
  enum class Kind : uint8_t { kStepFails, kNonFinite, kForeignToken, kNoMemory };
  Kind kind = Kind::kStepFails;
  int64_t step = 0;  // the first plan launched at or after this step
  int row = 0;       // of the plan, modulo its rows
};

// The others are plain ones in which prompts have more, drawn by separate dice. kMarked: marks and
// extras. kPictures: inputs that are encoded. kWhole: prompts that become vectors of a model whose
// tokens attend to later ones.
enum class WorkloadKind : uint8_t { kPlain, kMarked, kPictures, kWhole };

struct Workload {
  uint64_t seed = 0;
  WorkloadKind kind = WorkloadKind::kPlain;
  EngineLimits limits;
  SchedulerOptions options;
  bool through_runtime = false;  // driven by the serving loop, where only grammars are gates
  int depth = 1;                 // steps that stay in flight while the next is planned
  int64_t end_rate = 20;
  DrafterPlan drafter;  // if options.max_drafts > 0
  SourcePlan source;
  StorePlan store;  // not beside a source
  AdaptersPlan adapters;
  std::vector<SessionPlan> sessions;  // open from the start
  std::vector<Arrival> arrivals;      // by step
  std::vector<Fault> faults;          // by step

  // The marks of a request; none if there is no such request.
  std::span<const KeyMark> MarksOf(RequestId id) const;
  std::string Describe() const;
};

Workload DrawWorkload(uint64_t seed, WorkloadKind kind = WorkloadKind::kPlain);

// The kinds of which a long run draws a workload for this seed.
inline std::vector<WorkloadKind> KindsOf(uint64_t seed) {
  if (seed % 2 == 0) return {WorkloadKind::kPlain, WorkloadKind::kMarked};
  if (seed % 4 == 1) return {WorkloadKind::kPlain, WorkloadKind::kPictures};
  return {WorkloadKind::kPlain, WorkloadKind::kPictures, WorkloadKind::kWhole};
}

struct Outcome {
  std::string violation;  // "" if there was none
  int64_t steps = 0;      // of the driver's loop
  int64_t plans = 0;
  int64_t turns = 0;     // submitted to open sessions
  SchedulerStats stats;  // the scheduler's own, at the end
  uint64_t trace = 0;    // a hash over every plan and event, in order
};

// Runs the workload to its end. Checks every invariant after every step, every read of KV in the
// engine, and every answer against the right one. If `trace_text` is not null, appends a line for
// each plan and event to it.
Outcome Simulate(const Workload& workload, std::string* trace_text = nullptr);

// Returns the smallest workload found that still fails, by leaving out halves of the requests and
// faults, then single ones.
Workload Shrink(const Workload& failing);

}  // namespace minisgl::sim
