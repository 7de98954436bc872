// Where a streamed answer's reasoning goes: dimmed above the answer where that is on a terminal; to
// standard error where it goes into a pipe or a file, which get the answer alone; or nowhere.
#pragma once

#include <string_view>

#include "cli/output.h"
#include "cli/terminal_filter.h"
#include "minisgl/base/status.h"

namespace minisgl {

class ReasoningView {
 public:
  enum class Mode { kHidden, kOnTerminalOnly, kShown };

  // `output` is where the answer goes, and outlives this.
  ReasoningView(Output* output, Mode mode);

  Status Show(std::string_view reasoning);
  // Before the answer's text, and at its end: what is shown ends with a line break, and on a
  // terminal a blank line stands between the two.
  Status End(bool before_text);

 private:
  Status Write(std::string_view text);

  Output& output_;
  const bool on_output_;
  const bool shown_;
  const bool filtered_;
  const bool dimmed_;
  TerminalFilter filter_;
  bool began_ = false;
};

// kHidden for --hide-thinking; --quiet leaves standard error to errors and warnings.
ReasoningView::Mode ReasoningMode(bool hide, bool quiet);

}  // namespace minisgl
