// Statistics of a chat: its last answer, totals over all answers, and its history. Used by one
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "chat/chat_turn.h"
#include "minisgl/runtime/runtime.h"
#include "report/summary.h"
#include "term/run_history.h"

namespace minisgl::chat {

// What the prefix cache holds and was good for, for /cache.
std::string CacheText(const SchedulerStats& stats, int32_t page_size);

class ChatStatistics {
 public:
  // Adds an answer. One that is not `kept` counts as failed.
  void Add(ChatAnswer answer, bool kept);

  // True if a sample should be recorded: at most ten a second while the chat is `busy`, and one
  // when it becomes idle. Reading the scheduler's statistics is not free, so ask first.
  bool IsSampleDue(bool busy) const;
  void RecordSample(const SchedulerStats& stats, bool busy);

  // Figures of the last answer and totals, for /stats; "" if there was no answer.
  // `context_limit`: tokens of the longest prompt and answer.
  std::string Text(int64_t context_limit) const;

  // Ends the history with summary->stats, and fills in the figures that are known here.
  void End(report::RunSummary* summary);

 private:
  using Clock = std::chrono::steady_clock;

  term::RunSample SampleNow(const SchedulerStats& stats, bool busy) const;

  const Clock::time_point begin_ = Clock::now();
  std::optional<ChatAnswer> last_;
  int64_t num_answers_ = 0;
  int64_t num_failures_ = 0;    // included in num_answers_
  int64_t num_in_thought_ = 0;  // answers that ended within their reasoning
  Usage total_usage_;
  double total_s_ = 0;
  term::RunHistory history_;
  bool was_busy_ = false;  // at the last sample
  Clock::time_point next_sample_;
};

}  // namespace minisgl::chat
