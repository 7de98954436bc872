// Reading whole files: mapped read-only, or copied to memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "minisgl/base/status.h"

struct stat;

namespace minisgl {

// Identity of a file's contents. It changes with every change of the file, because no user can set
// the time of the last inode change.
struct FileStamp {
  uint64_t device = 0, inode = 0, num_bytes = 0;
  int64_t changed_ns = 0;        // last change of the contents; nanoseconds since 1970
  int64_t inode_changed_ns = 0;  // last change of contents, name or permissions
  uint32_t mode = 0;
  bool operator==(const FileStamp&) const = default;
};
// The stamp of the file at `path`; nullopt if it does not exist.
std::optional<FileStamp> StampOf(const std::string& path);
// The same of what stat(2) says of a file.
FileStamp StampOf(const struct stat& info);

// A regular file, mapped read-only for the life of this object. Move-only. Readable from any
// thread. If the file is truncated while mapped, reading the lost part raises SIGBUS;
// InstallBusErrorHandler() turns that into exit 74 with the name of the file.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Taken when the file was opened.
  const FileStamp& stamp() const { return stamp_; }
  // Releases the pages of `part` from this process's memory. Later reads of them come from the
  // system's cache or from the disk. Thread-safe, also while other threads read.
  void DropPages(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;
  void Release();
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
  FileStamp stamp_;
};

// Returns the contents of a regular file. kBadInput if it is larger than `bytes_max`; errors of
// opening as in MappedFile::Open; kIoError.
Result<std::string> ReadFile(const std::string& path, uint64_t bytes_max);

// Installs a handler of SIGBUS for the life of the process. Call once, before any thread starts.
void InstallBusErrorHandler();

}  // namespace minisgl
