// What a terminal shows while an answer has nothing to show: "reading 1,400 of 1,900 tokens" while
// its prompt is computed, "(thinking, 230 tokens)" while it reasons and that is hidden.
//
// Counts come from the statistics of the whole scheduler, so that nothing else may run beside the
// turn; otherwise the tokens are not counted. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "minisgl/runtime/runtime.h"

namespace minisgl::chat {

// Of a turn that began some time ago.
struct TurnStage {
  double seconds = 0;         // since its beginning
  int64_t prompt_tokens = 0;  // of one answer
  int64_t read_tokens = 0;    // of those, computed or found in the cache; -1: not known
  int64_t answer_tokens = 0;
  bool is_hidden = false;  // nothing of the answer was shown
};
// The line for it; "" if there is nothing to say.
std::string LineOfStage(const TurnStage& stage);

class TurnProgress {
 public:
  // The turn begins now. `runtime` must outlive this. `is_alone`: nothing else runs.
  TurnProgress(const Runtime& runtime, size_t prompt_tokens, bool is_alone);
  // The line at this moment. To be called often: statistics are read a few times a second.
  std::string Line(int64_t answer_tokens, bool is_hidden);

 private:
  using Clock = std::chrono::steady_clock;

  int64_t CountRead() const;

  const Runtime& runtime_;
  const bool is_alone_;
  const Clock::time_point begin_;
  const int64_t read_before_;  // of all turns
  TurnStage stage_;
  Clock::time_point next_look_;
};

}  // namespace minisgl::chat
