#include "term/answer_view.h"

#include <unistd.h>

#include <string>

#include "minisgl/base/file_io.h"
#include "term/messages.h"
#include "term/terminal.h"

namespace minisgl::term {
namespace {

// Longer than a word takes of a model that writes faster than one reads.
constexpr std::chrono::milliseconds kPause(200);

int Columns() { return TerminalColumns(STDOUT_FILENO); }

}  // namespace

AnswerView::Mode ReasoningMode(bool hide, bool quiet) {
  if (hide) return AnswerView::Mode::kHidden;
  return quiet ? AnswerView::Mode::kOnTerminalOnly : AnswerView::Mode::kShown;
}

AnswerView::AnswerView(Output* output, Mode mode)
    : output_(*output),
      on_terminal_(output->is_terminal()),
      shows_reasoning_(mode == Mode::kShown || (mode == Mode::kOnTerminalOnly && on_terminal_)),
      filters_reasoning_(on_terminal_ || IsTerminal(STDERR_FILENO)),
      dims_reasoning_(AllowsColour(on_terminal_ ? STDOUT_FILENO : STDERR_FILENO)),
      lays_out_(on_terminal_ && IsCapableTerminal(STDOUT_FILENO)),
      text_layout_(Columns),
      reasoning_layout_(Columns) {}

void AnswerView::Begin(TextStyle style) {
  maker_ = PieceMaker();
  if (!lays_out_) style = TextStyle::kPlain;
  if (style == TextStyle::kMarkdown && !AllowsColour(STDOUT_FILENO)) style = TextStyle::kWrapped;
  text_layout_.Begin(style);
  reasoning_layout_.Begin(style == TextStyle::kPlain ? style : TextStyle::kWrapped);
  began_ = has_text_ = at_line_start_ = is_open_ = false;
}

// What was shown before a closing tag that no other one opened stays; a blank line divides it from
// the answer, as it divides reasoning from text.
Status AnswerView::Show(std::string_view text, const TextParts& parts) {
  began_ = began_ || !text.empty();
  last_text_ = std::chrono::steady_clock::now();
  if (parts.empty()) return ShowPiece(maker_.Push(text, parts));
  for (const TextPart& part : parts) {
    MINISGL_RETURN_IF_ERROR(ShowPiece(maker_.Push(text.substr(0, part.size), {part})));
    text.remove_prefix(part.size);
    if (part.kind == PartKind::kBareClose && has_text_) {
      MINISGL_RETURN_IF_ERROR(ShowPiece({"", "\n\n"}));
    }
  }
  return Status();
}

Status AnswerView::Pause() {
  if (!lays_out_ || std::chrono::steady_clock::now() - last_text_ < kPause) return Status();
  if (in_reasoning_) return WriteReasoning(reasoning_layout_.Pause());
  return WriteText(text_layout_.Pause());
}

void AnswerView::ShowWaiting(const std::string& line) {
  if (is_open_ || (line.empty() && !is_waiting_)) return;
  const auto columns = static_cast<size_t>(TerminalColumns(STDERR_FILENO));
  // A line that wraps could not be taken away.
  const std::string shown = line.size() < columns ? line : "";
  ShowProgressLine(!shown.empty() && AllowsColour(STDERR_FILENO) ? Dimmed(shown) : shown);
  is_waiting_ = !shown.empty();
}

void AnswerView::OpenAnswer() {
  ShowWaiting("");
  is_open_ = true;
}

Status AnswerView::ShowPiece(const ReasoningPiece& piece) {
  if (shows_reasoning_ && !piece.reasoning.empty()) {
    in_reasoning_ = true;
    MINISGL_RETURN_IF_ERROR(WriteReasoning(reasoning_layout_.Push(
        filters_reasoning_ ? reasoning_filter_.Push(piece.reasoning) : piece.reasoning)));
  }
  if (piece.text.empty()) return Status();
  MINISGL_RETURN_IF_ERROR(EndReasoning(/*before_text=*/true));
  has_text_ = true;
  return WriteText(on_terminal_ ? text_layout_.Push(text_filter_.Push(piece.text)) : piece.text);
}

Status AnswerView::End(LineBreak line_break) {
  MINISGL_RETURN_IF_ERROR(EndReasoning(/*before_text=*/false));
  std::string rest = on_terminal_ ? text_layout_.Push(text_filter_.Finish()) : "";
  rest += text_layout_.Finish();
  const bool ends_line = rest.empty() ? at_line_start_ : rest.back() == '\n';
  if (line_break == LineBreak::kAdd || !ends_line) rest += '\n';
  const Status status = WriteText(rest);
  is_open_ = false;
  return status;
}

// On a terminal, a blank line separates reasoning from text. Without text, the line break at the
// end of the answer ends the reasoning too.
Status AnswerView::EndReasoning(bool before_text) {
  if (!in_reasoning_) return Status();
  in_reasoning_ = false;
  std::string rest = reasoning_layout_.Push(filters_reasoning_ ? reasoning_filter_.Finish() : "");
  MINISGL_RETURN_IF_ERROR(WriteReasoning(rest + reasoning_layout_.Finish()));
  if (on_terminal_) return before_text ? output_.Write("\n\n") : Status();
  WriteAll(STDERR_FILENO, "\n");
  return Status();
}

Status AnswerView::WriteText(std::string_view text) {
  if (text.empty()) return Status();
  OpenAnswer();
  at_line_start_ = text.back() == '\n';
  return output_.WriteShown(text);
}

// Each piece is dimmed separately, because the program may end between two pieces.
Status AnswerView::WriteReasoning(std::string_view text) {
  if (text.empty()) return Status();
  OpenAnswer();
  const bool dims = dims_reasoning_ && text.find_first_not_of('\n') != std::string_view::npos;
  const std::string shown = dims ? Dimmed(text) : std::string(text);
  if (on_terminal_) return output_.WriteShown(shown);
  // Ignore errors: there is no other place to report a failure of standard error.
  WriteAll(STDERR_FILENO, shown);
  return Status();
}

}  // namespace minisgl::term
