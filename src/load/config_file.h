// The user's configuration file: values of options, as if they were typed before those of the
// command line.
//
//     # a comment, also with ;
//     model = owner/name     of every command that has the option
//     [run]                  the options of one command; [bench nano]: of one below another
//     temperature = 0.7
//     stop = "END\n"         quoted: \n, \t, \" and \\ as in JSON
//     quiet = true           an option without a value
//
// Names are those of the command line without the dashes before them. An option that may be given
// several times may have several lines. Hostile input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::load {

struct ConfigEntry {
  std::string section;  // "": before the first one
  std::string name;     // "max-tokens"
  std::string value;
  int64_t line = 0;  // from 1
};

struct ConfigFile {
  std::string path;  // "": the user has no folder for it
  bool exists = false;
  bool left_out = false;  // by --no-config: then it has no entries
  std::vector<ConfigEntry> entries;
  Status status;  // kBadInput or kNoInput if the file cannot be used: "FILE:LINE: what is wrong"

  // The error `what` about an entry.
  Status Error(const ConfigEntry& entry, std::string_view what) const;
};

// $XDG_CONFIG_HOME/minisgl/config.ini, in ~/.config if the variable is not set.
std::string ConfigPath();

// Reads the file at `path`; one that does not exist has no entries.
ConfigFile ReadConfigFile(const std::string& path);

// The entries in `text`; `path` stands in messages. kBadInput.
Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text, const std::string& path);

}  // namespace minisgl::load
