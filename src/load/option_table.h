// The options, arguments and subcommands of a command: how they are registered and parsed.
//
// This wraps the library CLI11. Only option_table.cc includes it, because its templates take longer
// to compile than most files of the program.
//
// A table owns its subcommands and no values: a value that an option fills in must live as long as
// the table is parsed, and keeps what it holds if the option is not given. Names are those of
// CLI11: "-m,--model" is an option, "N" an argument by its place, "-f,--file,file" both. Options
// that are registered twice or have bad names throw std::exception: a mistake of the program.
//
// Describe() gives what was registered as plain data, from which --help (help_text.h) and the
// completions of shells (shell_completions.h) are made.
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
#include "minisgl/base/check.h"
#include "minisgl/base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace minisgl::load {

// Returns what is wrong with the text of a value, "" if nothing is.
using OptionCheck = std::function<std::string(const std::string&)>;

// A word that an option takes, and the value that it stands for.
template <typename T>
struct Choice {
  const char* name;
  T value;
};

// The word of `choices` that stands for `value`, which must be one of them.
template <typename T, size_t kCount>
const char* ChoiceName(const Choice<T> (&choices)[kCount], const T& value) {
  for (const Choice<T>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  MINISGL_CHECK(false, "a value without a name");
}

// One registered option, to be described further: each function returns the option itself. Its
// table owns it.
class TableOption {
 public:
  // A value must pass `check`, each one if there are several. The usage error is the text of
  // `check` after the name of the option.
  TableOption* Check(OptionCheck check);
  // Completions offer `words` as values.
  TableOption* Suggest(std::vector<std::string> words);
  // A value must be one of `words`, which completions offer.
  TableOption* OneOf(std::vector<std::string> words);
  // What --help shows in place of the value, such as FILE.
  TableOption* TypeName(const std::string& name);
  // The heading of --help under which the option is listed.
  TableOption* Group(const std::string& name);
  // Listed by --help-all only: an option that few people need.
  TableOption* Advanced();
  // The environment variable that gives the value if the command line does not.
  TableOption* EnvName(const std::string& name);
  // The command line must give a value.
  TableOption* Required();
  // Of a vector: one value each time that the option is given, not all words after it.
  TableOption* OneValueEach();
  // Of a vector: `separator` stands between the values in a word.
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
  // The table of a program. `name` is what usage errors call it, `help` the first line of --help.
  OptionTable(const std::string& name, const std::string& help);
  ~OptionTable();
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // An option or argument whose value goes to `value`. T is std::string, int32_t, int64_t,
  // uint64_t, double, a std::optional of one of these, or a std::vector of std::string or int32_t.
  template <typename T>
  TableOption* Add(const std::string& names, T* value, const std::string& help);
  // An option whose text `take` is called with.
  TableOption* AddCall(const std::string& names, std::function<void(const std::string&)> take,
                       const std::string& help);
  // An option that takes one of the words of `choices`, which must outlive the table.
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
  // An option without a value, which makes `value` true.
  TableOption* AddFlag(const std::string& names, bool* value, const std::string& help);
  // --version, which answers `text`.
  void AddVersion(const std::string& text);

  // Takes the options of `group` away whose names are not among `kept`. Their TableOptions must not
  // be used after that.
  void RemoveGroup(const std::string& group, std::initializer_list<std::string_view> kept);

  // A table below this one, which owns it. The command line must then name one subcommand.
  OptionTable* AddSubcommand(const std::string& name, const std::string& help);

  // Columns of the text of --help; 80 if it is not set. Subcommands have those of their program.
  void SetHelpWidth(size_t columns) { help_width_ = columns; }

  // Fills in the values from `arguments`, the command line after the name of the program. Options
  // of a subcommand may stand before its name. The result is "" if a command is to run, else the
  // text that --help, --help-all or --version asks for. A wrong command line is kUsage with one
  // sentence for a person, which names the option or command that was probably meant.
  Result<std::string> Parse(const std::vector<std::string>& arguments);
  // True if the command line that was parsed named this subcommand.
  bool parsed() const;

  // The text of --help of the subcommand that `words` name one below the other; of this table if
  // there are none. kUsage for a name that is no subcommand.
  Result<std::string> Help(const std::vector<std::string>& words) const;

  // All options and subcommands as data.
  CommandSpec Describe() const;

 private:
  explicit OptionTable(std::shared_ptr<CLI::App> app);
  TableOption* Keep(CLI::Option* option, const std::string& names, const std::string& help,
                    bool takes_value);

  std::shared_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<TableOption>> options_;
  std::vector<std::unique_ptr<OptionTable>> subcommands_;
  bool has_version_ = false;
  size_t help_width_ = 80;
};

}  // namespace minisgl::load
