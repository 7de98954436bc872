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

// The path that `path` names in the end, also where nothing is there yet. Links that this user or
// root made are followed; one of another user is kCannotCreate: in a folder that all may write to,
// it would choose which of this user's files is written over.
Result<std::string> FollowOwnLinks(const std::string& path);

struct OpenedFile {
  int fd = -1;
  bool is_new = false;
  bool has_name = true;  // it is not what another name, as /dev/stdout, finds open
};
// Opens `path` for writing, with FollowOwnLinks and `flags` beside; makes it with `mode` less the
// umask where it is not there. kCannotCreate, also for a file that another user has put into a
// folder that all may write to (sticky, as /tmp is).
Result<OpenedFile> OpenToWrite(const std::string& path, int flags, mode_t mode);

// Whether an Output writes the file `path`, of this process or another.
bool IsLocked(const std::string& path);

// Whether both name one file, also where there is none yet.
bool IsSamePlace(const std::string& path, const std::string& other);

// Waits until the folder of a file that was made or renamed has its name on the disk. kIoError.
Status SyncNameOf(const std::string& path);

// What a regular file is to hold, written piece by piece beside it: a reader finds the old file or
// all of the new one, also after a power cut. A file keeps its permissions, owner and group (as far
// as this user may give them), from the first byte; a new one gets `mode` less the umask.
class FileReplacement {
 public:
  struct Options {
    mode_t mode = 0666;
    // Nobody else replaces this file: what a killed program left of an earlier attempt is removed.
    bool sole_writer = false;
    // A symbolic link stays, and the file that it names is replaced (FollowOwnLinks). Else a link
    // is kCannotCreate.
    bool follows_links = true;
  };
  // kCannotCreate.
  static Result<std::unique_ptr<FileReplacement>> Begin(const std::string& path,
                                                        const Options& options);
  // Takes away what a killed program left beside a file with a `sole_writer`.
  static void RemoveLeftover(const std::string& path);
  // The name of that.
  static std::string PartOf(const std::string& path);
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
Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode,
                   bool follows_links = true);

}  // namespace minisgl
