#include "minisgl/base/file_io.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/file.h>
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
constexpr int kOpenTries = 10;
// A suffix that users' own files do not have.
constexpr const char* kSoleWritersPart = ".resume.part";
constexpr int kPartsMax = 100;  // temporary files of one file and process number

Status Failure(StatusCode code, const std::string& path, const char* what) {
  return MakeStatus(code, "{}: {} ({})", Visible(path, 400), what, std::strerror(errno));
}

// True if links in the folder `parent` lead to open files instead of names, as in /proc/self/fd,
// the target of /dev/stdout.
bool HoldsOpenFiles(const fs::path& parent) {
  std::error_code error;
  const fs::path real = fs::canonical(parent.empty() ? "." : parent, error);
  return !error && real.native().starts_with("/proc/");
}

std::string FolderOf(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// The folder of `path`, to be synced; less than 0 if it may not be read.
int OpenFolderOf(const std::string& path) {
  return open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Syncs such a folder to disk and closes it. One without read permission is skipped.
bool SyncAndCloseFolder(int fd) {
  if (fd < 0) return true;
  const bool done = SyncFile(fd);
  const int error = errno;
  close(fd);
  errno = error;
  return done;
}

// True if the folder of `path` is sticky and writable by all users.
bool IsInSharedFolder(const std::string& path, uid_t* owner) {
  struct stat folder {};
  if (stat(FolderOf(path).c_str(), &folder) != 0) return false;
  *owner = folder.st_uid;
  return (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & 0022) != 0;
}

// Gives the new file `fd` the owner, group and permissions of `old`. If the group cannot be set,
// its permissions are dropped.
bool TakeAfter(const struct stat& old, int fd) {
  struct stat now {};
  if (fstat(fd, &now) != 0) return false;
  mode_t mode = old.st_mode & 07777;
  if (now.st_uid != old.st_uid && fchown(fd, old.st_uid, static_cast<gid_t>(-1)) != 0) {
    mode &= 01777;
  }
  if (now.st_gid != old.st_gid && fchown(fd, static_cast<uid_t>(-1), old.st_gid) != 0) {
    mode &= 01707;
  }
  return fchmod(fd, mode) == 0;
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

Result<std::string> FollowOwnLinks(const std::string& path) {
  fs::path at(path);
  struct stat info {};
  for (int links = 0; lstat(at.c_str(), &info) == 0 && S_ISLNK(info.st_mode); ++links) {
    if (HoldsOpenFiles(at.parent_path())) break;
    if (info.st_uid != geteuid() && info.st_uid != 0) {
      return MakeStatus(StatusCode::kCannotCreate,
                        "{}: cannot be created: {} is a symbolic link of another user (found user "
                        "{}); name the file that is meant",
                        Visible(path, 400), Visible(at.string(), 400), info.st_uid);
    }
    std::error_code error;
    const fs::path target = fs::read_symlink(at, error);
    if (error || links == kLinksMax) {
      errno = error ? error.value() : ELOOP;
      return Failure(StatusCode::kCannotCreate, path, "cannot be created");
    }
    at = at.parent_path() / target;  // an absolute target stands alone
  }
  return at.string();
}

// A new file is created with O_EXCL and an existing one opened without O_CREAT, so that a race
// cannot replace one by the other.
Result<OpenedFile> OpenToWrite(const std::string& path, int flags, mode_t mode) {
  MINISGL_ASSIGN_OR_RETURN(const std::string target, FollowOwnLinks(path));
  const bool by_name = !HoldsOpenFiles(fs::path(target).parent_path());
  flags |= O_WRONLY | O_CLOEXEC | O_NOCTTY | (by_name ? O_NOFOLLOW : 0);
  OpenedFile file;
  file.has_name = by_name;
  for (int tries = 0; file.fd < 0 && tries < kOpenTries; ++tries) {
    file.is_new = true;
    file.fd = open(target.c_str(), flags | O_CREAT | O_EXCL, mode);
    if (file.fd >= 0 || errno != EEXIST) break;
    file.is_new = false;
    file.fd = open(target.c_str(), flags);
    if (errno != ENOENT) break;  // else it was removed between the two
  }
  struct stat info {};
  if (file.fd < 0 || fstat(file.fd, &info) != 0) {
    const Status failure = Failure(StatusCode::kCannotCreate, path, "cannot be created");
    if (file.fd >= 0) close(file.fd);
    return failure;
  }
  uid_t folder_owner = 0;
  if (!file.is_new && S_ISREG(info.st_mode) && info.st_uid != geteuid() && info.st_uid != 0 &&
      IsInSharedFolder(target, &folder_owner) && info.st_uid != folder_owner) {
    close(file.fd);
    return MakeStatus(StatusCode::kCannotCreate,
                      "{}: belongs to another user (found user {}), in a folder that all may write "
                      "to; choose another name",
                      Visible(path, 400), info.st_uid);
  }
  return file;
}

bool IsLocked(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

bool IsSamePlace(const std::string& path, const std::string& other) {
  struct stat file {
  }, other_file{};
  if (stat(path.c_str(), &file) == 0 && stat(other.c_str(), &other_file) == 0) {
    return file.st_dev == other_file.st_dev && file.st_ino == other_file.st_ino;
  }
  const Result<std::string> target = FollowOwnLinks(path), other_target = FollowOwnLinks(other);
  if (!target.ok() || !other_target.ok()) return path == other;
  std::error_code error, other_error;
  const fs::path folder = fs::canonical(FolderOf(*target), error);
  const fs::path other_folder = fs::canonical(FolderOf(*other_target), other_error);
  return !error && !other_error && folder == other_folder &&
         fs::path(*target).filename() == fs::path(*other_target).filename();
}

Status SyncNameOf(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(const std::string target, FollowOwnLinks(path));
  if (SyncAndCloseFolder(OpenFolderOf(target))) return Status();
  return Failure(StatusCode::kIoError, path, "its folder cannot be written");
}

Result<std::unique_ptr<FileReplacement>> FileReplacement::Begin(const std::string& path,
                                                                const Options& options) {
  std::unique_ptr<FileReplacement> file(new FileReplacement());
  file->path_ = path;
  file->target_ = path;
  struct stat old {};
  if (options.follows_links) {
    MINISGL_ASSIGN_OR_RETURN(file->target_, FollowOwnLinks(path));
  } else if (lstat(path.c_str(), &old) == 0 && S_ISLNK(old.st_mode)) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "{}: is a symbolic link, which is not followed; remove it",
                      Visible(path, 400));
  }
  const bool exists = lstat(file->target_.c_str(), &old) == 0;
  // Private to this user until it has the old file's owner; a new file has its mode at once.
  const mode_t first_mode = exists ? old.st_mode & 0700 : options.mode;
  const auto create = [&](const std::string& part) {
    return open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, first_mode);
  };
  std::string part = file->target_ + kSoleWritersPart;
  if (options.sole_writer) {
    unlink(part.c_str());  // the leftover of a killed program
    file->fd_ = create(part);
  }
  // A killed process may have had this process's number, and a living one in another container may
  // have it now.
  for (int i = 0; !options.sole_writer && i < kPartsMax; ++i) {
    part = fmt::format("{}.part{}{}", file->target_, getpid(), i == 0 ? "" : fmt::format("-{}", i));
    file->fd_ = create(part);
    if (file->fd_ >= 0 || errno != EEXIST) break;
  }
  if (file->fd_ < 0) {
    return Failure(StatusCode::kCannotCreate, errno == EEXIST ? part : path, "cannot be created");
  }
  file->part_.swap(part);  // takes no memory, so the file that now exists is always removed
  if (exists && !TakeAfter(old, file->fd_)) {
    return Failure(StatusCode::kIoError, path, "cannot be written");
  }
  return file;
}

void FileReplacement::RemoveLeftover(const std::string& path) {
  const Result<std::string> target = FollowOwnLinks(path);
  if (target.ok()) unlink((*target + kSoleWritersPart).c_str());
}

std::string FileReplacement::PartOf(const std::string& path) {
  const Result<std::string> target = FollowOwnLinks(path);
  return (target.ok() ? *target : path) + kSoleWritersPart;
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

Status FileReplacement::WriteAt(int64_t offset, std::string_view text) {
  MINISGL_RETURN_IF_ERROR(Flush());
  while (!text.empty()) {
    const ssize_t written = pwrite(fd_, text.data(), text.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failure(StatusCode::kIoError, path_, "cannot be written");
    text.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return Status();
}

Status FileReplacement::Commit() {
  MINISGL_RETURN_IF_ERROR(Flush());
  if (!SyncFile(fd_) || close(std::exchange(fd_, -1)) != 0) {
    return Failure(StatusCode::kIoError, path_, "cannot be written");
  }
  // Opened first: once the file is in its place, nothing takes memory.
  const int folder = OpenFolderOf(target_);
  if (std::rename(part_.c_str(), target_.c_str()) != 0) {
    const Status failure = Failure(StatusCode::kCannotCreate, path_, "cannot be created");
    if (folder >= 0) close(folder);
    return failure;
  }
  part_.clear();
  if (SyncAndCloseFolder(folder)) return Status();
  return Failure(StatusCode::kIoError, path_, "its folder cannot be written");
}

Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode,
                   bool follows_links) {
  MINISGL_ASSIGN_OR_RETURN(
      const auto file,
      FileReplacement::Begin(path, {.mode = mode, .follows_links = follows_links}));
  MINISGL_RETURN_IF_ERROR(file->Write(text));
  return file->Commit();
}

}  // namespace minisgl
