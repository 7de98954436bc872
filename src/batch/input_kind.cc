#include "batch/input_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "batch/row.h"
#include "batch/row_text.h"
#include "minisgl/base/file_kind.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

// Number of first lines to look at: so many in a row that are not rows are no accident.
constexpr size_t kLinesMax = 10;
// Bound on the bytes (white space) between the start of an array and its first element.
constexpr size_t kLookAhead = 100;
constexpr std::string_view kSpace = " \t\r\n";

constexpr const char* kText = "text";
constexpr const char* kObjects = "give one JSON object a line";
constexpr const char* kTemplate =
    "give one JSON object a line, or name the file .csv or .tsv: minisgl run --template 'TEXT "
    "{{ column }}' asks of each of its rows";

std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// Returns the first lines that are complete and not blank, without surrounding white space.
std::vector<std::string_view> FirstLines(std::string_view text, bool is_all) {
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() < kLinesMax) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos && !is_all) break;
    const std::string_view line = Trimmed(text.substr(0, end));
    if (!line.empty()) lines.push_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

bool IsJson(std::string_view line) { return ParseJson(line).ok(); }

// True for an object, which may have errors, or a string, which is a prompt.
bool MayBeRow(std::string_view line) {
  if (line.front() == '"') return IsJson(line);
  if (line.front() != '{') return false;
  const std::string_view rest = Trimmed(line.substr(1));
  return rest.starts_with('"') || rest.starts_with('}');
}

// True for an array on one line, which may extend past `text`, or on several lines.
bool IsArray(std::string_view text, const std::vector<std::string_view>& lines, bool is_all) {
  if (!text.starts_with('[')) return false;
  const std::string_view first = Trimmed(text.substr(1, kLookAhead));
  if (!first.starts_with('{') && !first.starts_with('"')) return false;
  if (lines.size() > 1 && IsJson(lines.front())) return false;  // each line is an array of its own
  return (is_all && text.ends_with(']')) ||
         std::none_of(lines.begin(), lines.end(),
                      [](std::string_view line) { return MayBeRow(line) && IsJson(line); });
}

bool IsObjectOverLines(const std::vector<std::string_view>& lines) {
  return lines.size() > 1 && lines[0] == "{" && lines[1].front() == '"' && !IsJson(lines[1]);
}

// Counts the occurrences of `separator` between fields.
size_t CountSeparators(std::string_view line, char separator) {
  size_t count = 0;
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == separator && !quoted) ++count;
  }
  return count;
}

// True if all lines have the same number of fields, at least two. (A separator always followed by a
// space is a sentence.)
bool IsTable(const std::vector<std::string_view>& lines, char separator) {
  const size_t count = CountSeparators(lines.front(), separator);
  if (lines.size() < 2 || count == 0) return false;
  if (lines.front().find(std::string{separator, ' '}) != std::string_view::npos) return false;
  return std::all_of(lines.begin(), lines.end(), [&](std::string_view line) {
    return CountSeparators(line, separator) == count;
  });
}

std::optional<FileKind> KindOfInput(std::string_view text, bool is_all) {
  const std::vector<std::string_view> lines = FirstLines(text, is_all);
  if (!lines.empty() && MayBeRow(lines.front())) return std::nullopt;
  if (const std::optional<FileKind> kind = KindOfFile(text)) return kind;
  text = Trimmed(text);
  if (IsArray(text, lines, is_all)) {
    return FileKind{"a JSON array", "give one JSON object a line, as jq -c '.[]' makes them"};
  }
  if (IsObjectOverLines(lines)) {
    return FileKind{"JSON over several lines",
                    "give one JSON object a line, as jq -c . makes them"};
  }
  if (std::any_of(lines.begin(), lines.end(), MayBeRow)) return std::nullopt;
  if (lines.empty() || (lines.size() < kLinesMax && !is_all)) return std::nullopt;
  if (lines.front().starts_with("{'")) {
    return FileKind{"Python dictionaries", "give JSON, as json.dumps makes it"};
  }
  if (IsTable(lines, ',')) return FileKind{"CSV", kTemplate};
  if (IsTable(lines, ';')) return FileKind{"CSV", kObjects};
  if (IsTable(lines, '\t')) return FileKind{"a table separated by tabs", kTemplate};
  if (lines.size() < kLinesMax) return std::nullopt;
  return FileKind{kText, kObjects};
}

bool IsRow(std::string_view line) {
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  if (!line.starts_with('{')) return false;
  JsonLimits limits;
  limits.memory_max = kRowJsonMemoryMax;
  const Result<Json> json = ParseJson(line, limits);
  if (!json.ok() || !json->is_object()) return false;
  for (const char* name : {"messages", "prompt", "prompt_token_ids", "body"}) {
    if (json->Find(name) != nullptr) return true;
  }
  return !ParseRow(line, /*index=*/0, /*line=*/1).error;
}

}  // namespace

std::string TextAdvice(const std::string& name) {
  return fmt::format("-p @{} asks its text as one prompt", name);
}

Status CheckIsJsonLines(std::string_view begin, bool is_all, const std::string& name) {
  if (begin.starts_with(kByteOrderMark)) begin.remove_prefix(kByteOrderMark.size());
  const std::optional<FileKind> kind = KindOfInput(begin, is_all);
  if (!kind) return Status();
  const bool is_text = std::string_view(kind->name) == kText;
  return BadInput("{}: is not a JSON Lines file (it looks like {}); {}{}", name, kind->name,
                  kind->advice, is_text ? "; " + TextAdvice(name) : "");
}

Status CheckIsNoRow(std::string_view line) {
  if (!IsRow(line)) return Status();
  return UsageError(
      "standard input has rows of JSON Lines: minisgl run --file - answers them (-p TEXT asks "
      "about them as one text)");
}

}  // namespace minisgl::batch
