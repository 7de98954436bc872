// See trusted_folder.h.
#include "minisgl/base/trusted_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "minisgl/base/folder.h"

namespace minisgl {
namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kOthersWrite = 0022;
// A temporary file of this age that no process has locked was left by a dead process.
constexpr time_t kAbandonedAfter_s = 60;

Status SystemError(const char* what) {
  return MakeStatus(StatusCode::kIoError, "{} ({})", what, std::strerror(errno));
}

// OK if only this user and root may change the file or folder of `info`.
Status CheckTrusted(const struct stat& info, const char* remedy) {
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return BadInput("belongs to another user (found user {}, and this is user {})", info.st_uid,
                    geteuid());
  }
  if ((info.st_mode & kOthersWrite) != 0) {
    return BadInput("may be written by others (found mode {:04o}); {}", info.st_mode & 07777,
                    remedy);
  }
  return Status();
}

}  // namespace

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
}

FileHandle::FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

bool ReadAt(int fd, void* data, size_t num_bytes, uint64_t offset) {
  auto* bytes = static_cast<char*>(data);
  for (size_t done = 0; done < num_bytes;) {
    const ssize_t got =
        pread(fd, bytes + done, num_bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

Result<TrustedFolder> TrustedFolder::Open(const std::string& path) {
  if (mkdir(path.c_str(), kFolderMode) != 0 && errno == ENOENT) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    mkdir(path.c_str(), kFolderMode);
  }
  FileHandle folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!folder.is_open() || fstat(folder.fd(), &info) != 0) {
    return SystemError("cannot be opened as a folder");
  }
  MINISGL_RETURN_IF_ERROR(CheckTrusted(info, "chmod go-w the folder"));
  return TrustedFolder(path, std::move(folder));
}

Result<FileHandle> TrustedFolder::OpenFile(const std::string& name) const {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  FileHandle file(openat(folder_.fd(), name.c_str(),
                         O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!file.is_open() && errno == ENOENT) return Status(StatusCode::kNoInput, "is not there");
  if (!file.is_open() && errno == ELOOP) return BadInput("is a symbolic link; remove it");
  if (!file.is_open() || fstat(file.fd(), &info) != 0) return SystemError("cannot be opened");
  if (!S_ISREG(info.st_mode)) return BadInput("is not a regular file");
  MINISGL_RETURN_IF_ERROR(CheckTrusted(info, "remove it, or chmod go-w"));
  return file;
}

Status TrustedFolder::ReplaceFile(const std::string& name, mode_t mode,
                                  const std::function<Status(int fd)>& write) const {
  static std::atomic<uint64_t> number{0};
  RemoveAbandoned(name);
  const std::string temporary = fmt::format(".{}.{}.{:x}.tmp", name, getpid(), ++number);
  const FileHandle file(openat(folder_.fd(), temporary.c_str(),
                               O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.is_open()) return SystemError("cannot be written");
  flock(file.fd(), LOCK_EX | LOCK_NB);  // for RemoveAbandoned of others
  Status written = write(file.fd());
  if (written.ok() && fsync(file.fd()) != 0) written = SystemError("cannot be written");
  if (written.ok() && renameat(folder_.fd(), temporary.c_str(), folder_.fd(), name.c_str()) != 0) {
    written = SystemError("cannot be renamed");
  }
  if (!written.ok()) {
    unlinkat(folder_.fd(), temporary.c_str(), 0);
  } else if (fsync(folder_.fd()) != 0 && errno != EINVAL) {
    written = SystemError("its folder cannot be written");
  }
  return written;
}

void TrustedFolder::RemoveAbandoned(const std::string& name) const {
  const std::string prefix = "." + name + ".";
  for (const std::string& found : NamesIn(path_)) {
    if (!found.starts_with(prefix) || !found.ends_with(".tmp")) continue;
    const FileHandle file(openat(folder_.fd(), found.c_str(),
                                 O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    struct stat info {};
    if (!file.is_open() || fstat(file.fd(), &info) != 0) continue;
    if (time(nullptr) - info.st_mtime < kAbandonedAfter_s) continue;
    if (flock(file.fd(), LOCK_EX | LOCK_NB) == 0) unlinkat(folder_.fd(), found.c_str(), 0);
  }
}

}  // namespace minisgl
