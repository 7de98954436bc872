// Writing to descriptors, and replacing files atomically.
//
// A write continues after a signal, and waits if a non-blocking descriptor is full. The functions
// are thread-safe (no state); an object is used by one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl {

// Writes all of `text`. Returns false on failure, with errno set. `*written` (may be null) becomes
// the number of bytes written.
bool WriteAll(int fd, std::string_view text, size_t* written = nullptr);

// Waits until data written to `fd` is on disk. Also true if the file system cannot sync.
bool SyncFile(int fd);

// Resolves symbolic links in `path`, whose target need not exist. Follows links owned by this user
// or root. A link of another user is kCannotCreate: in a folder that everyone may write to, it
// would choose which of this user's files is overwritten.
Result<std::string> FollowOwnLinks(const std::string& path);

struct OpenedFile {
  int fd = -1;
  bool is_new = false;
  bool has_name = true;  // false: `path` refers to an already open file, such as /dev/stdout
};
// Opens `path` for writing after FollowOwnLinks, with `flags` added. Creates a missing file with
// `mode` & ~umask. kCannotCreate, also for another user's file in a sticky folder that everyone may
// write to (such as /tmp).
Result<OpenedFile> OpenToWrite(const std::string& path, int flags, mode_t mode);

// True if an Output of this or another process is writing to `path`.
bool IsLocked(const std::string& path);

// True if both paths name the same file, which need not exist.
bool IsSamePlace(const std::string& path, const std::string& other);

// Waits until the folder entry of a created or renamed file is on disk. kIoError.
Status SyncNameOf(const std::string& path);

// Replaces a regular file atomically. The new contents are written piece by piece to a temporary
// file in the same folder: a reader sees the old file or all of the new one, also after a power
// cut. An existing file's permissions, owner and group are kept (as far as this user may set them)
// from the first byte; a new file gets `mode` & ~umask.
class FileReplacement {
 public:
  struct Options {
    mode_t mode = 0666;
    // No other writer replaces this file, so the leftover of a killed attempt is removed.
    bool sole_writer = false;
    // True: a symbolic link stays, and its target is replaced (FollowOwnLinks). False: a link is
    // kCannotCreate.
    bool follows_links = true;
  };
  // kCannotCreate.
  static Result<std::unique_ptr<FileReplacement>> Begin(const std::string& path,
                                                        const Options& options);
  // Removes the temporary file that a killed program left beside a file with a `sole_writer`.
  static void RemoveLeftover(const std::string& path);
  // The path of that temporary file.
  static std::string PartOf(const std::string& path);
  // Without a Commit, removes the temporary file; the old file stays.
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  Status Write(std::string_view text);
  // Replaces bytes that were written, from `offset` on.
  Status WriteAt(int64_t offset, std::string_view text);
  // Call once, last.
  Status Commit();

 private:
  FileReplacement() = default;
  Status Flush();

  std::string path_;    // as given by the caller
  std::string target_;  // with symbolic links resolved
  std::string part_;    // the temporary file; "": none to remove
  int fd_ = -1;
  std::string buffer_;
};

// Replaces the contents of the regular file `path` with `text`, by a FileReplacement.
// kCannotCreate, kIoError.
Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode,
                   bool follows_links = true);

}  // namespace minisgl
