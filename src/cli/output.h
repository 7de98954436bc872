// Where answers are written: standard output, or a file that is never overwritten by accident.
//
// What is given is written at once, one row a write(2); where a disk is full in the middle of one,
// its beginning is taken back from a regular file. So a row is whole or not there. Used by one
// thread.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl {

class Output {
 public:
  // `path` "" is standard output. kCannotCreate for a regular file that is not empty (unless
  // `force`), and for the file that `input_fd` reads (-1: none).
  static Result<std::unique_ptr<Output>> Open(const std::string& path, bool force, int input_fd);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Empties a file that `force` replaces. Call once before the first write: a run that fails
  // earlier costs nothing.
  Status Begin();
  // kIoError with the reason; pipe_closed() tells a reader that left from a disk that is full.
  Status Write(std::string_view text);
  // Makes sure that a regular file is on its disk.
  Status Finish();

  // Whether both write to one regular file, by whatever names.
  bool IsSameFileAs(const Output& other) const;

  bool pipe_closed() const { return pipe_closed_; }
  bool is_terminal() const { return is_terminal_; }
  bool is_stdout() const { return !owned_; }

 private:
  Output() = default;
  Status Failure(int error);
  void TakeBack(size_t bytes);

  int fd_ = -1;
  bool owned_ = false;
  bool regular_ = false;
  bool is_terminal_ = false;
  bool pipe_closed_ = false;
  std::string name_;
};

}  // namespace minisgl
