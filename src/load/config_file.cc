#include "load/config_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "minisgl/base/environment.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"

namespace minisgl::load {
namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{1} << 20;
constexpr std::string_view kBlanks = " \t\r";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// The character that a backslash and `letter` stand for; 0 if none.
char Unescaped(char letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case '"':
    case '\\':
      return letter;
    default:
      return 0;
  }
}

// Returns the text in quotation marks, which `text` begins with.
Result<std::string> Unquoted(std::string_view text) {
  std::string value;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (i + 1 == text.size()) return value;
      return BadInput("text follows the quotation mark at the end of the value (found {})",
                      Visible(text.substr(i + 1), 60));
    }
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    const char escaped = ++i < text.size() ? Unescaped(text[i]) : '\0';
    if (escaped == 0) {
      return BadInput(
          "a backslash stands for \\n, \\t, \\\" and \\\\ in quotation marks (found {})",
          Visible(text.substr(i - 1, 2), 60));
    }
    value += escaped;
  }
  return BadInput("the quotation mark of the value is not closed");
}

// Takes one line: a section's name into *section, or an entry.
Status TakeLine(std::string_view line, int64_t number, std::string* section,
                std::vector<ConfigEntry>* entries) {
  line = Trimmed(line);
  if (line.empty() || line.front() == '#' || line.front() == ';') return Status();
  if (line.front() == '[') {
    if (line.back() != ']') return BadInput("a section is [NAME] (found {})", Visible(line, 60));
    *section = Trimmed(line.substr(1, line.size() - 2));
    return section->empty() ? BadInput("a section needs a name") : Status();
  }
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    return BadInput("a line is NAME = VALUE; an option without a value is NAME = true (found {})",
                    Visible(line, 60));
  }
  ConfigEntry entry;
  entry.section = *section;
  entry.name = Trimmed(line.substr(0, equals));
  entry.line = number;
  const std::string_view value = Trimmed(line.substr(equals + 1));
  if (value.starts_with('"')) {
    MINISGL_ASSIGN_OR_RETURN(entry.value, Unquoted(value));
  } else {
    entry.value = value;
  }
  if (entry.name.empty()) return BadInput("no name stands before =");
  entries->push_back(std::move(entry));
  return Status();
}

}  // namespace

Status ConfigFile::Error(const ConfigEntry& entry, std::string_view what) const {
  return BadInput("{}:{}: {}", Visible(path, 400), entry.line, what);
}

std::string ConfigPath() {
  const std::string folder = UserFolder("XDG_CONFIG_HOME", ".config");
  return folder.empty() ? "" : folder + "/minisgl/config.ini";
}

Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text, const std::string& path) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<ConfigEntry> entries;
  std::string section;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const Status status = TakeLine(text.substr(0, end), number, &section, &entries);
    if (!status.ok()) return status.WithPrefix(fmt::format("{}:{}", Visible(path, 400), number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return entries;
}

ConfigFile ReadConfigFile(const std::string& path) {
  ConfigFile file;
  file.path = path;
  std::error_code error;
  file.exists = !path.empty() && std::filesystem::exists(path, error);
  if (!file.exists) return file;
  const Result<std::string> text = ReadFile(path, kConfigBytesMax);
  if (!text.ok()) {
    file.status = text.status();
    return file;
  }
  Result<std::vector<ConfigEntry>> entries = ParseConfig(*text, path);
  file.status = entries.status();
  if (entries.ok()) file.entries = std::move(entries).value();
  return file;
}

}  // namespace minisgl::load
