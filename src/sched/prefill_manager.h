// Admission from the waiting queue, chunked prefill, and the beginning of loads.
#pragma once

#include <cstdint>

#include "sched/context.h"
#include "sched/encoder_ledger.h"
#include "sched/page_ledger.h"
#include "sched/preemptor.h"
#include "sched/request_queues.h"
#include "sched/request_state.h"
#include "sched/step_draft.h"

namespace minisgl::sched {

class PrefillManager {
 public:
  PrefillManager(SchedulerContext* context, PageLedger* pages, EncoderLedger* encoders,
                 RequestQueues* queues, StepDraft* draft, Preemptor* preemptor)
      : context_(context),
        pages_(pages),
        encoders_(encoders),
        queues_(queues),
        draft_(draft),
        preemptor_(preemptor) {}

  // Drafts the prefill rows of a step within the token budget: first the next chunks of admitted
  // prompts, then new requests in the order of the waiting queue.
  void Schedule();
  // Asks the source again for requests that are held because it did not know yet.
  void PollKvSource();

 private:
  enum class Admission { kAdmitted, kWaits, kNoRoom };
  void AdmitNew();
  void AdmitFront();
  Admission TryAdmit(RequestState* state);
  // The longest match of a part of `key` that cuts no input of `state` which attends both ways.
  PrefixMatch MatchWhole(const RequestState& state, const PrefixKey& key);
  // Holds `state` if an admitted request computes the pages after those that are cached. With
  // states also if it computes those after the last state, but only once for each: it may find no
  // slot to leave the next one.
  bool HoldForPrefix(RequestState* state, const PrefixMatch& match);
  // `state` was admitted.
  void PlanSnapshots(RequestState* state, int64_t cached_pages);
  // Pages that must be attainable to admit `state` with `match`.
  int64_t WantedPages(const RequestState& state, const PrefixMatch& match) const;
  // Drops the prefix that a session keeps, to make room for `state`. False if none may be dropped.
  bool DropSessionPrefixFor(const RequestState& state, const PrefixMatch& match);
  // Admits `state` with a locked `match`, and begins its load if load_len > 0.
  void Admit(RequestState* state, PrefixMatch match, int64_t load_len);
  // Drafts the next chunk of an admitted prompt, or a piece of the picture that it waits for. False
  // if it waits for room; true also if a later step has the budget for its picture.
  bool AddChunk(RequestState* state);
  // Upper bound on the tokens of one chunk: a part of the budget while others wait, except for a
  // chat's turn, which outranks them.
  int64_t ChunkLimit(const RequestState& state) const;
  // Prefill tokens that the step has left for `state`: none, or at least `least`. Beside a chat's
  // turn the first chunk of another request may be of `least` tokens, however small its share is.
  int64_t BudgetFor(const RequestState& state, int64_t least) const;

  SchedulerContext* context_;
  PageLedger* pages_;
  EncoderLedger* encoders_;
  RequestQueues* queues_;
  StepDraft* draft_;
  Preemptor* preemptor_;
  uint64_t polled_last_ = 0;  // arrival of the request that PollKvSource asked about last
};

}  // namespace minisgl::sched
