// Unicode's general categories, by the names that \p{...} takes.
#pragma once

#include <optional>
#include <string_view>

#include "minisgl/grammar/code_point_set.h"

namespace minisgl::grammar {

// Of a short or long name ("Lu", "Uppercase_Letter", "L", "Letter"), of "Any" or "ASCII"; nullopt
// if there is none of that name.
std::optional<CodePointSet> UnicodeCategory(std::string_view name);

}  // namespace minisgl::grammar
