// The options and subcommands of a command as plain data. --help, shell completions and suggestions
// for misspelled words are made from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minisgl::load {

// What the text of a value looks like.
enum class ValueForm { kText, kInteger, kNumber };
bool IsOfForm(std::string_view text, ValueForm form);

// An option or a positional argument.
struct OptionSpec {
  std::vector<std::string> flags;  // "-m", "--model"; empty for a positional argument
  std::string argument;            // name as a positional argument ("N"); "" if it is none
  std::string type;                // placeholder for the value in --help: "FILE"
  std::string help;
  std::string group;                 // heading in --help; "": the general options
  std::string env;                   // environment variable with its value; "": none
  std::vector<std::string> choices;  // values that completions offer
  ValueForm form = ValueForm::kText;
  bool takes_value = false;
  bool is_repeatable = false;
  bool is_advanced = false;  // listed by --help-all only

  bool HasFlag(std::string_view flag) const;
};

struct CommandSpec {
  std::string name;  // with the names of its parent commands: "minisgl bench nano"
  std::string help;
  std::vector<OptionSpec> options;
  std::vector<CommandSpec> commands;

  std::string_view last_name() const;  // "nano"
  // Returns the subcommand `command`, null if there is none.
  const CommandSpec* FindCommand(std::string_view command) const;
  // Returns the option with `flag` of this command or a subcommand, null if there is none.
  const OptionSpec* FindOption(std::string_view flag) const;
};

// Returns `arguments` with options before a subcommand's name moved behind it, if all of them are
// options of that subcommand.
std::vector<std::string> MoveOptionsAfterCommands(const CommandSpec& spec,
                                                  std::vector<std::string> arguments);

// Returns the first of `arguments` before a subcommand's name that is neither an option of `spec`
// or of a subcommand nor the value of one; "" if there is none.
std::string FirstUnknown(const CommandSpec& spec, const std::vector<std::string>& arguments);

// Returns the first of `arguments`, those of `spec` behind the names of commands, with one dash
// that is no option: neither a short one, with or without a value of its form, nor several of which
// only the last has a value. Help stands alone, so "-hf" is none. "" if all are options.
std::string FirstUnknownShort(const CommandSpec& spec, const std::vector<std::string>& arguments);

// Returns the options of `spec` that `flag` may stand for: those whose names it begins, at most
// three, or the one with the nearest name; none if that is not near enough for a misspelling.
std::vector<std::string> NearestFlags(const CommandSpec& spec, std::string_view flag);
// Returns the subcommand of `spec` with the name nearest to `word`; "" if none is near enough.
std::string NearestCommand(const CommandSpec& spec, std::string_view word);

}  // namespace minisgl::load
