// The scheduler's state: requests, steps in flight, and what each step changes.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "minisgl/sched/scheduler.h"
#include "sched/context.h"
#include "sched/decode_manager.h"
#include "sched/prefill_manager.h"
#include "sched/request_state.h"

namespace minisgl {

struct Scheduler::Impl {
  Impl(const EngineLimits& limits, const SchedulerOptions& options);

  struct InFlight {
    std::shared_ptr<const BatchPlan> plan;
    std::vector<RequestState*> rows;
    bool has_drafts = false;
    std::vector<PageId>
        pages_in_use;  // what it may read or write; kept only where invariants are checked
  };

  // Runs `change`, then checks the invariants if the options ask for it.
  template <typename Change>
  void Checked(Change change) {
    change();
    if (context.options.check_invariants) CheckInvariants();
  }

  void Submit(Request request);
  void EndById(RequestId id, EndReason reason);
  void OpenGate(RequestId id);
  void CloseSession(SessionId id);
  bool WaitsOutside() const;
  std::shared_ptr<const BatchPlan> Next();
  void DraftStep();
  InFlight BuildStep();
  void Collect(const StepResult& result);

  // What loads that ended say.
  void CollectLoads();
  void CollectLoad(RequestState* state, const KvLoadResult& result);
  // What a collected step says about one row: `kv_len` tokens, the last `num_drafts` of them
  // guesses.
  void CollectRow(RequestState* state, int32_t kv_len, int32_t num_drafts, const RowResult& row);
  // Lengths and pages of `state` go back to what was accepted; nothing in flight names them.
  void RollBack(RequestState* state, int64_t launched_len);
  // Sets launched_len and gives back the pages past it.
  void SetLaunched(RequestState* state, int64_t launched_len);
  // KV below `computed_len` is written, and `row` is what was sampled after it. False where the
  // request ended by it.
  bool CollectToken(RequestState* state, int64_t computed_len, const RowResult& row);
  bool AcceptToken(RequestState* state, const RowResult& row);  // false where it was the last
  // Moves whole computed pages into the prefix cache; a page the cache had already is remapped and
  // given back.
  void InsertComputedPages(RequestState* state);
  // The one way out: event, cache insertion, lock, pages, table row.
  void End(RequestState* state, EndReason reason, std::string error_code = "",
           std::string error_message = "");
  void EndTurn(RequestState* state, EndReason reason);
  // Forgets an ended request once nothing in flight, and no load, mentions it.
  void ForgetIfDone(RequestState* state);
  void CheckInvariants() const;
  void CheckRequest(const RequestState& state) const;
  void CheckPromises() const;
  void CheckWindows() const;

  SchedulerContext context;
  PrefillManager prefill;
  DecodeManager decode;
  std::map<RequestId, std::unique_ptr<RequestState>>
      requests;  // waiting, running, or ended and still in flight or loading
  std::deque<InFlight> in_flight;
  std::vector<SchedEvent> events;
  StepId next_step = 1;
  uint64_t next_arrival = 1;
};

}  // namespace minisgl
