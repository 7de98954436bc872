#include "cli/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "minisgl/base/check.h"

namespace minisgl {
namespace {

constexpr std::array<int, 4> kWatched = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};

// Written by the handler: only what a handler may touch.
volatile sig_atomic_t g_interrupted = 0;
volatile sig_atomic_t g_terminated = 0;
volatile sig_atomic_t g_resized = 0;
int g_wake_pipe[2] = {-1, -1};
struct sigaction g_previous[kWatched.size()];

void OnSignal(int signal_number) {
  const int saved_errno = errno;
  if (signal_number == SIGINT) {
    g_interrupted = 1;
  } else if (signal_number == SIGWINCH) {
    g_resized = 1;
  } else {
    g_terminated = signal_number;
  }
  // A full pipe is readable already.
  [[maybe_unused]] const ssize_t written = write(g_wake_pipe[1], "", 1);
  errno = saved_errno;
}

}  // namespace

bool IsTerminal(int fd) { return isatty(fd) != 0; }

bool IsCapableTerminal(int fd) {
  const char* term = std::getenv("TERM");
  return IsTerminal(fd) && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

bool AllowsColour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return IsCapableTerminal(fd) && (no_colour == nullptr || *no_colour == '\0');
}

// SGR 2, and 22 for neither bold nor faint (ECMA-48).
std::string Dimmed(std::string_view text) {
  return std::string("\x1b[2m").append(text).append("\x1b[22m");
}

SignalWatch::SignalWatch() {
  MINISGL_CHECK(g_wake_pipe[0] < 0, "two watches at a time");
  MINISGL_CHECK(pipe2(g_wake_pipe, O_CLOEXEC | O_NONBLOCK) == 0, "no pipe: errno {}", errno);
  g_interrupted = 0;
  g_terminated = 0;
  g_resized = 0;
  struct sigaction action {};
  action.sa_handler = OnSignal;  // no SA_RESTART: a read at the prompt returns
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i], nullptr, &g_previous[i]);
    // nohup and background jobs ignore some; they stay ignored.
    if (g_previous[i].sa_handler != SIG_IGN) sigaction(kWatched[i], &action, nullptr);
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

int SignalWatch::Terminated() const { return g_terminated; }

}  // namespace minisgl
