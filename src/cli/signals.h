// SIGINT, SIGTERM and SIGHUP as a request to stop in order: the first is noted, a second ends the
// program at once.
#pragma once

namespace minisgl {

// Call once everything is loaded; until then a signal ends the program, as anywhere.
void InstallStopSignals();

// The first signal that came, 0 while none has.
int StopSignal();

}  // namespace minisgl
