// Lines from a person or a pipe.
//
// On a capable terminal: editing with history, kept in a file, and a pasted block as one line with
// line breaks in it. Elsewhere: lines as they come. Both wake up for signals. Used by one thread.
#pragma once

#include <memory>
#include <string>

#include "cli/terminal.h"

namespace minisgl {

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
  // Whether a line so far held bytes that are no UTF-8; they are U+FFFD in its text.
  bool replaced_bytes() const { return replaced_bytes_; }

 protected:
  bool replaced_bytes_ = false;
};

// $XDG_STATE_HOME/minisgl/history, or ~/.local/state/...; "" where there is no home.
std::string HistoryPath();

// Reads standard input. `signals` outlives the reader. A prompt is shown where standard input is a
// terminal, on standard output, or on standard error where that is no terminal. "" for
// `history_path`: none is kept.
std::unique_ptr<PromptReader> MakePromptReader(SignalWatch* signals,
                                               const std::string& history_path);

}  // namespace minisgl
