// What a terminal shows while an answer has nothing to show: "reading 1,400 of 1,900 tokens" while
// its prompt is computed, "(thinking, 230 tokens)" while it reasons and that is hidden.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace minisgl::chat {

// How far a turn is.
struct TurnStage {
  double seconds = 0;         // since its beginning
  int64_t prompt_tokens = 0;  // of one answer
  int64_t read_tokens = -1;   // of those, computed or found in the cache; -1: not known
  int64_t answer_tokens = 0;
  bool is_hidden = false;  // nothing of the answer was shown
};
// The line for it; "" if there is nothing to say.
std::string LineOfStage(const TurnStage& stage);

class TurnProgress {
 public:
  // The turn begins now.
  explicit TurnProgress(size_t prompt_tokens)
      : begin_(std::chrono::steady_clock::now()),
        prompt_tokens_(static_cast<int64_t>(prompt_tokens)) {}
  // Returns the line to show now. The parameters mean what the members of TurnStage mean.
  std::string Line(int64_t read_tokens, int64_t answer_tokens, bool is_hidden) const;

 private:
  const std::chrono::steady_clock::time_point begin_;
  const int64_t prompt_tokens_;
};

}  // namespace minisgl::chat
