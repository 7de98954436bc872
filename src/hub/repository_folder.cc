// See repository_folder.h.
#include "hub/repository_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"

namespace minisgl::hub {
namespace {

constexpr mode_t kFolderMode = 0777, kFileMode = 0666;  // & ~umask, as the hub's library has them
constexpr auto kLockInterval = std::chrono::milliseconds(50);
constexpr size_t kReadBytes = size_t{1} << 20;
constexpr const char* kRepositoryLock = "minisgl-pull.lock";

Status Failure(StatusCode code, const std::string& path, const char* what, int error = errno) {
  return MakeStatus(code, "{}: {} ({})", Visible(path, 400), what, std::strerror(error));
}

// Opens the folder `name` in `parent`, which is made if it does not exist. `path` is for messages.
Result<FileHandle> OpenFolder(int parent, const std::string& name, const std::string& path) {
  if (mkdirat(parent, name.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return Failure(StatusCode::kCannotCreate, path, "cannot be created");
  }
  FileHandle folder(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.is_open()) return folder;
  const int error = errno;
  if (error == ELOOP || error == ENOTDIR) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "{}: is a symbolic link or a file, where the hub cache has a folder; remove "
                      "it or set HF_HUB_CACHE to another cache",
                      Visible(path, 400));
  }
  return Failure(StatusCode::kCannotCreate, path, "cannot be opened", error);
}

// Opens the folders of `path`, which ends with a file's name, below `folder`, and sets `*name` to
// that name. REQUIRES CheckFileName(path).
Result<FileHandle> OpenParent(int folder, const std::string& path, std::string* name) {
  FileHandle parent(fcntl(folder, F_DUPFD_CLOEXEC, 0));
  size_t begin = 0;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
    MINISGL_ASSIGN_OR_RETURN(FileHandle next,
                             OpenFolder(parent.fd(), path.substr(begin, slash - begin), path));
    parent = std::move(next);
    begin = slash + 1;
  }
  *name = path.substr(begin);
  return parent;
}

std::string PartName(const RepositoryFile& file) { return file.hash + ".incomplete"; }

// Bytes of the regular file `name`; -1 if there is none. `flags` of fstatat.
int64_t BytesOf(int folder, const std::string& name, int flags) {
  struct stat info {};
  if (fstatat(folder, name.c_str(), &info, flags) != 0) return -1;
  return S_ISREG(info.st_mode) ? static_cast<int64_t>(info.st_size) : -1;
}

}  // namespace

Status PartialBlob::Append(std::string_view bytes) {
  size_t written = 0;
  const bool done = WriteAll(file_.fd(), bytes, &written);
  num_bytes_ += written;
  if (done) return Status();
  if (errno == ENOSPC || errno == EDQUOT) {
    return MakeStatus(StatusCode::kIoError,
                      "{}: the disk is full; free some space and give the same command again, "
                      "which continues",
                      Visible(name_, 400));
  }
  return Failure(StatusCode::kIoError, name_, "cannot be written");
}

Status PartialBlob::Clear() {
  num_bytes_ = 0;
  if (ftruncate(file_.fd(), 0) == 0) return Status();
  return Failure(StatusCode::kIoError, name_, "cannot be written");
}

Status PartialBlob::ReadAll(const std::function<Status(std::string_view)>& add) const {
  std::vector<char> piece(kReadBytes);
  for (uint64_t done = 0; done < num_bytes_;) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(piece.size(), num_bytes_ - done));
    if (!ReadAt(file_.fd(), piece.data(), count, done)) {
      return Failure(StatusCode::kIoError, name_, "cannot be read");
    }
    MINISGL_RETURN_IF_ERROR(add(std::string_view(piece.data(), count)));
    done += count;
  }
  return Status();
}

Result<std::unique_ptr<RepositoryFolder>> RepositoryFolder::Open(const std::string& cache_dir,
                                                                 const RepositoryName& repository,
                                                                 std::function<bool()> stops) {
  std::unique_ptr<RepositoryFolder> folder(
      new RepositoryFolder(cache_dir + "/" + repository.Folder(), std::move(stops)));
  MINISGL_RETURN_IF_ERROR(folder->OpenFolders(cache_dir, repository));
  const std::string waits_for = "another download of " + repository.Path();
  MINISGL_ASSIGN_OR_RETURN(folder->lock_, folder->Lock(kRepositoryLock, waits_for.c_str()));
  return folder;
}

Status RepositoryFolder::OpenFolders(const std::string& cache_dir,
                                     const RepositoryName& repository) {
  std::error_code error;
  std::filesystem::create_directories(cache_dir, error);
  const FileHandle cache(open(cache_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!cache.is_open()) {
    return Failure(StatusCode::kCannotCreate, cache_dir,
                   "the hub cache cannot be created (HF_HUB_CACHE and HF_HOME choose another)",
                   error ? error.value() : errno);
  }
  const std::string name = repository.Folder();
  MINISGL_ASSIGN_OR_RETURN(folder_, OpenFolder(cache.fd(), name, path_));
  MINISGL_ASSIGN_OR_RETURN(blobs_, OpenFolder(folder_.fd(), "blobs", path_ + "/blobs"));
  MINISGL_ASSIGN_OR_RETURN(snapshots_, OpenFolder(folder_.fd(), "snapshots", path_ + "/snapshots"));
  MINISGL_ASSIGN_OR_RETURN(refs_, OpenFolder(folder_.fd(), "refs", path_ + "/refs"));
  const std::string locks_path = cache_dir + "/.locks";
  MINISGL_ASSIGN_OR_RETURN(const FileHandle locks, OpenFolder(cache.fd(), ".locks", locks_path));
  MINISGL_ASSIGN_OR_RETURN(locks_, OpenFolder(locks.fd(), name, locks_path + "/" + name));
  return Status();
}

Result<FileHandle> RepositoryFolder::Lock(const std::string& name, const char* waits_for) const {
  FileHandle file(
      openat(locks_.fd(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (!file.is_open()) return Failure(StatusCode::kCannotCreate, name, "cannot be created");
  for (bool has_waited = false; flock(file.fd(), LOCK_EX | LOCK_NB) != 0; has_waited = true) {
    // A file system without locks is used by one process at a time, or at its own risk.
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    if (!has_waited) Log(LogLevel::kInfo, fmt::format("waiting for {} to end", waits_for));
    if (stops_()) return MakeStatus(StatusCode::kUnavailable, "stopped while waiting for a lock");
    std::this_thread::sleep_for(kLockInterval);
  }
  return file;
}

bool RepositoryFolder::HasBlob(const RepositoryFile& file) const {
  // The hub's library may keep a blob elsewhere and a link to it here.
  return BytesOf(blobs_.fd(), file.hash, 0) == static_cast<int64_t>(file.num_bytes);
}

uint64_t RepositoryFolder::PartialBytes(const RepositoryFile& file) const {
  const int64_t num_bytes = BytesOf(blobs_.fd(), PartName(file), AT_SYMLINK_NOFOLLOW);
  return num_bytes < 0 ? 0 : std::min(static_cast<uint64_t>(num_bytes), file.num_bytes);
}

Result<uint64_t> RepositoryFolder::FreeBytes() const {
  struct statvfs info {};
  if (fstatvfs(blobs_.fd(), &info) != 0) {
    return Failure(StatusCode::kIoError, path_, "its free space is unknown");
  }
  return CheckedMul(info.f_bavail, info.f_frsize).value_or(UINT64_MAX);
}

Result<PartialBlob> RepositoryFolder::OpenPartial(const RepositoryFile& file) {
  MINISGL_ASSIGN_OR_RETURN(FileHandle lock,
                           Lock(file.hash + ".lock", "another download of the same file"));
  const std::string path = BlobPath(file) + ".incomplete";
  FileHandle part(openat(blobs_.fd(), PartName(file).c_str(),
                         O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  struct stat info {};
  if (!part.is_open() || fstat(part.fd(), &info) != 0) {
    return Failure(StatusCode::kCannotCreate, path, "cannot be created");
  }
  if (!S_ISREG(info.st_mode)) {
    return MakeStatus(StatusCode::kCannotCreate, "{}: is not a regular file; remove it",
                      Visible(path, 400));
  }
  PartialBlob partial(std::move(lock), std::move(part), path);
  partial.num_bytes_ = static_cast<uint64_t>(info.st_size);
  return partial;
}

Status RepositoryFolder::Keep(const RepositoryFile& file, PartialBlob partial) {
  if (!SyncFile(partial.file_.fd())) {
    return Failure(StatusCode::kIoError, partial.name_, "cannot be written");
  }
  if (renameat(blobs_.fd(), PartName(file).c_str(), blobs_.fd(), file.hash.c_str()) != 0) {
    return Failure(StatusCode::kIoError, partial.name_, "cannot be renamed");
  }
  if (SyncFile(blobs_.fd())) return Status();
  return Failure(StatusCode::kIoError, partial.name_, "its folder cannot be written");
}

Status RepositoryFolder::Link(const std::string& commit, const RepositoryFile& file) {
  const std::string path = SnapshotPath(commit) + "/" + file.name;
  std::string name;
  MINISGL_ASSIGN_OR_RETURN(const FileHandle snapshot,
                           OpenFolder(snapshots_.fd(), commit, SnapshotPath(commit)));
  MINISGL_ASSIGN_OR_RETURN(const FileHandle parent, OpenParent(snapshot.fd(), file.name, &name));
  std::string target = "../../blobs/" + file.hash;
  for (const char c : file.name) {
    if (c == '/') target.insert(0, "../");
  }
  char now[PATH_MAX];
  const ssize_t length = readlinkat(parent.fd(), name.c_str(), now, sizeof(now));
  if (length >= 0 && std::string_view(now, static_cast<size_t>(length)) == target) return Status();
  // A new link replaces the old one at once; its name is no name of a file that is downloaded.
  const std::string fresh = fmt::format(".minisgl-{}.link", getpid());
  unlinkat(parent.fd(), fresh.c_str(), 0);
  if (symlinkat(target.c_str(), parent.fd(), fresh.c_str()) != 0 ||
      renameat(parent.fd(), fresh.c_str(), parent.fd(), name.c_str()) != 0) {
    const Status failure = Failure(StatusCode::kCannotCreate, path, "cannot be linked to its blob");
    unlinkat(parent.fd(), fresh.c_str(), 0);
    return failure;
  }
  return Status();
}

Status RepositoryFolder::SetRef(const std::string& revision, const std::string& commit) {
  if (revision == commit) return Status();
  const std::string path = path_ + "/refs/" + revision;
  std::string name;
  MINISGL_ASSIGN_OR_RETURN(const FileHandle parent, OpenParent(refs_.fd(), revision, &name));
  const std::string fresh = fmt::format(".minisgl-{}.ref", getpid());
  unlinkat(parent.fd(), fresh.c_str(), 0);
  const FileHandle file(openat(parent.fd(), fresh.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (!file.is_open() || !WriteAll(file.fd(), commit) || !SyncFile(file.fd()) ||
      renameat(parent.fd(), fresh.c_str(), parent.fd(), name.c_str()) != 0) {
    const Status failure = Failure(StatusCode::kCannotCreate, path, "cannot be written");
    unlinkat(parent.fd(), fresh.c_str(), 0);
    return failure;
  }
  return Status();
}

std::string RepositoryFolder::SnapshotPath(const std::string& commit) const {
  return path_ + "/snapshots/" + commit;
}

std::string RepositoryFolder::BlobPath(const RepositoryFile& file) const {
  return path_ + "/blobs/" + file.hash;
}

}  // namespace minisgl::hub
