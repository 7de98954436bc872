#include "minisgl/base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "minisgl/base/check.h"

extern char** environ;

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;

// Upper bound on the time between two questions whether to stop, and on the delay of the child's
// end if the system has no file descriptor for it.
constexpr std::chrono::milliseconds kAskEvery{20};

// A file descriptor that is closed at the end.
class OwnedFd {
 public:
  OwnedFd() = default;
  ~OwnedFd() { Close(); }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  void Set(int fd) {
    Close();
    fd_ = fd;
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct ChildPipe {
  OwnedFd read_end, write_end;
  // Sets errno and returns false if there is no pipe.
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end.Set(ends[0]);
    write_end.Set(ends[1]);
    return true;
  }
};

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// While one exists, a pipe without a reader gives this thread an error and no signal.
class PipeSignalGuard {
 public:
  PipeSignalGuard() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalGuard() {
    const timespec now = {0, 0};
    if (!was_pending_) {
      while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalGuard(const PipeSignalGuard&) = delete;
  PipeSignalGuard& operator=(const PipeSignalGuard&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

// Starts the program with the three pipes as its standard streams. Returns 0 or an errno.
int Spawn(const std::vector<std::string>& words, const ChildPipe& in, const ChildPipe& out,
          const ChildPipe& err, pid_t* pid) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int failure = posix_spawnp(pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failure;
}

// A running child and this process's ends of its pipes.
class Child {
 public:
  Child(pid_t pid, std::string_view input, const ChildLimits& limits, ChildResult* result)
      : pid_(pid), input_(input), limits_(limits), result_(*result) {
#ifdef SYS_pidfd_open
    end_.Set(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
#endif
  }

  // Passes bytes on until the child has ended or must be killed.
  void Serve(ChildPipe* in, ChildPipe* out, ChildPipe* err, const std::function<bool()>& stops) {
    for (const int fd : {in->write_end.get(), out->read_end.get(), err->read_end.get()}) {
      SetNonBlocking(fd);
    }
    const Clock::time_point deadline = Clock::now() + limits_.time;
    Write(&in->write_end);
    while (!HasEnded()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return End(ChildResult::End::kTimedOut);
      if (stops && stops()) return End(ChildResult::End::kStopped);
      std::array<pollfd, 4> waits = {{{in->write_end.get(), POLLOUT, 0},
                                      {out->read_end.get(), POLLIN, 0},
                                      {err->read_end.get(), POLLIN, 0},
                                      {end_.get(), POLLIN, 0}}};
      poll(waits.data(), waits.size(), static_cast<int>(std::min(left, kAskEvery).count()));
      if (waits[0].revents != 0) Write(&in->write_end);
      if (waits[1].revents != 0) Read(&out->read_end, /*is_output=*/true);
      if (waits[2].revents != 0) Read(&err->read_end, /*is_output=*/false);
    }
  }

  // Kills what is left of the group, and sets the end of the child. REQUIRES Serve().
  void Reap(ChildPipe* out, ChildPipe* err) {
    // The child is not waited for yet, so no other group can have its number.
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    // What is written is in the pipes. A process outside the group may keep them open.
    Read(&out->read_end, /*is_output=*/true);
    Read(&err->read_end, /*is_output=*/false);
    if (is_ended_by_us_) return;
    const bool signalled = WIFSIGNALED(status);
    result_.end = signalled ? ChildResult::End::kSignalled : ChildResult::End::kExited;
    result_.code = signalled ? WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  void End(ChildResult::End end) {
    result_.end = end;
    is_ended_by_us_ = true;
  }

  bool HasEnded() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }

  // Writes what the pipe takes, and closes it behind the last byte or if there is no reader.
  void Write(OwnedFd* fd) {
    while (fd->get() >= 0 && !input_.empty()) {
      const ssize_t written = write(fd->get(), input_.data(), input_.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) return;
      if (written < 0) break;
      input_.remove_prefix(static_cast<size_t>(written));
    }
    fd->Close();
  }

  // Reads what is there, in bounded pieces: a child that writes without end does not keep this
  // process from its deadline.
  void Read(OwnedFd* fd, bool is_output) {
    constexpr int kPiecesAtOnce = 64;
    std::array<char, 16384> piece;
    for (int i = 0; i < kPiecesAtOnce && fd->get() >= 0; ++i) {
      const ssize_t got = read(fd->get(), piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return fd->Close();
      Keep({piece.data(), static_cast<size_t>(got)}, is_output);
    }
  }

  void Keep(std::string_view bytes, bool is_output) {
    std::string& kept = is_output ? result_.output : result_.errors;
    const size_t room = (is_output ? limits_.output_max : limits_.errors_max) - kept.size();
    if (is_output && bytes.size() > room) result_.output_cut = true;
    kept += bytes.substr(0, room);
  }

  const pid_t pid_;
  std::string_view input_;  // what is not written yet
  const ChildLimits& limits_;
  ChildResult& result_;
  OwnedFd end_;  // readable after the child's end; none on old systems
  bool is_ended_by_us_ = false;
};

}  // namespace

ChildResult RunChild(const std::vector<std::string>& words, std::string_view input,
                     const ChildLimits& limits, const std::function<bool()>& stops) {
  MINISGL_CHECK(!words.empty(), "a child process without a program");
  ChildResult result;
  ChildPipe in, out, err;
  pid_t pid = -1;
  const bool has_pipes = in.Open() && out.Open() && err.Open();
  const int failure = has_pipes ? Spawn(words, in, out, err, &pid) : errno;
  if (failure != 0) {
    result.end = ChildResult::End::kNotStarted;
    result.code = failure;
    return result;
  }
  in.read_end.Close();
  out.write_end.Close();
  err.write_end.Close();
  const PipeSignalGuard guard;
  Child child(pid, input, limits, &result);
  child.Serve(&in, &out, &err, stops);
  child.Reap(&out, &err);
  return result;
}

}  // namespace minisgl
