// The commands that save, load and list conversations.
#include <unistd.h>

#include <algorithm>

#include "chat/chat.h"
#include "chat/chat_attachments.h"
#include "chat/chat_file.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {

void Chat::Save(const std::string& arguments) {
  const bool force = arguments == "-f" || arguments.starts_with("-f ");
  const std::string path =
      ExpandHome(force ? arguments.substr(std::min<size_t>(3, arguments.size())) : arguments);
  const std::vector<SessionMessage> all = AllMessages();
  if (path.empty() || all.empty()) {
    Say(path.empty() ? "/save needs the name of a file" : "There is nothing to save.");
    return;
  }
  const Status status = SaveConversation(path, all, force || path == file_);
  if (!status.ok()) {
    SayFailure(status);
    failed_ = true;
    return;
  }
  file_ = path;
  Note(fmt::format("Saved {} messages to {}{}", all.size(), Visible(path, 400),
                   branches_.size() == 1 ? ""
                                         : fmt::format(" (branch {}; other branches are not in it)",
                                                       branches_.current().name)));
}

Status Chat::LoadFrom(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(session_->messages(), LoadConversation(path));
  dropped_.clear();
  TurnsChanged();
  kept_.BeginAnother(AllMessages());
  file_ = path;
  return Status();
}

Status Chat::GoOnWith(const KeptConversation& conversation) {
  const std::string file = file_;
  MINISGL_RETURN_IF_ERROR(LoadFrom(conversation.path));
  file_ = file;  // /save asks before it replaces another
  kept_.GoOnWith(conversation.path, session_->messages());
  return Status();
}

void Chat::DeleteKept(const std::string& which, const std::vector<KeptConversation>& list) {
  const int64_t number = which == "all" ? 1 : ParseNumber<int64_t>(which).value_or(0);
  if (number < 1 || number > std::ssize(list)) {
    return Say(fmt::format("/sessions -d takes a number from 1 to {}, or all", list.size()));
  }
  const auto first = list.begin() + (number - 1);
  const auto end = which == "all" ? list.end() : first + 1;
  size_t num_deleted = 0;
  for (auto kept = first; kept != end; ++kept) {
    num_deleted += unlink(kept->path.c_str()) == 0 ? 1 : 0;
  }
  // The one that goes on here is kept again, when it changes.
  Note(fmt::format("Deleted {} conversation{}.", num_deleted, num_deleted == 1 ? "" : "s"));
}

void Chat::Sessions(const std::string& given) {
  const std::string arguments = Trimmed(given);
  const auto list = KeptConversations(KeptConversations::DefaultFolder()).List();
  if (list.empty()) return Say("No conversation is kept.");
  if (arguments.starts_with("-d")) return DeleteKept(Trimmed(arguments.substr(2)), list);
  if (!arguments.empty()) {
    const int64_t number = ParseNumber<int64_t>(arguments).value_or(0);
    if (number < 1 || number > std::ssize(list)) {
      return Say(fmt::format("/sessions takes a number from 1 to {}", list.size()));
    }
    Keep();
    const Status status = GoOnWith(list[static_cast<size_t>(number - 1)]);
    if (!status.ok()) return SayFailure(status);
    return Note(
        fmt::format("Loaded {} messages; the conversation goes on.", session_->messages().size()));
  }
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(list.size(), kShown); ++i) {
    Say(fmt::format("  {:>3}  {}", i + 1, DescribeKept(list[i])));
  }
  if (list.size() > kShown) Say(fmt::format("  and {} older ones", list.size() - kShown));
}

void Chat::Load(const std::string& arguments) {
  if (arguments.empty()) {
    Say("/load needs the name of a file");
    return;
  }
  if (const Status status = LoadFrom(ExpandHome(arguments)); !status.ok()) {
    SayFailure(status);
    failed_ = true;
    return;
  }
  const auto& messages = session_->messages();
  Note(fmt::format(
      "Loaded {} messages.{}", messages.size(),
      messages.back().role == "user" ? " The last has no answer; /regen gives it one." : ""));
}

}  // namespace minisgl::chat
