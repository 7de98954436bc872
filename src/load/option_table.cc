// See option_table.h.
#include "load/option_table.h"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::load {
namespace {

std::string Choices(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* choice : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(choice->get_name());
  }
  return fmt::format("{} needs one of {}", app.get_name(), fmt::join(names, ", "));
}

constexpr std::string_view kNoSubcommand = "A subcommand is required";  // as CLI11 says it

// CLI11's shorthand as sentences. Other messages stay as they are.
std::string InSentences(const std::string& what, const CLI::App& used) {
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

// One sentence for what CLI11 found wrong with `arguments`.
Status UsageErrorOf(const CLI::App& app, const CLI::ParseError& error,
                    const std::vector<std::string>& arguments) {
  std::string command = app.get_name();
  const CLI::App* used = &app;
  while (!used->get_subcommands().empty()) {
    used = used->get_subcommands().front();
    command.append(" ").append(used->get_name());
  }
  std::string message = InSentences(error.what(), *used);
  const std::vector<std::string> extras = app.remaining(true);
  if (used == &app && app.get_require_subcommand_min() > 0) {
    message = arguments.empty()
                  ? std::string("no command given")
                  : fmt::format("unknown command or option ({})", Visible(arguments.front()));
  } else if (!extras.empty() && (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                                 dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)) {
    message = fmt::format("unknown option or argument ({})", Visible(extras.front()));
    if (error.what() == kNoSubcommand) message += "; " + Choices(*used);
  }
  return UsageError("{}; see {} --help", Visible(message, 400), command);
}

}  // namespace

TableOption* TableOption::Check(OptionCheck check) {
  option_->check(std::move(check));
  return this;
}

TableOption* TableOption::TypeName(const std::string& name) {
  option_->type_name(name);
  return this;
}

TableOption* TableOption::Group(const std::string& name) {
  option_->group(name);
  return this;
}

TableOption* TableOption::EnvName(const std::string& name) {
  option_->envname(name);
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
    : app_(std::make_shared<CLI::App>(help, name)) {}

OptionTable::OptionTable(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}

OptionTable::~OptionTable() = default;

TableOption* OptionTable::Keep(CLI::Option* option) {
  return &options_.emplace_back(TableOption(option));
}

template <typename T>
TableOption* OptionTable::Add(const std::string& names, T* value, const std::string& help) {
  return Keep(app_->add_option(names, *value, help));
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
  return Keep(app_->add_option_function<std::string>(names, std::move(take), help));
}

TableOption* OptionTable::AddFlag(const std::string& names, bool* value, const std::string& help) {
  return Keep(app_->add_flag(names, *value, help));
}

void OptionTable::AddVersion(const std::string& text) { app_->set_version_flag("--version", text); }

void OptionTable::RemoveGroup(const std::string& group,
                              std::initializer_list<std::string_view> kept) {
  for (CLI::Option* option : app_->get_options()) {
    const bool keep = std::find(kept.begin(), kept.end(), option->get_name()) != kept.end();
    if (option->get_group() == group && !keep) app_->remove_option(option);
  }
}

OptionTable* OptionTable::AddSubcommand(const std::string& name, const std::string& help) {
  app_->require_subcommand(1);  // first: CLI11 hands this on to the subcommand
  CLI::App* app = app_->add_subcommand(name, help);
  subcommands_.emplace_back(new OptionTable(app_->get_subcommand_ptr(app)));
  return subcommands_.back().get();
}

Result<std::string> OptionTable::Parse(const std::vector<std::string>& arguments) {
  try {
    app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    app_->exit(success, text, text);
    return text.str();
  } catch (const CLI::ParseError& error) {
    return UsageErrorOf(*app_, error, arguments);
  }
  return std::string();
}

bool OptionTable::parsed() const { return app_->parsed(); }

}  // namespace minisgl::load
