// The scheduler's state. What may change what:
//   PrefillManager  admits from the waiting queue, drafts chunks of prompts, begins loads
//   DecodeManager   drafts the rows of a decode step, and their drafted tokens
//   ChatRoom        bounds what other requests compute beside a chat's turn
//   Preemptor       takes pages for drafted rows; moves running requests back to waiting
//   PageLedger      pages, locks, window claims and table rows of running requests
//   EncoderLedger   pictures that are encoded, and who reads their embeddings
//   RequestQueues   requests that wait, and what they wait for
//   Impl            steps in flight, what they bring, and the ends of requests
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/sched/scheduler.h"
#include "sched/chat_room.h"
#include "sched/context.h"
#include "sched/decode_manager.h"
#include "sched/encoder_ledger.h"
#include "sched/page_ledger.h"
#include "sched/plan_builder.h"
#include "sched/preemptor.h"
#include "sched/prefill_manager.h"
#include "sched/request_queues.h"
#include "sched/request_state.h"
#include "sched/step_draft.h"

namespace minisgl {

struct Scheduler::Impl {
  using Phase = sched::Phase;
  using RequestState = sched::RequestState;

  Impl(const EngineLimits& limits, const SchedulerOptions& options);

  struct InFlight {
    std::shared_ptr<const BatchPlan> plan;
    std::vector<RequestState*> rows;
    bool has_drafts = false;
    bool needs_masks = false;  // TakeMasks has not returned them
    // By row, if not empty: how many of its places have their masks. What is sampled at the others
    // is dropped.
    std::vector<int32_t> places_made;
    // Pages that it may read or write; kept only if invariants are checked.
    std::vector<PageId> pages_in_use;
  };

  // Runs `change`, then checks the invariants if the options ask for it.
  template <typename Change>
  void Checked(Change change) {
    change();
    if (context.options.check_invariants) CheckInvariants();
  }

  void Submit(Request request);
  // Ends a request whose extras the engine does not implement, and returns false.
  bool TakesExtras(RequestState* state);
  // Ends a request with an input that no step can compute whole, and returns false.
  bool FitsWhole(RequestState* state);
  // Ends the requests that read embeddings of a step that failed.
  void EndReadersOf(const BatchPlan& plan, const std::string& error_code,
                    const std::string& message);
  void EndById(RequestId id, EndReason reason);
  void OpenGate(RequestId id, std::shared_ptr<TokenConstraint> constraint);
  static void SetConstraint(RequestState* state, std::shared_ptr<TokenConstraint> constraint);
  bool IsGated(RequestId id) const;  // waits, and its gate is closed
  void FailGate(RequestId id, std::string error_code, std::string error_message);
  void MaskReady(RequestId id);
  void CloseSession(SessionId id);
  bool WaitsOutside() const;
  std::shared_ptr<const BatchPlan> Next();
  std::optional<StepMasks> TakeMasks(Engine* engine);
  // DraftGuide of the step in flight; takes its work from `*work_left`.
  bool GuideDraft(const InFlight& step, int32_t row, std::span<const TokenId> drafts,
                  std::span<uint32_t> mask, int64_t* work_left);
  // If the step in flight with a row of `state` was launched without the mask that its constraint
  // turns out to need, what it samples there will be dropped.
  void DropIfUnmasked(RequestState* state);
  // The drafts of a row, as they stand in `plan`.
  static std::vector<TokenId> DraftsOf(const BatchPlan& plan, int row);
  bool RunsChat() const;
  // True if a chat's turn runs and is in this phase.
  bool RunsChatIn(Phase phase) const;
  bool HasLongStepBeforeATurn() const;
  void DraftStep();
  void DraftMixedStep();
  // If the draft is empty because it is bounded, drafts one row.
  void LetOneRun();
  // Lowers the budget by max_step_tokens and the decoding rows of the draft.
  void LeaveRoomForDecode();
  // Turns the draft into a plan. From here on its rows are launched.
  InFlight BuildStep();
  // Tells the plan whether the engine's drafter reads the tokens of its last row, `row`.
  static void FeedDrafter(const sched::StepDraft::Row& row, bool feeds,
                          sched::PlanBuilder* builder);
  void Collect(const StepResult& result);

  // Takes the results of loads that ended.
  void CollectLoads();
  // Begins and ends loads of adapters, and ends the requests of those that failed.
  void UpdateAdapters();
  void CollectLoad(RequestState* state, const KvLoadResult& result);
  // Takes the result of one row of a collected step: `kv_len` tokens, the last `num_drafts` of them
  // drafted, and masks at `places_made` of its places.
  void CountDrafts(int32_t num_drafts, int32_t accepted, bool are_forced);
  void CollectRow(RequestState* state, int32_t kv_len, int32_t num_drafts, int32_t places_made,
                  const RowResult& row);
  // A row whose token is dropped, because its mask was not made: it is computed again when the
  // mask is there.
  void CollectWithoutMask(RequestState* state, int64_t known_len, int64_t state_len,
                          const RowResult& row);
  // Reduces lengths and pages of `state` to what was accepted. REQUIRES no step in flight with it.
  // Returns the length of which there is a state, at most `launched_len`; without states, that.
  int64_t RollBack(RequestState* state, int64_t launched_len);
  // The known tokens of `state` past launched_len are computed as a prompt is.
  void ComputeAgain(RequestState* state);
  // KV below `computed_len` is written, and `row` was sampled after it. Returns false if that ended
  // the request.
  bool CollectToken(RequestState* state, int64_t computed_len, const RowResult& row);
  // Takes the log-probabilities that `row` brings. Returns false if one is not finite, which ends
  // the request: KV below `computed_len` is written.
  bool CollectScored(RequestState* state, int64_t computed_len, const RowResult& row);
  // True if its constraint leaves no token to choose.
  bool IsStuck(const RequestState& state) const;
  void TellProgress(const RequestState& state);
  void TellVector(const RequestState& state, const RowResult& row);
  void EndNonFinite(RequestState* state, int64_t computed_len);
  bool AcceptToken(RequestState* state, const RowResult& row);  // false if it was the last
  // Moves whole computed pages into the prefix cache, and counts them.
  void InsertComputedPages(RequestState* state);
  // The only way in which a request ends: event, lock, pages, table row.
  void End(RequestState* state, EndReason reason, std::string error_code = "",
           std::string error_message = "");
  // The session keeps the turn's cached prefix, and its next turn may be tried.
  void EndTurn(RequestState* state, EndReason reason);
  // Forgets an ended request when no step in flight and no load names it any more.
  void ForgetIfDone(RequestState* state);
  void CheckInvariants() const;
  void CheckRequest(const RequestState& state) const;
  void CheckWaitForPrefix(const RequestState& state) const;
  void CheckPromises() const;
  void CheckSaves() const;
  void CheckWindows() const;
  void CheckEncoders() const;
  void CheckAdapters() const;
  void CheckRoom(const InFlight& step);

  sched::SchedulerContext context;
  sched::PageLedger pages;
  sched::EncoderLedger encoders;
  sched::RequestQueues queues;
  sched::StepDraft draft;
  sched::ChatRoom chat_room;
  sched::Preemptor preemptor;
  sched::PrefillManager prefill;
  sched::DecodeManager decode;
  // Waiting, running, or ended and still in flight or loading.
  std::map<RequestId, std::unique_ptr<RequestState>> requests;
  std::deque<InFlight> in_flight;
  std::vector<SchedEvent> events;
  bool awaits_turns = false;  // a session is open that had a chat's turn
  // Counted by CheckRoom since a chat's turn runs: steps with a row of the turn, and the room that
  // others took in them.
  int64_t chat_steps = 0, room_taken = 0;
  StepId next_step = 1;
  uint64_t next_arrival = 1;
};

}  // namespace minisgl
