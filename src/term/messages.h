// What the program says to a person, all of it on standard error: errors, notes of other rooms, one
// progress line.
//
// Thread-safe. On a terminal a progress line may stand below everything else; printing anything
// moves it away first.
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/log.h"
#include "minisgl/base/status.h"

namespace minisgl::term {

// How much is said. Errors always are; warnings always; notes unless quiet; details only when
// verbose.
struct Verbosity {
  bool quiet = false;
  bool verbose = false;
};

// Makes base/log.h's Log() end here, and SayProgress() in a bar on a terminal. Call once options
// are known.
void InstallNotes(Verbosity verbosity);

// Prints `line` (a line break is added); on a terminal through a TerminalFilter.
void PrintStderr(std::string_view line);

// Gives `text` with U+FFFD for what is not UTF-8. Where something is not, a warning names `source`.
std::string Utf8OrWarn(std::string text, const std::string& source);

// Prints "minisgl: <message>" and gives the exit status that `status` means.
int Fail(const Status& status);

// Shows `line` as the progress line of a terminal in place of the last one; "" takes it away.
void ShowProgressLine(const std::string& line);

// Whether standard error is a terminal on which a line can be rewritten (TERM is not "dumb").
bool StderrIsTerminal();

}  // namespace minisgl::term
