// Reads calls that are written as JSON objects: {"name": NAME, "arguments": {...}}.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "minisgl/text/tool_calls.h"

namespace minisgl::text {

// Reads the object `json`. Its name may stand in "name", its arguments in "arguments" or
// "parameters", as an object or as text of one; null, missing and empty ones are an empty object.
// Both may stand in an object "function". Nothing if it is no call, or if `needs_arguments` and
// they are missing. REQUIRES valid JSON.
std::optional<ToolCall> ReadCallObject(std::string_view json, bool needs_arguments = false);
// Reads such an object, or an array of them. Nothing if one is no call, or there is none.
std::optional<std::vector<ToolCall>> ReadCallObjects(std::string_view json,
                                                     bool needs_arguments = false);

}  // namespace minisgl::text
