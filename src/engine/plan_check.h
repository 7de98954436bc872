// What every plan must hold, checked before a step runs in debug builds: a plan that breaks one of
// these would read or write memory of another request, or of nobody.
//
// Each function gives the first fault as a sentence, or "" for none; neither assumes anything of
// the plan but that its arrays are arrays.
#pragma once

#include <cstdint>
#include <string>

#include "engine/step_tables.h"
#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

// Sizes agree with each other and with `limits`; every index that the plan writes to is in range.
std::string FindPlanShapeFault(const BatchPlan& plan, const EngineLimits& limits);

// Checks `plan` against the engine's tables after the plan's writes are applied. REQUIRES no shape
// fault, and tables on the host. Positions end at kv_len, slots are those of the page table, no
// slot is written twice (except by the padding row), and token ids are in the vocabulary.
std::string FindPlanStateFault(const BatchPlan& plan, const EngineLimits& limits,
                               const StepTables& tables);

}  // namespace minisgl::engine
