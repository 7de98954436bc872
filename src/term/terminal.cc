#include "term/terminal.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "minisgl/base/check.h"
#include "minisgl/base/environment.h"
#include "minisgl/base/parse_number.h"

namespace minisgl::term {
namespace {

constexpr std::array<int, 4> kWatched = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};

// Written by signal handlers: restricted to types that are safe there.
volatile sig_atomic_t g_interrupted = 0;
volatile sig_atomic_t g_terminated = 0;
volatile sig_atomic_t g_resized = 0;
volatile sig_atomic_t g_stopped = 0;
volatile sig_atomic_t g_continued = 0;
int g_wake_pipe[2] = {-1, -1};
struct sigaction g_previous[kWatched.size()];

void OnSignal(int signal_number) {
  const int saved_errno = errno;
  if (signal_number == SIGINT) {
    g_interrupted = 1;
  } else if (signal_number == SIGWINCH) {
    g_resized = 1;
  } else if (signal_number == SIGTSTP) {
    g_stopped = 1;
  } else if (signal_number == SIGCONT) {
    g_continued = 1;
  } else {
    g_terminated = signal_number;
  }
  // If the pipe is full, it is readable already.
  [[maybe_unused]] const ssize_t written = write(g_wake_pipe[1], "", 1);
  errno = saved_errno;
}

// Leaves ignored signals ignored, as nohup, background jobs and shells without job control expect.
void Handle(int signal_number, void (*handler)(int)) {
  struct sigaction before {};
  sigaction(signal_number, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;  // no SA_RESTART: a read at the prompt must return
  sigemptyset(&action.sa_mask);
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

bool IsTerminal(int fd) { return isatty(fd) != 0; }

bool IsCapableTerminal(int fd) {
  const char* term = std::getenv("TERM");
  return IsTerminal(fd) && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

bool HasDescription(const std::string& term) {
  if (term.empty() || term.find('/') != std::string::npos) return false;
  const std::string home = EnvironmentVariable("HOME");
  std::string folders = EnvironmentVariable("TERMINFO") + ":" +
                        (home.empty() ? "" : home + "/.terminfo") + ":" +
                        EnvironmentVariable("TERMINFO_DIRS") +
                        ":/etc/terminfo:/lib/terminfo:/usr/share/terminfo:/usr/lib/terminfo:"
                        "/usr/local/share/terminfo:";
  for (size_t end = 0; !folders.empty(); folders.erase(0, end + 1)) {
    end = folders.find(':');
    const std::string folder = folders.substr(0, end);
    if (folder.empty()) continue;
    // Below the first letter of the name or, where case does not count, its code.
    for (const std::string& letter :
         {term.substr(0, 1), fmt::format("{:02x}", static_cast<unsigned char>(term[0]))}) {
      if (access((folder + "/" + letter + "/" + term).c_str(), R_OK) == 0) return true;
    }
  }
  return false;
}

bool AllowsColour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return IsCapableTerminal(fd) && (no_colour == nullptr || *no_colour == '\0');
}

// SGR 2, and 22 for neither bold nor faint (ECMA-48).
int TerminalColumns(int fd) {
  constexpr int kUsualColumns = 80;
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* given = std::getenv("COLUMNS");
  const int columns = ParseNumber<int>(given == nullptr ? "" : given).value_or(0);
  return columns > 0 ? columns : kUsualColumns;
}

std::string Dimmed(std::string_view text) {
  return std::string("\x1b[2m").append(text).append("\x1b[22m");
}

SignalWatch::SignalWatch() {
  MINISGL_CHECK(g_wake_pipe[0] < 0, "only one SignalWatch may exist");
  MINISGL_CHECK(pipe2(g_wake_pipe, O_CLOEXEC | O_NONBLOCK) == 0, "pipe2 failed: errno {}", errno);
  g_interrupted = 0;
  g_terminated = 0;
  g_resized = 0;
  for (size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i], nullptr, &g_previous[i]);
    Handle(kWatched[i], OnSignal);
  }
}

SignalWatch::~SignalWatch() {
  for (size_t i = 0; i < kWatched.size(); ++i) sigaction(kWatched[i], &g_previous[i], nullptr);
  close(g_wake_pipe[0]);
  close(g_wake_pipe[1]);
  g_wake_pipe[0] = g_wake_pipe[1] = -1;
}

int SignalWatch::fd() const { return g_wake_pipe[0]; }

void SignalWatch::Drain() {
  char bytes[64];
  while (read(g_wake_pipe[0], bytes, sizeof bytes) > 0) {
  }
}

bool SignalWatch::TakeInterrupt() {
  const bool interrupted = g_interrupted != 0;
  g_interrupted = 0;
  return interrupted;
}

bool SignalWatch::TakeResize() {
  const bool resized = g_resized != 0;
  g_resized = 0;
  return resized;
}

void SignalWatch::WatchStops() {
  g_stopped = 0;
  g_continued = 0;
  Handle(SIGTSTP, OnSignal);
  Handle(SIGCONT, OnSignal);
}

void SignalWatch::LeaveStops() {
  Handle(SIGTSTP, SIG_DFL);
  Handle(SIGCONT, SIG_DFL);
  if (TakeStop()) raise(SIGTSTP);
}

bool SignalWatch::TakeStop() {
  const bool stopped = g_stopped != 0;
  g_stopped = 0;
  return stopped;
}

bool SignalWatch::TakeContinue() {
  const bool continued = g_continued != 0;
  g_continued = 0;
  return continued;
}

void SignalWatch::StopProcess() {
  Handle(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);
  Handle(SIGTSTP, OnSignal);
  g_continued = 0;  // it belongs to this stop
}

int SignalWatch::Terminated() const { return g_terminated; }

}  // namespace minisgl::term
