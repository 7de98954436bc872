// Displays answers while they are generated.
// - Text goes to the output; through a TerminalFilter if that is a terminal.
// - Reasoning goes, dimmed, to the same terminal above the text. If the output is a pipe or a file,
//   which gets only the text, it goes to standard error, or is not shown.
// - On a terminal both are laid out (text_layout.h).
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/text/answer_parts.h"
#include "term/output.h"
#include "term/terminal_filter.h"
#include "term/text_layout.h"

namespace minisgl::term {

class AnswerView {
 public:
  enum class Mode { kHidden, kOnTerminalOnly, kShown };  // of reasoning
  enum class LineBreak { kAdd, kAddUnlessThere };

  // `output` must outlive this.
  AnswerView(Output* output, Mode mode);

  // `style`: of the text on a terminal; without colours Markdown is only wrapped.
  void Begin(TextStyle style = TextStyle::kPlain);
  // Shows more of the answer, which has these parts. kIoError if the output cannot be written; the
  // same below.
  Status Show(std::string_view text, const TextParts& parts = {});
  // Also shows the part of a word that is held back, if nothing came for a while. To be called
  // often.
  Status Pause();
  // Shows `line` below everything on the terminal until there is more of an answer to show; ""
  // takes it away. Does nothing in the middle of an answer. REQUIRES StderrIsTerminal().
  void ShowWaiting(const std::string& line);
  // Shows the rest of the answer and a line break.
  Status End(LineBreak line_break);

  // True if any part of the current answer was shown, or any text that is not reasoning.
  bool began() const { return began_; }
  bool has_text() const { return has_text_; }

 private:
  void OpenAnswer();
  Status ShowPiece(const ReasoningPiece& piece);
  Status EndReasoning(bool before_text);
  Status WriteText(std::string_view text);
  Status WriteReasoning(std::string_view text);

  Output& output_;
  const bool on_terminal_;
  const bool shows_reasoning_;
  const bool filters_reasoning_;
  const bool dims_reasoning_;
  const bool lays_out_;
  PieceMaker maker_;
  TerminalFilter text_filter_, reasoning_filter_;
  TextLayout text_layout_, reasoning_layout_;
  std::chrono::steady_clock::time_point last_text_;
  bool is_waiting_ = false;  // a line of ShowWaiting is shown
  bool is_open_ = false;     // part of an answer is shown, and its end is not
  bool began_ = false;
  bool has_text_ = false;
  bool in_reasoning_ = false;  // and part of it was shown
  bool at_line_start_ = false;
};

// Returns kHidden for --hide-thinking. With --quiet, standard error gets only errors and warnings.
AnswerView::Mode ReasoningMode(bool hide, bool quiet);

}  // namespace minisgl::term
