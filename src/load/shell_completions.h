// Scripts that complete the command line in a shell, made from the table of options.
#pragma once

#include <cstdint>
#include <string>

#include "load/command_spec.h"

namespace minisgl::load {

enum class Shell : uint8_t { kBash, kZsh, kFish };

// The script that makes `shell` complete the commands, options and values of `program`.
std::string CompletionScript(Shell shell, const CommandSpec& program);

}  // namespace minisgl::load
