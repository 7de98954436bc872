// Answers to one message: submitted together, shown while they are generated, stopped by Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/runtime/runtime.h"
#include "term/terminal.h"

namespace minisgl::chat {

struct ChatAnswer {
  std::string text;                // as generated
  TextParts parts;                 // of `text`, as in Event
  std::vector<TokenId> token_ids;  // including the end token
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  std::string error_code, error_message;  // for kError
  bool interrupted = false;               // by Ctrl-C or a terminating signal
  bool max_tokens_lowered = false;
  bool cut_in_grammar = false;
  bool ended_in_thought = false;
  double first_token_s = 0;  // time from submission to the first token
  double total_s = 0;
};

// Receives the answers one after another: all of answer 0 before any of answer 1.
struct AnswerListener {
  // More text; returning false aborts all answers.
  std::function<bool(size_t answer, std::string_view text, const TextParts& parts)> text;
  // The answer is complete. Called once for each answer.
  std::function<void(size_t answer, const ChatAnswer& whole)> end;
  // Called many times a second until all answers are complete. `num_tokens` counts the tokens so
  // far of the answer that is being passed. `read_tokens` counts the tokens of its prompt that are
  // computed or were cached; -1: not known, or Prompt::wants_progress is false.
  std::function<void(int64_t num_tokens, int64_t read_tokens)> wait;
};

// Submits all `prompts` at once and passes the answers to `listener`; text of a later answer is
// held until the earlier ones are complete. Returns after the last event. A signal, or false from
// `listener`, aborts all answers.
std::vector<ChatAnswer> RunTurn(Runtime* runtime, std::vector<Prompt> prompts,
                                term::SignalWatch* signals, const AnswerListener& listener);

}  // namespace minisgl::chat
