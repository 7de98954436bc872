// Calls of tools as messages have them.
#pragma once

#include <span>

#include "minisgl/base/json.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl {

// Returns the member `tool_calls` of an assistant's message: an array of {"id", "type", "function":
// {"name", "arguments"}}, with the arguments as text. RenderMessages (chat_messages.h) brings them
// into the form that a template takes.
Json CallsJson(std::span<const ToolCall> calls);

}  // namespace minisgl
