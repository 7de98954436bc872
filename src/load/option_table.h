// Registers and parses the options, positional arguments and subcommands of a command.
//
// - A table owns its subcommands. It does not own the values of options: each must outlive Parse(),
//   and is unchanged if its option is not given.
// - Names have CLI11's form: "-m,--model" is an option, "N" a positional argument, "-f,--file,file"
//   both. A name that is invalid or registered twice is a bug and throws std::exception.
// - UseConfig() takes values from a configuration file (config_file.h), which count as if they
//   stood before those of the command line.
// - Describe() returns the registered options as plain data. --help (help_text.h) and shell
//   completions (shell_completions.h) are made from it.
//
// Only option_table.cc includes CLI11, whose templates take longer to compile than most files of
// the program.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/command_spec.h"
#include "load/config_file.h"
#include "minisgl/base/check.h"
#include "minisgl/base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace minisgl::load {

// Returns the error of a value's text, "" if it is valid.
using OptionCheck = std::function<std::string(const std::string&)>;

// The option of minisgl info that shows the configuration file.
inline constexpr const char* kShowConfig = "--config";

// A word that an option accepts, and its value.
template <typename T>
struct Choice {
  const char* name;
  T value;
};

// Returns the word of `value`. REQUIRES that `choices` has one.
template <typename T, size_t kCount>
const char* ChoiceName(const Choice<T> (&choices)[kCount], const T& value) {
  for (const Choice<T>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  MINISGL_CHECK(false, "a value without a name");
}

// A registered option, owned by its table. Each function sets one property and returns the option.
class TableOption {
 public:
  // Every value must pass `check`. The usage error is the option's name and the text of `check`.
  TableOption* Check(OptionCheck check);
  // Shell completions offer `words` as values.
  TableOption* Suggest(std::vector<std::string> words);
  // A value must be one of `words`; shell completions offer them.
  TableOption* OneOf(std::vector<std::string> words);
  // Placeholder for the value in --help, such as FILE.
  TableOption* TypeName(const std::string& name);
  // Heading in --help above the option.
  TableOption* Group(const std::string& name);
  // Only --help-all lists the option.
  TableOption* Advanced();
  // Environment variable with the value if the command line has none.
  TableOption* EnvName(const std::string& name);
  // The command line must give a value.
  TableOption* Required();
  // For a vector: each use of the option takes one value, not all words after it.
  TableOption* OneValueEach();
  // For a vector: a word holds several values with `separator` between them.
  TableOption* Delimiter(char separator);

 private:
  friend class OptionTable;
  TableOption(CLI::Option* option, OptionSpec spec);

  CLI::Option* option_;  // of the same table
  OptionSpec spec_;
};

// The options of one command, and its subcommands.
class OptionTable {
 public:
  // The table of a program. `name` stands in usage errors, `help` is the first line of --help.
  OptionTable(const std::string& name, const std::string& help);
  ~OptionTable();
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // Adds an option or argument that sets *value. T is std::string, int32_t, int64_t, uint64_t,
  // double, a std::optional of one of these, or a std::vector of std::string or int32_t.
  template <typename T>
  TableOption* Add(const std::string& names, T* value, const std::string& help);
  // Adds an option; `take` is called with the text of its value.
  TableOption* AddCall(const std::string& names, std::function<void(const std::string&)> take,
                       const std::string& help);
  // Adds an option whose value is one of the words of `choices`, which must outlive the table.
  template <typename T, size_t kCount>
  TableOption* AddChoice(const std::string& names, T* value, const Choice<T> (&choices)[kCount],
                         const std::string& help) {
    std::vector<std::string> words;
    for (const Choice<T>& choice : choices) words.emplace_back(choice.name);
    const auto set = [value, &choices](const std::string& text) {
      for (const Choice<T>& choice : choices) {
        if (text == choice.name) *value = choice.value;
      }
    };
    return AddCall(names, set, help)->OneOf(std::move(words));
  }
  // Adds an option without a value; it sets *value to true.
  TableOption* AddFlag(const std::string& names, bool* value, const std::string& help);
  // Adds --version, for which Parse() returns `text`.
  void AddVersion(const std::string& text);

  // Removes the options of `group` except those with a name in `kept`. Invalidates pointers to the
  // removed options.
  void RemoveGroup(const std::string& group, std::initializer_list<std::string_view> kept);

  // Adds a subcommand, owned by this table. The command line must then name one subcommand.
  OptionTable* AddSubcommand(const std::string& name, const std::string& help);

  // Width of the text of --help, of this table and its subcommands; 80 by default.
  void SetHelpWidth(size_t columns) { help_width_ = columns; }

  // From now on each subcommand has --no-config, and Parse() takes values from `file`, unless it is
  // given. Call it before the first subcommand is added.
  void UseConfig(ConfigFile file);
  // The file; null if there was no UseConfig. After Parse() its status is that of the values, too.
  const ConfigFile* config() const { return config_.get(); }

  // Sets the values from `arguments`, the command line after the name of the program. Options of a
  // subcommand may stand before its name. Returns "" if a command is to run, else the text of
  // --help, --help-all or --version. An invalid command line is kUsage with one sentence, which
  // suggests the nearest known option or command.
  Result<std::string> Parse(const std::vector<std::string>& arguments);
  // True if the parsed command line named this subcommand.
  bool parsed() const;

  // Returns the text of --help of the subcommand at the path `words` ({"bench", "nano"}), of this
  // table if `words` is empty. kUsage if there is no such subcommand.
  Result<std::string> Help(const std::vector<std::string>& words) const;

  // Returns all options and subcommands as plain data.
  CommandSpec Describe() const;

 private:
  explicit OptionTable(std::shared_ptr<CLI::App> app);
  // Sets the values of `file`, of this program's commands. kBadInput.
  Status TakeConfig(const ConfigFile& file);
  // Takes the values of `entry` and of later entries for the same option. Returns false if neither
  // this command nor one below it has the option.
  Result<bool> TakeEntries(const ConfigFile& file, size_t entry);
  const TableOption* FindConfigurable(const std::string& name) const;
  OptionTable* FindSubcommand(std::string_view words);
  TableOption* Keep(CLI::Option* option, const std::string& names, const std::string& help,
                    bool takes_value);

  std::shared_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<TableOption>> options_;
  std::vector<std::unique_ptr<OptionTable>> subcommands_;
  std::shared_ptr<ConfigFile> config_;  // that of the program
  bool leaves_config_out_ = false;      // --no-config; Parse() looks for it itself
  bool has_version_ = false;
  size_t help_width_ = 80;
};

}  // namespace minisgl::load
