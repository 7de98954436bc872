#include "cli/reasoning_view.h"

#include <unistd.h>

#include <string>

#include "cli/file_io.h"
#include "cli/terminal.h"

namespace minisgl {

ReasoningView::Mode ReasoningMode(bool hide, bool quiet) {
  if (hide) return ReasoningView::Mode::kHidden;
  return quiet ? ReasoningView::Mode::kOnTerminalOnly : ReasoningView::Mode::kShown;
}

ReasoningView::ReasoningView(Output* output, Mode mode)
    : output_(*output),
      on_output_(output->is_terminal()),
      shown_(mode == Mode::kShown || (mode == Mode::kOnTerminalOnly && on_output_)),
      filtered_(on_output_ || IsTerminal(STDERR_FILENO)),
      dimmed_(AllowsColour(on_output_ ? STDOUT_FILENO : STDERR_FILENO)) {}

Status ReasoningView::Show(std::string_view reasoning) {
  if (!shown_ || reasoning.empty()) return Status();
  began_ = true;
  return Write(filtered_ ? filter_.Push(reasoning) : std::string(reasoning));
}

Status ReasoningView::End(bool before_text) {
  if (!began_) return Status();
  began_ = false;
  MINISGL_RETURN_IF_ERROR(Write(filtered_ ? filter_.Finish() : ""));
  // Where there is no text, the line break that ends an answer ends this.
  if (on_output_) return before_text ? output_.Write("\n\n") : Status();
  WriteAll(STDERR_FILENO, "\n");
  return Status();
}

Status ReasoningView::Write(std::string_view text) {
  if (text.empty()) return Status();
  const std::string shown = dimmed_ ? Dimmed(text) : std::string(text);
  if (on_output_) return output_.Write(shown);
  // Standard error that cannot be written has nobody to be told about it.
  WriteAll(STDERR_FILENO, shown);
  return Status();
}

}  // namespace minisgl
