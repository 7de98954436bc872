#include "term/output.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "minisgl/base/file_io.h"
#include "minisgl/base/utf8.h"
#include "term/exit_status.h"
#include "term/messages.h"
#include "term/terminal_filter.h"

namespace minisgl::term {
namespace {

// Upper bound on the answers that a power failure loses.
constexpr std::chrono::seconds kSyncInterval(1);
constexpr mode_t kOutputMode = 0666;

}  // namespace

// Thread that syncs a file once a second while it has new data.
class Output::Syncer {
 public:
  explicit Syncer(int fd) : fd_(fd) {
    // Block signals here, so that they are delivered to threads that handle them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { Loop(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Syncer() {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wakes_.notify_one();
    thread_.join();
  }

  void NoteWrite() { has_news_ = true; }
  // An errno if the file cannot be relied on, else 0. ENOENT: the file was removed.
  int error() const { return error_; }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (!wakes_.wait_for(lock, kSyncInterval, [this] { return ends_; })) {
      lock.unlock();
      Sync();
      lock.lock();
    }
  }
  void Sync() {
    struct stat info {};
    if (fstat(fd_, &info) == 0 && info.st_nlink == 0) error_ = ENOENT;
    if (has_news_.exchange(false) && !SyncFile(fd_)) error_ = errno;
  }

  const int fd_;
  std::atomic<bool> has_news_{false};
  std::atomic<int> error_{0};
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool ends_ = false;
  std::thread thread_;
};

Output::Output() = default;

Output::~Output() {
  syncer_.reset();
  if (owned_ && fd_ >= 0) close(fd_);
}

Result<std::unique_ptr<Output>> Output::Open(const std::string& path, bool force, int input_fd) {
  return Open(path, force ? OldRows::kReplace : OldRows::kRefuse, input_fd);
}

Result<std::unique_ptr<Output>> Output::OpenToAppend(const std::string& path, int input_fd) {
  return Open(path, OldRows::kKeep, input_fd);
}

Result<std::unique_ptr<Output>> Output::Open(const std::string& path, OldRows old_rows,
                                             int input_fd) {
  std::unique_ptr<Output> output(new Output());
  const bool is_stdout = path.empty() || path == "-";
  output->owned_ = !is_stdout;
  output->old_rows_ = old_rows;
  output->path_ = is_stdout ? "" : path;
  output->name_ = is_stdout ? "standard output" : Visible(path, 400);
  if (is_stdout) {
    output->fd_ = STDOUT_FILENO;
  } else {
    MINISGL_ASSIGN_OR_RETURN(const OpenedFile file, OpenToWrite(path, O_APPEND, kOutputMode));
    output->fd_ = file.fd;
    output->is_new_ = file.is_new;
    output->has_name_ = file.has_name;
  }
  struct stat info {};
  if (fstat(output->fd_, &info) != 0) {
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
                      "{}: is the file that rows are read from; write to another file",
                      output->name_);
  }
  if (output->owned_) MINISGL_RETURN_IF_ERROR(output->Lock());
  if (output->owned_ && info.st_size > 0 && old_rows == OldRows::kRefuse) {
    return MakeStatus(StatusCode::kCannotCreate, "{}: is not empty ({} bytes); --force replaces it",
                      output->name_, info.st_size);
  }
  return output;
}

// Two runs that write one file would answer each row twice. A file system without locks is used
// without.
Status Output::Lock() const {
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return Status();
  return MakeStatus(StatusCode::kCannotCreate,
                    "{}: is already being written, by another run or for another option; choose "
                    "another file, or wait",
                    name_);
}

bool Output::IsSameFileAs(const Output& other) const {
  struct stat mine {
  }, others{};
  return regular_ && fstat(fd_, &mine) == 0 && fstat(other.fd_, &others) == 0 &&
         mine.st_dev == others.st_dev && mine.st_ino == others.st_ino;
}

Status Output::Failure(int error) {
  pipe_closed_ = error == EPIPE;
  return MakeStatus(StatusCode::kIoError, "{}: cannot be written ({})", name_,
                    error == ENOENT ? "it was removed meanwhile" : std::strerror(error));
}

int Output::ExitAfter(const Status& status) const {
  if (status.ok()) return 0;
  return pipe_closed_ ? kExitPipeClosed : Fail(status);
}

Status Output::Begin() {
  if (!is_regular_file()) return Status();
  if (old_rows_ != OldRows::kKeep && ftruncate(fd_, 0) != 0) return Failure(errno);
  if (is_new_) MINISGL_RETURN_IF_ERROR(SyncNameOf(path_));
  syncer_ = std::make_unique<Syncer>(fd_);
  return Status();
}

Status Output::Reopen() {
  syncer_.reset();
  MINISGL_ASSIGN_OR_RETURN(const OpenedFile file, OpenToWrite(path_, O_APPEND, kOutputMode));
  close(fd_);
  fd_ = file.fd;
  return Lock();
}

Status Output::Write(std::string_view text) {
  return is_terminal_ ? WriteShown(FilterForTerminal(text)) : WriteShown(text);
}

Status Output::WriteShown(std::string_view text) {
  if (syncer_ != nullptr && syncer_->error() != 0) return Failure(syncer_->error());
  size_t written = 0;
  if (WriteAll(fd_, text, &written)) {
    if (syncer_ != nullptr) syncer_->NoteWrite();
    return Status();
  }
  const int error = errno;
  if (regular_ && written > 0) TakeBack(written);
  return Failure(error);
}

// Truncates only the end of the file, and only if no other process has written after it.
void Output::TakeBack(size_t bytes) {
  struct stat info {};
  const off_t end = lseek(fd_, 0, SEEK_CUR);
  if (end < 0 || fstat(fd_, &info) != 0 || info.st_size != end) return;
  const off_t begin = end - static_cast<off_t>(bytes);
  if (ftruncate(fd_, begin) == 0) lseek(fd_, begin, SEEK_SET);
}

bool Output::WouldBlock(std::chrono::milliseconds timeout) const {
  pollfd wait = {fd_, POLLOUT, 0};
  return !regular_ && poll(&wait, 1, static_cast<int>(timeout.count())) == 0;
}

Status Output::Finish() {
  if (!is_regular_file()) return Status();
  syncer_.reset();
  struct stat info {};
  if (fstat(fd_, &info) == 0 && info.st_nlink == 0) return Failure(ENOENT);
  return SyncFile(fd_) ? Status() : Failure(errno);
}

}  // namespace minisgl::term
