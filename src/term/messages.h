// Messages to the user, all on standard error: errors, log lines of other rooms, one progress line.
//
// Thread-safe. On a terminal, a progress line may be shown below all other output; it is cleared
// before anything is printed.
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/log.h"
#include "minisgl/base/status.h"

namespace minisgl::term {

// Controls which messages are printed: errors and warnings always, notes unless quiet, details only
// if verbose.
struct Verbosity {
  bool quiet = false;
  bool verbose = false;
};

// Routes base/log.h here: Log() prints, ReportProgress() draws a bar on a terminal. Call after
// options are parsed.
void InstallNotes(Verbosity verbosity);

// Prints `line` and a line break; on a terminal through a TerminalFilter.
void PrintStderr(std::string_view line);

// The same for a message of words: on a terminal its lines are broken at blanks.
void PrintMessage(std::string_view text);

// The same for text that was filtered already and may have formatting: it is printed unchanged.
void PrintStderrShown(std::string_view line);

// Writes a control sequence as it is. REQUIRES StderrIsTerminal().
void WriteControl(std::string_view sequence);

// Returns `text` with ill-formed UTF-8 replaced by U+FFFD; logs a warning that names `source` if
// there was any.
std::string Utf8OrWarn(std::string text, const std::string& source);

// Prints "minisgl: <message>" and returns the exit status for `status`.
int Fail(const Status& status);

// Shows `line` as the terminal's progress line in place of the previous one; "" clears it.
void ShowProgressLine(const std::string& line);

// True if standard error is a terminal on which a line can be rewritten (TERM is not "dumb").
bool StderrIsTerminal();

}  // namespace minisgl::term
