// The scheduler's state and the steps of its work, shared by scheduler.cc, prefill_manager.cc,
// decode_manager.cc and invariants.cc. Who may change what:
//   PrefillManager  admits from the waiting queue; chunks prompts; begins loads
//   DecodeManager   nothing of its own: picks the rows of a decode step, and what they guess
//   Context         pages and rows: takes, preempts, releases
//   Impl            phases, ends, events
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "minisgl/base/window_math.h"
#include "minisgl/kv/cache_manager.h"
#include "minisgl/sched/scheduler.h"
#include "sched/computing_index.h"
#include "sched/kv_loader.h"
#include "sched/plan_builder.h"
#include "sched/request_state.h"
#include "sched/request_table.h"
#include "sched/session_table.h"
#include "sched/waiting_queue.h"

namespace minisgl {

// The rows of the step being planned. Pages are taken as rows are decided, but nothing of a request
// moves on until all are: a request preempted meanwhile is simply taken out again.
struct StepDraft {
  struct Row {
    RequestState* state;
    int64_t count;
    std::vector<TokenId> drafts;  // the last of the count
  };
  std::vector<Row> decode, prefill;
  int64_t budget = 0;  // prefill and drafted tokens left
  // Of those, what prompts below the chat's class may take.
  int64_t batch_budget = 0;
  bool preempted = false;  // a step that preempts admits nothing

  bool empty() const { return decode.empty() && prefill.empty(); }
  void Withdraw(const RequestState* state);
};

// The bookkeeping that both managers and the scheduler itself work on.
struct SchedulerContext {
  EngineLimits limits;
  SchedulerOptions options;
  WindowMath window;  // where there are window pages
  // Window pages that admission leaves for the chunks of prompts to borrow.
  int32_t windows_of_chunks = 0;
  CacheManager cache;
  RequestTable table;
  ComputingIndex computing;
  WaitingQueue waiting;
  SessionTable sessions;
  KvLoader loader;
  std::vector<RequestState*> running;  // admitted and not ended, in order of admission
  StepDraft draft;
  SchedulerStats stats;
  StepId last_launched = 0, last_collected = 0;
  // The last step in flight when a request with a row in one let go of its pages. What such a row
  // reads of the cache may be evicted: steps write it later, because they run in order, but a load
  // would not wait.
  StepId released_in = 0;
  std::vector<SchedNote> notes;

  SchedulerContext(const EngineLimits& engine_limits, const SchedulerOptions& scheduler_options);

  void Note(SchedNote::Kind kind, RequestId id, int64_t value) {
    if (options.record_notes) notes.push_back({kind, id, value});
  }
  // Pages that will be free without anybody being preempted, and are not yet.
  int32_t num_coming() const { return cache.num_deferred() + loader.num_abandoned_pages(); }
  // Table rows and pages that nobody else is admitted into, because a session's turn may come.
  int32_t RowsKeptForSessions() const;
  int64_t PagesKeptForSessions() const;
  // Whether a chat's turn runs and is in this phase.
  bool IsChatIn(Phase phase) const;

  // Pages that admitted requests are to have (I8): to their longest end where that was promised,
  // else to the end of what is known, and one for each that may grow.
  int64_t OwedPages() const;
  int64_t PromisedPages(const RequestState& state) const;
  // Window pages (window_claims.cc). The longest cached prefix of `tokens` with no hole within
  // reach of what is computed after it.
  PrefixMatch MatchPrefix(std::span<const TokenId> tokens);
  // How many `state` may claim at once whatever others do; of those, how many it is promised now;
  // how many all that run hold or are promised.
  int64_t EntitledWindows(const RequestState& state) const;
  int64_t PromisedWindows(const RequestState& state) const;
  int64_t PledgedWindows() const;
  // Whether the promises leave room for `state` to be admitted.
  bool WindowsFit(const RequestState& state) const;
  // Whether `count` more are its own, or nobody's. Where not, it has steps in flight, whose end
  // will give some back.
  bool MayTakeWindows(const RequestState& state, int64_t count) const;
  int64_t WindowsWithinReach(const RequestState& state) const;
  // Tokens that `state` can take pages for without anybody being preempted.
  int64_t TokensWithinReach(const RequestState& state) const;
  // Whether fewer than `count` can be had now, or with those that wait behind a fence.
  bool WindowsAreShort(int32_t count, bool with_coming) const;
  // Claims of `state` on pages from index `first` on; given up for [first, end).
  void ClaimWindows(RequestState* state, size_t first);
  void UnclaimWindows(RequestState* state, size_t first, size_t end);
  // computed_len moved on: what its window moved past is let go.
  void AdvanceWindow(RequestState* state);
  // Page `index` of `state` is to be `to`, which the cache has, instead of its own `from`.
  void MoveWindow(const RequestState& state, int32_t index, PageId from, PageId to);

  // Takes the pages that `count` more tokens of `state` need. Where there are none, sessions let
  // their prefixes go, then others are preempted. False where they are not to be had before steps
  // in flight are collected, or where `state` itself had to go.
  bool TakePagesFor(RequestState* state, int64_t count);
  // Who goes first when pages run out: the lowest class, youngest first; nobody whose length is
  // promised, and one whose pages a load writes only where there is no other. Null: nobody.
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
  // Asks the source again for those that wait for its word.
  void AskSource();

 private:
  enum class Admission { kAdmitted, kWaits, kNoRoom };
  void AdmitNew();
  void AdmitFront();
  Admission TryAdmit(RequestState* state);
  // Pages that there must be room for if `state` is to be admitted with `match`.
  int64_t WantedPages(const RequestState& state, const PrefixMatch& match) const;
  // Makes some session let go of its prefix for `state`; false where that is not to be.
  bool TakePrefixFromSession(const RequestState& state, const PrefixMatch& match);
  // Locks `match` where the promises leave room for `state` with it.
  bool LockWhereItFits(const RequestState& state, const PrefixMatch& match);
  void Admit(RequestState* state, PrefixMatch match, int64_t load_len);
  // Holds `state` where an admitted request computes what it shares beyond its match.
  bool HoldForPrefix(RequestState* state, int32_t matched_pages);
  // A chat turn may take the place of batch rows: preempts one of a lower class.
  bool PreemptFor(const RequestState& state);
  // Drafts the next chunk of an admitted prompt.
  void AddChunk(RequestState* state);
  // Most tokens of one chunk: a part of the budget while others wait, whom a chat's turn outranks.
  int64_t ChunkLimit(const RequestState& state) const;
  // Prefill tokens that the step has left for `state`.
  int64_t BudgetFor(const RequestState& state) const;

  SchedulerContext* context_;
  uint64_t asked_last_ = 0;  // arrival of whom AskSource asked last
};

class DecodeManager {
 public:
  explicit DecodeManager(SchedulerContext* context) : context_(context) {}
  void Schedule();
  // Guesses for the rows drafted, within what budget and pages are left: REQUIRES that all else of
  // the step is decided.
  void AddDrafts();
  // Whether some row would be given a guess if its tokens were all known: then no step may be
  // planned beside one in flight.
  bool AnyoneDrafts() const;

 private:
  bool WantsDrafts(const RequestState& state) const;
  bool TooManyToDraft() const;
  void AddDraftsTo(StepDraft::Row* row, int64_t most);

  SchedulerContext* context_;
};

struct Scheduler::Impl {
  Impl(const EngineLimits& limits, const SchedulerOptions& options);

  struct InFlight {
    std::shared_ptr<const BatchPlan> plan;
    std::vector<RequestState*> rows;
    bool has_drafts = false;
    std::vector<PageId>
        pages_in_use;  // what it may read or write; kept only where invariants are checked
  };

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
