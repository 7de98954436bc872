// A folder that no other user can change, for files that determine what the program computes, such
// as packed weights.
//
// A folder or file is trusted if its owner is this user or root and neither its group nor others
// may write to it. The folder is opened once and its files are opened relative to it, never through
// a symbolic link, so that the checked files are the used ones. Thread-safe after Open.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl {

// Owns a file descriptor.
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Reads `num_bytes` from `offset` on. False if the file is too short or cannot be read.
bool ReadAt(int fd, void* data, size_t num_bytes, uint64_t offset);

class TrustedFolder {
 public:
  // Opens `path`; creates a missing folder, readable by this user only. kIoError if that fails,
  // kBadInput for a folder that is not trusted.
  static Result<TrustedFolder> Open(const std::string& path);

  // Opens a regular file of the folder for reading. kNoInput if it does not exist, kBadInput if it
  // is not trusted, kIoError.
  Result<FileHandle> OpenFile(const std::string& name) const;

  // Replaces the file `name` with what `write` writes, with permissions `mode` & ~umask. The data
  // goes to a temporary file that is then renamed, so that readers see a complete file or none,
  // also if another process writes the same file. Removes temporary files of dead processes.
  // kIoError, or the error of `write`.
  Status ReplaceFile(const std::string& name, mode_t mode,
                     const std::function<Status(int fd)>& write) const;

  const std::string& path() const { return path_; }

 private:
  TrustedFolder(std::string path, FileHandle folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  void RemoveAbandoned(const std::string& name) const;

  std::string path_;
  FileHandle folder_;
};

}  // namespace minisgl
