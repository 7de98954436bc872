#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace minisgl {
namespace {

std::atomic<int> g_stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a handler may use nothing that locks");

void OnSignal(int signal_number) {
  int expected = 0;
  if (!g_stop_signal.compare_exchange_strong(expected, signal_number)) _exit(128 + signal_number);
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;  // without SA_RESTART: a wait for input ends
  for (int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal_number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // as nohup asks
    sigaction(signal_number, &action, nullptr);
  }
}

int StopSignal() { return g_stop_signal.load(); }

}  // namespace minisgl
