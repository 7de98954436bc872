// The rules that every plan must keep, checked before each step in debug builds, and of a device's
// plan the sizes in every build. A plan that breaks one would read or write memory of another
// request, or outside the tables.
//
// Each function returns the first fault as a sentence, or "" if there is none. Neither assumes
// anything about the contents of the plan's arrays, except as REQUIRES says.
#pragma once

#include <cstdint>
#include <string>

#include "engine/step_tables.h"
#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

// Checks the number of rows and tokens and the length of each row against `limits`: what the
// workspace of a device is reserved for. O(rows).
std::string FindPlanSizeFault(const BatchPlan& plan, const EngineLimits& limits);

// Checks that sizes agree with each other and with `limits`, and that every index is in range.
std::string FindPlanShapeFault(const BatchPlan& plan, const EngineLimits& limits);

// Checks `plan` against the engine's tables after the plan's writes are applied. REQUIRES no shape
// fault, and tables on the host. Positions end at kv_len, slots are those of the page table, no
// slot is written twice (except by the padding row), and token ids are in the vocabulary.
std::string FindPlanStateFault(const BatchPlan& plan, const EngineLimits& limits,
                               const StepTables& tables);

}  // namespace minisgl::engine
