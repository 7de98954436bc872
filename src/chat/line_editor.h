// Lines from a person or a pipe.
//
// On a capable terminal: editing with history, kept in a file, completion, and a pasted block as
// one line with line breaks in it. Elsewhere: lines as they come. Both wake up for signals. Used by
// one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "chat/chat_completion.h"
#include "term/terminal.h"

namespace minisgl::chat {

enum class LineOutcome {
  kLine,
  kInterrupted,  // Ctrl-C; the line is dropped
  kEnd,          // end of input, Ctrl-D
  kTerminated,   // SignalWatch::Terminated() says by what
};

struct ReadLineResult {
  LineOutcome outcome = LineOutcome::kEnd;
  std::string text;       // kLine: without its line break; valid UTF-8
  bool was_empty = true;  // kInterrupted: nothing had been typed
};

class PromptReader {
 public:
  virtual ~PromptReader() = default;
  // REQUIRES no outcome kEnd before.
  virtual ReadLineResult ReadLine(const std::string& prompt) = 0;
  // What Tab offers for what stands before the cursor.
  using Completer = std::function<Completion(std::string_view line)>;
  void set_completer(Completer completer) { completer_ = std::move(completer); }
  // What stands before the prompt, "" for nothing; asked again while a line is typed, so that what
  // changes is seen.
  using StatusText = std::function<std::string()>;
  void set_status(StatusText status) { status_ = std::move(status); }
  // Whether a line so far held bytes that are no UTF-8; they are U+FFFD in its text.
  bool replaced_bytes() const { return replaced_bytes_; }

 protected:
  std::string WithStatus(const std::string& prompt) const {
    const std::string status = status_ ? status_() : "";
    return status.empty() ? prompt : status + " " + prompt;
  }

  bool replaced_bytes_ = false;
  Completer completer_;
  StatusText status_;
};

// Where typed lines are kept: $XDG_STATE_HOME/minisgl/history, or ~/.local/state/...; "" where
// there is no home, or $MINISGL_NO_HISTORY asks for none.
std::string HistoryPath();

// Reads standard input. `signals` outlives the reader. A prompt is shown where standard input is a
// terminal, on standard output, or on standard error where that is no terminal. "" for
// `history_path`: none is kept.
std::unique_ptr<PromptReader> MakePromptReader(term::SignalWatch* signals,
                                               const std::string& history_path);

}  // namespace minisgl::chat
