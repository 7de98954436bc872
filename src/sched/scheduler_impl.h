// The scheduler's state and the steps of its work, shared by scheduler.cc, prefill_manager.cc,
// decode_manager.cc and invariants.cc. Who may change what:
//   PrefillManager  admits from the waiting queue; chunks prompts
//   DecodeManager   nothing of its own: picks the rows of a decode step
//   Context         pages and rows: takes, preempts, releases
//   Impl            phases, ends, events
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "minisgl/kv/cache_manager.h"
#include "minisgl/sched/scheduler.h"
#include "sched/computing_index.h"
#include "sched/plan_builder.h"
#include "sched/request_state.h"
#include "sched/request_table.h"
#include "sched/waiting_queue.h"

namespace minisgl {

// The rows of the step being planned. Pages are taken as rows are decided, but nothing of a request
// moves on until all are: a request preempted meanwhile is simply taken out again.
struct StepDraft {
  struct Row {
    RequestState* state;
    int64_t count;
  };
  std::vector<Row> decode, prefill;
  int64_t budget = 0;      // prefill tokens left
  bool preempted = false;  // a step that preempts admits nothing

  void Withdraw(const RequestState* state);
};

// The bookkeeping that both managers and the scheduler itself work on.
struct SchedulerContext {
  EngineLimits limits;
  SchedulerOptions options;
  CacheManager cache;
  RequestTable table;
  ComputingIndex computing;
  WaitingQueue waiting;
  std::vector<RequestState*> running;  // admitted and not ended, in order of admission
  StepDraft draft;
  SchedulerStats stats;
  StepId last_launched = 0;

  SchedulerContext(const EngineLimits& engine_limits, const SchedulerOptions& scheduler_options);

  // Pages that admitted requests are to have (I8): to their longest end where that was promised,
  // else to the end of what is known, and one for each that may grow.
  int64_t OwedPages() const;
  int64_t PromisedPages(const RequestState& state) const;
  // Takes the pages that `count` more tokens of `state` need, preempting others where there are
  // none. False where they are not to be had before steps in flight are collected, or where `state`
  // itself had to go.
  bool TakePagesFor(RequestState* state, int64_t count);
  // Who goes first when pages run out: the lowest class, youngest first; nobody whose length is
  // promised. Null: nobody.
  RequestState* PickVictim() const;
  // Back to the head of its class. What the cache holds of it stays there until it is needed.
  void Preempt(RequestState* state);
  // The one way in which pages, lock and table row of an admitted request are given back.
  void Release(RequestState* state);
  // Takes the pages below `up_to_page`, which the cache holds now, out of the index of pages being
  // computed.
  void Unregister(RequestState* state, int32_t up_to_page);
};

class PrefillManager {
 public:
  explicit PrefillManager(SchedulerContext* context) : context_(context) {}

  // Drafts the prefill rows of a step within the token budget: continuing chunks first, then new
  // requests in the order of the waiting queue.
  void Schedule();

 private:
  enum class Admission { kAdmitted, kWaits, kNoRoom };
  void AdmitNew();
  Admission TryAdmit(RequestState* state);
  void Admit(RequestState* state, PrefixMatch match);
  bool WaitsForPrefix(const RequestState& state, int32_t matched_pages) const;
  // A chat turn may take the place of batch rows: preempts one of a lower class.
  bool PreemptFor(const RequestState& state);
  // Drafts the next chunk of an admitted prompt.
  void AddChunk(RequestState* state);
  int64_t ChunkLimit() const;

  SchedulerContext* context_;
};

class DecodeManager {
 public:
  explicit DecodeManager(SchedulerContext* context) : context_(context) {}
  void Schedule();

 private:
  SchedulerContext* context_;
};

struct Scheduler::Impl {
  Impl(const EngineLimits& limits, const SchedulerOptions& options);

  struct InFlight {
    std::shared_ptr<const BatchPlan> plan;
    std::vector<RequestState*> rows;
    std::vector<PageId>
        pages_in_use;  // what it may read or write; kept only where invariants are checked
  };

  void Submit(Request request);
  void EndById(RequestId id, EndReason reason);
  std::shared_ptr<const BatchPlan> Next();
  InFlight BuildStep();
  void Collect(const StepResult& result);

  // What a collected step says about one row.
  void CollectRow(RequestState* state, int32_t kv_len, const RowResult& row);
  void AcceptToken(RequestState* state, const RowResult& row);
  // Moves whole computed pages into the prefix cache; a page the cache had already is remapped and
  // given back.
  void InsertComputedPages(RequestState* state);
  // The one way out: event, cache insertion, lock, pages, table row.
  void End(RequestState* state, EndReason reason, std::string error_code = "",
           std::string error_message = "");
  // Forgets an ended request once nothing in flight mentions it.
  void ForgetIfDone(RequestState* state);
  void CheckInvariants() const;
  void CheckRequest(const RequestState& state) const;
  void CheckPromises() const;

  SchedulerContext context;
  PrefillManager prefill;
  DecodeManager decode;
  std::map<RequestId, std::unique_ptr<RequestState>>
      requests;  // waiting, running, or ended and still in flight
  std::deque<InFlight> in_flight;
  std::vector<SchedEvent> events;
  StepId next_step = 1;
  uint64_t next_arrival = 1;
};

}  // namespace minisgl
