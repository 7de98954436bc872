// Can an expression match at all? Needed where intersections and complements hide that it cannot.
#pragma once

#include <cstddef>

#include "grammar/expression_table.h"

namespace minisgl::grammar {

// kUndecided: not within the limit. kStopped: set->work_stop is reached; asked again for the same
// expression, the search goes on where it was.
enum class Liveness { kLive, kDead, kUndecided, kStopped };

// Explores at most `work_max` derivatives. The answers are kept in set->liveness.
Liveness FindLiveness(ExpressionTable* set, Id expression, size_t work_max);

}  // namespace minisgl::grammar
