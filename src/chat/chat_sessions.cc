// The commands that save, load and list conversations.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "chat/chat.h"
#include "chat/chat_file.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"
#include "term/terminal.h"
#include "term/wrapped_text.h"

namespace minisgl::chat {
namespace {

// Bounds of what is shown of a message where a conversation stood.
constexpr size_t kStandBytesMax = 600;
constexpr size_t kStandLinesMax = 8;
constexpr std::string_view kLeftOut = "...";

std::string FirstLine(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \n"), text.size());
  const std::string_view rest = text.substr(begin);
  return Visible(rest.substr(0, rest.find('\n')), kStandBytesMax / 4);
}

// Returns the first lines of `text`, with "..." on a line of its own if there is more.
std::string BeginOf(std::string_view text) {
  size_t end = 0;
  for (size_t i = 0; i < kStandLinesMax && end < text.size(); ++i) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  end = std::min(end, kStandBytesMax);
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;
  std::string begin(text.substr(0, end));
  if (end == text.size()) return begin;
  return begin + (begin.ends_with('\n') ? "" : " ") + std::string(kLeftOut);
}

// Returns the last lines of `text`, with "..." before them if there is more.
std::string EndOf(std::string_view text) {
  size_t begin = text.size();
  for (size_t i = 0; i < kStandLinesMax && begin > 0; ++i) {
    const size_t at = begin < 2 ? std::string_view::npos : text.rfind('\n', begin - 2);
    begin = at == std::string_view::npos ? 0 : at + 1;
  }
  if (text.size() > kStandBytesMax) begin = std::max(begin, text.size() - kStandBytesMax);
  while (begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;
  return begin == 0 ? std::string(text) : fmt::format("{} {}", kLeftOut, text.substr(begin));
}

}  // namespace

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
  MINISGL_ASSIGN_OR_RETURN(session_->messages(),
                           LoadConversation(path, TakerOf(batch::FolderOfRows(path))));
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

void Chat::ShowWhereItStands(const std::string& path) const {
  const std::vector<SessionMessage> all = AllMessages();
  const int64_t turns = CountTurns(all);
  if (options_.model.quiet || turns == 0) return;
  const auto is_user = [](const SessionMessage& message) { return message.role == "user"; };
  const auto first = std::find_if(all.begin(), all.end(), is_user);
  const auto last = std::find_if(all.rbegin(), all.rend(), is_user).base() - 1;
  const std::optional<FileStamp> stamp = StampOf(path);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string age =
      stamp ? ", " + AgeText(stamp->changed_ns, std::chrono::nanoseconds(now).count()) : "";
  Say(fmt::format("{} turn{}{}: {}", turns, turns == 1 ? "" : "s", age,
                  FirstLine(ShownContent(*first))));
  for (auto message = last; message != all.end(); ++message) {
    const bool is_answer = message->role == "assistant";
    const std::string text = is_answer ? PartsOf(*message).text : ShownContent(*message);
    SayText(fmt::format("[{}]\n{}", message->role, is_answer ? EndOf(text) : BeginOf(text)),
            is_answer ? term::TextStyle::kMarkdown : term::TextStyle::kWrapped);
  }
}

void Chat::DeleteKept(const std::string& which, const std::vector<KeptConversation>& list) {
  const int64_t number = which == "all" ? 1 : ParseNumber<int64_t>(which).value_or(0);
  if (number < 1 || number > std::ssize(list)) {
    return Say(fmt::format("/sessions -d takes a number from 1 to {}, or all", list.size()));
  }
  if (which == "all" && list.size() > 1 && interactive_ && !offered_to_delete_all_) {
    offered_to_delete_all_ = true;
    return Say(fmt::format("This deletes all {} conversations; /sessions -d all once more does it.",
                           list.size()));
  }
  offered_to_delete_all_ = false;
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
    Note(fmt::format("Loaded {} messages; the conversation goes on.", session_->messages().size()));
    if (interactive_) ShowWhereItStands(kept_.current_path());
    return;
  }
  constexpr size_t kShown = 20;
  constexpr int kColumnsOfPipe = 100;
  const int width =
      term::IsTerminal(STDERR_FILENO) ? term::TerminalColumns(STDERR_FILENO) - 1 : kColumnsOfPipe;
  const auto columns = static_cast<size_t>(std::max(width, term::kWrapColumnsMin));
  for (size_t i = 0; i < std::min(list.size(), kShown); ++i) {
    const bool is_open = list[i].path == kept_.current_path();
    const std::string number = fmt::format("{} {:>3}  ", is_open ? '*' : ' ', i + 1);
    Say(number + DescribeKept(list[i], columns - number.size()));
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
  if (interactive_) ShowWhereItStands(ExpandHome(arguments));
}

}  // namespace minisgl::chat
