#include "load/help_text.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace minisgl::load {
namespace {

constexpr size_t kColumnsMin = 40;
constexpr size_t kIndent = 2;
// Column of the help beside an option's names; below longer names it is on the next line.
constexpr size_t kHelpColumn = 26;

// Returns `text` in lines of at most `columns`. The first line starts at column `begin`, the others
// with `indent` spaces.
std::string Wrapped(std::string_view text, size_t begin, size_t indent, size_t columns) {
  std::string wrapped;
  size_t column = begin;
  bool is_first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!is_first && column + 1 + word.size() > columns) {
      wrapped += '\n' + std::string(indent, ' ');
      column = indent;
      is_first = true;
    }
    if (!is_first) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += word.size();
    is_first = false;
  }
  return wrapped;
}

// Returns "  NAMES   help", with the help on the next line if the names are long.
std::string Entry(const std::string& names, const std::string& help, size_t columns) {
  std::string entry = std::string(kIndent, ' ') + names;
  if (entry.size() + 2 <= kHelpColumn) {
    entry.append(kHelpColumn - entry.size(), ' ');
  } else {
    entry += '\n' + std::string(kHelpColumn, ' ');
  }
  return entry + Wrapped(help, kHelpColumn, kHelpColumn, columns) + '\n';
}

// Returns "-m, --model DIR".
std::string Names(const OptionSpec& option) {
  std::string names = fmt::format("{}", fmt::join(option.flags, ", "));
  if (option.flags.empty()) names = option.argument;
  if (!option.flags.empty() && !option.type.empty()) names += ' ' + option.type;
  return names;
}

std::string OptionHelp(const OptionSpec& option) {
  return option.env.empty() ? option.help : fmt::format("{} [env: {}]", option.help, option.env);
}

std::string Usage(const CommandSpec& spec) {
  std::string usage = fmt::format("Usage: {} [OPTIONS]", spec.name);
  for (const OptionSpec& option : spec.options) {
    if (option.argument.empty()) continue;
    const std::string name = option.flags.empty() ? option.argument : option.type;
    const bool may_lack = !option.flags.empty();
    usage += fmt::format(" {}{}{}{}", may_lack ? "[" : "", name, option.is_repeatable ? "..." : "",
                         may_lack ? "]" : "");
  }
  if (!spec.commands.empty()) usage += " COMMAND";
  return usage;
}

// Returns the groups, the general options first, then in the order of registration.
std::vector<std::string> Groups(const CommandSpec& spec) {
  std::vector<std::string> groups = {""};
  for (const OptionSpec& option : spec.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  return groups;
}

std::string GroupText(const CommandSpec& spec, const std::string& group, HelpAmount amount,
                      size_t columns) {
  std::string text;
  for (const OptionSpec& option : spec.options) {
    if (option.group != group || (option.is_advanced && amount == HelpAmount::kCommon)) continue;
    text += Entry(Names(option), OptionHelp(option), columns);
  }
  if (text.empty()) return text;
  return fmt::format("\n{}:\n{}", group.empty() ? "Options" : group, text);
}

}  // namespace

std::string HelpText(const CommandSpec& spec, HelpAmount amount, size_t columns) {
  columns = std::max(columns, kColumnsMin);
  std::string text = Wrapped(spec.help, 0, 0, columns) + "\n\n" + Usage(spec) + "\n";
  for (const std::string& group : Groups(spec)) text += GroupText(spec, group, amount, columns);
  if (!spec.commands.empty()) text += "\nCommands:\n";
  for (const CommandSpec& command : spec.commands) {
    text += Entry(std::string(command.last_name()), command.help, columns);
  }
  const auto advanced = std::count_if(spec.options.begin(), spec.options.end(),
                                      [](const OptionSpec& option) { return option.is_advanced; });
  if (amount == HelpAmount::kCommon && advanced > 0) {
    text += '\n' + Wrapped(fmt::format("{} --help-all lists {} more options.", spec.name, advanced),
                           0, 0, columns);
    text += '\n';
  }
  if (amount == HelpAmount::kCommon && !spec.commands.empty()) {
    text +=
        '\n' + Wrapped(fmt::format("{} COMMAND --help lists the options of a command.", spec.name),
                       0, 0, columns);
    text += '\n';
  }
  if (amount == HelpAmount::kAll) {
    for (const CommandSpec& command : spec.commands) {
      text += "\n\n" + HelpText(command, amount, columns);
    }
  }
  return text;
}

}  // namespace minisgl::load
