// Parses input at the chat prompt into messages and commands.
//
// /name arguments    a command                      //text    a message that begins with "/"
// """ ... """        a message of several lines     text\     continues on the next line
//
// A pasted block with line breaks is a message as it stands. Input from a pipe may be text of
// unknown origin: there every line is a message, whatever it holds, unless commands are enabled.
#pragma once

#include <string>

#include "chat/line_editor.h"

namespace minisgl::chat {

struct ChatInputLine {
  enum class Kind { kMessage, kCommand, kInterrupted, kEnd, kTerminated };
  Kind kind = Kind::kEnd;
  std::string text;       // for kCommand: without its "/"
  bool was_empty = true;  // for kInterrupted: nothing had been typed
};

// Reads one message or command; skips blank lines. Unfinished input at the end is a message.
ChatInputLine ReadChatInput(PromptReader* reader);

// Reads one line as a message, byte for byte; skips blank lines.
ChatInputLine ReadChatMessage(PromptReader* reader);

}  // namespace minisgl::chat
