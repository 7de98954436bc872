// Pages for the rows of the step that is being planned, and the preemption of running requests when
// pages run out.
//
// The only class that moves a request from running back to waiting. One thread.
#pragma once

#include <cstdint>

#include "sched/context.h"
#include "sched/encoder_ledger.h"
#include "sched/page_ledger.h"
#include "sched/request_queues.h"
#include "sched/request_state.h"
#include "sched/step_draft.h"

namespace minisgl::sched {

class Preemptor {
 public:
  Preemptor(SchedulerContext* context, PageLedger* pages, EncoderLedger* encoders,
            RequestQueues* queues, StepDraft* draft)
      : context_(context), pages_(pages), encoders_(encoders), queues_(queues), draft_(draft) {}

  // Takes the pages that `count` more tokens of `state` need. If pages are short, first drops the
  // prefixes that sessions keep, then preempts other requests. False if the pages come only after
  // steps in flight are collected, or if `state` itself was preempted.
  bool TakePages(RequestState* state, int64_t count);
  // Makes room for `state`, a chat's turn, by preempting one request of a lower class. False if
  // there is none, or if room is about to come anyway.
  bool PreemptFor(const RequestState& state);
  // Returns all that `state` holds, and ends the wait of requests that wait for its pages.
  void Release(RequestState* state);

 private:
  // The request to preempt: lowest class, then latest admitted. Never a guaranteed one; a loading
  // one only as a last resort. Null if there is none.
  RequestState* PickVictim() const;
  // Moves `state` back to the head of its class. The cache keeps its prefix until it needs the
  // pages.
  void Preempt(RequestState* state);

  SchedulerContext* context_;
  PageLedger* pages_;
  EncoderLedger* encoders_;
  RequestQueues* queues_;
  StepDraft* draft_;
};

}  // namespace minisgl::sched
