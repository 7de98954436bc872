// The answers to one message: asked for together, shown as they come, stopped by Ctrl-C.
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
  std::string text;                // as the model gave it
  std::vector<TokenId> token_ids;  // end token included
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  std::string error_code, error_message;  // kError
  bool interrupted = false;               // by Ctrl-C or a signal that ends the program
  bool max_tokens_lowered = false;
  double first_token_s = 0;  // from asking to the first token
  double total_s = 0;
};

// Who is told of answers, one after another: all of answer 0 before any of answer 1.
struct AnswerListener {
  // More text; false aborts all.
  std::function<bool(size_t answer, std::string_view text)> text;
  // It is whole. Comes once for each answer.
  std::function<void(size_t answer, const ChatAnswer& whole)> end;
  // Comes many times a second until all are whole.
  std::function<void()> wait;
};

// Asks `runtime` all `prompts` at once and tells `listener` as answers come; what comes of a later
// answer waits until those before it are whole. Returns after the last event. A signal, or
// `listener` giving false, aborts them.
std::vector<ChatAnswer> RunTurn(Runtime* runtime, std::vector<Prompt> prompts,
                                term::SignalWatch* signals, const AnswerListener& listener);

}  // namespace minisgl::chat
