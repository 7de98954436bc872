// Each script offers subcommands until the line names one, then the options of that subcommand.
// After an option with a value it offers the choices, files or folders.
#include "load/shell_completions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace minisgl::load {
namespace {

enum class ValueKind : uint8_t { kNone, kChoices, kFile, kFolder, kText };

ValueKind KindOf(const OptionSpec& option) {
  if (!option.takes_value) return ValueKind::kNone;
  if (!option.choices.empty()) return ValueKind::kChoices;
  if (option.type == "DIR") return ValueKind::kFolder;
  if (option.type.find("FILE") != std::string::npos) return ValueKind::kFile;
  return ValueKind::kText;
}

bool IsArgument(const OptionSpec& option) { return option.flags.empty(); }

// Returns `text` with a backslash before each of `characters`.
std::string Escaped(std::string_view text, std::string_view characters) {
  std::string escaped;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Returns `text` in single quotes for a POSIX shell.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Returns the program and all subcommands, parents before children.
std::vector<const CommandSpec*> AllCommands(const CommandSpec& program) {
  std::vector<const CommandSpec*> commands = {&program};
  for (size_t i = 0; i < commands.size(); ++i) {
    for (const CommandSpec& command : commands[i]->commands) commands.push_back(&command);
  }
  return commands;
}

// Returns, without duplicates, the flags that take a value in every command that has them.
std::vector<std::string> FlagsWithValue(const CommandSpec& program) {
  std::vector<std::string> flags;
  for (const CommandSpec* command : AllCommands(program)) {
    for (const OptionSpec& option : command->options) {
      if (option.takes_value) flags.insert(flags.end(), option.flags.begin(), option.flags.end());
    }
  }
  // A name may be an option with a value in one command and without one in another.
  for (const CommandSpec* command : AllCommands(program)) {
    for (const OptionSpec& option : command->options) {
      if (!option.takes_value)
        std::erase_if(flags, [&](auto& flag) { return option.HasFlag(flag); });
    }
  }
  std::sort(flags.begin(), flags.end());
  flags.erase(std::unique(flags.begin(), flags.end()), flags.end());
  return flags;
}

std::vector<std::string_view> CommandNames(const CommandSpec& spec) {
  std::vector<std::string_view> names;
  for (const CommandSpec& command : spec.commands) names.push_back(command.last_name());
  return names;
}

// Returns the branch of `case $path` for one command: its flags, subcommands and values.
std::string BashCase(const CommandSpec& spec) {
  std::vector<std::string> flags;
  std::string values;
  for (const OptionSpec& option : spec.options) {
    flags.insert(flags.end(), option.flags.begin(), option.flags.end());
    std::string action;
    switch (KindOf(option)) {
      case ValueKind::kNone:
        continue;
      case ValueKind::kChoices:
        action =
            fmt::format("values={}", Quoted(fmt::format("{}", fmt::join(option.choices, " "))));
        break;
      case ValueKind::kFile:
        action = "kind=file";
        break;
      case ValueKind::kFolder:
        action = "kind=folder";
        break;
      case ValueKind::kText:
        action = "kind=text";
        break;
    }
    if (IsArgument(option)) {
      values += fmt::format("        *) {} ;;\n", action);
    } else {
      values += fmt::format("        {}) {} ;;\n", fmt::join(option.flags, "|"), action);
    }
  }
  return fmt::format(
      "    {})\n      words={}\n      commands={}\n      case $before in\n{}      esac\n      ;;\n",
      Quoted(spec.name), Quoted(fmt::format("{}", fmt::join(flags, " "))),
      Quoted(fmt::format("{}", fmt::join(CommandNames(spec), " "))), values);
}

constexpr std::string_view kBashEnd = R"(  esac
  if [[ -n $values && $current != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
  elif [[ $kind == text && $before == -* ]]; then
    return
  elif [[ $kind == file && $current != -* ]]; then
    compopt -o filenames 2> /dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  elif [[ $kind == folder && $current != -* ]]; then
    compopt -o filenames 2> /dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$current")
  elif [[ $current == -* || -z $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  fi
}
)";

std::string BashScript(const CommandSpec& program) {
  std::string paths, cases;
  for (const CommandSpec* command : AllCommands(program)) {
    cases += BashCase(*command);
    for (const CommandSpec& below : command->commands) {
      paths += fmt::format("      {}) path={} ;;\n",
                           Quoted(fmt::format("{} {}", command->name, below.last_name())),
                           Quoted(below.name));
    }
  }
  return fmt::format(
             "# Completion of {0} for bash.\n_{0}() {{\n"
             "  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
             "  local path={0} words= commands= values= kind= i\n"
             "  COMPREPLY=()\n"
             "  # Bash splits --option=VALUE into three words.\n"
             "  if [[ $current == '=' ]]; then current=; fi\n"
             "  if [[ $before == '=' ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi\n"
             "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
             "    case ${{COMP_WORDS[i]}} in\n      {1}) ((i++)); continue ;;\n    esac\n"
             "    case \"$path ${{COMP_WORDS[i]}}\" in\n{2}    esac\n  done\n"
             "  case $path in\n{3}",
             program.name, fmt::join(FlagsWithValue(program), "|"), paths, cases) +
         std::string(kBashEnd) + fmt::format("complete -F _{0} {0}\n", program.name);
}

// Returns the name of the function that completes `spec`: "_minisgl_bench_nano".
std::string FunctionName(const CommandSpec& spec) {
  std::string name = "_" + spec.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// Returns the action of an option in a specification for zsh's _arguments.
std::string ZshAction(const OptionSpec& option) {
  switch (KindOf(option)) {
    case ValueKind::kChoices:
      return fmt::format("({})", fmt::join(option.choices, " "));
    case ValueKind::kFile:
      return "_files";
    case ValueKind::kFolder:
      return "_files -/";
    case ValueKind::kNone:
    case ValueKind::kText:
      break;
  }
  return " ";
}

std::string ZshArgument(const OptionSpec& option) {
  const std::string what = option.type.empty() ? option.argument : option.type;
  const std::string value =
      option.takes_value ? fmt::format(":{}:{}", Escaped(what, ":\\"), ZshAction(option)) : "";
  if (IsArgument(option)) {
    return " \\\n    " + Quoted((option.is_repeatable ? "*" : "") + value);
  }
  std::string text;
  const std::string help = Escaped(option.help, "[]\\:");
  for (const std::string& flag : option.flags) {
    const std::string others =
        option.is_repeatable ? "*" : fmt::format("({})", fmt::join(option.flags, " "));
    // "=" accepts --option VALUE and --option=VALUE.
    const char* equals = option.takes_value && flag.starts_with("--") ? "=" : "";
    text += " \\\n    " + Quoted(fmt::format("{}{}{}[{}]{}", others, flag, equals, help, value));
  }
  return text;
}

// Returns the function that completes a command: its options and subcommands.
std::string ZshFunction(const CommandSpec& spec) {
  std::string options, described, cases;
  for (const OptionSpec& option : spec.options) options += ZshArgument(option);
  if (spec.commands.empty()) {
    return fmt::format("{}() {{\n  _arguments -s -S{}\n}}\n\n", FunctionName(spec), options);
  }
  for (const CommandSpec& command : spec.commands) {
    described += "    " +
                 Quoted(fmt::format("{}:{}", command.last_name(), Escaped(command.help, ":\\"))) +
                 "\n";
    cases += fmt::format("      {}) {} ;;\n", command.last_name(), FunctionName(command));
  }
  return fmt::format(
      "{}() {{\n  local curcontext=$curcontext state line\n  typeset -A opt_args\n"
      "  local -a commands=(\n{}  )\n"
      "  _arguments -C{} \\\n    '1: :->command' \\\n    '*:: :->arguments'\n"
      "  case $state in\n    command) _describe command commands ;;\n"
      "    arguments)\n      case $line[1] in\n{}      esac ;;\n  esac\n}}\n\n",
      FunctionName(spec), described, options, cases);
}

std::string ZshScript(const CommandSpec& program) {
  std::string script = fmt::format("#compdef {0}\n# Completion of {0} for zsh.\n\n", program.name);
  for (const CommandSpec* command : AllCommands(program)) script += ZshFunction(*command);
  return script + fmt::format(
                      "if [[ $funcstack[1] == _{0} ]]; then\n  _{0} \"$@\"\nelse\n"
                      "  compdef _{0} {0}\nfi\n",
                      program.name);
}

// Returns `text` in single quotes for fish.
std::string FishQuoted(std::string_view text) { return "'" + Escaped(text, "'\\") + "'"; }

// Returns fish's condition that the command line names `spec` and none of its subcommands.
std::string FishCondition(const CommandSpec& spec) {
  std::string condition;
  const std::string& path = spec.name;
  for (size_t at = path.find(' '); at != std::string::npos;) {
    const size_t end = path.find(' ', at + 1);
    if (!condition.empty()) condition += "; and ";
    condition += "__fish_seen_subcommand_from " +
                 path.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    at = end;
  }
  if (spec.commands.empty()) return condition;
  if (!condition.empty()) condition += "; and ";
  return condition +
         fmt::format("not __fish_seen_subcommand_from {}", fmt::join(CommandNames(spec), " "));
}

std::string FishOption(const OptionSpec& option) {
  std::string text;
  for (const std::string& flag : option.flags) {
    const bool is_long = flag.starts_with("--");
    text += fmt::format(" {} {}", is_long ? "-l" : "-s", flag.substr(is_long ? 2 : 1));
  }
  switch (KindOf(option)) {
    case ValueKind::kNone:
      break;
    case ValueKind::kChoices:
      text +=
          fmt::format(" -x -a {}", FishQuoted(fmt::format("{}", fmt::join(option.choices, " "))));
      break;
    case ValueKind::kFile:
      text += IsArgument(option) ? " -F" : " -r -F";
      break;
    case ValueKind::kFolder:
      text += " -x -a '(__fish_complete_directories)'";
      break;
    case ValueKind::kText:
      text += " -x";
      break;
  }
  return text;
}

std::string FishScript(const CommandSpec& program) {
  std::string script =
      fmt::format("# Completion of {0} for fish.\ncomplete -c {0} -f\n", program.name);
  for (const CommandSpec* spec : AllCommands(program)) {
    const std::string begin =
        fmt::format("complete -c {} -n {}", program.name, FishQuoted(FishCondition(*spec)));
    for (const CommandSpec& command : spec->commands) {
      script +=
          fmt::format("{} -a {} -d {}\n", begin, command.last_name(), FishQuoted(command.help));
    }
    for (const OptionSpec& option : spec->options) {
      // Free text has no completions.
      if (IsArgument(option) && KindOf(option) == ValueKind::kText) continue;
      script += fmt::format("{}{} -d {}\n", begin, FishOption(option), FishQuoted(option.help));
    }
  }
  return script;
}

}  // namespace

std::string CompletionScript(Shell shell, const CommandSpec& program) {
  switch (shell) {
    case Shell::kBash:
      return BashScript(program);
    case Shell::kZsh:
      return ZshScript(program);
    case Shell::kFish:
      break;
  }
  return FishScript(program);
}

}  // namespace minisgl::load
