// Unicode's general categories, by the names that \p{...} takes.
#pragma once

#include <optional>
#include <string_view>

#include "minisgl/grammar/code_point_set.h"

namespace minisgl::grammar {

// Returns the category with a short or long name ("Lu", "Uppercase_Letter", "L", "Letter"), or the
// set "Any" or "ASCII"; nullopt if none has that name.
std::optional<CodePointSet> UnicodeCategory(std::string_view name);

}  // namespace minisgl::grammar
