// A text in the person's own editor, as a file that is gone afterwards.
#pragma once

#include <string>

#include "minisgl/base/status.h"
#include "term/terminal.h"

namespace minisgl::chat {

// Opens $VISUAL, else $EDITOR, else vi on `text`, waits for its end, and gives what was saved,
// without line breaks at its end. A command of the shell, as other programs take these variables.
// kUnavailable where the editor cannot be run or ends with a failure; kCannotCreate, kIoError of
// the file. A signal that ends this program ends the editor too.
Result<std::string> EditText(const std::string& text, term::SignalWatch* signals);

}  // namespace minisgl::chat
