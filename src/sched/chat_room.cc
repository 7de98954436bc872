#include "sched/chat_room.h"

#include <algorithm>

namespace minisgl::sched {

void ChatRoom::Bound(StepDraft* draft) const {
  if (options_->room_beside_chat == 0) return;
  draft->is_bounded = true;
  draft->room = std::min(saved_, refused_) + options_->room_beside_chat;
}

void ChatRoom::Launched(const StepDraft& draft) {
  if (!draft.is_bounded) {
    saved_ = refused_ = 0;
  } else if (draft.HasChat()) {
    saved_ = draft.room;
    refused_ = draft.refused;
  }
}

int64_t RoomFor(const SchedulerOptions& options, const RequestState& state, int64_t count) {
  const int64_t keys = state.launched_len + count;
  const int64_t of_keys =
      options.keys_per_token > 0 ? keys * kRoomOfToken / options.keys_per_token : 0;
  return count * (kRoomOfToken + of_keys);
}

int64_t TokensIn(int64_t room, const SchedulerOptions& options, const RequestState& state,
                 int64_t most) {
  int64_t fits = 0, end = most + 1;
  while (end - fits > 1) {
    const int64_t count = fits + (end - fits) / 2;
    (RoomFor(options, state, count) <= room ? fits : end) = count;
  }
  return fits;
}

}  // namespace minisgl::sched
