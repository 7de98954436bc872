// Breaks the program's own lines into the rows of a terminal, at blanks.
//
// Widths are columns (minisgl/text/character_columns.h). A word that is longer than a row stays
// whole, and below kWrapColumnsMin columns nothing is broken: the terminal then cuts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "term/output.h"

namespace minisgl::term {

inline constexpr int kWrapColumnsMin = 20;

// Returns `text` with each line in rows of at most `columns`. Lines that fit stay as they are. The
// further rows of a line hang below its first word. A line of two columns, which begins with blanks
// and has a gap of two or more ("  name   text"), is broken as WrapEntry does.
std::string WrapLines(std::string_view text, int columns);

// The same for a table: also a line that begins with its first column may have two.
std::string WrapTable(std::string_view text, int columns);

// Returns `table` for `output`: on a terminal in rows of its width.
std::string TableFor(const Output& output, std::string_view table);

// Returns the line "  NAME   text" with the text in column `text_column`, in rows of at most
// `columns`. If that leaves less than half of the row, or NAME is too long, the text begins on the
// next row, below the name. No line break at the end.
std::string WrapEntry(std::string_view name, std::string_view text, size_t text_column,
                      int columns);

}  // namespace minisgl::term
