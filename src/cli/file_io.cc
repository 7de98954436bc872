#include "cli/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksMax = 40;  // as the kernel follows

Status Failure(StatusCode code, const std::string& path, const char* what) {
  return MakeStatus(code, "{}: {} ({})", Visible(path, 400), what, std::strerror(errno));
}

// The path that `path` names in the end, also where nothing is there yet.
Result<std::string> FollowLinks(const std::string& path) {
  fs::path at(path);
  std::error_code error;
  for (int links = 0; fs::is_symlink(at, error); ++links) {
    const fs::path target = fs::read_symlink(at, error);
    if (error || links == kLinksMax) {
      errno = error ? error.value() : ELOOP;
      return Failure(StatusCode::kCannotCreate, path, "cannot be created");
    }
    at = at.parent_path() / target;  // an absolute target stands alone
  }
  return at.string();
}

// Some file systems have no fsync; there is nothing to wait for.
bool Sync(int fd) { return fsync(fd) == 0 || errno == EINVAL; }

}  // namespace

bool WriteAll(int fd, std::string_view text, size_t* written) {
  size_t done = 0;
  bool fails = false;
  while (done < text.size() && !fails) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd waiting{fd, POLLOUT, 0};
      fails = poll(&waiting, 1, -1) < 0 && errno != EINTR;
    } else {
      fails = errno != EINTR;
    }
  }
  if (written != nullptr) *written = done;
  return !fails;
}

Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode) {
  MINISGL_ASSIGN_OR_RETURN(const std::string target, FollowLinks(path));
  struct stat old {};
  const bool exists = stat(target.c_str(), &old) == 0;
  const std::string part = fmt::format("{}.part{}", target, getpid());
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return Failure(StatusCode::kCannotCreate, path, "cannot be created");
  Status status;
  if ((exists && fchmod(fd, old.st_mode & 07777) != 0) || !WriteAll(fd, text) || !Sync(fd)) {
    status = Failure(StatusCode::kIoError, path, "cannot be written");
  }
  if (close(fd) != 0 && status.ok()) {
    status = Failure(StatusCode::kIoError, path, "cannot be written");
  }
  if (status.ok() && std::rename(part.c_str(), target.c_str()) != 0) {
    status = Failure(StatusCode::kCannotCreate, path, "cannot be created");
  }
  if (!status.ok()) unlink(part.c_str());
  return status;
}

}  // namespace minisgl
