// See chat_help.h.
#include "chat/chat_help.h"

#include "chat/chat_settings.h"

namespace minisgl::chat {
namespace {

struct CommandHelp {
  std::string_view command, text;
};

constexpr CommandHelp kHelp[] = {
    {"regen",
     "  /regen     one other answer, which takes the place of the last one\n"
     "  /regen 3   three answers at once; the first is kept until /pick chooses another"},
    {"pick",
     "  /pick      lists the answers of the last /regen N\n"
     "  /pick 2    puts the second one into the conversation"},
    {"edit",
     "  /edit      the last message, which is then answered again\n"
     "  /edit new  a new message\n"
     "The editor is $VISUAL, $EDITOR or vi. A text that is empty or unchanged is not sent."},
    {"read",
     "The text is sent with the next message, and stands before it. @FILE in a message does the "
     "same."},
    {"image",
     "The picture stands before the text of the next message; with several, in their order. @FILE "
     "in "
     "a message, or a line that is only the path of a picture, does the same. PNG, JPEG, WebP and "
     "the first frame of a GIF are read, if the model reads pictures."},
    {"show",
     "  /show      the whole conversation\n"
     "  /show 2    its last two turns"},
    {"sessions",
     "  /sessions          lists the kept conversations, the last one first; * is this one\n"
     "  /sessions 2        continues the second one of the list\n"
     "  /sessions -d 2     deletes it\n"
     "  /sessions -d all   deletes all, after it was typed twice"},
    {"branch",
     "  /branch            forks here, with a name that is made\n"
     "  /branch other      forks here and calls the new branch so\n"
     "  /branch other 2    forks after the second turn (0: before the first)\n"
     "  /branch -d other   deletes a branch"},
    {"batch",
     "  /batch FILE OUT      answers the rows of FILE into OUT\n"
     "  /batch -f FILE OUT   replaces OUT if it exists; -r resumes it\n"
     "  /batch               shows the progress\n"
     "  /batch wait          waits for its end; /batch stop ends it"},
    {"cache",
     "  /cache         what the prefix cache holds\n"
     "  /cache reset   empties it in memory"},
    {"model",
     "The conversation and its branches go on; what /set changed stays. The old model is freed "
     "first, and loaded again if the new one cannot be."},
};

}  // namespace

std::string MoreHelp(std::string_view command) {
  if (command == "set") {
    return ParameterRanges() +
           "\n/params shows the values. /set temperature 0.7 changes one for the answers to come.";
  }
  for (const CommandHelp& help : kHelp) {
    if (help.command == command) return std::string(help.text);
  }
  return "";
}

std::string_view HelpOnInput() {
  return "A message of several lines is put between \"\"\" and \"\"\"; \\ at the end of a line "
         "continues it.\n"
         "A word @FILE puts the text of FILE before the message, or shows the picture in it; @@ "
         "begins "
         "a word with @.\n"
         "// begins a message with /. Tab completes commands, their arguments and files; Ctrl-R "
         "searches earlier input.\n"
         "Ctrl-C stops an answer, Ctrl-D leaves. /help COMMAND says more of a command.";
}

}  // namespace minisgl::chat
