// Detects inputs that are not JSON Lines at all (a table, an archive, a JSON array), so that the
// user gets one message instead of an error row for each line. Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::batch {

// Returns kBadInput, saying what the input `name` looks like, if none of its first lines can be a
// row. `begin` is the beginning of the input, or all of it if `is_all`. Returns OK if any line can
// be a row, or if there are too few lines to tell: those lines become error rows.
Status CheckIsJsonLines(std::string_view begin, bool is_all, const std::string& name);

// Returns kUsage if standard input, which is to be a prompt, begins with `line` and that is a row:
// an object with the fields of one.
Status CheckIsNoRow(std::string_view line);

// What to do with the file `name` if it is a text and no rows.
std::string TextAdvice(const std::string& name);

}  // namespace minisgl::batch
