#include "chat/kept_conversations.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "chat/chat_file.h"
#include "minisgl/base/environment.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/character_columns.h"

namespace minisgl::chat {
namespace {

constexpr mode_t kFolderMode = 0700, kFileMode = 0600;
constexpr const char* kSuffix = ".jsonl";

std::string LocalTime(int64_t time_ns, const char* format) {
  const auto seconds = static_cast<std::time_t>(time_ns / 1'000'000'000);
  std::tm parts{};
  std::array<char, 32> text{};
  localtime_r(&seconds, &parts);
  std::strftime(text.data(), text.size(), format, &parts);
  return text.data();
}

// "2026-11-26T08-01-33-PID": the beginning of a conversation, and who had it.
std::string NewName() {
  const auto now_ns = int64_t{std::time(nullptr)} * 1'000'000'000;
  return fmt::format("{}-{}", LocalTime(now_ns, "%Y-%m-%dT%H-%M-%S"), getpid());
}

// Columns for the questions in a list, whatever the width.
constexpr size_t kQuestionColumnsMin = 20;

size_t TextColumns(std::string_view text) {
  size_t columns = 0;
  for (size_t length = 0; !text.empty(); text.remove_prefix(length)) {
    length = std::max<size_t>(Utf8CharLength(text), 1);
    columns += static_cast<size_t>(CharacterColumns(text.substr(0, length)));
  }
  return columns;
}

// Returns `text`, valid UTF-8, cut to `columns` of a terminal, with "..." at its end then.
std::string CutToColumns(std::string_view text, size_t columns) {
  constexpr std::string_view kCut = "...";
  if (TextColumns(text) <= columns) return std::string(text);
  std::string cut;
  size_t used = kCut.size();
  while (!text.empty()) {
    const std::string_view character = text.substr(0, std::max<size_t>(Utf8CharLength(text), 1));
    used += static_cast<size_t>(CharacterColumns(character));
    if (used > columns) break;
    cut += character;
    text.remove_prefix(character.size());
  }
  return cut + std::string(kCut);
}

bool HasQuestion(const std::vector<SessionMessage>& messages) {
  return std::any_of(messages.begin(), messages.end(),
                     [](const SessionMessage& message) { return message.role == "user"; });
}

}  // namespace

std::string DescribeKept(const KeptConversation& conversation, size_t columns) {
  const std::string time = LocalTime(conversation.changed_ns, "%Y-%m-%d %H:%M");
  const auto messages = LoadConversation(conversation.path);
  if (!messages.ok()) return fmt::format("{}  cannot be read", time);
  const SessionMessage* first = nullptr;
  const SessionMessage* last = nullptr;
  int64_t turns = 0;
  for (const SessionMessage& message : *messages) {
    if (message.role != "user") continue;
    if (++turns == 1) first = &message;
    last = &message;
  }
  std::string text = fmt::format("{}  {:>3} turn{}  ", time, turns, turns == 1 ? " " : "s");
  if (turns == 0) return text;
  const size_t room = std::max(columns, text.size() + kQuestionColumnsMin) - text.size();
  if (turns == 1) return text + CutToColumns(Visible(first->content, room), room);
  const std::string_view between = " ... ";  // branches of one conversation begin alike
  const size_t half = (room - between.size()) / 2;
  const std::string end = CutToColumns(Visible(last->content, half), half);
  const size_t rest = room - between.size() - TextColumns(end);
  return text + CutToColumns(Visible(first->content, rest), rest) + std::string(between) + end;
}

std::string AgeText(int64_t time_ns, int64_t now_ns) {
  constexpr int64_t kMinute_s = 60, kHour_s = 60 * kMinute_s, kDay_s = 24 * kHour_s;
  const auto count = [](int64_t number, std::string_view unit) {
    return fmt::format("{} {}{} ago", number, unit, number == 1 ? "" : "s");
  };
  const int64_t age_s = (now_ns - time_ns) / 1'000'000'000;
  if (age_s < kMinute_s) return "just now";
  if (age_s < kHour_s) return count(age_s / kMinute_s, "minute");
  if (age_s < kDay_s) return count(age_s / kHour_s, "hour");
  return count(age_s / kDay_s, "day");
}

std::string KeptConversations::DefaultFolder() {
  if (!EnvironmentVariable("MINISGL_NO_HISTORY").empty()) return "";
  const std::string state = UserFolder("XDG_STATE_HOME", ".local/state");
  return state.empty() ? "" : state + "/minisgl/sessions";
}

std::vector<KeptConversation> KeptConversations::List() const {
  std::vector<KeptConversation> list;
  if (folder_.empty()) return list;
  for (const std::string& name : NamesIn(folder_)) {
    if (!name.ends_with(kSuffix)) continue;
    const std::string path = folder_ + "/" + name;
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const int64_t changed_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    list.push_back({path, changed_ns});
  }
  std::sort(list.begin(), list.end(), [](const KeptConversation& a, const KeptConversation& b) {
    return std::pair(a.changed_ns, a.path) > std::pair(b.changed_ns, b.path);
  });
  return list;
}

std::string KeptConversations::current_path() const {
  const auto branch = branches_.find(current_);
  return branch == branches_.end() ? "" : branch->second.path;
}

void KeptConversations::GoOnWith(const std::string& path,
                                 const std::vector<SessionMessage>& messages) {
  current() = {path, ConversationText(messages)};
}

void KeptConversations::BeginAnother(const std::vector<SessionMessage>& messages) {
  current() = {"", ConversationText(messages)};
}

void KeptConversations::SwitchTo(const std::string& branch,
                                 const std::vector<SessionMessage>& messages) {
  current_ = branch;
  branches_.try_emplace(branch, Branch{"", ConversationText(messages)});
}

Status KeptConversations::MakeFolder() {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder_).parent_path(), error);
  if (mkdir(folder_.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return MakeStatus(StatusCode::kCannotCreate, "{}: cannot be made ({})", Visible(folder_, 400),
                      std::strerror(errno));
  }
  struct stat info {};
  const bool is_ours = lstat(folder_.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                       info.st_uid == geteuid() && chmod(folder_.c_str(), kFolderMode) == 0;
  if (is_ours) return Status();
  return MakeStatus(StatusCode::kCannotCreate, "{}: is not a folder of this user",
                    Visible(folder_, 400));
}

Status KeptConversations::Keep(const std::vector<SessionMessage>& messages) {
  if (folder_.empty() || !HasQuestion(messages)) return Status();
  std::string text = ConversationText(messages);
  Branch& branch = current();
  if (text == branch.text) return Status();
  const bool is_new = branch.path.empty();
  Status status = is_new ? MakeFolder() : Status();
  if (status.ok() && is_new) {
    std::string path = folder_ + "/" + NewName();
    // Another conversation of this process may have begun in the same second.
    while (IsListed(path + kSuffix)) path += "x";
    branch.path = path + kSuffix;
  }
  if (status.ok()) status = ReplaceFile(branch.path, text, kFileMode);
  if (!status.ok()) {
    folder_.clear();
    return status;
  }
  branch.text = std::move(text);
  if (is_new) DropOldest();
  return status;
}

void KeptConversations::DropOldest() const {
  const std::vector<KeptConversation> list = List();
  for (size_t i = kKeptMax; i < list.size(); ++i) unlink(list[i].path.c_str());
}

}  // namespace minisgl::chat
