// What the terminal is and allows, and signals as flags that a loop can look at.
//
// SignalWatch: while one lives, SIGINT, SIGTERM, SIGHUP and SIGWINCH only set flags and make fd()
// readable; what they mean is decided where the program waits. One at a time; all calls but the
// signals themselves come from one thread.
#pragma once

#include <string>
#include <string_view>

namespace minisgl::term {

bool IsTerminal(int fd);
// A terminal that can move its cursor: not TERM=dumb, not without TERM.
bool IsCapableTerminal(int fd);
// Colours may be shown on `fd`: a capable terminal, and NO_COLOR not set.
bool AllowsColour(int fd);
// `text` in faint letters, and what follows it as before: an answer may be cut off anywhere.
std::string Dimmed(std::string_view text);

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Readable once a signal came; Drain() makes it quiet again.
  int fd() const;
  void Drain();
  // Whether SIGINT came since the last call.
  bool TakeInterrupt();
  // Whether the terminal's size changed since the last call.
  bool TakeResize();
  // SIGTERM or SIGHUP where one came, else 0.
  int Terminated() const;

  // From WatchStops to LeaveStops SIGTSTP and SIGCONT only set flags as well: for who has set the
  // terminal and wants to set it back first. LeaveStops stops the process if a stop was not taken.
  void WatchStops();
  void LeaveStops();
  // Whether SIGTSTP, or SIGCONT, came since the last call.
  bool TakeStop();
  bool TakeContinue();
  // Stops the process as SIGTSTP does without a watch, and returns once it goes on; at once where
  // there is no shell that could let it. REQUIRES WatchStops.
  void StopProcess();
};

}  // namespace minisgl::term
