// Output of answers: standard output, or a file that is never overwritten by accident.
//
// Each row is written at once by one write(2). If the disk is full in the middle of it, the part
// that was written is removed from a regular file, so that a row is either complete or absent. A
// regular file is locked against a second run. A thread syncs it once a second, so that a slow disk
// does not delay answers. Used by one thread.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::term {

class Output {
 public:
  // Opens `path`; "" or "-" is standard output. kCannotCreate for a regular file that is not empty
  // (unless `force`), that another run is writing, or that `input_fd` reads (-1: none).
  static Result<std::unique_ptr<Output>> Open(const std::string& path, bool force, int input_fd);
  // The same for a file whose rows are kept; new rows are appended.
  static Result<std::unique_ptr<Output>> OpenToAppend(const std::string& path, int input_fd);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Truncates a file that `force` replaces. Call once before the first write, so that a run that
  // fails earlier loses nothing.
  Status Begin();
  // kIoError with the reason; pipe_closed() distinguishes a closed pipe from a full disk. Also
  // fails if the file was removed or its disk failed since the last write. A terminal gets the text
  // through a TerminalFilter.
  Status Write(std::string_view text);
  // The same for text that was already filtered and may contain formatting: a terminal gets it
  // unchanged.
  Status WriteShown(std::string_view text);
  // True if, after `timeout`, a Write of at most PIPE_BUF bytes would still wait for a reader of a
  // pipe, a socket or a terminal.
  bool WouldBlock(std::chrono::milliseconds timeout) const;
  // Syncs a regular file to disk.
  Status Finish();
  // Continues with a file that has replaced this one under the same name.
  Status Reopen();

  // True if both write to the same regular file, under any names.
  bool IsSameFileAs(const Output& other) const;

  bool pipe_closed() const { return pipe_closed_; }
  // Returns the exit status of a command that has written all its output with the result `status`.
  // A closed pipe is not reported as an error.
  int ExitAfter(const Status& status) const;
  bool is_terminal() const { return is_terminal_; }
  bool is_stdout() const { return !owned_; }
  // True for a regular file with a name: it can be read again and replaced.
  bool is_regular_file() const { return owned_ && regular_ && has_name_; }
  const std::string& path() const { return path_; }

 private:
  enum class OldRows { kRefuse, kReplace, kKeep };
  class Syncer;

  Output();
  static Result<std::unique_ptr<Output>> Open(const std::string& path, OldRows old_rows,
                                              int input_fd);
  Status Lock() const;
  Status Failure(int error);
  void TakeBack(size_t bytes);

  int fd_ = -1;
  OldRows old_rows_ = OldRows::kRefuse;
  bool owned_ = false;
  bool regular_ = false;
  bool has_name_ = true;  // a regular file still has one
  bool is_new_ = false;   // the name is not yet synced to disk
  bool is_terminal_ = false;
  bool pipe_closed_ = false;
  std::string path_;  // "" is standard output
  std::string name_;  // for messages
  std::unique_ptr<Syncer> syncer_;
};

}  // namespace minisgl::term
