#include "chat/chat_statistics.h"

#include <utility>

namespace minisgl::chat {
namespace {

constexpr std::chrono::milliseconds kSampleInterval(100);

}  // namespace

std::string CacheText(const SchedulerStats& stats, int32_t page_size) {
  const auto percent = [](int64_t part, int64_t whole) {
    return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
  };
  std::string text =
      fmt::format("  cached        {} of {} pages of {} tokens ({:.1f} %); {} evicted so far\n",
                  stats.pages_cached, stats.pages_total, page_size,
                  percent(stats.pages_cached, stats.pages_total), stats.evicted_pages);
  text += fmt::format("  kept          {} pages for {} open conversation{}\n", stats.session_pages,
                      stats.sessions, stats.sessions == 1 ? "" : "s");
  text +=
      fmt::format("  prompts       {} tokens, {} of them cached ({:.1f} %)", stats.prompt_tokens,
                  stats.cached_tokens, percent(stats.cached_tokens, stats.prompt_tokens));
  if (stats.saved_pages + stats.loaded_tokens > 0) {
    text += fmt::format("\n  on disk       {} pages saved, {} tokens loaded", stats.saved_pages,
                        stats.loaded_tokens);
  }
  return text;
}

void ChatStatistics::Add(ChatAnswer answer, bool kept) {
  ++num_answers_;
  num_failures_ += kept ? 0 : 1;
  total_usage_.prompt_tokens += answer.usage.prompt_tokens;
  total_usage_.cached_tokens += answer.usage.cached_tokens;
  total_usage_.completion_tokens += answer.usage.completion_tokens;
  total_usage_.reasoning_tokens += answer.usage.reasoning_tokens;
  num_in_thought_ += kept && answer.ended_in_thought && !answer.interrupted ? 1 : 0;
  total_s_ += answer.total_s;
  last_ = std::move(answer);
}

bool ChatStatistics::IsSampleDue(bool busy) const {
  return Clock::now() >= next_sample_ && (busy || was_busy_);
}

void ChatStatistics::RecordSample(const SchedulerStats& stats, bool busy) {
  next_sample_ = Clock::now() + kSampleInterval;
  was_busy_ = busy;
  history_.Add(SampleNow(stats, busy));
}

term::RunSample ChatStatistics::SampleNow(const SchedulerStats& stats, bool busy) const {
  const double time_s = std::chrono::duration<double>(Clock::now() - begin_).count();
  term::RunSample sample = term::RunSample::Of(stats, num_answers_, time_s);
  // The statistics describe a step, and an answer may have ended with the last step.
  if (!busy) sample.running = sample.waiting = 0;
  return sample;
}

std::string ChatStatistics::Text(int64_t context_limit) const {
  if (!last_) return "";
  const double decode_s = last_->total_s - last_->first_token_s;
  const auto tokens = last_->usage.completion_tokens;
  std::string text = fmt::format("  last answer   {} token{} in {:.2f} s", tokens,
                                 tokens == 1 ? "" : "s", last_->total_s);
  if (tokens > 1 && decode_s > 0) {
    text += fmt::format(", {:.1f} tokens/s after the first",
                        static_cast<double>(tokens - 1) / decode_s);
  }
  text += '\n';
  if (last_->usage.reasoning_tokens > 0) {
    text += fmt::format("  reasoning     {} of these tokens\n", last_->usage.reasoning_tokens);
  }
  text += fmt::format("  first token   after {:.0f} ms\n", last_->first_token_s * 1000);
  text += fmt::format("  prompt        {} tokens, {} of them cached\n", last_->usage.prompt_tokens,
                      last_->usage.cached_tokens);
  text += fmt::format("  context       {} of {} tokens\n", last_->usage.prompt_tokens + tokens,
                      context_limit);
  text +=
      fmt::format("  all answers   {}: prompts {} tokens ({} cached), answers {} tokens, {:.2f} s",
                  num_answers_, total_usage_.prompt_tokens, total_usage_.cached_tokens,
                  total_usage_.completion_tokens, total_s_);
  return text;
}

void ChatStatistics::End(report::RunSummary* summary) {
  summary->rows_done = num_answers_ - num_failures_;
  summary->rows_failed = num_failures_;
  summary->reasoning_tokens = total_usage_.reasoning_tokens;
  summary->answers_in_thought = num_in_thought_;
  summary->seconds = total_s_;
  history_.End(SampleNow(summary->stats.scheduler, false));
  summary->time_series = history_.ToJson();
}

}  // namespace minisgl::chat
