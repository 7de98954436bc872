#include "pty_process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;

// After this time a program counts as hung. Nothing takes that long normally, but a slow, busy
// machine that checks every memory access may need a minute.
constexpr std::chrono::seconds kPatience(240);

[[noreturn]] void Execute(const std::string& program, const std::vector<std::string>& args) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  // The parent may ignore signals (nohup does), which a program inherits.
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) signal(signal_number, SIG_DFL);
  execv(program.c_str(), argv.data());
  _exit(127);
}

int ExitStatusOf(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::string Slurp(FILE* file) {
  std::string text;
  rewind(file);
  char buffer[4096];
  for (size_t got = 0; (got = fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, got);
  fclose(file);
  return text;
}

}  // namespace

std::string ProgramPath() {
  if (const char* given = getenv("MINISGL_BINARY"); given != nullptr) return given;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = self.parent_path() / ".." / "src" / "cli" / "minisgl";
  return !error && std::filesystem::exists(path, error) ? path.string() : "";
}

PtyProcess::PtyProcess(const std::vector<std::string>& args,
                       const std::map<std::string, std::string>& environment,
                       const std::string& program) {
  winsize size{};
  size.ws_row = 50;
  size.ws_col = 200;  // wide enough that typed text stays on one line
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ == 0) {
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    Execute(program, args);
  }
}

PtyProcess::~PtyProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (fd_ >= 0) close(fd_);
}

// The terminal's input queue is small, so output is read between parts of the input.
void PtyProcess::Send(const std::string& bytes) {
  const int flags = fcntl(fd_, F_GETFL);
  fcntl(fd_, F_SETFL, flags | O_NONBLOCK);
  size_t sent = 0;
  const auto deadline = Clock::now() + kPatience;
  while (sent < bytes.size() && Clock::now() < deadline) {
    const ssize_t written =
        write(fd_, bytes.data() + sent, std::min<size_t>(bytes.size() - sent, 1024));
    if (written > 0) {
      sent += static_cast<size_t>(written);
    } else if (!Read(5)) {
      break;
    }
  }
  fcntl(fd_, F_SETFL, flags);
}

void PtyProcess::Signal(int signal_number) const { kill(pid_, signal_number); }

void PtyProcess::Stop() const {
  Signal(SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
}

void PtyProcess::Resize(int columns) const {
  winsize size{};
  size.ws_row = 50;
  size.ws_col = static_cast<unsigned short>(columns);
  ioctl(fd_, TIOCSWINSZ, &size);
}

void PtyProcess::SetLineMode() const {
  termios settings{};
  tcgetattr(fd_, &settings);
  settings.c_lflag |= ICANON | ECHO;
  tcsetattr(fd_, TCSANOW, &settings);
}

bool PtyProcess::IsInLineMode() const {
  termios settings{};
  return tcgetattr(fd_, &settings) == 0 && (settings.c_lflag & ICANON) != 0;
}

void PtyProcess::HangUp() {
  close(fd_);
  fd_ = -1;
}

bool PtyProcess::Read(int timeout_ms) {
  pollfd wait = {fd_, POLLIN, 0};
  if (poll(&wait, 1, timeout_ms) <= 0) return true;
  char buffer[4096];
  const ssize_t got = read(fd_, buffer, sizeof buffer);
  if (got > 0) output_.append(buffer, static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

int PtyProcess::FirstOf(const std::vector<std::string>& texts, size_t* end) const {
  int first = -1;
  size_t first_at = std::string::npos;
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t at = output_.find(texts[i], seen_);
    if (at >= first_at) continue;
    first = static_cast<int>(i);
    first_at = at;
    *end = at + texts[i].size();
  }
  return first;
}

int PtyProcess::WaitForOneOf(const std::vector<std::string>& texts) {
  const auto deadline = Clock::now() + kPatience;
  bool open = true;
  while (true) {
    if (const int first = FirstOf(texts, &seen_); first >= 0) return first;
    if (!open || Clock::now() > deadline) return -1;
    open = Read(50);
  }
}

void PtyProcess::ReadFor(double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < deadline && Read(5)) {
  }
}

// The terminal passes on the last bytes in its own time: until none have come for a while, however
// late this process looks.
void PtyProcess::ReadRest() {
  for (size_t before = output_.size() + 1; before != output_.size();) {
    before = output_.size();
    if (!Read(100)) return;
  }
}

int PtyProcess::WaitForExit() {
  const auto deadline = Clock::now() + kPatience;
  bool open = true;
  while (Clock::now() < deadline) {
    if (open) open = Read(20);
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      for (size_t before = output_.size() + 1; open && before != output_.size();) {
        before = output_.size();
        open = Read(20);
      }
      pid_ = -1;
      return ExitStatusOf(status);
    }
    if (!open) usleep(10000);
  }
  return -1;
}

PipedResult RunPiped(const std::vector<std::string>& args,
                     const std::optional<std::string>& input) {
  FILE* out = tmpfile();
  FILE* err = tmpfile();
  int pipe_fds[2];
  if (out == nullptr || err == nullptr || pipe(pipe_fds) != 0) return {};
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(pipe_fds[0], STDIN_FILENO);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    if (!input) close(STDIN_FILENO);
    alarm(static_cast<unsigned>(kPatience.count()));
    Execute(ProgramPath(), args);
  }
  close(pipe_fds[0]);
  const std::string text = input.value_or("");
  [[maybe_unused]] const ssize_t written = write(pipe_fds[1], text.data(), text.size());
  close(pipe_fds[1]);
  int status = 0;
  waitpid(pid, &status, 0);
  return {ExitStatusOf(status), Slurp(out), Slurp(err)};
}

}  // namespace minisgl
