#include "chat/chat_turn.h"

#include <chrono>
#include <numeric>
#include <utility>

namespace minisgl::chat {
namespace {

using Clock = std::chrono::steady_clock;

// Upper bound on the delay of a signal while no token arrives.
constexpr std::chrono::milliseconds kSignalWait{30};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Collects the events of one turn and tracks what was passed to the listener.
class Turn {
 public:
  Turn(size_t count, const AnswerListener& listener)
      : listener_(listener),
        answers_(count),
        read_tokens_(count, -1),
        done_(count),
        begin_(Clock::now()) {}

  // Returns false if the listener wants to stop.
  bool Take(Event event) {
    if (event.kind == Event::Kind::kPrompt) {
      read_tokens_[event.tag] = event.computed_tokens;
      return shows_;
    }
    ChatAnswer& answer = answers_[event.tag];
    if (answer.token_ids.empty() && !event.token_ids.empty()) {
      answer.first_token_s = SecondsSince(begin_);
    }
    answer.token_ids.insert(answer.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
    answer.text += event.text;
    for (const TextPart& part : event.parts) AddPart(part.kind, part.size, &answer.parts);
    if (event.kind == Event::Kind::kDone) {
      answer.finish_reason = event.finish_reason;
      answer.usage = event.usage;
      answer.error_code = event.error_code;
      answer.error_message = event.error_message;
      answer.max_tokens_lowered = event.max_tokens_lowered;
      answer.cut_in_grammar = event.cut_in_grammar;
      answer.ended_in_thought = event.ended_in_thought;
      answer.interrupted = event.finish_reason == FinishReason::kAborted;
      answer.total_s = SecondsSince(begin_);
      done_[event.tag] = true;
    }
    Tell();
    return shows_;
  }
  bool IsDone() const { return num_passed_ == answers_.size(); }
  // Returns the number of tokens of the answer that is being passed. REQUIRES !IsDone().
  int64_t NumTokens() const { return std::ssize(answers_[num_passed_].token_ids); }
  // Returns how many tokens of its prompt are computed or were cached; -1: not known. REQUIRES
  // !IsDone().
  int64_t ReadTokens() const { return read_tokens_[num_passed_]; }
  std::vector<ChatAnswer> TakeAnswers() { return std::move(answers_); }

 private:
  void Tell() {
    for (; num_passed_ < answers_.size(); ++num_passed_, passed_bytes_ = 0) {
      const ChatAnswer& answer = answers_[num_passed_];
      const std::string_view more = std::string_view(answer.text).substr(passed_bytes_);
      if (shows_ && !more.empty()) {
        shows_ = listener_.text(num_passed_, more, PartsFrom(answer.parts, passed_bytes_));
      }
      passed_bytes_ = answer.text.size();
      if (!done_[num_passed_]) return;
      listener_.end(num_passed_, answer);
    }
  }

  const AnswerListener& listener_;
  std::vector<ChatAnswer> answers_;
  std::vector<int64_t> read_tokens_;
  std::vector<bool> done_;
  const Clock::time_point begin_;
  size_t num_passed_ = 0;    // answers passed completely
  size_t passed_bytes_ = 0;  // bytes passed of the next answer
  bool shows_ = true;
};

}  // namespace

std::vector<ChatAnswer> RunTurn(Runtime* runtime, std::vector<Prompt> prompts,
                                term::SignalWatch* signals, const AnswerListener& listener) {
  Turn turn(prompts.size(), listener);
  EventQueue queue;
  std::vector<uint64_t> tags(prompts.size());
  std::iota(tags.begin(), tags.end(), 0);
  const std::vector<RequestId> requests = runtime->SubmitAll(std::move(prompts), &queue, tags);
  bool shows = true, aborted = false;
  while (!turn.IsDone()) {
    const bool stop = signals->TakeInterrupt() || signals->Terminated() != 0 || !shows;
    if (stop && !aborted) {
      aborted = true;
      for (const RequestId request : requests) runtime->Abort(request);
    }
    std::optional<Event> event = queue.Pop(kSignalWait);
    if (event) shows = turn.Take(std::move(*event));
    if (!turn.IsDone()) listener.wait(turn.NumTokens(), turn.ReadTokens());
  }
  signals->Drain();
  signals->TakeInterrupt();  // discard an interrupt that came too late to stop anything
  return turn.TakeAnswers();
}

}  // namespace minisgl::chat
