// Conversations in files: JSON Lines, one {"role", "content"} a message; an answer whose reasoning
// stands between control tokens has it apart, as "reasoning".
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/runtime/session.h"

namespace minisgl::chat {

// Reads `path`: a message a line, or one value {"messages": [...]} (whose other fields do not
// matter) or [...], on one line or on many. A content may be an array of text parts, and reasoning
// may have any of the names that templates and services give it. kBadInput with the line of what is
// wrong where there is one.
Result<std::vector<SessionMessage>> LoadConversation(const std::string& path);

// Writes `messages` to `path`: into a new file that takes the place of the old one when it is whole
// and on its disk. A file that holds something is replaced only where `overwrite` is set;
// kCannotCreate otherwise.
Status SaveConversation(const std::string& path, const std::vector<SessionMessage>& messages,
                        bool overwrite);

}  // namespace minisgl::chat
