#include "chat/chat_history.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "chat/line_editor.h"
#include "minisgl/base/environment.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/json.h"
#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

// Bytes at the end of the file that are read. A file with twice as many is shortened.
constexpr uint64_t kHistoryBytesMax = uint64_t{8} << 20;
// Before an entry that has texts. Typed lines do not begin with it.
constexpr char kRecordMark = '\x1e';
constexpr mode_t kHistoryMode = 0600;

// Opens the history for appending and creates it if necessary; -1 on failure. Removes permissions
// that others have to an old file. O_NONBLOCK, because opening a FIFO would block.
int OpenPrivate(const std::string& path) {
  const Result<OpenedFile> file = OpenToWrite(path, O_APPEND | O_NONBLOCK, kHistoryMode);
  if (!file.ok()) return -1;
  struct stat info {};
  const bool known = fstat(file->fd, &info) == 0 && S_ISREG(info.st_mode);
  const mode_t rights = info.st_mode & 07777;
  if (known && ((rights & ~kHistoryMode) == 0 || fchmod(file->fd, rights & kHistoryMode) == 0)) {
    return file->fd;
  }
  close(file->fd);
  return -1;
}

// Returns the end of the file, beginning with a whole line, of at most kHistoryBytesMax.
std::string ReadEnd(const std::string& path) {
  const Result<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return "";
  const std::span<const std::byte> bytes = file->bytes();
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() <= kHistoryBytesMax) return std::string(text);
  text.remove_prefix(text.size() - kHistoryBytesMax);
  return std::string(text.substr(std::min(text.find('\n'), text.size() - 1) + 1));
}

bool IsLabel(std::string_view text) {
  return text.size() > 2 && text.front() == '[' && text.find_first_of("[]", 1) == text.size() - 1;
}

// Returns the entry of a line that begins with kRecordMark; nullopt if it is damaged.
std::optional<HistoryEntry> ParseRecord(std::string_view line) {
  const Result<Json> json = ParseJson(line.substr(1));
  if (!json.ok()) return std::nullopt;
  const Json* shown = json->Find("line");
  const Json* texts = json->Find("texts");
  if (shown == nullptr || !shown->is_string() || texts == nullptr || !texts->is_object() ||
      shown->as_string().find_first_of(std::string_view("\0\n", 2)) != std::string::npos) {
    return std::nullopt;
  }
  HistoryEntry entry{shown->as_string(), {}};
  for (const auto& [label, text] : texts->as_object()) {
    if (!IsLabel(label) || !text.is_string()) return std::nullopt;
    entry.texts.emplace_back(label, text.as_string());
  }
  return entry;
}

std::string LineOf(const HistoryEntry& entry) {
  if (entry.texts.empty()) return entry.line + '\n';
  Json texts{Json::Object()};
  for (const auto& [label, text] : entry.texts) texts.Set(label, text);
  Json record;
  record.Set("line", entry.line).Set("texts", std::move(texts));
  return kRecordMark + record.Dump() + '\n';
}

}  // namespace

std::string HistoryPath() {
  if (!EnvironmentVariable("MINISGL_NO_HISTORY").empty()) return "";
  const std::string state = UserFolder("XDG_STATE_HOME", ".local/state");
  return state.empty() ? "" : state + "/minisgl/history";
}

std::vector<HistoryEntry> HistoryFile::Load() {
  std::vector<HistoryEntry> entries;
  if (path_.empty()) return entries;
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return entries;
  if (!S_ISREG(info.st_mode)) {
    // Some users link the history to /dev/null to disable it: no warning then.
    if (!S_ISCHR(info.st_mode)) {
      Log(LogLevel::kWarning, fmt::format("{}: is not a regular file; no history is read or kept",
                                          Visible(path_, 400)));
    }
    path_.clear();
    return entries;
  }
  const int fd = OpenPrivate(path_);
  if (fd >= 0) close(fd);
  const std::string text = ReadEnd(path_);
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (line.starts_with(kRecordMark)) {
      if (auto entry = ParseRecord(line)) entries.push_back(std::move(*entry));
    } else if (!line.empty() && line.find('\0') == std::string_view::npos) {
      entries.push_back({std::string(line), {}});
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  const bool shorten = entries.size() > 2 * kEntriesMax ||
                       static_cast<uint64_t>(info.st_size) > 2 * kHistoryBytesMax;
  if (entries.size() > kEntriesMax) entries.erase(entries.begin(), entries.end() - kEntriesMax);
  if (!shorten) return entries;
  std::string kept;
  for (const HistoryEntry& entry : entries) kept += LineOf(entry);
  (void)ReplaceFile(path_, kept, kHistoryMode);
  return entries;
}

void HistoryFile::Append(const HistoryEntry& entry) {
  size_t text_bytes = 0;
  for (const auto& [label, text] : entry.texts) text_bytes += text.size();
  if (path_.empty() || text_bytes > kTextBytesMax) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const int fd = OpenPrivate(path_);
  if (fd < 0) return;
  WriteAll(fd, LineOf(entry));
  close(fd);
}

}  // namespace minisgl::chat
