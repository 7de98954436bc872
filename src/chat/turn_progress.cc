// See turn_progress.h.
#include "chat/turn_progress.h"

#include <fmt/core.h>

#include <algorithm>

namespace minisgl::chat {
namespace {

constexpr double kSilent_s = 0.5;  // a turn that shows something earlier needs no line

std::string CountOfTokens(int64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

}  // namespace

std::string LineOfStage(const TurnStage& stage) {
  if (stage.seconds < kSilent_s) return "";
  if (stage.answer_tokens > 0) {
    if (!stage.is_hidden) return "";
    return fmt::format("(thinking, {} token{})", CountOfTokens(stage.answer_tokens),
                       stage.answer_tokens == 1 ? "" : "s");
  }
  const std::string all = CountOfTokens(stage.prompt_tokens);
  if (stage.read_tokens < 0) return fmt::format("reading {} tokens", all);
  const int64_t read = std::min(stage.read_tokens, stage.prompt_tokens);
  return fmt::format("reading {} of {} tokens", CountOfTokens(read), all);
}

std::string TurnProgress::Line(int64_t read_tokens, int64_t answer_tokens, bool is_hidden) const {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin_;
  return LineOfStage({since.count(), prompt_tokens_, read_tokens, answer_tokens, is_hidden});
}

}  // namespace minisgl::chat
