// Turns SIGINT, SIGTERM and SIGHUP into requests to stop: the first requests an orderly stop; the
// second leaves two seconds to write finished answers; the third kills the program.
#pragma once

namespace minisgl::term {

// Call after everything is loaded; until then a signal kills the program as usual.
void InstallStopSignals();

// Returns the first signal received, or 0.
int StopSignal();

// True if a second signal was received: do not wait for anything more.
bool StopsAtOnce();

// A request to end a run before the end of its input.
struct StopRequest {
  int reason = 0;        // number of the signal; 0: no request
  bool at_once = false;  // do not wait for running requests either
};

// The stop request from the signals of the process.
StopRequest StopOfProcess();

}  // namespace minisgl::term
