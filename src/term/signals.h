// SIGINT, SIGTERM and SIGHUP as a request to stop in order: the first is noted, the second leaves
// two seconds to write what is finished, the third ends the program where it is.
#pragma once

namespace minisgl::term {

// Call once everything is loaded; until then a signal ends the program, as anywhere.
void InstallStopSignals();

// The first signal that came, 0 while none has.
int StopSignal();

// Whether a second came: nothing more is to be waited for.
bool StopsAtOnce();

// A wish that a run end before its input does.
struct StopRequest {
  int reason = 0;        // a signal's number; 0: there is no such wish
  bool at_once = false;  // what was asked is not waited for either
};

// The process's signals as one.
StopRequest StopOfProcess();

}  // namespace minisgl::term
