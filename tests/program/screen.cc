#include "screen.h"

#include <wchar.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

size_t WidthOf(std::string_view character) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  wchar_t code = 0;
  mbstate_t state{};
  mbrtowc(&code, character.data(), character.size(), &state);
  return static_cast<size_t>(std::max(wcwidth(code), 0));
}

}  // namespace

void Screen::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    size_t length = std::max<size_t>(Utf8CharLength(bytes), 1);
    const std::string_view character = bytes.substr(0, length);
    if (bytes.starts_with("\x1b[")) {
      length = std::min(bytes.find_first_not_of("0123456789;?", 2), bytes.size() - 1) + 1;
      Control(bytes[length - 1], std::string(bytes.substr(2, length - 3)));
    } else if (character == "\x1b") {
      length = 2;
    } else if (character == "\r") {
      column_ = 0;
    } else if (character == "\n") {
      ++row_;
    } else if (character == "\b") {
      column_ -= column_ > 0 ? 1 : 0;
    } else if (static_cast<unsigned char>(character[0]) >= 0x20) {
      Put(character);
    }
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
}

void Screen::Control(char final, const std::string& parameters) {
  const size_t count = std::max<size_t>(std::strtoul(parameters.c_str(), nullptr, 10), 1);
  std::vector<std::string>& row = Row(row_);
  switch (final) {
    case 'A':
      row_ -= std::min(count, row_);
      break;
    case 'B':
      row_ += count;  // the screen has no height
      break;
    case 'C':
      column_ = std::min(column_ + count, columns_ - 1);
      break;
    case 'D':
      column_ -= std::min(count, column_);
      break;
    case 'G':
      column_ = count - 1;
      break;
    case 'K':
      row.resize(std::min(row.size(), column_));
      wrapped_[row_] = false;
      break;
    case 'J':
      row.resize(std::min(row.size(), column_));
      wrapped_[row_] = false;
      rows_.resize(row_ + 1);
      wrapped_.resize(row_ + 1);
      break;
    default:  // colours and modes
      break;
  }
}

void Screen::Put(std::string_view character) {
  const size_t width = WidthOf(character);
  if (width > 0 && column_ + width > columns_) {
    Row(row_);
    wrapped_[row_] = true;
    ++row_;
    column_ = 0;
  }
  std::vector<std::string>& row = Row(row_);
  if (width == 0) {  // combines with the previous character
    if (column_ > 0 && column_ <= row.size()) row[column_ - 1] += character;
    return;
  }
  if (row.size() < column_ + width) row.resize(column_ + width, " ");
  row[column_] = character;
  if (width == 2) row[column_ + 1] = "";
  column_ += width;
}

std::vector<std::string>& Screen::Row(size_t row) {
  if (rows_.size() <= row) {
    rows_.resize(row + 1);
    wrapped_.resize(row + 1);
  }
  return rows_[row];
}

void Screen::Resize(size_t columns) {
  Screen resized(columns);
  size_t row = 0, column = 0;
  Row(row_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (i == row_) {
      // Before its cell, or after the last one.
      const size_t at = resized.column_ + column_;
      row = resized.row_ + at / columns;
      column = at % columns;
    }
    for (const std::string& cell : rows_[i]) resized.Put(cell);
    if (wrapped_[i]) continue;
    ++resized.row_;
    resized.column_ = 0;
  }
  resized.row_ = row;
  resized.column_ = column;
  *this = resized;
}

std::vector<std::string> Screen::Lines() const {
  std::vector<std::string> lines;
  std::string line;
  for (size_t row = 0; row < rows_.size(); ++row) {
    line += Text(row);
    if (wrapped_[row] && row + 1 < rows_.size()) continue;
    if (line.find_first_not_of(' ') != std::string::npos) lines.push_back(line);
    line.clear();
  }
  return lines;
}

std::string Screen::Text(size_t row) const {
  std::string text;
  if (row < rows_.size()) {
    for (const std::string& cell : rows_[row]) text += cell;
  }
  return text;
}

std::string Screen::WholeLine() const {
  size_t first = row_;
  while (first > 0 && first - 1 < wrapped_.size() && wrapped_[first - 1]) --first;
  std::string text;
  for (size_t row = first; row <= row_; ++row) text += Text(row);
  return text;
}

}  // namespace minisgl
