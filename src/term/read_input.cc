#include "term/read_input.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/trusted_folder.h"
#include "minisgl/base/utf8.h"

namespace minisgl::term {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;
constexpr int kSilentWait_ms = 1000;

// The first line that is not blank, if `text` has the whole of it; `is_all`: or ends within it.
std::optional<std::string_view> FirstLine(std::string_view text, bool is_all) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const size_t end = text.find('\n');
  if (text.empty() || (end == std::string_view::npos && !is_all)) return std::nullopt;
  return text.substr(0, end);
}

}  // namespace

Result<std::string> ReadAll(int fd, const std::string& name, size_t bytes_max, const char* hint,
                            const std::function<Status(std::string_view)>& check_first_line) {
  std::string text;
  bool said = false, checks = check_first_line != nullptr;
  while (true) {
    // A program that leaves its pipe open looks like a hang, so report the wait.
    pollfd waiting{fd, POLLIN, 0};
    if (!said && poll(&waiting, 1, kSilentWait_ms) == 0) {
      said = true;
      Log(LogLevel::kWarning, fmt::format("waiting for {}{}", name, hint));
    }
    const size_t size = text.size();
    text.resize(size + kReadBytes);
    const ssize_t got = read(fd, text.data() + size, kReadBytes);
    text.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EBADF) return text;  // closed counts as empty
    if (got < 0) {
      return MakeStatus(StatusCode::kNoInput, "{}: cannot be read ({})", name,
                        std::strerror(errno));
    }
    if (checks && (got == 0 || text.find('\n', size) != std::string::npos)) {
      const std::optional<std::string_view> line = FirstLine(text, got == 0);
      checks = !line.has_value();
      if (line) MINISGL_RETURN_IF_ERROR(check_first_line(*line));
    }
    if (got == 0) return text;
    if (text.size() > bytes_max) {
      return BadInput("{}: has more than {} bytes; give less", name, bytes_max);
    }
  }
}

Result<std::string> ReadFileOrPipe(const std::string& path, size_t bytes_max) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) {
    return ReadFile(path, bytes_max);
  }
  const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    return MakeStatus(StatusCode::kNoInput, "{}: cannot be opened ({})", Visible(path, 400),
                      std::strerror(errno));
  }
  return ReadAll(file.fd(), Visible(path, 400), bytes_max);
}

}  // namespace minisgl::term
