// Properties of the terminal, and signals as flags for an event loop.
//
// SignalWatch: while an instance exists, SIGINT, SIGTERM, SIGHUP and SIGWINCH only set flags and
// make fd() readable; the loop decides what to do. At most one instance at a time. All functions
// are called by one thread.
#pragma once

#include <string>
#include <string_view>

namespace minisgl::term {

bool IsTerminal(int fd);
// True for a terminal that can move its cursor: TERM is set and is not "dumb".
bool IsCapableTerminal(int fd);
// True if the system has a description (terminfo) of the terminal `term`, a value of TERM.
bool HasDescription(const std::string& term);
// True if colours may be used on `fd`: a capable terminal, and NO_COLOR is not set.
bool AllowsColour(int fd);
// Width of the terminal on `fd` at this moment, or COLUMNS of the environment; 80 if neither is
// known.
int TerminalColumns(int fd);
// Returns `text` in faint letters with the style reset at its end, because output may stop
// anywhere.
std::string Dimmed(std::string_view text);

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Readable after a signal until Drain().
  int fd() const;
  void Drain();
  // True if SIGINT was received since the last call.
  bool TakeInterrupt();
  // True if the terminal's size changed since the last call.
  bool TakeResize();
  // Returns SIGTERM or SIGHUP if one was received, else 0.
  int Terminated() const;

  // Between WatchStops and LeaveStops, SIGTSTP and SIGCONT only set flags as well, so that a
  // program that changed the terminal's settings can restore them first. LeaveStops stops the
  // process if a stop is still pending.
  void WatchStops();
  void LeaveStops();
  // True if SIGTSTP (TakeStop) or SIGCONT (TakeContinue) was received since the last call.
  bool TakeStop();
  bool TakeContinue();
  // Stops the process like SIGTSTP without a watch; returns after it continues, or at once if no
  // shell could continue it. REQUIRES WatchStops.
  void StopProcess();
};

}  // namespace minisgl::term
