// The rows of the step that is being planned.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/request_state.h"

namespace minisgl::sched {

// Pages are taken as rows are added, but the lengths of a request stay as they are until the whole
// step is decided: if a request is preempted meanwhile, its rows are taken out again.
struct StepDraft {
  struct Row {
    RequestState* state;
    int64_t count;
    std::vector<TokenId> drafts;  // the last of the count
    int64_t room = 0;             // that it takes beside a chat
    bool is_made = false;         // the drafts are zeros, which the engine replaces by its own
  };
  std::vector<Row> decode, prefill;
  int64_t budget = 0;         // prefill and drafted tokens left
  int64_t batch_budget = 0;   // of those, what prompts below the chat's class may take
  bool preempted = false;     // a step that preempts admits nothing
  bool is_bounded = false;    // a chat's turn is computed: other requests need room beside it
  int64_t room = 0;           // left for them (sched/chat_room.h)
  int64_t refused = 0;        // room for the first of them that found none; 0: all did
  bool holds_back = false;    // an admitted prompt waits for room for a picture: chats alone enter
  bool lets_one_run = false;  // the first row of the step needs no room

  bool empty() const { return decode.empty() && prefill.empty(); }
  bool HasChat() const;         // a row of a chat's turn
  bool HasBatchPrompt() const;  // a chunk of a prompt that is none of a chat's
  // True if a row of a request that is no chat's may take `wanted`. After the first that may not,
  // which is noted, none may.
  bool HasRoom(int64_t wanted);
  // Takes out the rows of `state`, and returns their tokens to the budget.
  void Withdraw(const RequestState* state);
};

}  // namespace minisgl::sched
