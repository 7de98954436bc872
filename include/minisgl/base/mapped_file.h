// Files read whole: mapped read-only, or copied to memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl {

// What changes whenever a file does, and with it: when its inode was changed last cannot be set.
struct FileStamp {
  uint64_t device = 0, inode = 0, num_bytes = 0;
  int64_t changed_ns = 0;        // the contents
  int64_t inode_changed_ns = 0;  // contents, name or permissions
  uint32_t mode = 0;
  bool operator==(const FileStamp&) const = default;
};
// Of the file that `path` names now; null where there is none.
std::optional<FileStamp> StampOf(const std::string& path);

// A regular file mapped read-only for as long as this lives. Move-only. Reading it is safe from any
// thread. A file cut short while it is mapped raises SIGBUS where it is read;
// InstallBusErrorHandler() makes that an exit with code 74 that names the file.
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
  // As it was opened.
  const FileStamp& stamp() const { return stamp_; }

 private:
  MappedFile() = default;
  void Release();
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
  FileStamp stamp_;
};

// The whole of a regular file; larger than `bytes_max` is an error that says so.
Result<std::string> ReadFile(const std::string& path, uint64_t bytes_max);

// Call once, before any thread starts.
void InstallBusErrorHandler();

}  // namespace minisgl
