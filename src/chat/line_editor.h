// Reads lines from a terminal or a pipe.
//
// On a capable terminal: editing with completion and a history that is kept in a file; a pasted
// block is one line with embedded line breaks. Elsewhere: plain lines. Both are interrupted by
// signals. Used by one thread.
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
  kInterrupted,  // Ctrl-C; the line is discarded
  kEnd,          // end of input, or Ctrl-D
  kTerminated,   // see SignalWatch::Terminated()
};

struct ReadLineResult {
  LineOutcome outcome = LineOutcome::kEnd;
  std::string text;       // for kLine: without its line break; valid UTF-8
  bool was_empty = true;  // for kInterrupted: nothing had been typed
};

class PromptReader {
 public:
  virtual ~PromptReader() = default;
  // REQUIRES that no earlier outcome was kEnd.
  virtual ReadLineResult ReadLine(const std::string& prompt) = 0;
  // Adds a message or a command to the history, as one entry: `text` is all of it, from the lines
  // that were read since the last call. Recalled and read again, it is one line. If it is blank,
  // nothing is added, and what was read is forgotten.
  virtual void Remember(const std::string& text) { (void)text; }
  // Drops the lines that were typed before the interrupt key stopped what the last line began, and
  // returns their number. What was typed after the key stays.
  virtual size_t DropTypeAhead() = 0;
  // Returns the completions that Tab offers for the text before the cursor.
  using Completer = std::function<Completion(std::string_view line)>;
  void set_completer(Completer completer) { completer_ = std::move(completer); }
  // Returns a status shown before the prompt, "" for none; called repeatedly while a line is
  // edited, so that changes are shown.
  using StatusText = std::function<std::string()>;
  void set_status(StatusText status) { status_ = std::move(status); }
  // True if any line so far contained bytes that are not UTF-8; they were replaced by U+FFFD.
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

// Returns the history file: $XDG_STATE_HOME/minisgl/history, or ~/.local/state/...; "" if there is
// no home directory or $MINISGL_NO_HISTORY is set.
std::string HistoryPath();

// Reads standard input. `signals` must outlive the reader. If standard input is a terminal, the
// prompt is shown on standard output if that is a terminal, else on standard error. `history_path`
// "": no history. Unless `keeps_pastes`, entries with pasted texts are not written to it.
std::unique_ptr<PromptReader> MakePromptReader(term::SignalWatch* signals,
                                               const std::string& history_path, bool keeps_pastes);

}  // namespace minisgl::chat
