#include "cli/chat_history.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/file_io.h"
#include "cli/line_editor.h"
#include "minisgl/base/mapped_file.h"

namespace minisgl {
namespace {

constexpr uint64_t kHistoryBytesMax = uint64_t{16} << 20;

}  // namespace

std::string HistoryPath() {
  const char* none = std::getenv("MINISGL_NO_HISTORY");
  if (none != nullptr && *none != '\0') return "";
  const char* state = std::getenv("XDG_STATE_HOME");
  // A relative path there is to be ignored, says the specification of those variables.
  if (state != nullptr && *state == '/') return std::string(state) + "/minisgl/history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return "";
  return std::string(home) + "/.local/state/minisgl/history";
}

std::vector<std::string> HistoryFile::Load() {
  std::vector<std::string> lines;
  if (path_.empty()) return lines;
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
  (void)ReplaceFile(path_, kept, 0600);
  return lines;
}

void HistoryFile::Append(const std::string& line) {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  WriteAll(fd, line + '\n');
  close(fd);
}

}  // namespace minisgl
