// The text of --help and --help-all.
#pragma once

#include <cstddef>
#include <string>

#include "load/command_spec.h"

namespace minisgl::load {

enum class HelpAmount : uint8_t {
  kCommon,  // without advanced options, and with a line that names --help-all
  kAll,     // all options, of subcommands too
};

// Returns usage, options by group and subcommands of `spec`. Lines have at most `columns`
// characters, except for longer words. Ends with a line break.
std::string HelpText(const CommandSpec& spec, HelpAmount amount, size_t columns);

}  // namespace minisgl::load
