// One answer: asked for, shown as it comes, stopped by Ctrl-C.
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

// Asks `runtime` and gives text to `show` as it comes; returns after the request's last event. A
// signal, or `show` giving false, aborts it.
ChatAnswer RunTurn(Runtime* runtime, Prompt prompt, SignalWatch* signals,
                   const std::function<bool(std::string_view)>& show);

// Where answers go: standard output, through the filter where it is a terminal.
class AnswerPrinter {
 public:
  AnswerPrinter();
  // False where standard output cannot be written; see status().
  bool Show(std::string_view text);
  // Ends an answer with a line break, unless it has one.
  bool EndAnswer();
  const Status& status() const { return status_; }
  bool pipe_closed() const { return pipe_closed_; }

 private:
  bool Write(std::string_view text);

  const bool filters_;
  TerminalFilter filter_;
  bool at_line_start_ = false;
  bool pipe_closed_ = false;
  Status status_;
};

}  // namespace minisgl
