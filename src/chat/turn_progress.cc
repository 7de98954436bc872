// See turn_progress.h.
#include "chat/turn_progress.h"

#include <fmt/core.h>

#include <algorithm>

namespace minisgl::chat {
namespace {

constexpr double kSilent_s = 0.5;  // a turn that shows something earlier needs no line
constexpr std::chrono::milliseconds kLookInterval(100);

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

TurnProgress::TurnProgress(const Runtime& runtime, size_t prompt_tokens, bool is_alone)
    : runtime_(runtime), is_alone_(is_alone), begin_(Clock::now()), read_before_(CountRead()) {
  stage_.prompt_tokens = static_cast<int64_t>(prompt_tokens);
}

int64_t TurnProgress::CountRead() const {
  if (!is_alone_) return 0;
  const SchedulerStats stats = runtime_.Stats().scheduler;
  return stats.cached_tokens + stats.computed_tokens;
}

std::string TurnProgress::Line(int64_t answer_tokens, bool is_hidden) {
  const Clock::time_point now = Clock::now();
  stage_.seconds = std::chrono::duration<double>(now - begin_).count();
  stage_.answer_tokens = answer_tokens;
  stage_.is_hidden = is_hidden;
  if (answer_tokens == 0 && stage_.seconds >= kSilent_s && now >= next_look_) {
    stage_.read_tokens = is_alone_ ? CountRead() - read_before_ : -1;
    next_look_ = now + kLookInterval;
  }
  return LineOfStage(stage_);
}

}  // namespace minisgl::chat
