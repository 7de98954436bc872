// Whether an input is JSON Lines at all: who gives a table, an archive or an array is told so once,
// and not in an error row for each of its lines. Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::batch {

// kBadInput naming what the input `name` looks like, where it begins with `begin` (with nothing
// after it where `is_all`) and none of its first lines can be a row. OK where one can, or where
// there are too few of them to tell: such lines are error rows.
Status CheckIsJsonLines(std::string_view begin, bool is_all, const std::string& name);

}  // namespace minisgl::batch
