// Fields of a row about the model's reasoning: how much of it there may be, whether it is shown.
// They are `take` functions of the table of fields (row_fields.h).
#pragma once

#include "batch/row_fields.h"

namespace minisgl::batch {

inline constexpr const char* kExpectsEffort = "none, minimal, low, medium, high, xhigh or max";

bool TakeReasoningEffort(Json& value, RowDraft* draft);
bool TakeThoughtBudget(Json& value, RowDraft* draft);
bool TakeThoughtMessage(Json& value, RowDraft* draft);
// An object with max_tokens, effort, enabled and exclude.
bool TakeReasoning(Json& value, RowDraft* draft);

}  // namespace minisgl::batch
