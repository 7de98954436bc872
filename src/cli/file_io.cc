#include "cli/file_io.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksMax = 40;  // as the kernel follows
// Nobody names a file of their own so.
constexpr const char* kSoleWritersPart = ".resume.part";

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

// Copying a large file is a few calls for each of its megabytes.
constexpr size_t kBufferBytes = size_t{1} << 20;

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

bool SyncFile(int fd) { return fsync(fd) == 0 || errno == EINVAL; }

Result<std::unique_ptr<FileReplacement>> FileReplacement::Begin(const std::string& path,
                                                                mode_t mode, bool sole_writer) {
  std::unique_ptr<FileReplacement> file(new FileReplacement());
  file->path_ = path;
  MINISGL_ASSIGN_OR_RETURN(file->target_, FollowLinks(path));
  struct stat old {};
  const bool exists = stat(file->target_.c_str(), &old) == 0;
  const std::string part = sole_writer ? file->target_ + kSoleWritersPart
                                       : fmt::format("{}.part{}", file->target_, getpid());
  const int others = sole_writer ? O_TRUNC : O_EXCL;
  file->fd_ = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | others, mode);
  if (file->fd_ < 0) return Failure(StatusCode::kCannotCreate, path, "cannot be created");
  file->part_ = part;
  if (exists && fchmod(file->fd_, old.st_mode & 07777) != 0) {
    return Failure(StatusCode::kIoError, path, "cannot be written");
  }
  return file;
}

void FileReplacement::RemoveLeftover(const std::string& path) {
  const Result<std::string> target = FollowLinks(path);
  if (target.ok()) unlink((*target + kSoleWritersPart).c_str());
}

FileReplacement::~FileReplacement() {
  if (fd_ >= 0) close(fd_);
  if (!part_.empty()) unlink(part_.c_str());
}

Status FileReplacement::Flush() {
  const bool done = WriteAll(fd_, buffer_);
  buffer_.clear();
  return done ? Status() : Failure(StatusCode::kIoError, path_, "cannot be written");
}

Status FileReplacement::Write(std::string_view text) {
  buffer_ += text;
  return buffer_.size() < kBufferBytes ? Status() : Flush();
}

Status FileReplacement::Commit() {
  MINISGL_RETURN_IF_ERROR(Flush());
  if (!SyncFile(fd_) || close(std::exchange(fd_, -1)) != 0) {
    return Failure(StatusCode::kIoError, path_, "cannot be written");
  }
  if (std::rename(part_.c_str(), target_.c_str()) != 0) {
    return Failure(StatusCode::kCannotCreate, path_, "cannot be created");
  }
  part_.clear();
  return Status();
}

Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode) {
  MINISGL_ASSIGN_OR_RETURN(const auto file, FileReplacement::Begin(path, mode, false));
  MINISGL_RETURN_IF_ERROR(file->Write(text));
  return file->Commit();
}

}  // namespace minisgl
