// The options and subcommands of a command as plain data: what help, completions of shells and
// suggestions are made from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minisgl::load {

// An option, or an argument by its place.
struct OptionSpec {
  std::vector<std::string> flags;  // "-m", "--model"; empty for an argument
  std::string argument;            // its name, such as "N"; "" for an option
  std::string type;                // of its value, as help shows it: "FILE"
  std::string help;
  std::string group;                 // "": among the general options
  std::string env;                   // the environment variable that gives its value; "": none
  std::vector<std::string> choices;  // words that completions offer for it
  bool takes_value = false;
  bool is_repeatable = false;
  bool is_advanced = false;  // listed by --help-all only

  bool HasFlag(std::string_view flag) const;
};

struct CommandSpec {
  std::string name;  // "minisgl bench nano": with those of the commands above it
  std::string help;
  std::vector<OptionSpec> options;
  std::vector<CommandSpec> commands;

  std::string_view last_name() const;  // "nano"
  // Null if there is none of that name.
  const CommandSpec* FindCommand(std::string_view command) const;
  // The option of this command, or of one below it, that has `flag`; null if there is none.
  const OptionSpec* FindOption(std::string_view flag) const;
};

// `arguments` with the options that stand before a command moved after it, as far as they are
// options of that command.
std::vector<std::string> MoveOptionsAfterCommands(const CommandSpec& spec,
                                                  std::vector<std::string> arguments);

// The first of `arguments` that is neither an option of `spec` or of a command below it, nor a
// value of one; "" if there is none. Stops at a command.
std::string FirstUnknown(const CommandSpec& spec, const std::vector<std::string>& arguments);

// The option of `spec` that `flag` is probably meant to be, or the command that `word` is; "" if
// none is near.
std::string NearestFlag(const CommandSpec& spec, std::string_view flag);
std::string NearestCommand(const CommandSpec& spec, std::string_view word);

}  // namespace minisgl::load
