// Writing, the same way wherever the program writes: all of a text to a descriptor, or a file that
// is replaced as a whole.
//
// A write that a signal interrupts goes on, and one to a full pipe that would not wait is waited
// for. The functions are thread-safe (no state); an object is used by one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl {

// Writes all of `text`; false where that fails, with errno. `*written` (may be null): the bytes
// that were.
bool WriteAll(int fd, std::string_view text, size_t* written = nullptr);

// Waits until what was written to `fd` is on its disk; true where its file system has no such
// thing.
bool SyncFile(int fd);

// What a regular file is to hold, written piece by piece beside it: a reader finds the old file or
// all of the new one, also after a power cut. A symbolic link stays and the file that it names is
// replaced; a file keeps its permissions, a new one gets `mode` less the umask.
class FileReplacement {
 public:
  // kCannotCreate. `sole_writer`: nobody else replaces this file, so what a killed program left of
  // an earlier attempt is written over.
  static Result<std::unique_ptr<FileReplacement>> Begin(const std::string& path, mode_t mode,
                                                        bool sole_writer);
  // Takes away what a killed program left beside a file with a `sole_writer`.
  static void RemoveLeftover(const std::string& path);
  // Unless it was committed the old file stays, and nothing beside it.
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  Status Write(std::string_view text);
  // Call once, last.
  Status Commit();

 private:
  FileReplacement() = default;
  Status Flush();

  std::string path_;    // as the caller named it
  std::string target_;  // that without symbolic links
  std::string part_;    // "": nothing to take away
  int fd_ = -1;
  std::string buffer_;
};

// Puts `text` into the regular file `path` as a FileReplacement. kCannotCreate, kIoError.
Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode);

}  // namespace minisgl
