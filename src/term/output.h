// Where answers are written: standard output, or a file that is never overwritten by accident.
//
// What is given is written at once, one row a write(2); where a disk is full in the middle of one,
// its beginning is taken back from a regular file. So a row is whole or not there. A regular file
// is locked against a second run, and brought to its disk once a second by a thread, so that a slow
// disk holds up no answer. Used by one thread.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::term {

class Output {
 public:
  // `path` "" or "-" is standard output. kCannotCreate for a regular file that is not empty (unless
  // `force`), for one that another run writes, and for the file that `input_fd` reads (-1: none).
  static Result<std::unique_ptr<Output>> Open(const std::string& path, bool force, int input_fd);
  // The same for a file whose rows are kept and added to.
  static Result<std::unique_ptr<Output>> OpenToAppend(const std::string& path, int input_fd);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Empties a file that `force` replaces. Call once before the first write: a run that fails
  // earlier costs nothing.
  Status Begin();
  // kIoError with the reason; pipe_closed() tells a reader that left from a disk that is full. Also
  // where the file was removed, or its disk failed, since the last write. A terminal gets the text
  // through a TerminalFilter.
  Status Write(std::string_view text);
  // The same for text that came through a filter, and may have looks: a terminal gets it as it is.
  Status WriteShown(std::string_view text);
  // Makes sure that a regular file is on its disk.
  Status Finish();
  // The file of this name was replaced by another: goes on with that one.
  Status Reopen();

  // Whether both write to one regular file, by whatever names.
  bool IsSameFileAs(const Output& other) const;

  bool pipe_closed() const { return pipe_closed_; }
  // What a command ends with that has written all it had to say: `status` of writing it. A reader
  // that left has nothing to be told.
  int ExitAfter(const Status& status) const;
  bool is_terminal() const { return is_terminal_; }
  bool is_stdout() const { return !owned_; }
  // A file with a name of its own: what it holds can be read again, and another may replace it.
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
  bool has_name_ = true;  // of its own
  bool is_new_ = false;   // its name is not on its disk yet
  bool is_terminal_ = false;
  bool pipe_closed_ = false;
  std::string path_;  // "": standard output
  std::string name_;  // as messages have it
  std::unique_ptr<Syncer> syncer_;
};

}  // namespace minisgl::term
