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
#include "minisgl/sched/drafter.h"
#include "minisgl/sched/kv_source.h"
#include "minisgl/sched/request.h"

namespace minisgl {

enum class CacheKind : uint8_t { kRadix, kNaive };

// What shares a step: prefill chunks and decode rows together, or a prefill step whenever there is
// one to run. Beside a chat's turn, prompts of lower classes take a quarter of the budget: so that
// it is not held up, and in mixed steps because whoever reads its answer waits for the whole step.
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

// With more rows than this decoding, a step computes enough to hide no guesses: nobody drafts.
inline constexpr int32_t kDraftRowsMax = 32;

// What becomes of a request whose prefix a KvSource promised and could not load: it is computed
// instead, or the request fails with kv_load_failed.
enum class KvFailurePolicy : uint8_t { kRecompute, kFail };

struct SchedulerOptions {
  int32_t max_prefill_tokens = 512;  // of one step
  // Most tokens of one prompt in one step while others wait; 0: half of max_prefill_tokens.
  int32_t long_prefill_threshold = 0;
  CacheKind cache = CacheKind::kRadix;
  StepPolicy step = StepPolicy::kPrefillFirst;
  AdmissionPolicy admission = AdmissionPolicy::kReserve;
  QueuePolicy queue = QueuePolicy::kFcfs;
  // Drafted tokens of one row in one step; 0: none. While any request has drafts no step is planned
  // beside one in flight, because a draft continues tokens that must have been collected: steps
  // overlap again as soon as nobody drafts.
  int32_t max_drafts = 0;
  std::shared_ptr<Drafter> drafter;  // REQUIRED where max_drafts > 0
  KvSource* kv_source = nullptr;     // outlives the scheduler
  KvFailurePolicy kv_failure = KvFailurePolicy::kRecompute;
  bool record_notes = false;            // for TakeNotes
  bool check_invariants = kDebugBuild;  // I1-I14 after every call that changes state
};

struct SchedulerStats {
  int64_t submitted = 0, finished = 0, failed = 0, aborted = 0;
  int64_t waiting = 0, running = 0;
  int64_t steps = 0, prefill_steps = 0;
  int64_t step_rows = 0;        // of all steps together
  int64_t prompt_tokens = 0;    // of admitted requests
  int64_t cached_tokens = 0;    // of those, found in the cache at admission
  int64_t computed_tokens = 0;  // prompt tokens that a step computed
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_locked = 0, pages_peak = 0;
  // Window pages: reclaimed ones were taken from pages that stayed in the cache.
  int64_t window_pages_total = 0, window_pages_free = 0, reclaimed_window_pages = 0;
  int64_t remapped_pages = 0;  // computed twice, given back
  int64_t evicted_pages = 0;
  int64_t recomputed_tokens = 0;  // computed before, and again after a preemption
  int64_t drafted_tokens = 0, accepted_drafts = 0;
  int64_t loaded_tokens = 0;  // whose KV came from the source
  int64_t failed_loads = 0;
  int64_t sessions = 0, session_pages = 0;  // open now; cached pages they keep locked
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
  // Ends it as kTimedOut: its deadline passed (the scheduler has no clock). As Abort otherwise.
  void TimeOut(RequestId id);
  // A gated request may go on. Nothing happens where it is not gated or not there.
  void OpenGate(RequestId id);

  // A conversation. While it is open, one table row and the pages of a short turn are kept free of
  // other requests for it where the limits leave room for that, and after each turn the cached
  // prefix of the turn stays locked until its pages are needed by somebody. REQUIRES a new id.
  void OpenSession(SessionId id);
  // Aborts its turns, waiting or running, and lets its prefix go. Unknown ids are ignored.
  void CloseSession(SessionId id);

  // The next step, or null where nothing can run now (all waits for what is in flight, for a gate
  // or the source, or there is nothing).
  std::shared_ptr<const BatchPlan> Next();
  // The result of the oldest plan not yet collected.
  void Collect(const StepResult& result);

  // Events since the last call, in order.
  std::vector<SchedEvent> TakeEvents();

  // Notes since the last call, in order; none without record_notes.
  std::vector<SchedNote> TakeNotes();

  bool HasInFlight() const;
  bool Idle() const;  // nothing waits, runs, is in flight or being loaded
  // For the caller whose Next gave null with nothing in flight: what there is waits for a gate or
  // the source, and Next stays null until one of them moves.
  bool WaitsOutside() const;
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
