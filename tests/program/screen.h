// What a terminal would show of the bytes that a program sends it: enough of one to check an edited
// line with. It has no height, and lines that are too long go on in the next.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

class Screen {
 public:
  explicit Screen(size_t columns) : columns_(columns) {}

  // Well-formed UTF-8; sequences may not be cut.
  void Feed(std::string_view bytes);

  // Another width: rows that run into each other are one text, which is wrapped anew, and the
  // cursor stays where it stands in it. For texts without wide characters.
  void Resize(size_t columns);

  // The lines that are not blank from the top, whole, however many rows they take.
  std::vector<std::string> Lines() const;
  // The line that the cursor stands in and the column it stands in; wide characters count once in
  // the text and twice in the column.
  std::string Line() const { return Text(row_); }
  // That line and those before it which run into it.
  std::string WholeLine() const;
  size_t column() const { return column_; }

 private:
  void Control(char final, const std::string& parameters);
  void Put(std::string_view character);
  std::string Text(size_t row) const;
  std::vector<std::string>& Row(size_t row);

  size_t columns_;
  // Of each row a text for each column: "" for the second column of a wide character.
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> wrapped_;  // whether the row goes on in the next
  size_t row_ = 0, column_ = 0;
};

}  // namespace minisgl
