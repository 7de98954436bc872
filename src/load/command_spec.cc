#include "load/command_spec.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "load/peer_names.h"
#include "minisgl/base/edit_distance.h"

namespace minisgl::load {
namespace {

// The least length of a beginning, with its dashes: shorter ones begin too many names.
constexpr size_t kBeginningMin = 5;
constexpr size_t kSuggestedMax = 3;

bool IsFlag(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

// Returns the number of words of `argument` with its value; nullopt if it is no option of `spec`.
std::optional<size_t> NumWords(const CommandSpec& spec, std::string_view argument) {
  if (const OptionSpec* option = spec.FindOption(argument)) return option->takes_value ? 2 : 1;
  if (argument.starts_with("--")) {  // --name=value
    const OptionSpec* option = spec.FindOption(argument.substr(0, argument.find('=')));
    if (option == nullptr || !option->takes_value) return std::nullopt;
    return 1;
  }
  // -xVALUE, or -xyz: several flags.
  for (size_t i = 1; i < argument.size(); ++i) {
    const OptionSpec* option = spec.FindOption(std::string{'-', argument[i]});
    if (option == nullptr) return std::nullopt;
    if (option->takes_value) return i + 1 < argument.size() ? 1 : 2;
  }
  return 1;
}

// True if the first `end` of `arguments` are options of `spec` and their values.
bool AreOptionsOf(const CommandSpec& spec, const std::vector<std::string>& arguments, size_t end) {
  size_t at = 0;
  while (at < end && IsFlag(arguments[at])) {
    const std::optional<size_t> words = NumWords(spec, arguments[at]);
    if (!words) return false;
    at += *words;
  }
  return at == end;
}

// True if `argument`, one dash and several characters, is made of short options of `spec`.
bool IsMadeOfShorts(const CommandSpec& spec, std::string_view argument) {
  for (size_t i = 1; i < argument.size(); ++i) {
    const OptionSpec* option = spec.FindOption(std::string{'-', argument[i]});
    if (option == nullptr || option->HasFlag("--help")) return false;
    if (!option->takes_value) continue;
    const std::string_view value = argument.substr(i + 1);
    return value.empty() || IsOfForm(value, option->form);
  }
  return true;
}

void AddFlags(const CommandSpec& spec, std::vector<std::string_view>* flags) {
  for (const OptionSpec& option : spec.options) {
    for (const std::string& flag : option.flags) {
      if (flag.starts_with("--")) flags->push_back(flag);
    }
  }
  for (const CommandSpec& command : spec.commands) AddFlags(command, flags);
}

}  // namespace

bool IsOfForm(std::string_view text, ValueForm form) {
  if (form == ValueForm::kText) return true;
  if (text.starts_with('=')) text.remove_prefix(1);
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const std::string_view characters =
      form == ValueForm::kInteger ? "0123456789" : "0123456789.eE+-";
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos &&
         text.find_first_of("eE") != 0;
}

bool OptionSpec::HasFlag(std::string_view flag) const {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

std::string_view CommandSpec::last_name() const {
  return std::string_view(name).substr(name.rfind(' ') + 1);
}

const CommandSpec* CommandSpec::FindCommand(std::string_view command) const {
  for (const CommandSpec& candidate : commands) {
    if (candidate.last_name() == command) return &candidate;
  }
  return nullptr;
}

const OptionSpec* CommandSpec::FindOption(std::string_view flag) const {
  for (const OptionSpec& option : options) {
    if (option.HasFlag(flag)) return &option;
  }
  for (const CommandSpec& command : commands) {
    if (const OptionSpec* option = command.FindOption(flag)) return option;
  }
  return nullptr;
}

std::vector<std::string> MoveOptionsAfterCommands(const CommandSpec& spec,
                                                  std::vector<std::string> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const CommandSpec* command = spec.FindCommand(arguments[i]);
    if (command == nullptr || !AreOptionsOf(*command, arguments, i)) continue;
    std::vector<std::string> rest(arguments.begin(), arguments.begin() + static_cast<int64_t>(i));
    rest.insert(rest.end(), arguments.begin() + static_cast<int64_t>(i) + 1, arguments.end());
    rest = MoveOptionsAfterCommands(*command, std::move(rest));
    rest.insert(rest.begin(), arguments[i]);
    return rest;
  }
  return arguments;
}

std::string FirstUnknown(const CommandSpec& spec, const std::vector<std::string>& arguments) {
  size_t at = 0;
  while (at < arguments.size()) {
    if (spec.FindCommand(arguments[at]) != nullptr) return "";
    if (!IsFlag(arguments[at])) return arguments[at];
    const std::optional<size_t> words = NumWords(spec, arguments[at]);
    if (!words) return arguments[at];
    at += *words;
  }
  return "";
}

std::string FirstUnknownShort(const CommandSpec& spec, const std::vector<std::string>& arguments) {
  constexpr std::string_view kNumber = "0123456789.";
  for (size_t at = 0; at < arguments.size(); ++at) {
    const std::string& argument = arguments[at];
    if (argument == "--") return "";
    if (!IsFlag(argument) || kNumber.find(argument[1]) != std::string_view::npos) continue;
    const bool is_short = argument[1] != '-' && argument.size() > 2;
    const std::string name = "-" + argument.substr(0, argument.find('='));
    const bool is_known = is_short && spec.FindOption(name) == nullptr &&
                          IsMadeOfShorts(spec, argument) && !IsPeerOption(argument);
    if (is_short && !is_known) return argument;
    at += NumWords(spec, argument).value_or(1) - 1;  // its value may begin with a dash
  }
  return "";
}

std::vector<std::string> NearestFlags(const CommandSpec& spec, std::string_view flag) {
  std::vector<std::string_view> flags;
  AddFlags(spec, &flags);
  const std::string_view name = flag.substr(0, flag.find('='));
  std::vector<std::string> nearest;
  for (const std::string_view candidate : flags) {
    if (name.size() < kBeginningMin || !candidate.starts_with(name)) continue;
    if (std::find(nearest.begin(), nearest.end(), candidate) == nearest.end()) {
      nearest.emplace_back(candidate);
    }
  }
  if (!nearest.empty() && nearest.size() <= kSuggestedMax) return nearest;
  const std::string_view found = NearestName(name, flags, TypoDistanceMax(name));
  if (found.empty()) return {};
  return {std::string(found)};
}

std::string NearestCommand(const CommandSpec& spec, std::string_view word) {
  std::vector<std::string_view> names;
  for (const CommandSpec& command : spec.commands) names.push_back(command.last_name());
  return std::string(NearestName(word, names, TypoDistanceMax(word)));
}

}  // namespace minisgl::load
