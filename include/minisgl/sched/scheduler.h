// The scheduler: decides what the next step runs. Pure bookkeeping over ids and counts: no tensor,
// no clock, no thread.
//
// One thread drives it:
//   Submit / Abort ...; plan = Next(); engine.Launch(plan); TakeMasks(); ...;
//   result = engine.Collect(); Collect(result); TakeMasks(); TakeEvents()
// Next may be called while earlier plans are in flight (the pipeline's depth is the caller's
// choice); Collect takes results in the order of the plans. Every submitted request gets exactly
// one kEnd.
//
// A request's lengths: cached_len <= computed_len <= device_len <= max_device_len
// (sched/request_state.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"
#include "minisgl/kv/cache_observer.h"
#include "minisgl/plan/adapter_source.h"
#include "minisgl/sched/drafter.h"
#include "minisgl/sched/kv_source.h"
#include "minisgl/sched/request.h"

namespace minisgl {

enum class CacheKind : uint8_t { kRadix, kNaive };

// Batching policy:
//   kMixed         prefill chunks and decode rows share a step
//   kPrefillFirst  a step is prefill only whenever a prompt can run, else decode only
// While a chat's turn waits or runs, prompts of lower classes take at most a quarter of the budget:
// they must not delay the turn, and the reader of its answer waits for each whole mixed step. A
// turn that runs also bounds the rows of other requests: see SchedulerOptions::room_beside_chat.
enum class StepPolicy : uint8_t { kPrefillFirst, kMixed };

// When a request may start:
//   kReserve     room for its longest answer is promised to it, so nothing is ever preempted
//   kOptimistic  there is room for its prompt and one page for each running request; if that was
//                too optimistic, a request is preempted
enum class AdmissionPolicy : uint8_t { kReserve, kOptimistic };

// Queue order: by arrival; or by priority (smallest first), then by arrival. A request that was
// overtaken by kAgeingAdmissions others goes before all classes, so every wait is bounded.
enum class QueuePolicy : uint8_t { kFcfs, kPriority };
inline constexpr int64_t kAgeingAdmissions = 256;

// Upper bound on the preemptions of one request. A preempted request starts again from what the
// prefix cache kept of it; after the last preemption its whole length is promised at admission.
inline constexpr int32_t kPreemptionsMax = 8;

// With more decoding rows than this, a step is bound by compute, and drafts would cost time.
inline constexpr int32_t kDraftRowsMax = 32;

// The places of drafts that SchedulerStats tells apart.
inline constexpr size_t kDraftPlaces = 16;

// Tokens that constraints force, of all rows of a step, for which an engine has room at least.
inline constexpr int32_t kForcedDraftsMin = 32;

// If a KvSource could not load a prefix that it promised: compute it instead, or fail the request
// with kv_load_failed.
enum class KvFailurePolicy : uint8_t { kRecompute, kFail };

struct SchedulerOptions {
  int32_t max_prefill_tokens = 512;  // of one step
  // Upper bound on the tokens of one step, with decoding rows and drafts; 0: only the limit above
  // and the engine's limits. REQUIRES at least max_running_requests, so that no decoding row waits.
  int32_t max_step_tokens = 0;
  // Maximum tokens of one prompt in one step while others wait; 0: half of max_prefill_tokens.
  int32_t long_prefill_threshold = 0;
  // While a chat's turn runs, each step has room for so many thousandths of a token of other
  // requests (prefill-first: of their answers); 0: no bound. A row that attends to keys_per_token
  // keys takes the room of two tokens; 0: keys take none.
  int64_t room_beside_chat = 0;
  int64_t keys_per_token = 0;
  // While a session is open that had a chat's turn, no step is planned beside one in flight of more
  // tokens, so that a turn that comes waits for the rest of one such step, not of two; 0: any is
  // planned.
  int64_t long_step_tokens = 0;
  // Embeddings of pictures: the most that one step encodes (of requests below the chat's class a
  // quarter beside a chat's turn), and the most that are kept. Either may be less than one picture
  // has: it is then encoded in pieces if the engine does so, else by one step, and kept alone.
  int64_t encoder_budget = 4096;
  int64_t encoder_cache = 16384;
  CacheKind cache = CacheKind::kRadix;
  StepPolicy step = StepPolicy::kPrefillFirst;
  AdmissionPolicy admission = AdmissionPolicy::kReserve;
  QueuePolicy queue = QueuePolicy::kFcfs;
  // Maximum drafted tokens of one row in one step; 0: none. While any request drafts, no step is
  // planned beside one in flight, because a draft continues collected tokens. Steps overlap again
  // as soon as no request drafts.
  int32_t max_drafts = 0;
  // With more decoding rows no request drafts, and the engine's drafter is left out.
  int32_t max_draft_rows = kDraftRowsMax;
  // Null: the engine makes the drafts (EngineLimits::makes_drafts is REQUIRED if max_drafts > 0).
  std::shared_ptr<Drafter> drafter;
  KvSource* kv_source = nullptr;  // outlives the scheduler
  // Loads adapters for requests; null: all are always loaded. Outlives the scheduler.
  AdapterSource* adapter_source = nullptr;
  CacheObserver* cache_observer = nullptr;  // outlives the scheduler; may be null
  KvFailurePolicy kv_failure = KvFailurePolicy::kRecompute;
  bool record_notes = false;            // for TakeNotes
  bool check_invariants = kDebugBuild;  // I1-I14 after every call that changes state
};

struct SchedulerStats {
  int64_t submitted = 0, finished = 0, failed = 0, aborted = 0;
  int64_t waiting = 0, running = 0;
  int64_t steps = 0, prefill_steps = 0;
  int64_t step_rows = 0;        // sum over all steps
  int64_t prompt_tokens = 0;    // of admitted requests
  int64_t cached_tokens = 0;    // of those, found in the cache at admission, or loaded
  int64_t computed_tokens = 0;  // prompt tokens that a step computed
  int64_t generated_tokens = 0;
  int64_t scored_tokens = 0;  // prompt tokens whose log-probabilities were collected
  int64_t preemptions = 0;
  int64_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_locked = 0, pages_peak = 0;
  // Window pages: reclaimed ones were taken from pages that stayed in the cache.
  int64_t window_pages_total = 0, window_pages_free = 0, reclaimed_window_pages = 0;
  // For a model with states. Evicted snapshots were dropped to make room.
  int64_t state_slots_total = 0, state_slots_free = 0, snapshots = 0, evicted_snapshots = 0;
  int64_t remapped_pages = 0;  // computed twice, given back
  int64_t evicted_pages = 0;
  int64_t recomputed_tokens = 0;  // computed before, and again after a preemption
  int64_t drafted_tokens = 0, accepted_drafts = 0;
  // The first drafts of all rows, the second ones, and so on, without those that constraints force.
  std::array<int64_t, kDraftPlaces> drafted_at{}, accepted_at{};
  int64_t answer_rows = 0;    // rows of collected steps that sampled
  int64_t loaded_tokens = 0;  // with KV from the source
  int64_t failed_loads = 0;
  int64_t saved_pages = 0;    // kept by the source
  int64_t dropped_pages = 0;  // that it was to keep
  int64_t loaded_states = 0, saved_states = 0;
  int64_t saves = 0, saving_pages = 0;            // now; cached pages that they lock
  int64_t encoded_inputs = 0, reused_inputs = 0;  // pictures; reused: found in the encoder cache
  int64_t sessions = 0, session_pages = 0;        // open now; cached pages that they lock
};

class Scheduler {
 public:
  Scheduler(const EngineLimits& limits, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Takes the request. A request that can never fit ends at once as kFailed, length_exceeded.
  // REQUIRES a new id.
  void Submit(Request request);
  // Ends it as kAborted, at any stage. Does nothing if it has ended.
  void Abort(RequestId id);
  // Ends it as kStopped: a stop string was found in its text. As Abort otherwise.
  void Stop(RequestId id);
  // Ends it as kTimedOut: its deadline passed (the scheduler has no clock). As Abort otherwise.
  void TimeOut(RequestId id);
  // Lets a gated request be admitted, with the constraint of its answer if that is what it waited
  // for. Does nothing if it is not gated or unknown.
  void OpenGate(RequestId id, std::shared_ptr<TokenConstraint> constraint = nullptr);
  // Ends it as kFailed: what its gate waited for is not to be had. Does nothing if it is not gated
  // or unknown.
  void FailGate(RequestId id, std::string error_code, std::string error_message);

  // The mask that a request waits for is made (TokenConstraint::FillMask said kLater): its answer
  // goes on. A hint: too early, the request waits once more. Does nothing if the id is unknown.
  void MaskReady(RequestId id);

  // Opens a conversation. While it is open, one table row and the pages of a short turn are kept
  // free for it, if the limits leave room for that; and after each turn the turn's cached prefix
  // stays locked until another request needs its pages. REQUIRES a new id.
  void OpenSession(SessionId id);
  // Aborts its turns, waiting or running, and unlocks its prefix. Unknown ids are ignored.
  void CloseSession(SessionId id);

  // Returns the next step, or null if nothing can run now: all requests wait for steps in flight,
  // gates, masks or the source, or there is no request.
  std::shared_ptr<const BatchPlan> Next();
  // The masks of the last plan, for Engine::SupplyMasks. Nothing if it has no masked rows, if they
  // were taken, or if steps before it are not collected. Until they are taken, Next returns null:
  // ask after each launch and each Collect. A row whose mask takes too much work gets one of all
  // tokens; its token is dropped, and it has no row in later steps until MaskReady. `engine`: which
  // the plan was launched on, and whose drafts of masked rows are waited for; null: it makes none.
  std::optional<StepMasks> TakeMasks(Engine* engine = nullptr);
  // Takes the result of the oldest plan not yet collected.
  void Collect(const StepResult& result);

  // Events since the last call, in order.
  std::vector<SchedEvent> TakeEvents();

  // Notes since the last call, in order; none without record_notes.
  std::vector<SchedNote> TakeNotes();

  bool HasInFlight() const;
  bool Idle() const;  // nothing waits, runs, is in flight or being loaded
  // Saves have not ended. They go on in Next, also if it is idle.
  bool Saving() const;
  // Drops the saves, except for blocks that are being read: those end soon.
  void DropSaves();
  // After Next returned null with nothing in flight: true if requests wait for a gate, a mask or
  // the source. Then Next returns null until one of those changes.
  bool WaitsOutside() const;
  SchedulerStats Stats() const;
  // Drops the cached pages that no request and no save holds. Returns the number still cached.
  int64_t ResetPrefixCache();
  // Checks the invariants I1-I10, I13, I14 (listed in src/sched/invariants.cc); aborts with a
  // message if one fails.
  void CheckInvariants() const;
  std::string DebugString() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
