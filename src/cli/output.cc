#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/file_io.h"
#include "minisgl/base/utf8.h"

namespace minisgl {

Result<std::unique_ptr<Output>> Output::Open(const std::string& path, bool force, int input_fd) {
  std::unique_ptr<Output> output(new Output());
  output->owned_ = !path.empty();
  output->name_ = path.empty() ? "standard output" : Visible(path, 400);
  output->fd_ =
      path.empty() ? STDOUT_FILENO
                   : open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
  struct stat info {};
  if (output->fd_ < 0 || fstat(output->fd_, &info) != 0) {
    return MakeStatus(StatusCode::kCannotCreate, "{}: cannot be created ({})", output->name_,
                      std::strerror(errno));
  }
  output->regular_ = S_ISREG(info.st_mode);
  output->is_terminal_ = isatty(output->fd_) != 0;
  if (!output->regular_) return output;
  struct stat input {};
  if (input_fd >= 0 && fstat(input_fd, &input) == 0 && input.st_dev == info.st_dev &&
      input.st_ino == info.st_ino) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "{}: is the file that rows are read from; write to another", output->name_);
  }
  if (output->owned_ && info.st_size > 0 && !force) {
    return MakeStatus(StatusCode::kCannotCreate, "{}: is not empty ({} bytes); --force replaces it",
                      output->name_, info.st_size);
  }
  return output;
}

bool Output::IsSameFileAs(const Output& other) const {
  struct stat mine {
  }, others{};
  return regular_ && fstat(fd_, &mine) == 0 && fstat(other.fd_, &others) == 0 &&
         mine.st_dev == others.st_dev && mine.st_ino == others.st_ino;
}

Output::~Output() {
  if (owned_ && fd_ >= 0) close(fd_);
}

Status Output::Failure(int error) {
  pipe_closed_ = error == EPIPE;
  return MakeStatus(StatusCode::kIoError, "{}: cannot be written ({})", name_,
                    std::strerror(error));
}

Status Output::Begin() {
  if (owned_ && regular_ && ftruncate(fd_, 0) != 0) return Failure(errno);
  return Status();
}

Status Output::Write(std::string_view text) {
  size_t written = 0;
  if (WriteAll(fd_, text, &written)) return Status();
  const int error = errno;
  if (regular_ && written > 0) TakeBack(written);
  return Failure(error);
}

// Only the end of the file: who else writes to it keeps what is theirs.
void Output::TakeBack(size_t bytes) {
  struct stat info {};
  const off_t end = lseek(fd_, 0, SEEK_CUR);
  if (end < 0 || fstat(fd_, &info) != 0 || info.st_size != end) return;
  const off_t begin = end - static_cast<off_t>(bytes);
  if (ftruncate(fd_, begin) == 0) lseek(fd_, begin, SEEK_SET);
}

Status Output::Finish() {
  if (owned_ && regular_ && fsync(fd_) != 0 && errno != EINVAL) return Failure(errno);
  return Status();
}

}  // namespace minisgl
