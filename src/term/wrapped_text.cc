// See wrapped_text.h.
#include "term/wrapped_text.h"

#include <unistd.h>

#include <algorithm>

#include "minisgl/base/utf8.h"
#include "minisgl/text/character_columns.h"
#include "term/terminal.h"

namespace minisgl::term {
namespace {

constexpr size_t kEntryIndent = 2;  // of a name
constexpr size_t kBelowName = 6;    // of a text on the row below its name
constexpr size_t kColumnGap = 2;    // blanks between two columns, at least

size_t WidthOf(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const size_t length = Utf8CharLength(text);
    columns += length == 0 ? 1 : static_cast<size_t>(CharacterColumns(text.substr(0, length)));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return columns;
}

size_t BlanksOf(std::string_view text) {
  return std::min(text.find_first_not_of(' '), text.size());
}

// The first byte of the second column of `line`, which begins with blanks unless it is one of a
// table; 0 if it has one column.
size_t SecondColumn(std::string_view line, bool in_table) {
  const size_t indent = BlanksOf(line);
  const size_t gap = indent == 0 && !in_table ? std::string_view::npos : line.find("  ", indent);
  if (gap == std::string_view::npos) return 0;
  const size_t second = gap + BlanksOf(line.substr(gap));
  return second < line.size() ? second : 0;
}

// Appends `text`, whose first word stands in `column`; the further rows begin at `hanging`.
void AppendRows(std::string_view text, size_t column, size_t hanging, size_t columns,
                std::string* rows) {
  bool is_first = true;  // in its row
  while (true) {
    const size_t blanks = BlanksOf(text);
    if (blanks == text.size()) return;
    const std::string_view word = text.substr(blanks, text.find(' ', blanks) - blanks);
    const size_t width = WidthOf(word);
    if (!is_first && column + blanks + width > columns) {
      *rows += '\n' + std::string(hanging, ' ');
      column = hanging;
    } else {
      *rows += std::string(blanks, ' ');
      column += blanks;
    }
    *rows += word;
    column += width;
    is_first = false;
    text.remove_prefix(blanks + word.size());
  }
}

// Appends `text` beside `name`, in column `text_column`, or below it if there is no room.
void AppendEntry(std::string_view name, std::string_view text, size_t text_column, size_t columns,
                 std::string* rows) {
  name = name.substr(0, name.find_last_not_of(' ') + 1);
  *rows += name;
  const size_t end = WidthOf(name);
  if (text_column > columns / 2 || end + kColumnGap > text_column) {
    *rows += '\n' + std::string(kBelowName, ' ');
    AppendRows(text, kBelowName, kBelowName, columns, rows);
  } else {
    *rows += std::string(text_column - end, ' ');
    AppendRows(text, text_column, text_column, columns, rows);
  }
}

std::string Wrap(std::string_view text, int columns, bool in_table) {
  if (columns < kWrapColumnsMin) return std::string(text);
  const auto width = static_cast<size_t>(columns);
  std::string rows;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (WidthOf(line) <= width) {
      rows += line;
    } else if (const size_t second = SecondColumn(line, in_table); second == 0) {
      AppendRows(line, 0, std::min(BlanksOf(line), width / 2), width, &rows);
    } else {
      AppendEntry(line.substr(0, second), line.substr(second), WidthOf(line.substr(0, second)),
                  width, &rows);
    }
    if (end == text.size()) return rows;
    rows += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string WrapLines(std::string_view text, int columns) { return Wrap(text, columns, false); }

std::string WrapTable(std::string_view text, int columns) { return Wrap(text, columns, true); }

std::string TableFor(const Output& output, std::string_view table) {
  if (!output.is_terminal()) return std::string(table);
  return WrapTable(table, TerminalColumns(STDOUT_FILENO));
}

std::string WrapEntry(std::string_view name, std::string_view text, size_t text_column,
                      int columns) {
  std::string rows;
  AppendEntry(std::string(kEntryIndent, ' ').append(name), text, text_column,
              static_cast<size_t>(std::max(columns, kWrapColumnsMin)), &rows);
  return rows;
}

}  // namespace minisgl::term
