#include "chat/chat_history.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "chat/line_editor.h"
#include "minisgl/base/environment.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

constexpr uint64_t kHistoryBytesMax = uint64_t{16} << 20;
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

}  // namespace

std::string HistoryPath() {
  if (!EnvironmentVariable("MINISGL_NO_HISTORY").empty()) return "";
  const std::string state = UserFolder("XDG_STATE_HOME", ".local/state");
  return state.empty() ? "" : state + "/minisgl/history";
}

std::vector<std::string> HistoryFile::Load() {
  std::vector<std::string> lines;
  if (path_.empty()) return lines;
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return lines;
  if (!S_ISREG(info.st_mode)) {
    // Some users link the history to /dev/null to disable it: no warning then.
    if (!S_ISCHR(info.st_mode)) {
      Log(LogLevel::kWarning, fmt::format("{}: is not a regular file; no history is read or kept",
                                          Visible(path_, 400)));
    }
    path_.clear();
    return lines;
  }
  const int fd = OpenPrivate(path_);
  if (fd >= 0) close(fd);
  const Result<std::string> text = ReadFile(path_, kHistoryBytesMax);
  if (!text.ok()) return lines;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (!line.empty() && line.find('\0') == std::string_view::npos) lines.emplace_back(line);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  if (lines.size() <= kLinesMax) return lines;
  const bool shorten = lines.size() > 2 * kLinesMax;
  lines.erase(lines.begin(), lines.end() - kLinesMax);
  if (!shorten) return lines;
  std::string kept;
  for (const std::string& line : lines) kept += line + '\n';
  (void)ReplaceFile(path_, kept, kHistoryMode);
  return lines;
}

void HistoryFile::Append(const std::string& line) {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const int fd = OpenPrivate(path_);
  if (fd < 0) return;
  WriteAll(fd, line + '\n');
  close(fd);
}

}  // namespace minisgl::chat
