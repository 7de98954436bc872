// Shell scripts that complete the program's command line, made from the table of options.
#pragma once

#include <cstdint>
#include <string>

#include "load/command_spec.h"

namespace minisgl::load {

enum class Shell : uint8_t { kBash, kZsh, kFish };

// Returns the script that completes commands, options and values of `program` in `shell`.
std::string CompletionScript(Shell shell, const CommandSpec& program);

}  // namespace minisgl::load
