#include "cli/chat_turn.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "cli/file_io.h"

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;

// How soon a signal is seen while no token comes.
constexpr std::chrono::milliseconds kSignalWait{30};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

ChatAnswer RunTurn(Runtime* runtime, Prompt prompt, SignalWatch* signals,
                   const std::function<bool(std::string_view)>& show) {
  ChatAnswer answer;
  EventQueue queue;
  const Clock::time_point begin = Clock::now();
  const RequestId request = runtime->Submit(std::move(prompt), &queue);
  bool shows = true;
  while (true) {
    const bool stop = signals->TakeInterrupt() || signals->Terminated() != 0 || !shows;
    if (stop && !answer.interrupted) {
      answer.interrupted = true;
      runtime->Abort(request);
    }
    std::optional<Event> event = queue.Pop(kSignalWait);
    if (!event) continue;
    if (answer.token_ids.empty() && !event->token_ids.empty()) {
      answer.first_token_s = SecondsSince(begin);
    }
    answer.token_ids.insert(answer.token_ids.end(), event->token_ids.begin(),
                            event->token_ids.end());
    answer.text += event->text;
    if (shows && !event->text.empty()) shows = show(event->text);
    if (event->kind != Event::Kind::kDone) continue;
    answer.finish_reason = event->finish_reason;
    answer.usage = event->usage;
    answer.error_message = event->error_message;
    answer.max_tokens_lowered = event->max_tokens_lowered;
    answer.interrupted = event->finish_reason == FinishReason::kAborted;
    answer.total_s = SecondsSince(begin);
    signals->Drain();
    signals->TakeInterrupt();  // one that came too late to stop anything
    return answer;
  }
}

AnswerPrinter::AnswerPrinter() : filters_(IsTerminal(STDOUT_FILENO)) {}

bool AnswerPrinter::Show(std::string_view text) {
  return filters_ ? Write(filter_.Push(text)) : Write(text);
}

bool AnswerPrinter::EndAnswer() {
  const bool written = !filters_ || Write(filter_.Finish());
  const bool ended = at_line_start_ || Write("\n");
  at_line_start_ = false;
  return written && ended;
}

bool AnswerPrinter::Write(std::string_view text) {
  if (!text.empty()) at_line_start_ = text.back() == '\n';
  if (status_.ok() && !WriteAll(STDOUT_FILENO, text)) {
    pipe_closed_ = errno == EPIPE;
    status_ = MakeStatus(StatusCode::kIoError, "standard output: cannot be written ({})",
                         std::strerror(errno));
  }
  return status_.ok();
}

}  // namespace minisgl
