// The answers to one message: asked for together, shown as they come, stopped by Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal.h"
#include "cli/terminal_filter.h"
#include "minisgl/base/status.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl {

struct ChatAnswer {
  std::string text;                // as the model gave it
  std::vector<TokenId> token_ids;  // end token included
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  std::string error_message;  // kError
  bool interrupted = false;   // by Ctrl-C or a signal that ends the program
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
};

// Asks `runtime` all `prompts` at once and tells `listener` as answers come; what comes of a later
// answer waits until those before it are whole. Returns after the last event. A signal, or
// `listener` giving false, aborts them.
std::vector<ChatAnswer> RunTurn(Runtime* runtime, std::vector<Prompt> prompts, SignalWatch* signals,
                                const AnswerListener& listener);

// Where answers go: `out`, through the filter where it is a terminal. Reasoning stands before an
// answer, dimmed, on a terminal; elsewhere it goes to `err`.
class AnswerPrinter {
 public:
  AnswerPrinter(int out, int err);
  // False where standard output cannot be written; see status().
  bool Show(std::string_view text);
  bool ShowReasoning(std::string_view text);
  // Ends an answer with a line break, unless it has one.
  bool EndAnswer();
  const Status& status() const { return status_; }
  bool pipe_closed() const { return pipe_closed_; }

 private:
  bool Write(std::string_view text);
  bool WriteReasoning(std::string_view piece);
  bool EndReasoning();

  const int out_;
  const bool filters_;
  const int reasoning_fd_;
  const bool filters_reasoning_;
  const bool dims_reasoning_;
  TerminalFilter filter_, reasoning_filter_;
  bool in_reasoning_ = false;
  bool at_line_start_ = false;
  bool pipe_closed_ = false;
  Status status_;
};

}  // namespace minisgl
