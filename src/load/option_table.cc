#include "load/option_table.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "load/help_text.h"
#include "load/peer_names.h"
#include "minisgl/base/environment.h"
#include "minisgl/base/utf8.h"

namespace minisgl::load {
namespace {

constexpr const char* kNoConfig = "--no-config";
constexpr const char* kHelpHelp = "Show this help and exit";
constexpr const char* kHelpAllHelp = "Show the help of all options and exit";

std::string Choices(const CommandSpec& spec) {
  std::vector<std::string_view> names;
  for (const CommandSpec& command : spec.commands) names.push_back(command.last_name());
  return fmt::format("{} needs one of {}", spec.last_name(), fmt::join(names, ", "));
}

constexpr std::string_view kNoSubcommand = "A subcommand is required";  // CLI11's message

// Returns CLI11's message `what` with its shorthand replaced by a sentence, or unchanged.
std::string InSentences(const std::string& what, const CommandSpec& used) {
  constexpr std::string_view kValue = ": 1 required ", kMissing = " missing";
  constexpr std::string_view kOnce = ": At Most 1 required but received ";
  const size_t value = what.find(kValue);
  if (value != std::string::npos && what.ends_with(kMissing)) {
    const size_t begin = value + kValue.size();
    return fmt::format("{} needs a value ({})", what.substr(0, value),
                       what.substr(begin, what.size() - kMissing.size() - begin));
  }
  const size_t once = what.find(kOnce);
  if (once != std::string::npos) {
    return fmt::format("{} may be given once (found {})", what.substr(0, once),
                       what.substr(once + kOnce.size()));
  }
  if (what == kNoSubcommand) return Choices(used);
  return what;
}

// Returns the innermost subcommand that the command line named.
const CommandSpec* UsedSpec(const CLI::App* app, const CommandSpec* spec) {
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    spec = spec->FindCommand(app->get_name());
  }
  return spec;
}

// Returns "unknown option (--modle); did you mean --model?" for a word that `spec` does not have.
std::string UnknownWord(const CommandSpec& spec, const std::string& word) {
  const bool is_option = word.starts_with('-');
  const char* what = is_option ? "option" : spec.commands.empty() ? "argument" : "command";
  std::string message = fmt::format("unknown {} ({})", what, Visible(word));
  const bool is_long_word = is_option && !word.starts_with("--") && word.size() > 2;
  std::string advice = is_option ? AdviceOnOption(spec, word) : AdviceOnCommand(spec, word);
  if (advice.empty() && is_long_word) advice = AdviceOnOption(spec, "-" + word);
  if (!advice.empty()) return fmt::format("{}; {}", message, advice);
  if (!is_option && spec.commands.empty() && spec.FindOption("-m") && spec.FindOption("-p")) {
    return message + "; -m takes the model, and -p a text to ask";
  }
  std::string nearest = is_option ? fmt::format("{}", fmt::join(NearestFlags(spec, word), " or "))
                                  : NearestCommand(spec, word);
  // One dash before several letters.
  if (nearest.empty() && is_long_word) {
    nearest = fmt::format("{}", fmt::join(NearestFlags(spec, "-" + word), " or "));
  }
  if (!nearest.empty()) message += fmt::format("; did you mean {}?", nearest);
  return message;
}

// Returns `message` with a reference to the --help of `spec`.
std::string WithAdvice(const std::string& message, const CommandSpec& spec) {
  return fmt::format("{}{} {} --help", message, message.ends_with('?') ? " See" : "; see",
                     spec.name);
}

// Returns the error of a command line that names no command of the program.
std::string NoCommand(const CommandSpec& program, const std::vector<std::string>& arguments) {
  const std::string unknown = FirstUnknown(program, arguments);
  if (!unknown.empty()) return UnknownWord(program, unknown);
  if (arguments.empty()) return "no command given";
  return fmt::format("no command given with {}; {}", Visible(arguments.front()), Choices(program));
}

// Returns CLI11's error of `arguments` as one sentence.
Status UsageErrorOf(const CLI::App& app, const CommandSpec& program, const CLI::ParseError& error,
                    const std::vector<std::string>& arguments) {
  const CommandSpec* used = UsedSpec(&app, &program);
  std::string message = InSentences(error.what(), *used);
  const std::vector<std::string> extras = app.remaining(true);
  if (used == &program && !program.commands.empty()) {
    message = NoCommand(program, arguments);
  } else if (!extras.empty() && (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                                 dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)) {
    message = UnknownWord(*used, extras.front());
    if (error.what() == kNoSubcommand) message += "; " + Choices(*used);
  }
  return UsageError("{}", WithAdvice(Visible(message, 400), *used));
}

// Returns the error of an argument with one dash that is no option, which CLI11 would take for a
// short option and its value.
Status CheckShortOptions(const CommandSpec& program, const std::vector<std::string>& arguments) {
  const CommandSpec* used = &program;
  size_t at = 0;
  while (at < arguments.size() && used->FindCommand(arguments[at]) != nullptr) {
    used = used->FindCommand(arguments[at++]);
  }
  const std::vector<std::string> rest(arguments.begin() + static_cast<std::ptrdiff_t>(at),
                                      arguments.end());
  const std::string unknown = FirstUnknownShort(*used, rest);
  if (unknown.empty()) return Status();
  return UsageError("{}", WithAdvice(UnknownWord(*used, unknown), *used));
}

// Returns the value of a configuration file with the home folder in place of "~/", as a shell puts
// it into a command line. `type`: of the option; those of paths have DIR or FILE in it.
std::string WithHome(std::string_view type, const std::string& value) {
  const bool may_be_text = type.find("@FILE") != std::string_view::npos;
  const bool is_path =
      type.find("DIR") != std::string_view::npos || type.find("FILE") != std::string_view::npos;
  const std::string_view before = may_be_text ? "@" : "";
  const std::string home = EnvironmentVariable("HOME");
  if (!is_path || home.empty() || !value.starts_with(fmt::format("{}~/", before))) return value;
  return fmt::format("{}{}{}", before, home, value.substr(before.size() + 1));
}

// Returns "; did you mean NAME?" for an entry of a configuration file that is no option of `spec`;
// "" if no name is near. There, names have no dashes.
std::string AdviceOnEntry(const CommandSpec& spec, const std::string& name) {
  const std::string flag = "--" + name;
  if (std::string advice = AdviceOnOption(spec, flag); !advice.empty()) {
    const size_t dashes = advice.find(" --");
    if (dashes != std::string::npos) advice.erase(dashes + 1, 2);
    return "; " + advice;
  }
  std::vector<std::string> nearest = NearestFlags(spec, flag);
  for (std::string& found : nearest) found.erase(0, 2);
  if (nearest.empty()) return "";
  return fmt::format("; did you mean {}?", fmt::join(nearest, " or "));
}

// True if --no-config is among the options.
bool LeavesConfigOut(const std::vector<std::string>& arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  return std::find(arguments.begin(), end, kNoConfig) != end;
}

// Puts `names`, those of the parent commands, before the names of `spec` and its subcommands.
void Prefix(const std::string& names, CommandSpec* spec) {
  spec->name = names + ' ' + spec->name;
  for (CommandSpec& command : spec->commands) Prefix(names, &command);
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
struct FormOf {
  static constexpr ValueForm kForm = std::is_integral_v<T>         ? ValueForm::kInteger
                                     : std::is_floating_point_v<T> ? ValueForm::kNumber
                                                                   : ValueForm::kText;
};
template <typename T>
struct FormOf<std::optional<T>> : FormOf<T> {};

OptionSpec HelpSpec(std::vector<std::string> flags, const char* help) {
  OptionSpec spec;
  spec.flags = std::move(flags);
  spec.help = help;
  return spec;
}

}  // namespace

TableOption::TableOption(CLI::Option* option, OptionSpec spec)
    : option_(option), spec_(std::move(spec)) {}

TableOption* TableOption::Suggest(std::vector<std::string> words) {
  spec_.choices = std::move(words);
  return this;
}

TableOption* TableOption::OneOf(std::vector<std::string> words) {
  Suggest(words);
  return Check([words = std::move(words)](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    const std::string_view meant = NameOfValue(text);
    const bool is_one = std::find(words.begin(), words.end(), meant) != words.end();
    return fmt::format("must be one of {} (found {}{})", fmt::join(words, ", "), Visible(text),
                       is_one ? fmt::format(", which is {} here", meant) : "");
  });
}

TableOption* TableOption::Advanced() {
  spec_.is_advanced = true;
  return this;
}

TableOption* TableOption::Check(OptionCheck check) {
  option_->check(std::move(check));
  return this;
}

TableOption* TableOption::TypeName(const std::string& name) {
  option_->type_name(name);
  spec_.type = name;
  return this;
}

TableOption* TableOption::Group(const std::string& name) {
  option_->group(name);
  spec_.group = name;
  return this;
}

TableOption* TableOption::EnvName(const std::string& name) {
  option_->envname(name);
  spec_.env = name;
  return this;
}

TableOption* TableOption::Required() {
  option_->required();
  return this;
}

TableOption* TableOption::OneValueEach() {
  option_->allow_extra_args(false);
  return this;
}

TableOption* TableOption::Delimiter(char separator) {
  option_->delimiter(separator);
  return this;
}

OptionTable::OptionTable(const std::string& name, const std::string& help)
    : app_(std::make_shared<CLI::App>(help, name)) {
  app_->set_help_all_flag("--help-all", kHelpAllHelp);  // which subcommands take over
}

OptionTable::OptionTable(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}

OptionTable::~OptionTable() = default;

TableOption* OptionTable::Keep(CLI::Option* option, const std::string& names,
                               const std::string& help, bool takes_value) {
  OptionSpec spec;
  spec.help = help;
  spec.takes_value = takes_value;
  std::istringstream words(names);
  for (std::string word; std::getline(words, word, ',');) {
    if (word.starts_with('-')) {
      spec.flags.push_back(word);
    } else {
      spec.argument = word;
    }
  }
  options_.emplace_back(new TableOption(option, std::move(spec)));
  return options_.back().get();
}

template <typename T>
TableOption* OptionTable::Add(const std::string& names, T* value, const std::string& help) {
  TableOption* option = Keep(app_->add_option(names, *value, help), names, help, true);
  option->spec_.is_repeatable = IsVector<T>::value;
  option->spec_.form = FormOf<T>::kForm;
  return option;
}

using OptionText = const std::string&;  // names, help
template TableOption* OptionTable::Add(OptionText, std::string*, OptionText);
template TableOption* OptionTable::Add(OptionText, int32_t*, OptionText);
template TableOption* OptionTable::Add(OptionText, int64_t*, OptionText);
template TableOption* OptionTable::Add(OptionText, uint64_t*, OptionText);
template TableOption* OptionTable::Add(OptionText, double*, OptionText);
template TableOption* OptionTable::Add(OptionText, std::optional<std::string>*, OptionText);
template TableOption* OptionTable::Add(OptionText, std::optional<int32_t>*, OptionText);
template TableOption* OptionTable::Add(OptionText, std::optional<int64_t>*, OptionText);
template TableOption* OptionTable::Add(OptionText, std::optional<uint64_t>*, OptionText);
template TableOption* OptionTable::Add(OptionText, std::optional<double>*, OptionText);
template TableOption* OptionTable::Add(OptionText, std::vector<std::string>*, OptionText);
template TableOption* OptionTable::Add(OptionText, std::vector<int32_t>*, OptionText);

TableOption* OptionTable::AddCall(const std::string& names,
                                  std::function<void(const std::string&)> take,
                                  const std::string& help) {
  return Keep(app_->add_option_function<std::string>(names, std::move(take), help), names, help,
              /*takes_value=*/true);
}

TableOption* OptionTable::AddFlag(const std::string& names, bool* value, const std::string& help) {
  return Keep(app_->add_flag(names, *value, help), names, help, /*takes_value=*/false);
}

void OptionTable::AddVersion(const std::string& text) {
  app_->set_version_flag("--version", text);
  has_version_ = true;
}

void OptionTable::RemoveGroup(const std::string& group,
                              std::initializer_list<std::string_view> kept) {
  std::erase_if(options_, [&](const std::unique_ptr<TableOption>& option) {
    const bool keeps = std::any_of(kept.begin(), kept.end(), [&](std::string_view flag) {
      return option->spec_.HasFlag(flag);
    });
    if (option->spec_.group != group || keeps) return false;
    return app_->remove_option(option->option_);
  });
}

void OptionTable::UseConfig(ConfigFile file) {
  config_ = std::make_shared<ConfigFile>(std::move(file));
}

OptionTable* OptionTable::AddSubcommand(const std::string& name, const std::string& help) {
  app_->require_subcommand(1);  // first: CLI11 hands this on to the subcommand
  CLI::App* app = app_->add_subcommand(name, help);
  subcommands_.emplace_back(new OptionTable(app_->get_subcommand_ptr(app)));
  OptionTable* table = subcommands_.back().get();
  table->config_ = config_;
  if (config_ != nullptr) {
    table->AddFlag(kNoConfig, &table->leaves_config_out_, "Leave the configuration file out")
        ->Advanced();
  }
  return table;
}

// The option of a line of a configuration file: not those that say what is to be done.
const TableOption* OptionTable::FindConfigurable(const std::string& name) const {
  const std::string flag = "--" + name;
  if (flag == kNoConfig || flag == kShowConfig) return nullptr;
  for (const auto& option : options_) {
    if (option->spec_.HasFlag(flag)) return option.get();
  }
  return nullptr;
}

// Finds the table at a path of names, "bench nano".
OptionTable* OptionTable::FindSubcommand(std::string_view words) {
  const size_t space = words.find(' ');
  for (const auto& table : subcommands_) {
    if (table->app_->get_name() != words.substr(0, space)) continue;
    if (space == std::string_view::npos) return table.get();
    return table->FindSubcommand(words.substr(space + 1));
  }
  return nullptr;
}

Result<bool> OptionTable::TakeEntries(const ConfigFile& file, size_t entry) {
  const ConfigEntry& first = file.entries[entry];
  bool found = false;
  for (const auto& table : subcommands_) {
    MINISGL_ASSIGN_OR_RETURN(const bool below, table->TakeEntries(file, entry));
    found = found || below;
  }
  const TableOption* option = FindConfigurable(first.name);
  if (option == nullptr) return found;
  const bool is_flag = !option->spec_.takes_value;
  std::vector<std::string> values;
  for (size_t i = entry; i < file.entries.size(); ++i) {
    const ConfigEntry& again = file.entries[i];
    if (again.section != first.section || again.name != first.name) continue;
    if (!values.empty() && !option->spec_.is_repeatable) {
      return file.Error(again, fmt::format("{} has a value already, on line {}",
                                           Visible(first.name), first.line));
    }
    if (is_flag && again.value != "true" && again.value != "false") {
      return file.Error(again, fmt::format("{} is true or false (found {})", Visible(first.name),
                                           Visible(again.value, 60)));
    }
    values.push_back(WithHome(option->spec_.type, again.value));
  }
  try {
    option->option_->add_result(std::move(values));
    option->option_->run_callback();
    option->option_->clear();
  } catch (const CLI::ParseError& error) {
    option->option_->clear();
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.find_first_not_of('-'), what.size()));
    return file.Error(first, Visible(what, 400));
  }
  return true;
}

Status OptionTable::TakeConfig(const ConfigFile& file) {
  std::set<std::pair<std::string, std::string>> taken;
  // Entries for all commands come first, because entries for one command override them.
  for (const bool of_all : {true, false}) {
    for (size_t i = 0; i < file.entries.size(); ++i) {
      const ConfigEntry& entry = file.entries[i];
      if (entry.section.empty() != of_all) continue;
      OptionTable* table = of_all ? this : FindSubcommand(entry.section);
      if (table == nullptr) {
        return file.Error(entry, fmt::format("[{}] is no command; a section has the name of one, "
                                             "as [run] or [bench nano]",
                                             Visible(entry.section, 60)));
      }
      if (!taken.insert({entry.section, entry.name}).second) continue;
      MINISGL_ASSIGN_OR_RETURN(const bool found, table->TakeEntries(file, i));
      if (found) continue;
      return file.Error(entry, fmt::format("no option of {} is called {}{}",
                                           of_all ? "any command" : "minisgl " + entry.section,
                                           Visible(entry.name, 60),
                                           AdviceOnEntry(table->Describe(), entry.name)));
    }
  }
  return Status();
}

Result<std::string> OptionTable::Parse(const std::vector<std::string>& arguments) {
  const CommandSpec spec = Describe();
  const std::vector<std::string> ordered = MoveOptionsAfterCommands(spec, arguments);
  MINISGL_RETURN_IF_ERROR(CheckShortOptions(spec, ordered));
  if (config_ != nullptr && LeavesConfigOut(arguments)) {
    config_->left_out = true;
    config_->entries.clear();
    config_->status = Status();
  } else if (config_ != nullptr && config_->status.ok()) {
    config_->status = TakeConfig(*config_);
  }
  try {
    app_->parse(std::vector<std::string>(ordered.rbegin(), ordered.rend()));
  } catch (const CLI::CallForHelp&) {
    return HelpText(*UsedSpec(app_.get(), &spec), HelpAmount::kCommon, help_width_);
  } catch (const CLI::CallForAllHelp&) {
    return HelpText(*UsedSpec(app_.get(), &spec), HelpAmount::kAll, help_width_);
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what()) + '\n';
  } catch (const CLI::ParseError& error) {
    return UsageErrorOf(*app_, spec, error, ordered);
  }
  return std::string();
}

bool OptionTable::parsed() const { return app_->parsed(); }

Result<std::string> OptionTable::Help(const std::vector<std::string>& words) const {
  const CommandSpec program = Describe();
  const CommandSpec* spec = &program;
  for (const std::string& word : words) {
    const CommandSpec* command = spec->FindCommand(word);
    if (command == nullptr) {
      return UsageError("{}", WithAdvice(UnknownWord(*spec, word), *spec));
    }
    spec = command;
  }
  return HelpText(*spec, HelpAmount::kCommon, help_width_);
}

CommandSpec OptionTable::Describe() const {
  CommandSpec spec;
  spec.name = app_->get_name();
  spec.help = app_->get_description();
  spec.options.push_back(HelpSpec({"-h", "--help"}, kHelpHelp));
  spec.options.push_back(HelpSpec({"--help-all"}, kHelpAllHelp));
  if (has_version_) spec.options.push_back(HelpSpec({"--version"}, "Show the version and exit"));
  for (const auto& option : options_) spec.options.push_back(option->spec_);
  for (const auto& subcommand : subcommands_) {
    spec.commands.push_back(subcommand->Describe());
    Prefix(spec.name, &spec.commands.back());
  }
  return spec;
}

}  // namespace minisgl::load
