#include "sched/step_draft.h"

#include <algorithm>

namespace minisgl::sched {

bool StepDraft::HasChat() const {
  const auto is_chats = [](const Row& row) { return row.state->is_chat(); };
  return std::any_of(decode.begin(), decode.end(), is_chats) ||
         std::any_of(prefill.begin(), prefill.end(), is_chats);
}

bool StepDraft::HasBatchPrompt() const {
  return std::any_of(prefill.begin(), prefill.end(),
                     [](const Row& row) { return !row.state->is_chat(); });
}

bool StepDraft::HasRoom(int64_t wanted) {
  if (!is_bounded || (lets_one_run && empty())) return true;
  if (refused == 0 && wanted <= room) return true;
  if (refused == 0) refused = wanted;  // what is behind it waits, too, so that it runs some time
  return false;
}

void StepDraft::Withdraw(const RequestState* state) {
  const auto is_its = [state](const Row& row) { return row.state == state; };
  for (const Row& row : prefill) {
    if (!is_its(row)) continue;
    budget += row.count;
    if (!row.state->is_chat()) batch_budget += row.count;
  }
  for (const std::vector<Row>* rows : {&decode, &prefill}) {
    for (const Row& row : *rows) room += is_its(row) ? row.room : 0;
  }
  std::erase_if(decode, is_its);
  std::erase_if(prefill, is_its);
}

}  // namespace minisgl::sched
