// Finds calls that no mark begins: they begin a line.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace minisgl::text {

// The first place where one of `marks` begins, or may begin at the text's end, or where `byte`
// begins a line, with nothing but blanks before it. `line_begins`: a line begins at 0.
size_t FindMarkOrLine(std::string_view text, size_t from, std::span<const std::string_view> marks,
                      char byte, bool line_begins);

}  // namespace minisgl::text
