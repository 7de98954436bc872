// The calls of tools in messages of a chat.
#pragma once

#include <vector>

#include "minisgl/runtime/session.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl::chat {

// The calls of an answer of this chat, or of a conversation in a file; none for other messages.
std::vector<ToolCall> CallsIn(const SessionMessage& message);

}  // namespace minisgl::chat
