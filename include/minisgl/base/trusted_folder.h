// A folder of files that decide what the program computes, such as packed weights: no other user
// may be able to change them.
//
// A folder or file is trusted if this user or root owns it and neither its group nor others may
// write to it. The folder is opened once and its files are opened within it, none through a
// symbolic link, so that what was checked is what is used. Thread-safe once open.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl {

// An open file, closed with this.
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

// Reads `num_bytes` from `offset` on; false where the file has fewer, or cannot be read.
bool ReadAt(int fd, void* data, size_t num_bytes, uint64_t offset);

class TrustedFolder {
 public:
  // Opens `path`, which is made (for this user alone) where it is missing. kIoError where it cannot
  // be, kBadInput for one that is not trusted.
  static Result<TrustedFolder> Open(const std::string& path);

  // A regular file of the folder, to read. kNoInput where there is none, kBadInput for one that is
  // not trusted, kIoError.
  Result<FileHandle> OpenFile(const std::string& name) const;

  // Puts what `write` writes into the file `name`, with `mode` less the umask: under a name of its
  // own, then renamed, so that the file is there whole or not at all, also beside another process
  // that writes it. What processes that died left of such attempts is removed. kIoError, or what
  // `write` gives.
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
