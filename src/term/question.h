// Questions to the user at the terminal.
#pragma once

#include <optional>
#include <string>

namespace minisgl::term {

// Shows `question` and reads a line: true if it begins with "y" or "Y", false for any other and at
// the end of input. nullopt, and nothing is shown, unless standard input and standard error are
// terminals. Call it only if nothing else reads the terminal.
std::optional<bool> AskYesNo(const std::string& question);

}  // namespace minisgl::term
