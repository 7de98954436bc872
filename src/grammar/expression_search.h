// Can an expression match at all? Needed where intersections and complements hide that it cannot.
#pragma once

#include <cstddef>

#include "grammar/expression_table.h"

namespace minisgl::grammar {

enum class Liveness { kLive, kDead, kUndecided };

// Explores at most `work_max` derivatives; kUndecided past that. What is found is remembered in
// set->liveness.
Liveness FindLiveness(ExpressionTable* set, Id expression, size_t work_max);

}  // namespace minisgl::grammar
