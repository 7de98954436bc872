// Edits a text with the user's editor, in a temporary file.
#pragma once

#include <string>

#include "minisgl/base/status.h"
#include "term/terminal.h"

namespace minisgl::chat {

// Opens `text` in $VISUAL, else $EDITOR, else vi, waits for the editor, and returns the saved text
// without line breaks at its end. The variable is a shell command, as for other programs.
// kUnavailable if the editor cannot be started or fails; kCannotCreate or kIoError for the file. A
// signal that ends this program also ends the editor.
Result<std::string> EditText(const std::string& text, term::SignalWatch* signals);

}  // namespace minisgl::chat
