#include "term/messages.h"

#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "minisgl/base/file_io.h"
#include "minisgl/base/utf8.h"
#include "term/progress.h"
#include "term/terminal.h"
#include "term/terminal_filter.h"
#include "term/wrapped_text.h"

namespace minisgl::term {
namespace {

std::mutex g_mutex;
std::string g_progress_line;

// Ignores errors: there is no other place to report a failure of standard error.
void WriteStderr(std::string_view text) { WriteAll(STDERR_FILENO, text); }

// The cursor stays at the beginning of the progress line, even if a narrowed terminal wraps the
// line. So everything from the cursor on is the progress line, on any number of rows.
constexpr std::string_view kClearLine = "\r\x1b[J";

std::string AsProgressLine(const std::string& line) { return line.empty() ? "" : line + '\r'; }

}  // namespace

void PrintStderr(std::string_view line) {
  PrintStderrShown(isatty(STDERR_FILENO) != 0 ? FilterForTerminal(line) : std::string(line));
}

void PrintStderrShown(std::string_view line) {
  std::lock_guard lock(g_mutex);
  std::string text;
  if (!g_progress_line.empty()) text += kClearLine;
  text += line;
  text += '\n';
  text += AsProgressLine(g_progress_line);
  WriteStderr(text);
}

void PrintMessage(std::string_view text) {
  if (!IsTerminal(STDERR_FILENO)) return PrintStderr(text);
  PrintStderr(WrapLines(text, TerminalColumns(STDERR_FILENO)));
}

void WriteControl(std::string_view sequence) {
  std::lock_guard lock(g_mutex);
  WriteStderr(sequence);
}

void InstallNotes(Verbosity verbosity) {
  SetLogSink([verbosity](LogLevel level, const std::string& line) {
    if (level == LogLevel::kVerbose && !verbosity.verbose) return;
    if (level == LogLevel::kInfo && verbosity.quiet) return;
    PrintMessage("minisgl: " + Visible(line, 1000));
  });
  if (!verbosity.quiet && StderrIsTerminal()) InstallProgressBar();
}

std::string Utf8OrWarn(std::string text, const std::string& source) {
  if (IsValidUtf8(text)) return text;
  Log(LogLevel::kWarning, source + ": is not valid UTF-8; invalid bytes are replaced by U+FFFD");
  return ReplaceInvalidUtf8(text);
}

int Fail(const Status& status) {
  // Messages are escaped with Visible() where they are built; this catches texts of libraries.
  PrintMessage("minisgl: " + Visible(status.message(), 4000));
  return ExitCode(status.code());
}

void ShowProgressLine(const std::string& line) {
  std::lock_guard lock(g_mutex);
  if (line == g_progress_line) return;
  WriteStderr(std::string(kClearLine) + AsProgressLine(line));
  g_progress_line = line;
}

bool StderrIsTerminal() {
  static const bool is_terminal = [] {
    const char* term = std::getenv("TERM");
    return isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
  }();
  return is_terminal;
}

}  // namespace minisgl::term
