// What other requests compute beside a chat's turn.
//
// The reader of a chat's answer waits for a whole step between two tokens, and each row of another
// request makes the step longer. While a turn is computed, a step has room for a few tokens of
// others (SchedulerOptions::room_beside_chat). Rows that find no room keep their pages and wait;
// the oldest go first. Costs are counts of tokens and keys, so the schedule depends on no clock.
//
// Room that is too small for a row is saved until the row fits.
#pragma once

#include <cstdint>

#include "sched/context.h"
#include "sched/request_state.h"
#include "sched/step_draft.h"

namespace minisgl::sched {

inline constexpr int64_t kRoomOfToken = 1000;  // a token without keys, in units of room

class ChatRoom {
 public:
  explicit ChatRoom(const SchedulerContext* context) : options_(&context->options) {}

  // Bounds `draft`, if the options ask for it. May be called again for the same step.
  void Bound(StepDraft* draft) const;
  // `draft` becomes a step.
  void Launched(const StepDraft& draft);

 private:
  const SchedulerOptions* options_;
  int64_t saved_ = 0;    // of the steps before; negative if they used more than they had
  int64_t refused_ = 0;  // cost of the row that the last step had no room for; 0: none
};

// Room that the next `count` tokens of `state` take.
int64_t RoomFor(const SchedulerOptions& options, const RequestState& state, int64_t count);
// The largest number of next tokens of `state`, at most `most`, that take no more than `room`.
int64_t TokensIn(int64_t room, const SchedulerOptions& options, const RequestState& state,
                 int64_t most);

}  // namespace minisgl::sched
