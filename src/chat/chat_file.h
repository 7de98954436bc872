// Conversations in files: JSON Lines, one {"role", "content"} for each message. Reasoning between
// control tokens is stored separately, as "reasoning". The content of a message with pictures is a
// list of parts: {"type": "image_url", "image_url": {"url": ...}} for each, with a file: URL, or a
// data: URI if no file is known, and {"type": "text", ...}. Answers with calls of tools and the
// messages behind them are stored as a template takes them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "batch/row_images.h"
#include "minisgl/base/status.h"
#include "minisgl/runtime/session.h"

namespace minisgl::chat {

// Makes the picture of a part, with its bytes.
using PictureTaker = std::function<Result<ConversationImage>(const batch::RowImage& image)>;

// Reads `path`: a message on each line, or one value {"messages": [...]} (other fields are ignored)
// or [...], on one or several lines. A content may be an array of parts that are texts or
// pictures, and reasoning may have any of the names that templates and services use. Without `take`
// pictures are left out. kBadInput with the line of the error, if there is one.
Result<std::vector<SessionMessage>> LoadConversation(const std::string& path,
                                                     const PictureTaker& take = {});

// The lines of a file with these messages.
std::string ConversationText(const std::vector<SessionMessage>& messages);

// Writes `messages` to `path`: to a new file, which replaces the old one after it is complete and
// synced. A file that is not empty is replaced only if `overwrite`; otherwise kCannotCreate.
Status SaveConversation(const std::string& path, const std::vector<SessionMessage>& messages,
                        bool overwrite);

}  // namespace minisgl::chat
