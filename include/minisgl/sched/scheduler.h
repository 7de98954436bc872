// The scheduler: what runs next. Pure bookkeeping over ids and counts; no tensor, no clock, no
// thread.
//
// One thread drives it:
//   Submit / Abort ...; plan = Next(); engine.Launch(plan); ...; result = engine.Collect();
//   Collect(result); TakeEvents()
// Next may be called while earlier plans are in flight (the pipeline's depth is the caller's
// choice); Collect takes results in the order of the plans. Every submitted request gets exactly
// one kEnd.
//
// A request's lengths: cached_len <= computed_len <= device_len <= max_device_len
// (sched/request_state.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"
#include "minisgl/sched/request.h"

namespace minisgl {

enum class CacheKind : uint8_t { kRadix, kNaive };

// What shares a step: prefill chunks and decode rows together, or a prefill step whenever there is
// one to run.
enum class StepPolicy : uint8_t { kPrefillFirst, kMixed };

// When a request may start: with room for its longest answer promised to it, so that nothing is
// ever preempted; or with room for its prompt and a page for each running request, and preemption
// where that was too hopeful.
enum class AdmissionPolicy : uint8_t { kReserve, kOptimistic };

// Who is next: who came first; or the smallest priority, then who came first. A request that
// kAgeingAdmissions others overtook goes before all classes, so nobody waits for ever.
enum class QueuePolicy : uint8_t { kFcfs, kPriority };
inline constexpr int64_t kAgeingAdmissions = 256;

// A preempted request starts again from what the prefix cache kept of it. After the last of these
// it is admitted with its whole length promised and is never preempted again.
inline constexpr int32_t kPreemptionsMax = 8;

struct SchedulerOptions {
  int32_t max_prefill_tokens = 512;  // of one step
  // Most tokens of one prompt in one step while others wait; 0: half of max_prefill_tokens.
  int32_t long_prefill_threshold = 0;
  CacheKind cache = CacheKind::kRadix;
  StepPolicy step = StepPolicy::kPrefillFirst;
  AdmissionPolicy admission = AdmissionPolicy::kReserve;
  QueuePolicy queue = QueuePolicy::kFcfs;
  bool check_invariants = kDebugBuild;  // I1-I14 after every call that changes state
};

struct SchedulerStats {
  int64_t submitted = 0, finished = 0, failed = 0, aborted = 0;
  int64_t waiting = 0, running = 0;
  int64_t steps = 0, prefill_steps = 0;
  int64_t prompt_tokens = 0;    // of admitted requests
  int64_t cached_tokens = 0;    // of those, found in the cache at admission
  int64_t computed_tokens = 0;  // prompt tokens that a step computed
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_locked = 0, pages_peak = 0;
  int64_t remapped_pages = 0;  // computed twice, given back
  int64_t evicted_pages = 0;
};

class Scheduler {
 public:
  Scheduler(const EngineLimits& limits, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Takes the request. What can never fit ends at once as kFailed, length_exceeded. REQUIRES a new
  // id.
  void Submit(Request request);
  // Ends it as kAborted; at any stage, twice, or after its end (then nothing happens).
  void Abort(RequestId id);
  // Ends it as kStopped: a stop string was found in its text. As Abort otherwise.
  void Stop(RequestId id);

  // The next step, or null where nothing can run now (all waits for what is in flight, or there is
  // nothing).
  std::shared_ptr<const BatchPlan> Next();
  // The result of the oldest plan not yet collected.
  void Collect(const StepResult& result);

  // Events since the last call, in order.
  std::vector<SchedEvent> TakeEvents();

  bool HasInFlight() const;
  bool Idle() const;  // nothing waits, runs or is in flight
  SchedulerStats Stats() const;
  // Drops every cached page that no request holds; the number of pages still cached.
  int64_t ResetPrefixCache();
  // I1-I10, I13, I14 of the invariants (docs in src/sched/invariants.cc); aborts with a message
  // where one fails.
  void CheckInvariants() const;
  std::string DebugString() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
