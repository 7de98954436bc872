// The options, arguments and subcommands of a command: how they are registered, parsed and shown.
//
// This wraps the library CLI11. Only option_table.cc includes it, because its templates take longer
// to compile than most files of the program.
//
// A table owns its subcommands and no values: a value that an option fills in must live as long as
// the table is parsed, and keeps what it holds if the option is not given. Names are those of
// CLI11: "-m,--model" is an option, "N" an argument by its place, "-f,--file,file" both. Options
// that are registered twice or have bad names throw std::exception: a mistake of the program.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace minisgl::load {

// Says what is wrong with the text of a value: "" if nothing is.
using OptionCheck = std::function<std::string(const std::string&)>;

// One registered option, to be described further: each function returns the option itself. Its
// table owns it.
class TableOption {
 public:
  // A value must pass `check`, each one if there are several. The usage error is the text of
  // `check` after the name of the option.
  TableOption* Check(OptionCheck check);
  // What --help shows in place of the value, such as FILE.
  TableOption* TypeName(const std::string& name);
  // The heading of --help under which the option is listed.
  TableOption* Group(const std::string& name);
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
  explicit TableOption(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;  // of the same table
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
  // An option without a value, which makes `value` true.
  TableOption* AddFlag(const std::string& names, bool* value, const std::string& help);
  // --version, which answers `text`.
  void AddVersion(const std::string& text);

  // Takes the options of `group` away whose names are not among `kept`. Their TableOptions must not
  // be used after that.
  void RemoveGroup(const std::string& group, std::initializer_list<std::string_view> kept);

  // A table below this one, which owns it. The command line must then name one subcommand.
  OptionTable* AddSubcommand(const std::string& name, const std::string& help);

  // Fills in the values from `arguments`, the command line after the name of the program. The
  // result is "" if a command is to run, else the text that --help or --version asks for. A wrong
  // command line is kUsage with one sentence for a person.
  Result<std::string> Parse(const std::vector<std::string>& arguments);
  // Whether the command line that was parsed named this subcommand.
  bool parsed() const;

 private:
  explicit OptionTable(std::shared_ptr<CLI::App> app);
  TableOption* Keep(CLI::Option* option);

  std::shared_ptr<CLI::App> app_;
  std::deque<TableOption> options_;  // they stay where they are
  std::vector<std::unique_ptr<OptionTable>> subcommands_;
};

}  // namespace minisgl::load
