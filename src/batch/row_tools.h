// The fields of a row that concern calls of tools: `tools`, `tool_choice`, `parallel_tool_calls`
// and `parse_tool_calls`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "batch/row.h"
#include "batch/row_fields.h"
#include "minisgl/base/json.h"

namespace minisgl::batch {

inline constexpr const char* kExpectsToolChoice =
    "auto, none, required, or a function as {\"type\": \"function\", \"function\": {\"name\": "
    "\"...\"}}";

bool TakeToolChoice(Json& value, RowDraft* draft);
bool TakeParallelCalls(Json& value, RowDraft* draft);
bool TakeParseCalls(Json& value, RowDraft* draft);

// Checks tool_choice against the tools of the row, whichever came first, and drops the tools of a
// row that chooses none.
std::optional<RowError> CheckTools(Row* row);

// Returns the object with the name and the parameters of a tool, which stands in its member
// `function` or is the tool itself; null if it is no function with a name.
const Json* FunctionOf(const Json& tool);
// True if a row has tools that may be called.
bool HasTools(const Row& row);
// The names of the functions among the tools of a row that may be called, in their order.
std::vector<std::string> ToolNames(const Row& row);

// tool_choice asks for one answer with calls: behind their results the model is free to answer.
// FreeCalls makes it so, and ForceCalls has the next message of the user answered as the first.
void FreeCalls(Row* row);
void ForceCalls(Row* row);

}  // namespace minisgl::batch
