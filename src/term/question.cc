// See question.h.
#include "term/question.h"

#include <unistd.h>

#include <cerrno>

#include "minisgl/base/file_io.h"
#include "term/signals.h"
#include "term/terminal.h"
#include "term/terminal_filter.h"

namespace minisgl::term {

std::optional<bool> AskYesNo(const std::string& question) {
  if (!IsTerminal(STDIN_FILENO) || !IsTerminal(STDERR_FILENO)) return std::nullopt;
  WriteAll(STDERR_FILENO, FilterForTerminal(question) + " [y/N] ");
  // Read byte by byte: text that was typed ahead is for the next reader.
  std::string line;
  char byte = 0;
  while (true) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR && StopSignal() == 0) continue;
    if (got <= 0 || byte == '\n') break;
    line += byte;
  }
  if (byte != '\n') WriteAll(STDERR_FILENO, "\n");
  const size_t first = line.find_first_not_of(" \t");
  return first != std::string::npos && (line[first] == 'y' || line[first] == 'Y');
}

}  // namespace minisgl::term
