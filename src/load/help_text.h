// The text of --help and --help-all.
#pragma once

#include <cstddef>
#include <string>

#include "load/command_spec.h"

namespace minisgl::load {

enum class HelpAmount : uint8_t {
  kCommon,  // without the options that few people need, and with a line on how to see them
  kAll,     // every option, of the commands below too
};

// Usage, options by group and commands of `spec`, in lines of at most `columns`, as far as words
// allow it. Ends with a line break.
std::string HelpText(const CommandSpec& spec, HelpAmount amount, size_t columns);

}  // namespace minisgl::load
