// Conversations in files: JSON Lines, one {"role", "content"} for each message. Reasoning between
// control tokens is stored separately, as "reasoning".
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/runtime/session.h"

namespace minisgl::chat {

// Reads `path`: a message on each line, or one value {"messages": [...]} (other fields are ignored)
// or [...], on one or several lines. A content may be an array of text parts, and reasoning may
// have any of the names that templates and services use. kBadInput with the line of the error, if
// there is one.
Result<std::vector<SessionMessage>> LoadConversation(const std::string& path);

// The lines of a file with these messages.
std::string ConversationText(const std::vector<SessionMessage>& messages);

// Writes `messages` to `path`: to a new file, which replaces the old one after it is complete and
// synced. A file that is not empty is replaced only if `overwrite`; otherwise kCannotCreate.
Status SaveConversation(const std::string& path, const std::vector<SessionMessage>& messages,
                        bool overwrite);

}  // namespace minisgl::chat
