// The clipboard of the terminal on which the program runs.
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::term {

// Upper bound on the bytes to copy: terminals drop longer sequences.
inline constexpr size_t kClipboardBytesMax = 74'994;

// The control sequence (OSC 52) that asks a terminal to put `text` into its clipboard.
std::string ClipboardSequence(std::string_view text);

// Sends it to the terminal of standard error. kUsage if that is no terminal or the text is too
// long. Whether the terminal obeys cannot be seen.
Status CopyToClipboard(std::string_view text);

}  // namespace minisgl::term
