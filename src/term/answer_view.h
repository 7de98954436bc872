// How one answer after another is shown as it comes: its text on the output, through a filter where
// that is a terminal; its reasoning dimmed above it there, on standard error where the output is a
// pipe or a file, which get the answer alone, or nowhere.
#pragma once

#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/text/reasoning.h"
#include "term/output.h"
#include "term/terminal_filter.h"

namespace minisgl::term {

class AnswerView {
 public:
  enum class Mode { kHidden, kOnTerminalOnly, kShown };  // of reasoning
  enum class LineBreak { kAdd, kAddUnlessThere };

  // `output` outlives this.
  AnswerView(Output* output, Mode mode);

  void Begin(const ReasoningTags& tags);
  // More of the answer. kIoError where the output cannot be written, here and below.
  Status Show(std::string_view text);
  // The rest of it, and a line break.
  Status End(LineBreak line_break);

  // Of the answer so far: whether there is anything of it, and anything apart from reasoning.
  bool began() const { return began_; }
  bool has_text() const { return has_text_; }

 private:
  Status ShowPiece(const ReasoningPiece& piece);
  Status EndReasoning(bool before_text);
  Status WriteText(std::string_view text);
  Status WriteReasoning(std::string_view text);

  Output& output_;
  const bool on_terminal_;
  const bool shows_reasoning_;
  const bool filters_reasoning_;
  const bool dims_reasoning_;
  ReasoningSplitter splitter_;
  TerminalFilter text_filter_, reasoning_filter_;
  bool began_ = false;
  bool has_text_ = false;
  bool in_reasoning_ = false;  // and some of it is shown
  bool at_line_start_ = false;
};

// kHidden for --hide-thinking; --quiet leaves standard error to errors and warnings.
AnswerView::Mode ReasoningMode(bool hide, bool quiet);

}  // namespace minisgl::term
