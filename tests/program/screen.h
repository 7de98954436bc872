// Emulates the screen of a terminal, as far as needed to check an edited line. It has no height;
// lines that are too long continue in the next row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

class Screen {
 public:
  explicit Screen(size_t columns) : columns_(columns) {}

  // Processes well-formed UTF-8; sequences must not be split.
  void Feed(std::string_view bytes);

  // Changes the width: wrapped rows are joined and wrapped again, and the cursor keeps its place in
  // the text. For texts without wide characters.
  void Resize(size_t columns);

  // The lines from the top that are not blank, joined if they are wrapped.
  std::vector<std::string> Lines() const;
  // The row of the cursor, and its column; a wide character counts once in the text and twice in
  // the column.
  std::string Line() const { return Text(row_); }
  // That row, joined with the rows before it that continue into it.
  std::string WholeLine() const;
  size_t column() const { return column_; }

 private:
  void Control(char final, const std::string& parameters);
  void Put(std::string_view character);
  std::string Text(size_t row) const;
  std::vector<std::string>& Row(size_t row);

  size_t columns_;
  // For each row, a text for each column: "" for the second column of a wide character.
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> wrapped_;  // true if the row continues in the next
  size_t row_ = 0, column_ = 0;
};

}  // namespace minisgl
