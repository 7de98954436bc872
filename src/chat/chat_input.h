// What a person says at the chat prompt: a message, or a command.
//
//   /name arguments    a command                      //text    a message that begins with "/"
//   """ ... """        a message of several lines     text\     goes on with the next line
// A pasted block that holds line breaks is a message as it stands. What comes through a pipe may be
// text of unknown origin: there a line is a message, whatever it holds, unless commands are asked
// for.
#pragma once

#include <string>

#include "chat/line_editor.h"

namespace minisgl::chat {

struct ChatInputLine {
  enum class Kind { kMessage, kCommand, kInterrupted, kEnd, kTerminated };
  Kind kind = Kind::kEnd;
  std::string text;       // kCommand: without its "/"
  bool was_empty = true;  // kInterrupted: nothing had been typed
};

// Reads one message or command; blank lines are passed over. What stands unfinished at the end of
// input is a message.
ChatInputLine ReadChatInput(PromptReader* reader);

// Reads one line as a message, byte for byte; blank lines are passed over.
ChatInputLine ReadChatMessage(PromptReader* reader);

}  // namespace minisgl::chat
