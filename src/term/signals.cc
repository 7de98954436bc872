#include "term/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "term/exit_status.h"

namespace minisgl::term {
namespace {

std::atomic<int> g_stop_signal{0};
std::atomic<int> g_num_signals{0};
static_assert(std::atomic<int>::is_always_lock_free, "a handler may use nothing that locks");

// Time to finish writing after the second signal if a disk or a reader is slow.
constexpr unsigned kLeaving_s = 2;

void OnStopSignal(int signal_number) {
  int none = 0;
  g_stop_signal.compare_exchange_strong(none, signal_number);
  const int count = ++g_num_signals;
  if (count == 2) alarm(kLeaving_s);
  if (count > 2) _exit(kExitSignalBase + signal_number);
}

void OnAlarm(int) { _exit(kExitSignalBase + g_stop_signal.load()); }

}  // namespace

void InstallStopSignals() {
  struct sigaction alarm_action {};
  alarm_action.sa_handler = OnAlarm;
  sigaction(SIGALRM, &alarm_action, nullptr);
  struct sigaction action {};
  action.sa_handler = OnStopSignal;  // without SA_RESTART, so that reads of input are interrupted
  for (int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal_number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // stays ignored, as nohup requires
    sigaction(signal_number, &action, nullptr);
  }
}

int StopSignal() { return g_stop_signal.load(); }

bool StopsAtOnce() { return g_num_signals.load() > 1; }

StopRequest StopOfProcess() { return {StopSignal(), StopsAtOnce()}; }

}  // namespace minisgl::term
